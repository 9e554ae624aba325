"""How much of its hosts a cluster uses, and would use after migrations that are only planned.

The use of a host comes from its statistics if the document has them, else from its other fields.
The use of a VM comes from its statistics, else it is a share of its host's use, by processors.
Unknown values count as 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Optional, Union

from ovirtsdk4 import types

from ovirt_scheduler.model.cluster_state import HOSTED_ENGINE
from ovirt_scheduler.model.values.statistics import busy_percent, used_memory
from ovirt_scheduler.model.values.text import count_of

Averages = Mapping[str, tuple[float, int]]
NO_AVERAGES: Averages = MappingProxyType({})
_MOVABLE = (None, types.VmAffinity.MIGRATABLE)


class HostUse:
    """One host with the VMs on it, as they are or as they are planned to be.

    Attributes:
        vms: on the host now, or as planned.
        processors: how many it has; 0: not known.
        used_processors: how many are busy, such as 3.5; 0: none, or not known.
        memory, used_memory: bytes; 0: not known.
    """

    def __init__(
        self, host: types.Host, vms: Sequence[types.Vm] = (), averages: Averages = NO_AVERAGES
    ) -> None:
        statistics = _statistics(host)
        self.host = host
        self.id: str = host.id
        self.vms = list(vms)
        self.processors = _processors(host)
        self.memory: int = host.memory or 0
        self._room: Optional[int] = host.max_scheduling_memory
        used = used_memory(statistics, self.memory, self._room)
        self.used_memory = sum(int(vm.memory or 0) for vm in vms) if used is None else used
        self._free = self.memory - self.used_memory
        percent = busy_percent(statistics)
        self._is_busy_known = percent is not None
        self.used_processors = (percent or 0.0) / 100 * (self.processors or 1)
        self._averages = averages
        average = averages.get(self.id)
        if average is not None and self._is_busy_known:
            self.used_processors = average[0]
        if average is not None and used is not None:
            self.used_memory = average[1]
        self._shares = sum(vcpus(vm) for vm in vms) or 1
        self._measured_processors = self.used_processors
        self._busy_percents: dict[types.Vm, Optional[float]] = {}  # as far as they were asked for

    @property
    def fraction(self) -> float:
        """The used part of its processors or of its memory, whichever is more."""
        return self.fraction_with(0.0, 0)

    def fraction_with(self, processors: float, memory: float) -> float:
        """The fraction if so much more were used."""
        return max(
            (self.used_processors + processors) / self.processors if self.processors else 0.0,
            (self.used_memory + memory) / self.memory if self.memory else 0.0,
        )

    @property
    def known_fractions(self) -> dict[str, float]:
        """The used parts of its CPU and of its memory, as far as they are known."""
        fractions = {}
        if self.processors and self._is_busy_known:
            fractions["CPU"] = self.used_processors / self.processors
        if self.memory:
            fractions["memory"] = self.used_memory / self.memory
        return fractions

    def refusal(
        self, vm: types.Vm, names: Mapping[str, str] = MappingProxyType({}), beside: int = 0
    ) -> str:
        """Why the VM may not run here; empty if it may.

        Args:
            names: of hosts, by id.
            beside: bytes of memory that VMs need which come with it.
        """
        host = self.host
        if host.status not in (None, types.HostStatus.UP):
            return f"is {host.status.value}"
        if host.cluster and vm.cluster and host.cluster.id != vm.cluster.id:
            return "is in another cluster"
        policy = vm.placement_policy
        if policy and policy.hosts and self.id not in {named.id for named in policy.hosts}:
            pinned = [named.name or names.get(named.id, named.id) for named in policy.hosts]
            return f"pinned to {', '.join(pinned)}"
        if self.processors and vcpus(vm) > self.processors:
            return f"has {count_of(self.processors, 'processor')}, {vcpus(vm)} are needed"
        needed = beside + (vm.memory or 0)
        room = self._free if self.memory else needed
        if self._room is not None:
            room = min(room, self._room)
        if needed > room:
            return f"has {max(0, room) >> 20} MiB of memory left, {needed >> 20} MiB are needed"
        return ""

    def processors_of(self, vm: types.Vm) -> float:
        """How many processors one of its VMs keeps busy."""
        if vm.id in self._averages:
            return self._averages[vm.id][0]
        if vm not in self._busy_percents:
            self._busy_percents[vm] = _statistics(vm).get("cpu.current.total")
        percent = self._busy_percents[vm]
        if percent is not None:
            return percent / 100
        return self._measured_processors * vcpus(vm) / self._shares

    def add(self, vm: types.Vm, processors: float) -> None:
        """Plan the VM onto this host; it keeps so many processors busy there."""
        self.vms.append(vm)
        self.use(processors, vm.memory or 0)

    def remove(self, vm: types.Vm, processors: float) -> None:
        """Plan the VM away from this host; it keeps so many processors busy there."""
        self.vms.remove(vm)
        self.use(-processors, -(vm.memory or 0))

    def use(self, processors: float, memory: int) -> None:
        """Count so much more as used; less, if it is negative."""
        self.used_processors = max(0.0, self.used_processors + processors)
        self.used_memory = max(0, self.used_memory + memory)
        self._free -= memory
        if self._room is not None:
            self._room -= memory


def uses(
    hosts: Iterable[types.Host], vms: Iterable[types.Vm], averages: Averages = NO_AVERAGES
) -> list[HostUse]:
    """The use of each host; VMs that run on none of them do not count.

    Args:
        averages: a scheduler's ``self.averages``, which count instead of the figures of now.
    """
    on: dict[str, list[types.Vm]] = {host.id: [] for host in hosts}
    for vm in vms:
        if vm.host is not None and vm.host.id in on:
            on[vm.host.id].append(vm)
    return [HostUse(host, on[host.id], averages) for host in hosts]


def is_movable(vm: types.Vm) -> bool:
    """Whether it may be migrated now without asking anybody."""
    policy = vm.placement_policy
    affinity = policy.affinity if policy else None
    return affinity in _MOVABLE and vm.status in (None, types.VmStatus.UP)


def is_hosted_engine(vm: types.Vm) -> bool:
    """Whether the engine itself runs in the VM; no balancing moves it."""
    return vm.origin in HOSTED_ENGINE


def is_highly_available(vm: types.Vm) -> bool:
    """Whether the engine starts the VM again if its host fails."""
    return bool(vm.high_availability and vm.high_availability.enabled)


def priority(vm: types.Vm) -> int:
    """The priority of its start and its migration; higher is more important."""
    return (vm.high_availability and vm.high_availability.priority) or 0


def vcpus(vm: types.Vm) -> int:
    """Its virtual processors."""
    return _processors(vm) or 1


def _processors(entity: Union[types.Host, types.Vm]) -> int:
    topology = entity.cpu and entity.cpu.topology
    if not topology:
        return 0
    return (topology.sockets or 1) * (topology.cores or 1) * (topology.threads or 1)


def _statistics(entity: Union[types.Host, types.Vm]) -> dict[str, float]:
    """The latest datum of each statistic, by name.

    In a call, an entity is made when it is read. Making some twenty statistics of each host would
    take most of the call, so they are read as plain numbers there.
    """
    latest: Optional[dict[str, float]] = None
    if hasattr(entity, "__latest_statistics__"):
        latest = entity.__latest_statistics__()
    if latest is None:
        latest = {
            statistic.name: float(statistic.values[0].datum)
            for statistic in entity.statistics or ()
            if statistic.values and statistic.values[0].datum is not None
        }
    return {name: datum for name, datum in latest.items() if math.isfinite(datum)}
