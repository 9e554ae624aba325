"""The default scheduler: chooses the host by filters and cost functions, and balances by a policy.

Policies: ``none`` leaves VMs where they are. ``evenly_distribute`` relieves hosts whose use is
above ``high_utilization`` percent (of processors or of memory, whichever is more), and moves VMs
from the most used hosts to those below ``low_utilization``. ``power_saving`` packs VMs onto as
few hosts as stay within ``high_utilization``, and relieves a host only when it is above.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from ovirtsdk4 import types

from ovirt_scheduler.plugin import PlacedVms, Scheduler, cluster_use, reason
from ovirt_scheduler.plugin.cluster_use import NO_AVERAGES, Averages, HostUse
from ovirt_scheduler.plugin.interfaces import Hosts, Properties, Vms

_HostsByVm = dict[types.Vm, list[types.Host]]
_VmGroup = tuple[types.Vm, ...]  # VMs that move together
_Targets = Mapping[str, Mapping[str, int]]

uses_statistics = True  # cluster_use counts with them

NONE, EVENLY_DISTRIBUTE, POWER_SAVING = "none", "evenly_distribute", "power_saving"

# A host in one of these states still runs its VMs, and should not.
_LEAVING = ("error", "maintenance", "non_operational", "preparing_for_maintenance")


class DefaultScheduler(Scheduler):
    """Filters and cost functions choose the host; a policy balances."""

    name = "default"
    policies = (NONE, EVENLY_DISTRIBUTE, POWER_SAVING)
    properties_validation = (
        "high_utilization={1-100};low_utilization={0-99};most_migrations={1-1000};"
        "migrate_on_error=yes|no|ha_only"
    )
    default_values = "80;20;10;yes"

    def candidates(self, hosts: Hosts, vm: types.Vm, properties: Properties) -> list[types.Host]:
        """The hosts that can take the VM: of the lowest cost first, then the policy's choice."""
        preferred = _preference(properties)
        processors, memory = float(cluster_use.vcpus(vm)), vm.memory or 0

        unit = (vm.id,) if vm.id else ()

        def rank(use: HostUse) -> tuple[object, ...]:
            cost, soft = self.costs.get(use.id, 0), self.rules.penalty(unit, use.id)
            return cost, soft, preferred(use, processors, memory), _lot(vm, use)

        names = {host.id: host.name for host in hosts if host.name}
        ruled_out = self.rules.refusals(unit, [host.id for host in hosts])
        taking = []
        for use in cluster_use.uses(hosts, ()):
            for other, (other_processors, other_memory) in self.coming.get(use.id, {}).items():
                if other != (vm.id or vm.name):
                    use.use(other_processors, other_memory)
            refusal = use.refusal(vm, names) or ruled_out[use.id]
            if refusal:
                reason(use.host, refusal)
            else:
                taking.append(use)
        return [use.host for use in sorted(taking, key=rank)]

    def load_balance(self, hosts: Hosts, vms: Vms, properties: Properties) -> _HostsByVm:
        """What the policy moves now: at most ``most_migrations`` VMs, or one host's."""
        destinations = dict(self.destinations)
        destinations.update((vm.id, {}) for vm in vms if cluster_use.is_hosted_engine(vm))
        plan = _BalancingPlan(
            hosts, vms, properties, destinations, self.planned, self.rules, self.averages
        )
        policy = properties["policy"]
        if policy == EVENLY_DISTRIBUTE:
            plan.relieve()
            plan.fill()
        elif policy == POWER_SAVING:
            plan.relieve()
            plan.pack()
        return plan.explained()

    def on_host_status_changed(
        self,
        host: types.Host,
        old_status: str,
        new_status: str,
        hosts: Hosts,
        vms: Vms,
        properties: Properties,
    ) -> _HostsByVm:
        """Takes the VMs off a host that fails or goes to maintenance, as ``migrate_on_error`` says.

        One that is not responsive cannot be migrated from.
        """
        plan = _BalancingPlan(hosts, vms, properties, self.destinations, self.planned, self.rules)
        if new_status in _LEAVING and old_status != new_status:
            plan.evacuate([host.id])
        return plan.explained()

    def on_timer_invoked(self, hosts: Hosts, vms: Vms, properties: Properties) -> _HostsByVm:
        """Tries again to take VMs off failing hosts, because there may be room now."""
        plan = _BalancingPlan(hosts, vms, properties, self.destinations, self.planned, self.rules)
        plan.evacuate([host.id for host in hosts if host.status and host.status.value in _LEAVING])
        return plan.explained()


class _BalancingPlan:
    """Migrations, each of which takes the ones before it into account.

    VMs that hard affinity groups tie to each other are one unit: they move together, or stay.
    """

    def __init__(
        self,
        hosts: Hosts,
        vms: Vms,
        properties: Properties,
        destinations: _Targets,
        planned: Mapping[str, str],
        rules: PlacedVms,
        averages: Averages = NO_AVERAGES,
    ) -> None:
        self.migrations: _HostsByVm = {}
        self._comparisons: dict[types.Vm, tuple[types.Host, str]] = {}
        self._uses = sorted(cluster_use.uses(hosts, vms, averages), key=lambda use: use.id)
        self._preferred = _preference(properties)
        self._high = int(properties["high_utilization"]) / 100
        self._low = int(properties["low_utilization"]) / 100
        self._most = int(properties["most_migrations"])
        self._on_error = properties["migrate_on_error"]
        self._destinations = destinations
        self._rules = rules
        # By VM and whether it may break soft rules, until something moves.
        self._allowed: dict[tuple[str, bool], frozenset[str]] = {}
        self._vms = {vm.id: vm for vm in vms} if rules.rules.groups else {}
        uses = {use.id: use for use in self._uses}
        for vm in vms if planned else ():
            source = uses.get(vm.host.id) if vm.host else None
            target = uses.get(planned.get(vm.id, ""))
            if source is not None and target is not None and source is not target:
                processors = source.processors_of(vm)
                source.remove(vm, processors)
                target.add(vm, processors)

    def explained(self) -> _HostsByVm:
        """The migrations; gives a reason for each host that takes VMs over."""
        first: dict[str, tuple[types.Host, str]] = {}
        for target, why in self._comparisons.values():
            first.setdefault(target.id, (target, why))
        for target, why in first.values():
            if why:
                reason(target, why)
        return self.migrations

    def relieve(self) -> None:
        """Take VMs off the hosts above the high mark, until they are not.

        Soft affinity rules are broken for that only if it takes no less.
        """
        for source in sorted(self._up(), key=_fraction, reverse=True):
            for may_break in (False, True):
                for vm in sorted(self._movable(source), key=_least_important_first):
                    if source.fraction <= self._high or self._is_full():
                        break
                    # Only a VM of a group can break a rule.
                    if not self._has_place(vm) or may_break > (vm.id in self._rules.rules.vms):
                        continue
                    targets = self._targets(source, vm, may_break=may_break)
                    if targets:
                        self._move(vm, source, targets)

    def fill(self) -> None:
        """Have the hosts below the low mark take over from the most used, while that evens out."""
        up = self._measured()
        sources = [use for use in up if use.vms]  # a VM that comes now is not moved once more
        candidates = self._candidates(sources)
        for target in sorted(up, key=_fraction):
            count = len(self.migrations)
            for vm, source in candidates:
                if target.fraction >= self._low or self._is_full():
                    break
                if self._has_place(vm) and self._evens_out(vm, source, target):
                    others = (use for use in up if use is not target and use.fraction < self._low)
                    fit = [target, *(use for use in others if self._evens_out(vm, source, use))]
                    self._move(vm, source, sorted(fit, key=self._cost_of(self._unit(vm))))
            if len(self.migrations) > count:
                candidates = self._candidates(sources)

    def _candidates(self, sources: Sequence[HostUse]) -> list[tuple[types.Vm, HostUse]]:
        """The movable VMs of hosts, those of the most used host first."""
        return [
            (vm, source)
            for source in sorted(sources, key=_fraction, reverse=True)
            for vm in sorted(self._movable(source), key=_least_important_first)
        ]

    def pack(self) -> None:
        """Empty the least used hosts, each completely or not at all."""
        for source in sorted((use for use in self._measured() if use.vms), key=_fraction):
            movable = self._movable(source)
            crowded = self.migrations and len(self.migrations) + len(movable) > self._most
            if len(movable) < len(source.vms) or crowded:
                continue
            self._empty(source, movable)

    def evacuate(self, ids: Sequence[str]) -> None:
        """Take VMs off hosts, the most important first; those that find no place stay."""
        if self._on_error == "no":
            return
        sources = [use for use in self._uses if use.id in ids]
        leaving = [
            (vm, source)
            for source in sources
            for vm in self._movable(source)
            if self._on_error == "yes" or cluster_use.is_highly_available(vm)
        ]
        for vm, source in sorted(leaving, key=lambda pair: _most_important_first(pair[0])):
            if vm in self.migrations:
                continue
            targets = self._targets(source, vm, may_break=True)
            targets = targets or self._targets(source, vm, most=1.0, may_break=True)
            if targets:
                self._move(vm, source, targets)

    def _empty(self, source: HostUse, movable: list[types.Vm]) -> None:
        """Move all VMs of a host to hosts that run some already; put them back if one stays.

        Hosts that cannot be emptied themselves are filled first: else a VM might soon move again,
        when its new host is emptied.
        """
        running = [use for use in self._up() if use.vms]
        staying = [use for use in running if not all(map(self._may_leave, use.vms))]
        moved: list[tuple[types.Vm, HostUse, float]] = []
        for vm in sorted(movable, key=_largest_first):
            if vm in self.migrations:
                continue
            targets = self._targets(source, vm, staying) or self._targets(source, vm, running)
            if not targets:
                for back, where, processors in reversed(moved):
                    where.remove(back, processors)
                    source.add(back, processors)
                    self._rules.move(back.id, source.id)
                    self._allowed.clear()
                    del self.migrations[back], self._comparisons[back]
                return
            moved += self._move(vm, source, targets)

    def _targets(
        self,
        source: HostUse,
        vm: types.Vm,
        among: Optional[Sequence[HostUse]] = None,
        most: Optional[float] = None,
        may_break: bool = False,
    ) -> list[HostUse]:
        """The hosts that stay below a mark with the VM's unit.

        Those of the lowest cost are first, then by soft affinity rules, then as the policy prefers.

        Args:
            among: the hosts to choose from; all that are up unless said.
            most: the mark, the high one unless said.
            may_break: whether it may break more soft affinity rules than it does where it is.
        """
        ceiling = self._high if most is None else most
        unit = self._unit(vm)
        processors, memory = self._needs(unit, source)
        fit = [
            use
            for use in (self._up() if among is None else among)
            if use is not source
            and use.fraction_with(processors, memory) <= ceiling
            and self._may_go(unit, use)
        ]
        fit = self._keeping_rules(unit, source, fit, may_break)
        cost = self._cost_of(unit)

        def rank(use: HostUse) -> tuple[object, ...]:
            soft = self._penalty(unit, use)
            return cost(use), soft, self._preferred(use, processors, memory), _lot(vm, use)

        return sorted(fit, key=rank)

    def _keeping_rules(
        self, unit: _VmGroup, source: HostUse, among: Sequence[HostUse], may_break: bool = False
    ) -> list[HostUse]:
        """The hosts that affinity rules allow; as ``_targets``."""
        if unit[0].id not in self._rules.rules.vms:
            return [*among]
        key = unit[0].id, may_break
        if key not in self._allowed:
            ids, hosts = [vm.id for vm in unit], [use.id for use in self._uses]
            allowed = self._rules.acceptable(ids, hosts)
            if not may_break:
                penalties = self._rules.penalties(ids, [source.id, *allowed])
                allowed = [host for host in allowed if penalties[host] <= penalties[source.id]]
            self._allowed[key] = frozenset(allowed)
        return [use for use in among if use.id in self._allowed[key]]

    def _penalty(self, unit: _VmGroup, use: HostUse) -> tuple[object, ...]:
        """What soft affinity rules say against a host; less is better."""
        if unit[0].id not in self._rules.rules.vms:
            return ()
        return self._rules.penalty([vm.id for vm in unit], use.id)

    def _unit(self, vm: types.Vm) -> _VmGroup:
        """The VM, and those that have to move with it."""
        if vm.id not in self._rules.rules.vms:
            return (vm,)
        others = self._rules.unit_of(vm.id)[1:]
        return vm, *(self._vms[other] for other in others if other in self._vms)

    def _needs(self, unit: _VmGroup, source: HostUse) -> tuple[float, int]:
        """The processors that VMs of a host keep busy, and their memory."""
        return sum(map(source.processors_of, unit)), sum(vm.memory or 0 for vm in unit)

    def _cost_of(self, unit: _VmGroup) -> Callable[[HostUse], int]:
        """A function of a host: its cost for the VMs by the cluster's cost functions, else 0."""
        costs = [self._destinations.get(vm.id, {}) for vm in unit]
        return lambda use: sum(of_vm.get(use.id, 0) for of_vm in costs)

    def _may_leave(self, vm: types.Vm) -> bool:
        return all(
            cluster_use.is_movable(member) and self._destinations.get(member.id) != {}
            for member in self._unit(vm)
        )

    def _may_go(self, unit: _VmGroup, use: HostUse) -> bool:
        memory = sum(vm.memory or 0 for vm in unit)
        return not any(
            use.refusal(vm, beside=memory - (vm.memory or 0))
            or use.id not in self._destinations.get(vm.id, (use.id,))
            for vm in unit
        )

    def _evens_out(self, vm: types.Vm, source: HostUse, target: HostUse) -> bool:
        """Whether the VM's unit may go there, and both hosts are then used more alike."""
        unit = self._unit(vm)
        processors, memory = self._needs(unit, source)
        after = target.fraction_with(processors, memory)
        source_after = source.fraction_with(-processors, -memory)
        if after > min(self._high, source_after) or source_after >= source.fraction:
            return False
        return bool(self._keeping_rules(unit, source, [target])) and self._may_go(unit, target)

    def _move(
        self, vm: types.Vm, source: HostUse, targets: Sequence[HostUse]
    ) -> list[tuple[types.Vm, HostUse, float]]:
        """Move a VM's unit to the first of some hosts, and offer the others to the daemon, too.

        Returns:
            The VMs with the host and the number of processors that go with each.
        """
        target = targets[0]
        self._allowed.clear()
        comparison = target.host, _comparison(source, target)
        moved = []
        for member in self._unit(vm):
            processors = source.processors_of(member)
            self._comparisons[member] = comparison
            source.remove(member, processors)
            target.add(member, processors)
            self._rules.move(member.id, target.id)
            self.migrations[member] = [use.host for use in targets]
            moved.append((member, target, processors))
        return moved

    def _movable(self, source: HostUse) -> list[types.Vm]:
        """The VMs of a host that may leave it and are not moved yet: a plan moves each once."""
        return [
            vm
            for vm in source.vms
            if self._may_leave(vm) and self.migrations.keys().isdisjoint(self._unit(vm))
        ]

    def _up(self) -> list[HostUse]:
        return [use for use in self._uses if use.host.status in (None, types.HostStatus.UP)]

    def _measured(self) -> list[HostUse]:
        return [use for use in self._up() if use.known_fractions]

    def _is_full(self) -> bool:
        return len(self.migrations) >= self._most

    def _has_place(self, vm: types.Vm) -> bool:
        """Whether the plan may still move all VMs of the VM's unit, and has not done so."""
        count = len(self.migrations) + len(self._unit(vm))
        return vm not in self.migrations and count <= self._most


Preference = Callable[[HostUse, float, float], tuple[float, ...]]


def _preference(properties: Properties) -> Preference:
    """A policy's preference for a host with so much more used; lower is better."""
    policy, high = properties["policy"], int(properties["high_utilization"]) / 100

    def preferred(use: HostUse, processors: float, memory: float) -> tuple[float, ...]:
        if policy == NONE:
            return ()
        fraction = use.fraction_with(processors, memory)
        if policy == EVENLY_DISTRIBUTE or fraction > high:
            return 1, fraction
        return 0, -fraction

    return preferred


def _comparison(source: HostUse, target: HostUse) -> str:
    """The use of two hosts before a VM moves: of CPU or memory, whichever the source uses more of.

    Empty if neither is known of both hosts.
    """
    fractions, others = source.known_fractions, target.known_fractions
    what = max(fractions.keys() & others.keys(), key=lambda key: (fractions[key], key), default="")
    if not what:
        return ""
    first, other = (
        f"{use.host.name or use.id} {use.known_fractions[what]:.0%}".replace("%", " %")
        for use in (source, target)
    )
    return f"{what} of {first}, of {other}"


def _fraction(use: HostUse) -> float:
    return use.fraction


def _lot(vm: types.Vm, use: HostUse) -> bytes:
    """Decides a tie: for another host from VM to VM, whatever the order of the hosts."""
    return hashlib.sha256(f"{vm.id} {use.id}".encode()).digest()


def _largest_first(vm: types.Vm) -> tuple[object, ...]:
    return -(vm.memory or 0), -cluster_use.vcpus(vm), vm.id


def _least_important_first(vm: types.Vm) -> tuple[object, ...]:
    return cluster_use.is_highly_available(vm), cluster_use.priority(vm), *_largest_first(vm)


def _most_important_first(vm: types.Vm) -> tuple[object, ...]:
    return not cluster_use.is_highly_available(vm), -cluster_use.priority(vm), *_largest_first(vm)
