"""Acts on a scheduler's answer, as ``drive`` says: its plan is logged, made, or has to wait.

::

    an answer ──► what filters allow ──► of a balancing: within limits? ──► would the engine do it?
        ▲         (destinations.py)      (migration_limits.py)              (offers.py) │  │ yes
        │                                                                               │  ▼
        └── once more, while the engine says no to something new ◄──────────────────────┘  a plan
                                          ▲                                                │
                                          └── refused (migrations.py) ◄── on: made ────────┤
                                                                          dry-run: told ───┤
                                                         approve: waits (plan_approval.py) ┘

A balancing is asked about as a whole, because its migrations are of use together. What a hook or
the timer wants is asked about and made one VM after another, so that the first leaves at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Callable, Optional

from ovirt_scheduler.clusters.affinity_watch import ClusterAffinity
from ovirt_scheduler.clusters.averages import UseAverages
from ovirt_scheduler.clusters.cluster_reader import ClusterView
from ovirt_scheduler.clusters.destinations import BALANCE, MEND, ClusterDestinations
from ovirt_scheduler.clusters.engine_side import EngineSide, balances
from ovirt_scheduler.clusters.migration_limits import cluster_imbalance
from ovirt_scheduler.clusters.migrations import (
    ClusterMigrations,
    ClusterServices,
    RequestedMigrations,
    step_fields,
)
from ovirt_scheduler.clusters.offers import Offers
from ovirt_scheduler.clusters.plan_approval import left_behind, misfit
from ovirt_scheduler.clusters.refusals import ANY_HOST, NO_HOST, NOT_OFFERED
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.drivers import DriverUnit, Migrations
from ovirt_scheduler.model.plans import (
    APPROVED,
    LEFT_BEHIND,
    MADE,
    TOLD,
    WAITING,
    Obstacle,
    Plan,
    Step,
)
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.settings.value_types import Drive

_log = logging.getLogger(__name__)

HOOKS = ("on_host_status_changed", "on_vm_status_changed")  # they are called once for each change
MOST_MENDINGS = 10  # that one look tries
_COURSE = 1440  # balancings whose imbalance is kept: a day's, by default
MOST_ROUNDS = 10  # in which one look asks for other migrations, after the engine said no


class ClusterPlanning:
    """Acts on what is answered for one cluster; used by the thread that looks after it.

    Attributes:
        migrations: of this cluster.
        affinity: its rules.
        imbalance: in percent, as the last balancing found it; None if that is not known.
        course: the imbalance that each balancing found: seconds since 1970, percent.
    """

    def __init__(
        self, settings: ClusterSettings, services: ClusterServices, engine_side: EngineSide
    ) -> None:
        self._settings = settings
        self._cluster = settings.name
        self.affinity = ClusterAffinity(
            settings, services.inventory, services.executor, engine_side
        )
        self._services = services
        self._memory = services.memory.cluster(settings.name)
        self.migrations = ClusterMigrations(settings, services)
        self._limits, self._refusals = self.migrations.limits, self.migrations.refusals
        self._offers = Offers(
            settings.name, services.inventory, settings.refused_pause, services.following.inquiries
        )
        self._averages = UseAverages(settings.average)
        self._logged: dict[str, frozenset[str]] = {}  # as ``_log_not_made`` was called last
        # Plans that this look may make: id to method.
        self._approved: dict[str, str] = {}
        self._planned: dict[str, str] = {}  # VM to host, of this look and of what is under way
        self.imbalance: Optional[float] = None
        self.course: tuple[tuple[float, float], ...] = ()

    def begin_look(self) -> bool:
        """Note which plans are approved now: one that is approved later waits for the next look.

        Returns:
            Whether the plan of a balancing is among them, so that the cluster is to be balanced.
        """
        self.migrations.begin_look()
        self._offers.begin_look()
        self.affinity.begin_look()
        plans = self._services.plans.of_cluster(self._cluster)
        self._approved = {plan.id: plan.method for plan in plans if plan.state == APPROVED}
        return BALANCE in self._approved.values()

    def settle_plans(self, driver: DriverUnit, view: ClusterView) -> None:
        """End the plans that the cluster has left behind, and make those that were approved.

        An approved plan of a balancing is left to the next balancing, which shows whether it is
        still worth it. What hooks want waits on, and counts in what others plan.
        """
        for plan in self._waiting_plans():
            problem = left_behind(plan, view.state, self.migrations.under_way)
            if problem:
                self._services.plans.end(plan, LEFT_BEHIND, problem)
            elif plan.method != BALANCE and plan.id in self._approved:
                self._make_or_replace(plan, self.destinations(driver, plan.method, view))
        self._planned = {
            step.vm: step.target
            for plan in self._waiting_plans()
            if plan.method in HOOKS
            for step in plan.steps
            if step.target
        }
        self._planned.update(self.migrations.planned)

    def _waiting_plans(self) -> list[Plan]:
        plans = self._services.plans.of_cluster(self._cluster)
        return [plan for plan in plans if plan.state in (WAITING, APPROVED)]

    def _make_or_replace(self, plan: Plan, destinations: ClusterDestinations) -> None:
        """Make an approved plan; what the engine says no to waits with another destination."""
        if not self._make_approved(plan, plan.steps, destinations):
            return
        steps = [step for step in plan.steps if step.vm not in self.migrations.under_way]
        answer: Migrations = {step.vm: () for step in steps}
        reasons = {step.vm: step.reason for step in steps}
        self.perform(destinations, lambda: answer, reasons)

    def destinations(
        self, driver: DriverUnit, method: str, view: ClusterView
    ) -> ClusterDestinations:
        """The destinations of the VMs that a method's answer will name, as far as they are known.

        What is planned already stays as it is planned; but a hook may want something else now.
        """
        now = time.monotonic()
        closed = self._refusals.closed(now)
        staying = [*self.migrations.under_way, *self._limits.exhausted(now)]
        rules = self.affinity.read(view.state)
        if method not in HOOKS:
            staying += self._planned
        if method == BALANCE:
            for vm, why in self.affinity.touched().items():
                closed[vm] = {ANY_HOST: why, **closed.get(vm, {})}
            staying += self._memory.moved  # by the last balancing: it may have been in vain
            view = view._replace(state=self._averages.averaged(view.state, now))
            for vm, hosts in self._limits.former_hosts(now).items():
                closed[vm] = {**hosts, **closed.get(vm, {})}
        closed.update((vm, {ANY_HOST: ""}) for vm in staying)
        services = self._services
        return ClusterDestinations(
            services.decisions, self._settings, driver, method, view, closed, services.stopping,
            self._refusals.doubtful(now), dict(self._planned), rules,
        )  # fmt: skip

    def mend(self, driver: DriverUnit, view: ClusterView) -> None:
        """Watch which affinity rules are broken, and mend one where it is time for that."""
        destinations = self.destinations(driver, MEND, view)
        placed = destinations.placed({})
        self.affinity.watch(placed)
        reasons: dict[str, str] = {}

        def answer() -> Migrations:
            mendings = self.affinity.mendings(placed, destinations.expected)
            for mending in islice(mendings, MOST_MENDINGS):
                migrations = {mending.vm: mending.hosts}
                destinations.learn(migrations)
                for vm in destinations.choose(migrations)[0]:
                    reasons[vm] = f"the affinity group {mending.rule.group.name} is broken"
                if mending.vm in reasons:
                    return migrations
            return {}

        if balances(self._settings):
            self.perform(destinations, answer, reasons)

    def perform(
        self,
        destinations: ClusterDestinations,
        answer: Callable[[], Migrations],
        reasons: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Act on an answer, and on another one as long as the engine says no to something new.

        Args:
            destinations: know the VMs of the answer, and the cluster; for a balancing, also how
                much its hosts and VMs use.
            answer: gives the answer that fits what the destinations know by then.
            reasons: why each VM leaves its host: for a hook's answer the change of status.
        """
        if destinations.method == BALANCE:
            self.imbalance = cluster_imbalance(destinations.view.state)
            self._memory.moved = []
            if self.imbalance is not None:
                self.course = (*self.course, (time.time(), self.imbalance))[-_COURSE:]
        state = destinations.view.state
        unfit: dict[str, Step] = {}
        for turn in range(MOST_ROUNDS):
            chosen, not_allowed = destinations.choose(answer())
            unfit.update((step.vm, step) for step in not_allowed)
            leaders = destinations.leaders
            steps: Sequence[Step] = [
                Step.planned(vm, target, state, reasons.get(vm, ""))
                for vm, target in chosen.items()
            ]
            if destinations.method == BALANCE:
                now, expected = time.monotonic(), destinations.expected
                steps = self._limits.judge(chosen, expected, now, again=turn > 0)
            steps = [replace(step, closure=leaders.get(step.vm, "")) for step in steps]
            if not self._act(steps, destinations, is_last=turn == MOST_ROUNDS - 1):
                break
        self._log_not_made(destinations.method, unfit)
        if destinations.method == BALANCE:
            # The log has only the first migration off each host.
            waiting = {step.source: step for step in reversed(steps) if step.problem}
            self._log_not_made("waiting", waiting)

    def _act(
        self, judged: Sequence[Step], destinations: ClusterDestinations, is_last: bool
    ) -> bool:
        """Make a plan of migrations, and make them, tell them or have them wait.

        Args:
            judged: those with a problem are left out.

        Returns:
            Whether the engine said no to something new, so that other migrations may be wanted.
        """
        method, state = destinations.method, destinations.view.state
        drive = self._drive_of(method)
        if self._services.stopping.is_set() and drive is not Drive.ON:
            return False  # the daemon stops: nobody would carry it out
        ready = [step for step in judged if not step.problem]
        waiting = self._services.plans.open(self._cluster, method) if method == BALANCE else None
        if waiting is not None and waiting.state == TOLD:
            pass  # another takes its place
        elif waiting is not None and drive is Drive.APPROVE:
            over = self._limits.why_over(waiting.steps, judged, destinations.expected)
            if not over and waiting.id in self._approved:
                names = [step.vm_name for step in waiting.steps if self._not_offered(step, state)]
                over = f"the engine would not migrate {', '.join(names)} so" if names else ""
            if not over:
                return self._make_approved(waiting, waiting.steps, destinations)
            self._services.plans.end(waiting, LEFT_BEHIND, over)
        elif waiting is not None:
            self._services.plans.end(waiting, LEFT_BEHIND, self._outside_hours)
        if method != BALANCE and drive is Drive.ON:
            return self._carry_out(ready, destinations)
        answers = {step.vm: self._not_offered(step, state) for step in ready}
        refused = {vm: hosts for vm, hosts in answers.items() if hosts}
        for vm, hosts in refused.items():
            destinations.close(vm, hosts)
        if refused and not is_last:
            return True
        in_vain = _emptied(ready, destinations) if method == BALANCE else frozenset[str]()
        in_vain &= {step.source for step in ready if step.vm in refused}
        ready = [step for step in ready if step.vm not in refused and step.source not in in_vain]
        return self._carry_out(ready, destinations)

    def _drive_of(self, method: str) -> Drive:
        """What is done with the answer of a method now: a balancing has its hours."""
        hours, drive = self._settings.hours, self._settings.drive
        if hours is None or method not in (BALANCE, MEND):
            return drive
        now = time.localtime()
        return drive if hours.contain(60 * now.tm_hour + now.tm_min) else Drive.DRY_RUN

    @property
    def _outside_hours(self) -> str:
        return f"balancing migrates at {self._settings.hours} only"

    def _not_offered(self, step: Step, state: ClusterState) -> Mapping[str, str]:
        """The hosts that the engine does not offer for a VM, if it would not migrate it so.

        It is asked beforehand, and its answer is remembered.
        """
        # Of a VM that moves with others the engine says that it cannot go by itself.
        is_asked = not step.closure and not self._services.stopping.is_set()
        offered = self._offers.hosts(step.vm) if is_asked else None
        if offered is None:
            return {}
        now, others = time.monotonic(), state.hosts.keys() - {step.source}
        self._refusals.note_offer(step.vm, others - offered, now)
        if not others & offered:
            if self._refusals.add(step.to_any(), Obstacle.NO_HOST, NO_HOST, now):
                _log.info(
                    "cluster %(cluster)s: %(vm)s stays on %(source_host)s: %(reason)s",
                    step_fields(self._cluster, step, reason=NO_HOST),
                )
            return {ANY_HOST: NO_HOST}
        if step.target and step.target not in offered:
            return dict.fromkeys(others - offered, NOT_OFFERED)
        return {}

    def _carry_out(self, steps: Sequence[Step], destinations: ClusterDestinations) -> bool:
        """Make a plan, tell it or have it wait; as ``_act``."""
        method, drive = destinations.method, self._drive_of(destinations.method)
        default_reason = f"{method} of {self._settings.scheduler} asks for it"
        if method == BALANCE and self._settings.balance is not None:
            default_reason = f"{self._settings.balance.name} asks for it"
        steps = [
            replace(step, reason=destinations.with_company(step.vm, step.reason or default_reason))
            for step in steps
        ]
        if drive is Drive.APPROVE:
            steps = self._to_approve(method, steps, destinations.view.state)
        becomes = {Drive.DRY_RUN: TOLD, Drive.APPROVE: WAITING}.get(drive, MADE)
        because = "" if drive is self._settings.drive else self._outside_hours
        plan = Plan(
            self._cluster, method, tuple(steps), time.time(), self.imbalance, becomes, because
        )
        says_no = False
        if drive is Drive.ON:
            outcome = self._make(steps, destinations)
            says_no = not outcome.is_final
            requested = tuple(step for step in steps if step.vm in outcome.requested)
            plan = replace(plan, steps=requested, because=outcome.words(requested))
        else:
            self._planned.update((step.vm, step.target) for step in steps if step.target)
        is_another = self._services.plans.add(plan)
        if drive is Drive.DRY_RUN and (is_another or method in HOOKS):
            for step in steps:
                _log.info(
                    "cluster %(cluster)s: would migrate %(vm)s from %(source_host)s "
                    "to %(target_host)s: %(reason)s",
                    step_fields(self._cluster, step, reason=step.reason),
                )
        return says_no

    def _make_approved(
        self, plan: Plan, steps: Sequence[Step], destinations: ClusterDestinations
    ) -> bool:
        """Make those migrations of a plan, if it is approved; as ``_act``."""
        if plan.id not in self._approved:
            return False
        outcome = self._make(steps, destinations)
        self._services.plans.end(plan, MADE, outcome.words(steps))
        return not outcome.is_final

    def _make(
        self, steps: Sequence[Step], destinations: ClusterDestinations
    ) -> RequestedMigrations:
        """Make migrations; the destinations learn what the engine says no to."""
        balances, emptied = destinations.method == BALANCE, frozenset[str]()
        if balances:
            self._memory.moved += [step.vm for step in steps]
            emptied = _emptied(steps, destinations)
        state = destinations.view.state
        outcome = self.migrations.make(
            steps, balances, emptied, lambda step: self._not_offered(step, state)
        )
        self._planned.update(self.migrations.planned)
        destinations.planned.update(self._planned)
        for vm, hosts in outcome.closed.items():
            destinations.close(vm, hosts)
        return outcome

    def _to_approve(self, method: str, planned: list[Step], state: ClusterState) -> list[Step]:
        """Those to wait for approval: what nobody has refused, and what hooks wanted before."""
        refused = self._services.plans.was_refused
        refusals = [step for step in planned if refused(self._cluster, step.vm, step.target)]
        # Who refused the migration of a VM refused that of those which move with it.
        refused_vms = {step.closure or step.vm for step in refusals}
        steps = [step for step in planned if (step.closure or step.vm) not in refused_vms]
        former = self._services.plans.open(self._cluster, method) if method in HOOKS else None
        if former is not None:  # a hook is not called again: its former plan holds
            others = {*(step.vm for step in planned), *self.migrations.under_way}
            steps += [old for old in former.steps if not misfit(old, state, others)]
        return steps

    def _log_not_made(self, what: str, steps: Mapping[str, Step]) -> None:
        """Log why migrations are not made; what is wanted again and again once.

        Args:
            what: the method that asks for them, or "waiting".
            steps: by the id of a VM or of a host.
        """
        logged, self._logged[what] = self._logged.get(what, frozenset()), frozenset(steps)
        for key, step in steps.items():
            if what in HOOKS or key not in logged:
                _log.info(
                    "cluster %(cluster)s: %(vm)s does not go from %(source_host)s to "
                    "%(target_host)s now: %(reason)s",
                    step_fields(self._cluster, step, reason=step.problem),
                )


def _emptied(steps: Sequence[Step], destinations: ClusterDestinations) -> frozenset[str]:
    """The hosts that all VMs are to leave that will still be there."""
    leaving, vms = {step.vm for step in steps}, destinations.expected.vms
    staying = {vm.host for key, vm in vms.items() if key not in leaving}
    return frozenset(step.source for step in steps if step.source not in staying)
