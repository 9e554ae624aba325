"""Asks a cluster's scheduler, and finds where its VMs may go.

The filters and cost functions of the settings decide that. They are called for a VM when a
scheduler's answer first names it, because to call them for each VM of the cluster takes long. If
the answer does not fit theirs, the scheduler is called again with their answers.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Optional, cast

from ovirt_scheduler.clusters.averages import as_values
from ovirt_scheduler.clusters.cluster_reader import ClusterView
from ovirt_scheduler.clusters.migration_limits import after
from ovirt_scheduler.clusters.refusals import ANY_HOST
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.model.affinity import AffinityRules, PlacedVms
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.drivers import DriverUnit, Migrations
from ovirt_scheduler.model.jobs import DriverCall, Request
from ovirt_scheduler.model.plans import Step
from ovirt_scheduler.model.requests import Caller, Entities, RequestedUnit
from ovirt_scheduler.model.results import Migration
from ovirt_scheduler.model.tasks import EngineReplies
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings.table import ClusterSettings

BALANCE = "load_balance"
MEND = "affinity"  # no method of a scheduler: what mends a broken rule
_NOT_ALLOWED = "the filters of the cluster do not allow it"
_MOST_ANSWERS = 5  # of a scheduler that learns where VMs may go


class StatusChange(NamedTuple):
    """The change of status that one call of a hook is about."""

    subject: str  # the id of the host or VM, as the hook is one for hosts or for VMs
    old_status: str
    new_status: str


@dataclass(eq=False)
class ClusterDestinations:
    """The destinations that are known for calls of one method of a scheduler; used by one thread.

    Attributes:
        view: of the cluster; where it has no replies, the engine is asked about ids.
        closed: by VM the hosts that it is not to go to now, each with why; ``ANY_HOST``: it is to
            stay. No word is said of a reason that is empty. To a balancing, the hosted engine is
            closed.
        stopping: set when no other unit is to be called.
        doubtful: by VM the hosts that it goes to only if it can go to no other.
        planned: VM to host, of the migrations that this look has planned; the next call is told.
        leaders: VM to the VM in whose closure it goes, itself for that one, where several go.
    """

    decisions: DecisionService
    settings: ClusterSettings
    driver: DriverUnit
    method: str
    view: ClusterView
    closed: Mapping[str, Mapping[str, str]]
    stopping: threading.Event
    doubtful: Mapping[str, Collection[str]] = field(default_factory=dict)
    planned: dict[str, str] = field(default_factory=dict)
    rules: AffinityRules = field(default_factory=AffinityRules)
    leaders: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._state = self.view.state
        # An engine asks units about these alone, and a unit may fail for a host without figures.
        self._up = tuple(key for key, host in self._state.hosts.items() if host.is_up)
        self._has_units = bool(self.settings.filters or self.settings.cost_functions)
        self._closed = {vm: dict(hosts) for vm, hosts in self.closed.items()}
        if self.method in (BALANCE, MEND):
            for vm, state in self._state.vms.items():
                if state.is_hosted_engine:
                    self._closed[vm] = {ANY_HOST: "no balancing moves the hosted engine"}
        # By the VMs' ids, for those that the units were called for, or need not be.
        self._costs_of: dict[str, Mapping[str, int]] = {
            vm: {} if ANY_HOST in hosts else self._allowed(vm)
            for vm, hosts in self._closed.items()
            if ANY_HOST in hosts or (vm in self._state.vms and not self._has_units)
        }

    @property
    def expected(self) -> ClusterState:
        """The cluster as it will be after what is planned."""
        return after(self._state, self.planned)

    def learn(self, answer: Migrations) -> bool:
        """Call the units for the VMs of an answer that they were not called for yet.

        Returns:
            Whether the answer does not fit theirs, or the affinity rules, so that the scheduler has
            to be called again.

        Raises:
            SchedulerError: no process is available for it.
        """
        misfit = False
        placed = self.placed(answer)
        for vm, hosts in answer.items():
            if self.stopping.is_set():
                return False
            if vm not in self._state.vms:
                continue
            unit = placed.unit_of(vm)
            is_limited = self._has_units or any(member in self.doubtful for member in unit)
            unknown = [member for member in unit if member not in self._costs_of]
            if is_limited:
                self._costs_of.update((member, self._allowed(member)) for member in unknown)
            target = self._best(unit, hosts, placed)
            if unknown and target != _first(hosts):
                if not is_limited and vm in self.rules.vms:
                    allowed = placed.acceptable(unit, self._up)
                    self._costs_of.update((member, dict.fromkeys(allowed, 0)) for member in unknown)
                misfit |= is_limited or vm in self.rules.vms
            _move(placed, unit, target)
        return misfit

    def close(self, vm: str, hosts: Mapping[str, str]) -> None:
        """Close hosts to a VM from now on, each with why, or the VM itself (``ANY_HOST``)."""
        closed = self._closed.setdefault(vm, {})
        closed.update(hosts)
        if ANY_HOST in closed:
            self._costs_of[vm] = {}
        elif vm in self._costs_of:
            costs = self._costs_of[vm].items()
            self._costs_of[vm] = {host: cost for host, cost in costs if host not in closed}
        else:
            self._costs_of[vm] = self._allowed(vm)

    def plan(self, answer: Migrations) -> None:
        """Count the migrations of an answer as planned."""
        chosen, _ = self.choose(answer)
        self.planned.update((vm, target) for vm, target in chosen.items() if target)

    def with_company(self, vm: str, reason: str) -> str:
        """The reason of a migration, with the VMs that move with this one, and why."""
        leader = self.leaders.get(vm)
        if leader is None:
            return reason
        others = sorted(
            self._state.vms[other].name
            for other, of in self.leaders.items()
            if of == leader and other != vm
        )
        names = [group.name for group in self.rules.groups if group.ties(vm)]
        words = f"; with {', '.join(others):.200} by the affinity group {', '.join(names):.200}"
        return reason if reason.endswith(words) else reason + words

    def request(self, change: Optional[StatusChange] = None) -> Request:
        """A call of the scheduler, with what is known of destinations.

        Args:
            change: of a hook, which it is called for.
        """
        entities = Entities(hosts=tuple(self._state.hosts), vms=tuple(self._state.vms))
        arguments: dict[str, object] = {}
        if change is not None:
            arguments = {"old_status": change.old_status, "new_status": change.new_status}
            if change.subject in self._state.hosts:
                entities = entities._replace(host=change.subject)
            else:
                entities = entities._replace(vm=change.subject)
        is_averaged = self.method == BALANCE and self.settings.average > 0
        return Request(
            Caller.of_cluster(self.settings.name),
            entities,
            self.settings.properties,
            # Copies: more is added later, and the history keeps what this call was given.
            driver_call=DriverCall(
                self.driver,
                self.method,
                arguments,
                destinations=dict(self._costs_of),
                planned=dict(self.planned),
                rules=self.placed({}),
                averages=as_values(self._state) if is_averaged else {},
            ),
        )

    def answer(self) -> Migrations:
        """What the scheduler wants to migrate, or the balance unit of the section in its place.

        It is called again as long as a VM may not go where it wants it: a balance unit without the
        host of that VM. The answer is empty if it fails, or does not define the method.

        Raises:
            SchedulerError: as for ``learn``.
        """
        answer = cast("Migrations", {})
        if self.method == BALANCE and self.settings.balance is not None:
            return self._balanced_by(self.settings.balance)
        if self.driver.defines(self.method):
            for _ in range(_MOST_ANSWERS):
                answer = self.decisions.decide(self.request(), self.view.replies).answer
                if not self.learn(answer):
                    break
        return answer

    def _balanced_by(self, unit: RequestedUnit) -> Migrations:
        """The VM that a balance unit names, after those that it named and that have to stay.

        Nobody can tell it which VM has to stay; so it is asked about the other hosts.
        """
        answer: dict[str, tuple[str, ...]] = {}
        passed_over = {vm.host for vm in self._state.vms.values() if vm.is_migrating}
        while not self.stopping.is_set():
            hosts = tuple(host for host in self._up if host not in passed_over)
            migration: Optional[Migration] = None
            if hosts:
                migration = self._ask_units(None, Kind.BALANCE, (unit,), hosts)
            if migration is None:
                break
            answer[migration.vm] = migration.hosts
            self.learn({migration.vm: migration.hosts})
            vm = self._state.vms.get(migration.vm)
            if vm is None or vm.host not in hosts:
                break
            placed = self.placed({migration.vm: ()})
            moving = placed.unit_of(migration.vm)
            if self._best(moving, migration.hosts, placed) is not None:
                break
            passed_over.add(vm.host)
        return answer

    def choose(self, answer: Migrations) -> tuple[dict[str, str], list[Step]]:
        """Choose the migrations of an answer that the units and the affinity rules allow.

        Args:
            answer: whose VMs the units were called for. A VM that hard affinity groups tie to
                others on its host takes them along, if these may go there, or stays.

        Returns:
            Id of a VM to the id of the host that it is to go to, empty for any; and the
            migrations that are not allowed, with the problem.
        """
        chosen: dict[str, str] = {}
        unfit: list[Step] = []
        placed = self.placed(answer)
        for vm, offered in answer.items():
            if vm not in self._state.vms or vm in chosen:
                continue  # a balance unit may name any
            unit = placed.unit_of(vm)
            target = self._best(unit, offered, placed)
            if target is None:
                step = Step.planned(vm, _first(offered), self._state)
                if problem := self._problem(unit, step.target, placed):
                    unfit.append(replace(step, problem=problem))
            elif target != self._state.vms[vm].host:
                chosen.update(dict.fromkeys(unit, target))
                if len(unit) > 1:
                    self.leaders.update(dict.fromkeys(unit, vm))
                _move(placed, unit, target)
        return chosen, unfit

    def _problem(self, unit: tuple[str, ...], target: str, placed: PlacedVms) -> str:
        """Why a unit does not go to a host, or nowhere; empty if no word is said of it."""
        problems = [
            closed.get(ANY_HOST, closed.get(target, _NOT_ALLOWED))
            for closed in (self._closed.get(vm, {}) for vm in unit)
        ]
        if all(problem == _NOT_ALLOWED for problem in problems):
            return placed.refusals(unit, (target,))[target] or _NOT_ALLOWED
        return next((problem for problem in problems if problem != _NOT_ALLOWED), "")

    def _best(
        self, unit: tuple[str, ...], offered: tuple[str, ...], placed: PlacedVms
    ) -> Optional[str]:
        """The host to migrate VMs to that move together.

        Args:
            offered: the hosts that the scheduler answered, the best first; empty for any host.
            placed: the VMs of affinity groups as they will be.

        Returns:
            Its id; empty for any host; None if they have to stay.
        """
        of_members = [self._costs_of[vm] for vm in unit if vm in self._costs_of]
        is_ruled = unit[0] in self.rules.vms
        if not of_members and not is_ruled:
            return _first(offered)
        hosts = of_members[0] if of_members else self._up
        costs = {
            host: sum(costs[host] for costs in of_members)
            for host in hosts
            if all(host in costs for costs in of_members)
        }
        if is_ruled:
            costs = {host: costs[host] for host in placed.acceptable(unit, costs)}
        here = self._state.vms[unit[0]].host
        others = [host for host in self._up if host != here]
        if not offered and others and not is_ruled and all(costs.get(host) == 0 for host in others):
            return ""
        # To any host: the engine would not ask the filters, and equal hosts share the VMs.
        turns = {host: 0 if offered else zlib.crc32(f"{unit[0]} {host}".encode()) for host in costs}
        fit = [host for host in offered or others if host in costs]
        return min(fit, key=lambda host: (costs[host], turns[host]), default=None)

    def placed(self, answer: Migrations) -> PlacedVms:
        """The VMs of affinity groups as they will be, but for those that an answer decides anew."""
        rules, vms = self.rules, self._state.vms
        where = {vm: vms[vm].host for vm in rules.vms if vm in vms}
        anew = {other for vm in answer for other in self._beside(vm)} if rules.groups else set()
        where.update((vm, host) for vm, host in self.planned.items() if vm not in anew)
        return PlacedVms(rules, {vm: host for vm, host in where.items() if host})

    def _beside(self, vm: str) -> Iterator[str]:
        """The VMs on the same host that hard affinity groups tie to this one, itself among them."""
        vms = self._state.vms
        host = vms[vm].host if vm in vms else None
        for other in self.rules.company_of(vm):
            if other in vms and vms[other].host == host:
                yield other

    def _allowed(self, vm: str) -> Mapping[str, int]:
        """The hosts that the filters leave, each with the sum of the cost functions."""
        settings = self.settings
        remaining = self._up
        if remaining and settings.filters:
            remaining = tuple(self._ask_units(vm, Kind.FILTER, settings.filters, remaining))
        remaining = tuple(host for host in remaining if host not in self._closed.get(vm, ()))
        sums = dict.fromkeys(remaining, 0)
        if remaining and settings.cost_functions:
            costs = self._ask_units(vm, Kind.COST_FUNCTION, settings.cost_functions, remaining)
            sums = {host: costs.get(host, 0) for host in remaining}  # as for engines
        doubt = 1 + max(sums.values(), default=0) - min(sums.values(), default=0)
        doubtful = self.doubtful.get(vm, ())
        return {host: cost + doubt * (host in doubtful) for host, cost in sums.items()}

    def _ask_units(
        self,
        vm: Optional[str],
        kind: Kind,
        units: tuple[RequestedUnit, ...],
        hosts: tuple[str, ...],
    ) -> Any:
        caller = Caller.of_cluster(self.settings.name)
        entities = Entities(hosts, vm=vm)
        request = Request(caller, entities, self.settings.properties, {kind: units})
        return self.decisions.decide(request, about_vm(self.view.replies, vm)).answer


def about_vm(replies: Optional[EngineReplies], vm: Optional[str]) -> Optional[EngineReplies]:
    """The replies about all hosts and one VM, of those about a cluster."""
    if replies is None:
        return None
    of_vm = next((reply for reply in replies.vms if vm in reply.ids), None)
    return EngineReplies(replies.hosts, of_vm)


def _first(hosts: tuple[str, ...]) -> str:
    return hosts[0] if hosts else ""


def _move(placed: PlacedVms, unit: tuple[str, ...], target: Optional[str]) -> None:
    for vm in unit if target else ():
        placed.move(vm, target)
