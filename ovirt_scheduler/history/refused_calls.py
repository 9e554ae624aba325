"""Makes the record of a call that was refused: what it asked for, and why it got no answer."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping

from ovirt_scheduler.history import query
from ovirt_scheduler.history.conversion import shown_properties
from ovirt_scheduler.history.record import NOT_ASKED, Record, UnitRecord, entity
from ovirt_scheduler.model.drivers import COST_FUNCTIONS, FILTERS, listed_units
from ovirt_scheduler.model.jobs import RefusedCall
from ovirt_scheduler.model.requests import LONGEST_ID, is_document
from ovirt_scheduler.model.units import LONGEST_NAME, MOST_UNITS, Kind

_MOST_HOSTS = 10_000
_SCHEDULER = "scheduler"
_FACTOR = re.compile("-?[0-9]{1,10}")

_BYTES = 200  # of a host's id, or of a unit

Arguments = Mapping[str, object]  # by name, of whatever type the caller gave


def record(refusal: RefusedCall) -> Record:
    """The record of a refused call. Documents are not read for it."""
    caller, arguments = refusal.caller, refusal.arguments
    hosts, vm, custom = (arguments.get(name) for name in ("hosts", "vm", "properties"))
    properties: dict[str, str] = {}
    if isinstance(custom, dict):
        properties = {key: value for key, value in custom.items() if isinstance(value, str)}
    ids = [host for host in hosts if _is_id(host)] if isinstance(hosts, list) else []
    refused: Record = {
        "id": caller.decision,
        "time": query.written(time.time() - refusal.seconds),
        "milliseconds": round(refusal.seconds * 1000, 2),
        "caller": caller.peer,
        "method": refusal.method,
        "form": caller.form.value,
        "units": _units(arguments, properties),
        "hosts": [entity(host, "") for host in dict.fromkeys(ids[:_MOST_HOSTS])],
        "fault": refusal.fault,
        "errors": [refusal.message],
    }
    if _is_id(vm):
        refused["vm"] = entity(str(vm), "")
    if properties:
        refused["properties"] = shown_properties(properties)
    return refused


def size(record: Record) -> int:
    """About how many bytes of memory a record of a refused call takes."""
    texts = [*record["errors"], *itertools.chain(*record.get("properties", {}).items())]
    return sum(map(len, texts)) + _BYTES * (len(record["hosts"]) + len(record["units"]))


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_ID and not is_document(value)


def _units(arguments: Arguments, properties: Mapping[str, str]) -> list[UnitRecord]:
    """The units that a call names in its parameters; or a scheduler and those in its properties."""
    scheduler = arguments.get(_SCHEDULER)
    if _SCHEDULER in arguments:
        functions = listed_units(properties.get(COST_FUNCTIONS, ""))
        arguments = {
            "filters": listed_units(properties.get(FILTERS, "")),
            "cost_functions": [[*item.partition("=")][::2] for item in functions],
        }
    units = itertools.islice(_policy_units(arguments), MOST_UNITS)
    named = {(unit["kind"], unit["name"]): unit for unit in units}
    last = [_unit(_SCHEDULER, scheduler)] if isinstance(scheduler, str) else []
    return [*named.values(), *last]


def _policy_units(arguments: Arguments) -> Iterator[UnitRecord]:
    filters, functions, balance = map(arguments.get, ("filters", "cost_functions", "balance"))
    if isinstance(functions, dict):
        functions = [[*item] for item in functions.items()]
    for name in filters if isinstance(filters, list) else ():
        yield _unit(Kind.FILTER.label, name)
    for pair in functions if isinstance(functions, list) else ():
        if isinstance(pair, list) and len(pair) == 2:
            unit = _unit(Kind.COST_FUNCTION.label, pair[0])
            factor = _FACTOR.fullmatch(str(pair[1]).strip())
            yield {**unit, "factor": 1 if factor is None else int(factor[0])}
    if balance is not None:
        yield _unit(Kind.BALANCE.label, balance)


def _unit(kind: str, name: object) -> UnitRecord:
    why = "the call was refused"
    shown = str(name)[:LONGEST_NAME]
    return {"name": shown, "kind": kind, "outcome": NOT_ASKED, "message": why, "mode": "live"}
