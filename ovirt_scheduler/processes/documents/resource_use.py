"""The use of a host or a VM, computed from its state (``serialization``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Optional, Union

from ovirt_scheduler.model.values.statistics import busy_percent, used_memory
from ovirt_scheduler.processes.documents.packing import State

Number = Union[int, float]

_MOST = 1 << 62  # of any amount; a larger one in a document counts as this


def of_host(host: State) -> list[Number]:
    """Processors and how many are busy, memory and how much is used, in bytes.

    If the use of processors or of memory is not known, their total is 0.
    """
    statistics = _statistics(host)
    percent = busy_percent(statistics)
    processors = 0 if percent is None else _processors(host)
    busy = (percent or 0.0) / 100 * processors
    memory, room = _amount(host, "_memory"), "_max_scheduling_memory"
    used = used_memory(statistics, memory, _amount(host, room) if room in host else None)
    return [processors, busy, *((0, 0) if used is None else (memory, used))]


def of_vm(vm: State) -> list[Number]:
    """Processors, memory in bytes, and how many processors are busy, if that is known."""
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
    """The latest datum of each statistic that is an amount, by name."""
    data = latest(state.get("_statistics"))
    return {name: datum for name, datum in data.items() if 0 <= datum <= _MOST}  # nan is not


def latest(statistics: Optional[Sequence[Any]]) -> dict[str, float]:
    """The latest datum of each of a host's or VM's statistics, by name.

    Args:
        statistics: the state of their list.
    """
    data: dict[str, float] = {}
    for statistic in _members(statistics):
        values = _members(statistic.get("_values"))
        datum = values[0].get("_datum") if values else None
        if "_name" in statistic and datum is not None:
            data[statistic["_name"]] = float(datum)
    return data


def _members(values: Optional[Sequence[Any]]) -> Sequence[Any]:
    """The states in the state of a list."""
    if not values:
        return ()
    return values[2:] if values[0] == "list" else values[1:]
