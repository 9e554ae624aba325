"""What a daemon offers, as ``discover`` and ``getSchedulers`` list it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Optional
from xml.etree import ElementTree

from ovirt_scheduler.command.calls import input_files
from ovirt_scheduler.command.calls.daemon_client import MethodCaller
from ovirt_scheduler.model.drivers import COST_FUNCTIONS, FILTERS, POLICY, listed_units
from ovirt_scheduler.model.requests import AnswerForm
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values import properties

# By their elements in the discover document (contract 2.1).
_KINDS = {"Filter": Kind.FILTER, "CostFunction": Kind.COST_FUNCTION, "Balance": Kind.BALANCE}
_PROPERTY = re.compile(r"(?:^|;)\s*(\w+)=")  # its name


def units(call: MethodCaller) -> list[dict[str, object]]:
    """What ``discover`` says of each unit.

    Args:
        call: calls the daemon.

    Returns:
        Each unit by kind and name, as the document has them: texts by ``name``, ``kind``,
        ``description``, ``properties``, ``defaults`` and ``checksum``; empty where there is none.
    """
    document = str(call(AnswerForm.DESIGN, "discover").answer)
    root = ElementTree.fromstring(document)  # noqa: S314  of a daemon that is trusted
    return [_unit(element) for group in root for element in group]


def _unit(element: ElementTree.Element) -> dict[str, object]:
    """One unit of the discover document (contract 2.1)."""
    return {
        "name": element.get("name") or element.findtext("name"),
        "kind": _KINDS[element.tag].label,
        "description": element.get("description", ""),
        "properties": element.findtext("Properties/CustomProperties") or "",
        "defaults": element.findtext("Properties/default_values") or "",
        "checksum": element.get("checksum", ""),
    }


def unknown_properties(call: MethodCaller, options: argparse.Namespace) -> Iterator[str]:
    """A sentence about each property of a command that nothing which it calls declares.

    Args:
        call: calls the daemon, if the command has properties.
        options: of ``filter``, ``score``, ``balance`` or ``select``.
    """
    values = input_files.pairs(getattr(options, "property", ()))
    if not values:
        return iter(())
    called = [(options.kind, name.partition("=")[0]) for name in options.unit]
    declared_sets: list[Optional[list[str]]] = []
    if options.kind == "select":
        for scheduler in call(AnswerForm.DESIGN, "getSchedulers").answer:
            if scheduler["name"] in options.unit:
                declared_sets += [[each["name"] for each in scheduler["inputs"]]]
        declared_sets += [[POLICY, FILTERS, COST_FUNCTIONS]]
        for kind, key in ((Kind.FILTER, FILTERS), (Kind.COST_FUNCTION, COST_FUNCTIONS)):
            named = listed_units(values.get(key, ""))
            called += [(kind.label, name.partition("=")[0].strip()) for name in named]
    for unit in units(call):
        if (unit["kind"], unit["name"]) in called:
            declared_sets += [_PROPERTY.findall(str(unit["properties"])) or None]
    return properties.unknown(values, declared_sets)
