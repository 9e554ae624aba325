"""What the daemon has to know of the hosts and VMs of a cluster: their statuses, and their use.

Computed from their states (``sdk_entities``), for the thread that looks after the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.values.statistics import busy_percent, used_memory
from ovirt_scheduler.processes.documents.amounts import MOST, amount, latest, members, processors
from ovirt_scheduler.processes.documents.packing import EntityState

Number = Union[int, float]

MOST_STATES = 20_000  # hosts or VMs of one document that the daemon takes up
_LONGEST_NAME = 255  # characters of a host's or a VM's; of its status, and of ids that it names


def states(entities: Sequence[EntityState]) -> dict[str, list[object]]:
    """The state of each host or VM by id: as ``clusters.reader_reports`` has it.

    Raises:
        UnreadableDocument: there are too many.
    """
    if len(entities) > MOST_STATES:
        raise UnreadableDocument(f"it tells of more than {MOST_STATES:,} hosts or VMs")
    by_id: dict[str, list[object]] = {}
    for state in entities:
        is_vm = state[""] == "Vm"
        status = state["_status"][2] if "_status" in state else ""
        key = state.get("_id") or ""
        texts = [state.get("_name") or key, status, state.get("_cluster", {}).get("_id")]
        if is_vm:
            texts += [state.get("_host", {}).get("_id"), state.get("_origin") or ""]
        values: list[object] = [text and text[:_LONGEST_NAME] for text in texts]
        if is_vm:
            values += [bool(state.get("_high_availability", {}).get("_enabled")), _pins(state)]
        if "_memory" in state:  # else there is nothing to count with, and few bytes to answer for
            values += of_vm(state) if is_vm else of_host(state)
        by_id[key] = values
    return by_id


def of_host(host: EntityState) -> list[Number]:
    """Processors and how many are busy, memory and how much is used, in bytes.

    If the use of processors or of memory is not known, their total is 0. Then how many bytes there
    are for VMs that are started there, if that is known.
    """
    statistics = _statistics(host)
    percent = busy_percent(statistics)
    number = 0 if percent is None else processors(host)
    busy = (percent or 0.0) / 100 * number
    memory, room = amount(host, "_memory"), "_max_scheduling_memory"
    rooms = [amount(host, room)] if room in host else []
    used = used_memory(statistics, memory, rooms[0] if rooms else None)
    return [number, busy, *((0, 0) if used is None else (memory, used)), *rooms]


def of_vm(vm: EntityState) -> list[Number]:
    """Processors, memory in bytes, and how many processors are busy, if that is known."""
    busy = _statistics(vm).get("cpu.current.total")
    load = [] if busy is None else [busy / 100]
    return [processors(vm) or 1, amount(vm, "_memory"), *load]


def _pins(vm: EntityState) -> list[str]:
    """The ids of the only hosts that a VM may run on; none: any."""
    hosts = members(vm.get("_placement_policy", {}).get("_hosts"))
    return [host["_id"][:_LONGEST_NAME] for host in hosts if host.get("_id")]


def _statistics(state: EntityState) -> dict[str, float]:
    """The latest datum of each statistic that is an amount, by name."""
    data = latest(state.get("_statistics"))
    return {name: datum for name, datum in data.items() if 0 <= datum <= MOST}  # nan is not
