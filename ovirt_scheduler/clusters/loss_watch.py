"""Counts now and then which VMs of a cluster would have no place if one of its hosts failed.

::

    a look that read all VMs ──► the filters: which hosts could take each VM? ──► placing.py, for
    (the cluster's thread)        (another thread; while a slot is free,           each host by
                                  and without taking one)                          itself

No call waits for it: like units in shadow it begins nothing while all slots are taken, and goes on
later. The filters see the cluster as it is; memory, processors, pins and affinity rules are counted
as VMs are placed.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Callable, Optional

from ovirt_scheduler.clusters.cluster_reader import ClusterView
from ovirt_scheduler.clusters.destinations import about_vm
from ovirt_scheduler.clusters.migrations import ClusterServices
from ovirt_scheduler.clusters.ownership import ClusterOwnership
from ovirt_scheduler.clusters.placing import Choices, Placing
from ovirt_scheduler.decisions.engine_replies import with_engine
from ovirt_scheduler.errors import ExecutorUnavailable, Overloaded
from ovirt_scheduler.log.marked_for_engine import for_engine
from ovirt_scheduler.model.affinity import AffinityRules, PlacedVms
from ovirt_scheduler.model.cluster_state import ClusterState, HostState, VmState
from ovirt_scheduler.model.jobs import Request
from ovirt_scheduler.model.losses import Loss, WorstLoss, reservation_words
from ovirt_scheduler.model.requests import Caller, Entities
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings.table import ClusterSettings

_log = logging.getLogger(__name__)

_EVERY = 600.0  # seconds between two counts
_TRIES = 100  # for each host, in which a VM is placed otherwise
_BREATH = 0.00005  # seconds in which calls go on, after some VMs
_BREATH_AFTER = 0.0005  # seconds of placing; the interpreter would go on for ten times that


@dataclass(eq=False)
class _Count:
    """What is counted: a cluster as a look found it, and what the filters have said by now.

    Attributes:
        view: the hosts and VMs, and the engine's replies, which the filters read.
        rules: the cluster's affinity rules.
        reserves: whether the cluster's ``ha_reservation`` is on; None: not known.
        accepting: by VM the hosts that the filters leave.
        without: the filters that failed, and so are asked no more.
        losses: of the first hosts that are up.
    """

    view: ClusterView
    rules: AffinityRules
    reserves: Optional[bool]
    accepting: dict[str, frozenset[str]] = field(default_factory=dict)
    without: set[str] = field(default_factory=set)
    losses: list[Loss] = field(default_factory=list)

    @property
    def up(self) -> Sequence[str]:
        """The hosts that are up."""
        return [key for key, host in self.view.state.hosts.items() if host.is_up]


class ClusterLosses:
    """What one cluster can lose; one thread notes what is to be counted, and another counts it.

    Args:
        settings: the cluster's section, whose filters are asked.
        services: which all clusters share; their memory keeps what was counted.
        ownership: says whether another daemon drives the cluster: then nothing is counted here.
    """

    def __init__(
        self, settings: ClusterSettings, services: ClusterServices, ownership: ClusterOwnership
    ) -> None:
        self._settings, self._services, self._ownership = settings, services, ownership
        self._due_at = self._begun = -math.inf  # on the monotonic clock
        self._waiting: Optional[_Count] = None

    @property
    def worst(self) -> Optional[WorstLoss]:
        """The worst loss, as it was counted last, also before a reload.

        None: it was not counted yet, or no host was up.
        """
        counted = self._services.memory.worst_losses.get(self._settings.name)
        return counted if counted and counted.loss.host else None

    def begin_look(self, begun: float) -> bool:
        """Drop what still waits to be counted, if it is time for a new count: it takes memory.

        Args:
            begun: when the look began, on the monotonic clock.

        Returns:
            Whether what is read now is to be counted, and a filter reads statistics.
        """
        if self._ownership.driven_by:
            self._services.memory.worst_losses.pop(self._settings.name, None)
            self._waiting, self._due_at = None, begun
            return False
        if begun >= self._due_at:
            self._waiting = None
        self._begun = begun
        units = self._services.decisions.registry.current().all_units
        filters = ((Kind.FILTER, wanted.name) for wanted in self._settings.filters)
        reads_statistics = any(
            units[key].plugin.wants_statistics for key in filters if key in units
        )
        return begun >= self._due_at and reads_statistics

    def note(self, view: ClusterView, rules: AffinityRules, reserves: Optional[bool]) -> None:
        """Have the losses counted, if the look read all VMs, and if it is time for that.

        Args:
            view: what the look found.
            rules: the cluster's affinity rules.
            reserves: whether the cluster's ``ha_reservation`` is on; None: not known.
        """
        if view.replies is not None and self._begun >= self._due_at:
            self._due_at = self._begun + _EVERY
            # Without filters nobody is asked, and what they would read is not kept.
            view = view if self._settings.filters else ClusterView(view.state)
            self._waiting = _Count(view, rules, reserves)

    def count(self) -> None:
        """Count what is to be counted, as long as a slot is free; the next call goes on."""
        count, self._waiting = self._waiting, None
        if count is None:
            return
        try:
            self._note_worst(count, self._worst_of(count))
        except (Overloaded, ExecutorUnavailable):
            self._waiting = self._waiting or count
        except Exception as error:  # noqa: BLE001  other clusters are counted all the same
            fields = {"cluster": self._settings.name, "reason": f"{type(error).__name__}: {error}"}
            _log.error(
                "cluster %(cluster)s: what it can lose cannot be counted now: %(reason)s",
                fields,
                exc_info=error,
            )

    def _worst_of(self, count: _Count) -> Loss:
        """The loss of the host whose VMs find a place least; that of no host if none is up.

        Raises:
            Overloaded, ExecutorUnavailable: no slot is free, or the filters cannot be called now.
        """
        state, vms_on, up = count.view.state, _vms_by_host(count.view.state), count.up
        for host in up if len(up) > 1 else ():
            others = tuple(other for other in up if other != host)
            for vm in vms_on[host]:
                if vm not in count.accepting:
                    self._ask_filters(count, vm, others)
        running = {vm: vm_state.host for vm, vm_state in state.vms.items() if vm_state.host}
        rooms, placed_vms = _Rooms(state, up, count.accepting), PlacedVms(count.rules, running)
        placing = Placing(rooms, placed_vms, tries=_TRIES)
        for host in up[len(count.losses) :]:
            self._need_slot()
            rooms.lost_host = host
            with placing.lost(host, state.hosts[host].name, vms_on[host]) as loss:
                count.losses.append(loss)
        return max(count.losses, key=lambda loss: loss.severity, default=Loss(""))

    def _ask_filters(self, count: _Count, vm: str, hosts: tuple[str, ...]) -> None:
        """Ask the filters of the section which hosts could take a VM; without those that fail.

        Raises:
            Overloaded, ExecutorUnavailable: as ``_worst_of``.
        """
        settings, decisions = self._settings, self._services.decisions
        while filters := tuple(each for each in settings.filters if each.name not in count.without):
            self._need_slot()
            request = Request(
                Caller.of_cluster(settings.name), Entities(hosts, vm=vm), settings.properties,
                {Kind.FILTER: filters},
            )  # fmt: skip
            deadline = time.monotonic() + decisions.request_timeout
            job = decisions.registry.current().job(request, deadline)
            units = {call.unit.name: call.unit for call in job.calls}
            failed = job.errors[Kind.FILTER].keys() - units.keys()
            replies = about_vm(count.view.replies, vm)
            job, problems = with_engine(job, self._services.inventory, replies)
            if problems:
                failed |= {name for name, unit in units.items() if unit.plugin.wants_engine}
            if not failed:
                execution = self._services.executor.run_shadow(job)
                failed = {result.unit for result in execution.results if not result.ok}
                failed |= units.keys() if execution.errors else set()
                if not failed:
                    count.accepting[vm] = frozenset(execution.remaining)
                    return
            count.without |= failed

    def _need_slot(self) -> None:
        """Check that somebody who asks for a slot now would have one.

        Raises:
            Overloaded: none is free, or the daemon stops.
        """
        if not self._services.executor.is_free or self._services.stopping.is_set():
            raise Overloaded("no slot is free")

    def _note_worst(self, count: _Count, worst: Loss) -> None:
        """Keep what was counted, and log when the cluster cannot lose a host, and when it can."""
        losses, name = self._services.memory.worst_losses, self._settings.name
        former = losses.get(name)
        if self._ownership.driven_by:
            losses.pop(name, None)
            return
        has_urgent = any(vm.is_highly_available and vm.host for vm in count.view.state.vms.values())
        words = reservation_words(count.reserves, worst, has_urgent)
        was_short = is_short = bool(former and former.is_logged)
        if len(count.up) > 1:  # a host alone has no other to take its VMs: that is no news
            is_short = bool(worst.homeless)
        losses[name] = WorstLoss(worst, time.time(), tuple(sorted(count.without)), words, is_short)
        if is_short and not was_short:
            _log.warning(
                "cluster %(cluster)s: if %(source_host)s fails, VMs find no place: %(count)d",
                {
                    "cluster": name, "source_host": worst.host,
                    "count": len(worst.homeless),
                },
                extra=for_engine(),
            )  # fmt: skip
        elif was_short and not is_short:
            _log.info(
                "cluster %(cluster)s: every VM finds a place, whichever host fails",
                {"cluster": name},
                extra=for_engine(),
            )


class _Rooms:
    """The hosts of a cluster as places of VMs (``placing.Places``), by what a look has read.

    Attributes:
        lost_host: takes no VM.
    """

    def __init__(
        self, state: ClusterState, up: Sequence[str], accepting: Mapping[str, Collection[str]]
    ) -> None:
        self._state, self._accepting = state, accepting
        self._hosts = {vm: vm_state.host for vm, vm_state in state.vms.items()}
        self._free = {host: _room(state.hosts[host]) for host in up}
        for vm, host in self._hosts.items():
            if host in self._free and state.hosts[host].room is None:
                self._free[host] -= state.vms[vm].memory
        self.lost_host = ""
        self._rest_at = 0.0  # on the monotonic clock

    def choices(self, vm: str, allow: Callable[[Sequence[str]], Sequence[str]]) -> Choices:
        """As ``Places`` has it; the host that it fills most is the first. Calls go on meanwhile."""
        if time.monotonic() >= self._rest_at:
            time.sleep(_BREATH)
            self._rest_at = time.monotonic() + _BREATH_AFTER
        fit = [host for host, free in self._free.items() if self._takes(host, free, vm)]
        return Choices(sorted(allow(fit), key=lambda host: (self._free[host], host)), "")

    def _takes(self, host: str, free: float, vm: str) -> bool:
        machine, processors = self._state.vms[vm], self._state.hosts[host].processors
        return (
            host != self.lost_host
            and machine.memory <= free
            and (not processors or machine.processors <= processors)
            and (not machine.pinned_to or host in machine.pinned_to)
            and (vm not in self._accepting or host in self._accepting[vm])
        )

    def move(self, vm: str, host: Optional[str]) -> None:
        """As ``Places`` has it."""
        former, self._hosts[vm] = self._hosts[vm], host
        for changed, sign in ((former, 1), (host, -1)):
            if changed in self._free:
                self._free[changed] += sign * self._state.vms[vm].memory

    def size(self, vm: str) -> float:
        """Its bytes of memory."""
        return self._state.vms[vm].memory

    def leaving(self, host: str) -> Sequence[str]:
        """As ``Places`` has it."""
        return [vm for vm, at in self._hosts.items() if at == host]


def _room(host: HostState) -> float:
    """Bytes for VMs: those that may still be started where a host tells it, else all of them."""
    return host.room if host.room is not None else host.memory or math.inf


def _vms_by_host(state: ClusterState) -> Mapping[str, Mapping[str, VmState]]:
    vms: dict[str, dict[str, VmState]] = {host: {} for host in state.hosts}
    for key, vm in state.vms.items():
        if vm.host in vms:
            vms[vm.host][key] = vm
    return vms
