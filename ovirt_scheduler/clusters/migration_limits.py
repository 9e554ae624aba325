"""Limits the migrations of a balancing: which are made, and when, so that few are soon undone.

::

    what the scheduler wants ──► off each host: enough? ──► for long enough? ──► made
                                              margin            hold

Migrations that leave the same host are judged together, by the imbalance of that host and of the
hosts that they go to, before and after. So the number of the cluster's other hosts and the size of
a single VM do not matter.

Of the two hosts, the one whose use is farther from the mean causes the imbalance. The scheduler
has to name that host in each answer for the time ``hold``. After a migration the time begins anew
for both hosts. A VM does not go back within the hour to a host that a balancing took it from.

``margin`` does not count for migrations that empty a host onto hosts with VMs, because they pack
VMs instead of evening out use. It does not count either if a host's use is not known.

Pure: the time comes with each call, in seconds of any clock that is never set back.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_scheduler.model.cluster_state import ClusterState, HostState, VmState, imbalance
from ovirt_scheduler.model.plans import Step
from ovirt_scheduler.settings.table import ClusterSettings

_HOUR = 3600.0
_NOT_BACK = "a balancing took it from there within the hour"

_End = tuple[str, bool]  # a host, and whether it gives VMs away


@dataclass
class Migrated:
    """A migration of the last hour: a VM and the host that it left, by id.

    Attributes:
        balances: whether a balancing wanted it.
        target: the host that it came to, ``done`` then; None: it has not, or is not there any more.
    """

    vm: str
    source: str
    begun: float
    balances: bool
    target: str = ""
    ended: Optional[float] = None


class MigrationLimits:
    """The limits of one cluster's migrations, and what they know from earlier balancings.

    Args:
        settings: its ``hold`` is 0 if VMs may go back at once.
        migrated: the migrations of the last hour; kept up to date here, to be kept over a restart.
    """

    def __init__(self, settings: ClusterSettings, migrated: list[Migrated]) -> None:
        self._hold = settings.hold
        self._margin = settings.margin
        self._most = settings.migrations_per_vm
        self._migrated = migrated
        self._since: dict[_End, float] = {}

    def former_hosts(self, now: float) -> dict[str, dict[str, str]]:
        """By VM the hosts that balancings took it from within the hour, where it does not go back.

        Each with why, in words.
        """
        hosts: dict[str, dict[str, str]] = {}
        for migrated in self._of_last_hour(now):
            if migrated.balances and self._hold:
                hosts.setdefault(migrated.vm, {})[migrated.source] = _NOT_BACK
        return hosts

    def exhausted(self, now: float) -> Mapping[str, int]:
        """The VMs that were migrated within the hour as often as they may be, and how often."""
        counts = Counter(each.vm for each in self._of_last_hour(now))
        return {vm: count for vm, count in counts.items() if count >= self._most}

    def _of_last_hour(self, now: float) -> Sequence[Migrated]:
        """The migrations of the last hour; the others are forgotten."""
        self._migrated[:] = [each for each in self._migrated if each.begun > now - _HOUR]
        return self._migrated

    def judge(
        self, migrations: Mapping[str, str], state: ClusterState, now: float, again: bool = False
    ) -> tuple[Step, ...]:
        """Judge what the scheduler wants now; to be asked at each balancing.

        Args:
            migrations: id of a VM that runs on a host to the id of the host that it is to go to;
                empty: to any.
            state: with what is used.
            again: whether this takes the place of what could not be made in the same balancing. A
                target that comes in for another need not have been wanted for long itself.

        Returns:
            The migrations. Their reason is how much is used of both hosts; it is empty if that
            is not known.
        """
        planned = [Step.planned(vm, target, state) for vm, target in migrations.items()]
        moves = [replace(step, reason=_reason(step, state)) for step in planned if step.source]
        former = self._since if again else {}
        longest = min((at for (_, gives), at in former.items() if not gives), default=now)
        ends = {end: now if end[1] else longest for move in moves for end in _ends(move)}
        self._since = {**former, **{end: self._since.get(end, at) for end, at in ends.items()}}
        judged: list[Step] = []
        use = ClusterUse(state)
        for group in _groups(moves):
            after = use.after(group)
            problem = self._too_little(group, use, after) or self._too_soon(group, use, now)
            if not problem:
                use = after
            judged += [replace(move, problem=problem) for move in group]
        return tuple(judged)

    def why_over(self, planned: Sequence[Step], latest: Iterable[Step], state: ClusterState) -> str:
        """Why planned migrations are no longer worth it; empty if they still are.

        Args:
            planned: of VMs that are on their sources.
            latest: what ``judge`` returned for the scheduler's latest answer.
        """
        named = {end for move in latest for end in _ends(move)}
        if not any(end in named for move in planned for end in _ends(move)):
            return "the scheduler wants no VMs off these hosts, or onto them, any more"
        use = ClusterUse(state)
        for group in _groups(planned):
            after = use.after(group)
            problem = self._too_little(group, use, after)
            if problem:
                return problem
            use = after
        return ""

    def note_begun(self, step: Step, now: float, balances: bool = True) -> None:
        """Remember a migration that is begun, for a balancing or for something else."""
        for former in self._migrated:
            if former.vm == step.vm:
                former.ended = None
        self._migrated.append(Migrated(step.vm, step.source, now, balances))
        if balances:
            for end in _ends(step):
                self._since.pop(end, None)

    def note_done(self, vm: str, host: str, now: float) -> None:
        """Remember that the latest migration of a VM has brought it to a host."""
        latest = next((each for each in reversed(self._migrated) if each.vm == vm), None)
        if latest is not None:
            latest.target, latest.ended = host, now

    def taken_back(
        self, state: ClusterState, busy: Collection[str], now: float, seconds: float
    ) -> list[Step]:
        """What others did with VMs within so many seconds after a migration, each once.

        Args:
            busy: VMs that are migrated.

        Returns:
            A migration of each VM that is no longer on the host that it was brought to. Off a host
            that is not up any more a VM has to go, and one that stopped may begin elsewhere.
        """
        undone: list[Step] = []
        for ours in self._migrated:
            vm = state.vms.get(ours.vm)
            if ours.ended is None or ours.vm in busy or (vm and vm.host == ours.target):
                continue
            target = state.hosts.get(ours.target)
            if vm and vm.host and target and target.status == "up" and now < ours.ended + seconds:
                step = Step.planned(ours.vm, vm.host, state)
                undone.append(replace(step, source=ours.target, source_name=target.name))
            ours.ended = None
        return undone

    def _too_little(self, group: list[Step], use: ClusterUse, later: ClusterUse) -> str:
        hosts = {group[0].source, *(move.target for move in group)}
        before, after = use.imbalance(hosts), later.imbalance(hosts)
        if not self._margin or before is None or after is None or use.is_packed(group):
            return ""
        if before - after >= self._margin:
            return ""
        return (
            f"it changes the imbalance of the hosts from {before:.1f} % to {after:.1f} %, and has "
            f"to improve it by {self._margin:g} points"
        )

    def _too_soon(self, group: list[Step], use: ClusterUse, now: float) -> str:
        cause = (group[0].source, True)
        if not use.is_packed(group):
            ends = (end for move in group for end in _ends(move))
            cause = max(ends, key=lambda end: use.distance(end[0]))
        lasted = now - self._since[cause]
        if lasted >= self._hold:
            return ""
        return f"the imbalance has lasted {lasted:.0f} s, and has to last {self._hold:.0f} s"


def _ends(move: Step) -> tuple[_End, _End]:
    return (move.source, True), (move.target, False)


def _groups(moves: Sequence[Step]) -> Iterable[list[Step]]:
    """Those that leave the same host."""
    groups: dict[str, list[Step]] = {}
    for move in moves:
        groups.setdefault(move.source, []).append(move)
    return groups.values()


def after(state: ClusterState, planned: Mapping[str, str]) -> ClusterState:
    """The cluster as it will be after migrations of VMs to hosts, by id."""
    steps = [
        Step.planned(vm, host, state)
        for vm, host in planned.items()
        if vm in state.vms and state.vms[vm].host not in (None, host)
    ]
    moved = {step.vm: state.vms[step.vm]._replace(host=step.target) for step in steps}
    return (
        ClusterState(ClusterUse(state).after(steps).hosts, {**state.vms, **moved})
        if steps
        else state
    )


def cluster_imbalance(state: ClusterState) -> Optional[float]:
    """The imbalance of the hosts that are up, in percent; None if not all tell their use."""
    return ClusterUse(state).imbalance(
        key for key, host in state.hosts.items() if host.status == "up"
    )


class ClusterUse:
    """What is used of each host, or would be after some migrations.

    Attributes:
        hosts: by id.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.hosts = dict(state.hosts)
        self._running: dict[str, list[str]] = {}  # VMs on each host
        for key, vm in state.vms.items():
            if vm.host is not None:
                self._running.setdefault(vm.host, []).append(key)
        up = (used(host) for host in self.hosts.values() if host.status == "up")
        parts = [part for part in up if part is not None]
        self._mean = math.fsum(parts) / len(parts) if parts else 0.0

    def after(self, group: Iterable[Step]) -> ClusterUse:
        """The same after migrations; of one to any host only the source is changed."""
        later = copy.copy(self)
        later.hosts = hosts = dict(self.hosts)
        for move in group:
            vm = self._state.vms[move.vm]
            busy = self.busy(vm)
            for key, sign in ((move.source, -1), (move.target, 1)):
                if key in hosts:
                    hosts[key] = hosts[key]._replace(
                        busy_processors=hosts[key].busy_processors + sign * busy,
                        used_memory=hosts[key].used_memory + sign * vm.memory,
                    )
        return later

    def imbalance(self, hosts: Iterable[str]) -> Optional[float]:
        """The imbalance of hosts; None if the use of one is not known."""
        parts = [self._part(host) for host in hosts]
        known_parts = [part for part in parts if part is not None]
        is_known = known_parts and len(known_parts) == len(parts)
        return imbalance(known_parts) if is_known else None

    def distance(self, key: str) -> float:
        """How far a host's use is from the mean."""
        part = self._part(key)
        return 0.0 if part is None else abs(part - self._mean)

    def _part(self, key: str) -> Optional[float]:
        return used(self.hosts[key]) if key in self.hosts else None

    def busy(self, vm: VmState) -> float:
        """How many processors a VM keeps busy; its share of its host's if it does not tell."""
        if vm.busy_processors is not None or vm.host is None or vm.host not in self._state.hosts:
            return vm.busy_processors or 0.0
        processors = sum(self._state.vms[each].processors for each in self._running[vm.host])
        return self._state.hosts[vm.host].busy_processors * vm.processors / (processors or 1)

    def is_packed(self, group: list[Step]) -> bool:
        """Whether the migrations empty a host, and go to hosts with VMs."""
        leaving = {move.vm for move in group}
        return leaving == set(self._running.get(group[0].source, ())) and all(
            move.target in self._running for move in group
        )


def used(host: HostState) -> Optional[float]:
    """The part of its processors or of its memory that is used, whichever is more, if known."""
    return max(used_parts(host).values(), default=None)


def used_parts(host: HostState) -> dict[str, float]:
    """The parts of its processors and its memory that are used, as far as they are known."""
    parts: dict[str, float] = {}
    if host.processors:
        parts["CPU"] = host.busy_processors / host.processors
    if host.memory:
        parts["memory"] = host.used_memory / host.memory
    return parts


def _reason(step: Step, state: ClusterState) -> str:
    """How much is used of both hosts: of what the source has less left of."""
    if step.source not in state.hosts or step.target not in state.hosts:
        return ""
    ours, theirs = used_parts(state.hosts[step.source]), used_parts(state.hosts[step.target])
    what = max(ours.keys() & theirs.keys(), key=lambda key: (ours[key], key), default=None)
    if what is None:
        return ""
    return f"{what} {ours[what]:.0%} to {theirs[what]:.0%}".replace("%", " %")
