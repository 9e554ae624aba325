"""The amounts in the state of a host or VM (``sdk_entities``): processors, memory, statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Optional

from ovirt_scheduler.processes.documents.packing import EntityState

MOST = 1 << 62  # of any amount; a larger one in a document counts as this
_LONGEST_NAME = 255  # characters


def vm_sizes(vms: Sequence[EntityState]) -> dict[str, list[object]]:
    """What VMs that are to be placed will use: ``decisions.recent_selections`` checks it.

    Returns:
        By id: the name, the id of the host that it runs on, processors, memory in bytes.
    """
    return {
        vm.get("_id") or "": [
            (vm.get("_name") or "")[:_LONGEST_NAME],
            (vm.get("_host", {}).get("_id") or "")[:_LONGEST_NAME],
            processors(vm) or 1,
            amount(vm, "_memory"),
        ]
        for vm in vms
    }


def processors(state: EntityState) -> int:
    """How many it has; 0: not known."""
    topology = state.get("_cpu", {}).get("_topology")
    if topology is None:
        return 0
    parts = (amount(topology, name) or 1 for name in ("_sockets", "_cores", "_threads"))
    return min(MOST, math.prod(parts))


def amount(state: EntityState, name: str) -> int:
    """The attribute of that name; 0: not known."""
    return max(0, min(MOST, state.get(name) or 0))


def latest(statistics: Optional[Sequence[Any]]) -> dict[str, float]:
    """The latest datum of each of a host's or VM's statistics, by name.

    Args:
        statistics: the state of their list.
    """
    data: dict[str, float] = {}
    for statistic in members(statistics):
        values = members(statistic.get("_values"))
        datum = values[0].get("_datum") if values else None
        if "_name" in statistic and datum is not None:
            data[statistic["_name"]] = float(datum)
    return data


def members(values: Optional[Sequence[Any]]) -> Sequence[Any]:
    """The states in the state of a list."""
    if not values:
        return ()
    return values[2:] if values[0] == "list" else values[1:]
