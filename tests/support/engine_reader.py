"""Reads answers of the engine form as strictly as the engine's parser may ever be.

Anything that contract 3.1 to 3.6 forbids is a ``Forbidden``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PROPERTIES = re.compile(r"([a-zA-Z0-9_]+=[^;]*(;[a-zA-Z0-9_]+=[^;]*)*;?)?")


class Forbidden(AssertionError):
    """The engine would drop this, or take it for something else."""


def _must(condition: object, what: object) -> None:
    if not condition:
        raise Forbidden(what)


def value_of(body: bytes) -> Any:
    """The one value of an answer; only arrays, structs, strings and 32-bit integers."""
    root = ElementTree.fromstring(body)
    _must(root.tag == "methodResponse", root.tag)
    _must(root.find("fault") is None, body)
    (parameter,) = root.findall("params/param")
    (value,) = parameter
    return _value(value)


def _value(element: ElementTree.Element) -> Any:
    _must(element.tag == "value", element.tag)
    if len(element) == 0:
        return element.text or ""
    (typed,) = element
    if typed.tag == "string":
        return typed.text or ""
    if typed.tag in ("int", "i4"):
        number = int(typed.text)
        _must(-(2**31) <= number < 2**31, number)
        return number
    if typed.tag == "array":
        (data,) = typed
        return [_value(item) for item in data]
    if typed.tag == "struct":
        members = [(member.findtext("name"), _value(member.find("value"))) for member in typed]
        _must(len(dict(members)) == len(members), members)
        return dict(members)
    raise Forbidden(f"the type {typed.tag}")


def discovery(body: bytes) -> dict:
    """The answer to ``discover`` (contract 3.1)."""
    value = value_of(body)
    _must(isinstance(value, dict) and set(value) == {"filters", "scores", "balance"}, value)
    for units in value.values():
        _must(isinstance(units, dict), units)
        for name, described in units.items():
            _must(0 < len(name) <= 128, name)
            _must(isinstance(described, list) and len(described) == 2, described)
            _must(all(isinstance(text, str) for text in described), described)
            _must(_PROPERTIES.fullmatch(described[1]), described[1])
    return value


def envelope(body: bytes) -> dict:
    """The envelope round every other answer (contract 3.2)."""
    value = value_of(body)
    _must(isinstance(value, dict), value)
    _must({"result_code", "result"} <= set(value), value)
    _must(set(value) <= {"result_code", "result", "plugin_errors", "errors"}, value)
    told = [key for key in ("plugin_errors", "errors") if key in value]
    _must(value["result_code"] == int(bool(told)), value)
    _must(all(value[key] for key in told), value)
    messages = list(value.get("errors", []))
    for unit, of_unit in value.get("plugin_errors", {}).items():
        _must(unit and isinstance(of_unit, list) and of_unit, of_unit)
        messages += of_unit
    for message in messages:
        _must(isinstance(message, str) and message and "\n" not in message, message)
    return value


def filtered(body: bytes) -> dict:
    """The answer to ``runFilters`` (contract 3.3)."""
    value = envelope(body)
    _ids(value["result"])
    return value


def scored(body: bytes, summed: bool = False) -> dict:
    """The answer to ``runCostFunctions`` (contract 3.4)."""
    value = envelope(body)
    _must(isinstance(value["result"], list), value)
    for entry in value["result"]:
        _must(isinstance(entry, list) and len(entry) == (2 if summed else 3), entry)
        _ids(entry[:1])
        _must(isinstance(entry[1], int), entry)
        _must(summed or isinstance(entry[2], str), entry)
    return value


def best_by_rank(
    scores: Sequence[Sequence[Any]], factors: Mapping[str, int], hosts: Sequence[str]
) -> str:
    """The host that an engine chooses with the selector that ranks (contract 3.4).

    Args:
        scores: ``[host, cost, unit]``; those without a unit's name are one unit of the factor 1.
        factors: of the units.
    """
    by_unit: dict[str, dict[str, int]] = {}
    for host, cost, *unit in scores:
        by_unit.setdefault(unit[0] if unit else "", dict.fromkeys(hosts, 0))[host] = cost
    total = dict.fromkeys(hosts, 0)
    for unit, costs in by_unit.items():
        ranks = sorted({*costs.values()})
        for host, cost in costs.items():
            total[host] += factors.get(unit, 1) * ranks.index(cost)
    return min(total, key=total.__getitem__)


def balanced(body: bytes) -> dict:
    """The answer to ``runLoadBalancing`` (contract 3.5)."""
    value = envelope(body)
    result = value["result"]
    _must(isinstance(result, list) and len(result) == 2, result)
    vm, hosts = result
    _ids(hosts)
    _must((vm == "" and hosts == []) or _UUID.fullmatch(vm), result)
    return value


def _ids(values: Any) -> None:
    _must(isinstance(values, list), values)
    _must(len(set(values)) == len(values), values)
    for value in values:
        _must(isinstance(value, str) and _UUID.fullmatch(value), value)
