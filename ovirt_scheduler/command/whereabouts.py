"""Asks the engine where a VM runs now, for ``why``."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import time
from collections.abc import Sequence
from typing import Optional, cast
from xml.etree.ElementTree import Element, ParseError, fromstring

from ovirt_scheduler.command import arguments
from ovirt_scheduler.engine.client import VM_PATH
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import EngineUnavailable, SchedulerError
from ovirt_scheduler.history import outcomes, placement_explanation
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.model.requests import UUID, Document
from ovirt_scheduler.model.values.text import one_line

_SECONDS = 3.0  # for the engine to say it
_LONGEST = 200  # characters, why it does not


def sentence(options: argparse.Namespace, decisions: Sequence[Record]) -> str:
    """Where the VM of ``options`` runs now, and what its last placement came to there.

    Args:
        options: of ``why``.
        decisions: of that placement, ``explanation.cleaned``.

    Returns:
        Empty if the settings name no engine, or no id of the VM is known.
    """
    vm = _vm_id(decisions, options.vm)
    try:
        engine = arguments.settings(options).engine
        if engine is None or vm is None:
            return ""
        with contextlib.closing(Inventory(engine)) as inventory:
            return printable(_now(inventory, decisions, vm))
    except (SchedulerError, ParseError) as error:
        return printable(f"Where it runs now is not known: {one_line(str(error), _LONGEST)}")


def _vm_id(decisions: Sequence[Record], vm: str) -> Optional[str]:
    """The id by which the engine knows a VM; None if it is not known.

    Args:
        vm: its name or id.
    """
    subjects = [(decision.get("vm", {}), *decision.get("vms", ())) for decision in decisions]
    ids = [each.get("id", "") for each in itertools.chain(*subjects) if vm in each.values()]
    return next(filter(UUID.fullmatch, [*ids, vm]), None)


def _now(inventory: Inventory, decisions: Sequence[Record], vm: str) -> str:
    """Ask the engine.

    Raises:
        EngineUnavailable: it does not say it, or not in time.
        ParseError: it answers with what is no XML.
    """
    deadline = time.monotonic() + _SECONDS
    machine = _entity(inventory, f"{VM_PATH}{vm}", deadline)
    if machine is None:
        return "The engine knows no such VM now."
    place = machine.find("host")
    if place is None:
        return f"It does not run now: it is {machine.findtext('status') or 'not up'}."
    host = place.get("id", "")
    name = outcomes.host_names(decisions).get(host, host)
    if name == host:
        with contextlib.suppress(EngineUnavailable, ParseError):
            entity = _entity(inventory, f"/hosts/{host}", deadline)
            name = host if entity is None else entity.findtext("name") or host
    is_leaving = " It is being migrated." if machine.findtext("status") == "migrating" else ""
    return f"{placement_explanation.place_now(decisions, vm, host, name)}{is_leaving}"


def _entity(inventory: Inventory, path: str, deadline: float) -> Optional[Element]:
    """What the engine says of a VM or a host; None: it knows no such VM."""
    document = cast("Optional[Document]", inventory.document_at(path, deadline))
    return None if document is None else fromstring(document.data)  # noqa: S314  expat's limits hold
