"""The use of a host or a VM, as far as the engine's document has it.

It reads the state (``serialization``) of one host or VM.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Optional, Union

from ovirt_scheduler.model.values.statistics import busy_percent, used_memory
from ovirt_scheduler.processes.documents.packing import State

Number = Union[int, float]

_MOST = 1 << 62  # of anything; what a document says beyond counts as that


def of_host(host: State) -> list[Number]:
    """Its processors and how many are busy, its memory and how much is used, in bytes.

    If the use of one is not known, its total is 0.
    """
    statistics = _statistics(host)
    percent = busy_percent(statistics)
    processors = 0 if percent is None else _processors(host)
    busy = (percent or 0.0) / 100 * processors
    memory, room = _amount(host, "_memory"), "_max_scheduling_memory"
    used = used_memory(statistics, memory, _amount(host, room) if room in host else None)
    return [processors, busy, *((0, 0) if used is None else (memory, used))]


def of_vm(vm: State) -> list[Number]:
    """Its processors, its memory in bytes, and how many processors are busy, where that is told."""
    busy = _statistics(vm).get("cpu.current.total")
    load = [] if busy is None else [busy / 100]
    return [_processors(vm) or 1, _amount(vm, "_memory"), *load]


def _processors(state: State) -> int:
    topology = state.get("_cpu", {}).get("_topology")
    if topology is None:
        return 0
    parts = (_amount(topology, name) or 1 for name in ("_sockets", "_cores", "_threads"))
    return min(_MOST, math.prod(parts))


def _amount(state: State, name: str) -> int:
    return max(0, min(_MOST, state.get(name) or 0))


def _statistics(state: State) -> dict[str, float]:
    """The latest datum of each statistic, by name, where it is an amount."""
    data = latest(state.get("_statistics"))
    return {name: datum for name, datum in data.items() if 0 <= datum <= _MOST}  # nan is not


def latest(statistics: Optional[Sequence[Any]]) -> dict[str, float]:
    """The latest datum of each of a host's or VM's statistics, by name.

    Args:
        statistics: the state of the list of them.
    """
    found: dict[str, float] = {}
    for each in _members(statistics):
        values = _members(each.get("_values"))
        datum = values[0].get("_datum") if values else None
        if "_name" in each and datum is not None:
            found[each["_name"]] = float(datum)
    return found


def _members(values: Optional[Sequence[Any]]) -> Sequence[Any]:
    """The states in the state of a list."""
    if not values:
        return ()
    return values[2:] if values[0] == "list" else values[1:]
