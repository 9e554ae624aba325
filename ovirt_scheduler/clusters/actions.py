"""Acts on a scheduler's answer, as ``drive`` says: its plan is logged, made, or has to wait.

::

    an answer ──► what filters allow ──► of a balancing: within limits? ──► a plan ──► dry-run: told
                  (destinations.py)      (migration_limits.py)              │          on: made
                                                                            └─ approve: waits
                                                                               (plans.py)

    made: remembered ──► the engine is asked ──► followed until the VM is there, or is not
           (on disk)            └─► refused: forgotten again

A migration is remembered before the engine is asked for it. So each running migration is followed,
even if the daemon ends, the call fails or the engine's answer is lost: the state of the VM shows
how it ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, Optional

from ovirt_scheduler.clusters.destinations import BALANCE, ClusterDestinations
from ovirt_scheduler.clusters.migration_limits import MigrationLimits, cluster_imbalance
from ovirt_scheduler.clusters.persistence import DriveMemory, Migrating
from ovirt_scheduler.clusters.plans import Plans, left_behind, misfit
from ovirt_scheduler.clusters.reader import View
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import AnswerLost, EngineRefusal, EngineUnavailable
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.drivers import DriverUnit, Migrations
from ovirt_scheduler.model.plans import APPROVED, LEFT_BEHIND, MADE, TOLD, WAITING, Plan, Step
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.settings.values import Drive

_log = logging.getLogger(__name__)

HOOKS = ("on_host_status_changed", "on_vm_status_changed")  # they are called once for each change

_BEGIN_SECONDS = 60.0  # in which a migration that was asked for is to be seen on its way
_LONGEST_MIGRATION = 3600.0  # seconds until one is not followed any more

_STOPPING = "the engine was not asked: the daemon stops, or reloads"
_NO_ANSWER = "the engine was not asked, as it did not answer for another VM"


class ClusterServices(NamedTuple):
    """The services that the threads of all clusters share.

    Attributes:
        decisions: answers requests for schedulers and policy units.
        stopping: set when nothing more may begin.
    """

    plans: Plans
    memory: DriveMemory
    inventory: Inventory
    decisions: DecisionService
    executor: Executor
    stopping: threading.Event


class ClusterMigrations:
    """The migrations of one cluster; used by the thread that looks after it.

    Attributes:
        limits: which know the migrations of the last hour.
    """

    def __init__(self, settings: ClusterSettings, services: ClusterServices) -> None:
        self._cluster = settings.name
        self._settings = settings
        self._services = services
        self._memory = services.memory.cluster(settings.name)
        self.limits = MigrationLimits(settings, self._memory.migrated)
        self._refused: dict[str, tuple[str, str]] = {}  # by VM, the host and why, as logged last

    @property
    def under_way(self) -> tuple[str, ...]:
        """The VMs that are migrated."""
        return tuple(self._memory.migrating)

    def make(self, steps: Sequence[Step], balances: bool) -> int:
        """Make migrations, one after another.

        Args:
            balances: whether a balancing wants them.

        Returns:
            How many the engine does not refuse.
        """
        begun = 0
        problem: Optional[EngineUnavailable] = None
        for step in steps:
            if self._services.stopping.is_set():
                problem = EngineUnavailable(_STOPPING)
            elif problem is None or isinstance(problem, EngineRefusal):
                problem = self._ask_engine(step)
            elif isinstance(problem, AnswerLost):  # the others would wait as long, and in vain
                problem = EngineUnavailable(_NO_ANSWER)
            self._log_asked(step, problem)
            if problem is None or isinstance(problem, AnswerLost):
                self._refused.pop(step.vm, None)
                self._memory.migrating[step.vm].begun = now = time.monotonic()
                self.limits.made(step, now, balances)
                begun += 1
            else:
                self._memory.migrating.pop(step.vm, None)
                if balances and step.vm in self._memory.moved:
                    self._memory.moved.remove(step.vm)
        self._services.memory.save(self._cluster)
        return begun

    def _ask_engine(self, step: Step) -> Optional[EngineUnavailable]:
        """Remember a migration, and ask the engine for it; return why it does not begin it."""
        inventory = self._services.inventory
        latest_event = inventory.latest_event or 0
        self._memory.migrating[step.vm] = Migrating(step, time.monotonic(), event=latest_event)
        self._services.memory.save(self._cluster)
        try:
            inventory.migrate(step.vm, step.target, self._memory.mark)
        except EngineUnavailable as error:
            return error
        return None

    def follow(self, state: ClusterState) -> None:
        """Log the migrations that have ended, and forget them."""
        self._refused = {vm: why for vm, why in self._refused.items() if vm in state.vms}
        outcomes = {vm: _outcome(each, state) for vm, each in self._memory.migrating.items()}
        ended = {vm: problem for vm, problem in outcomes.items() if problem is not None}
        after = {vm: self._memory.migrating[vm].event for vm in ended if not ended[vm]}
        took = self._services.inventory.migration_seconds(after)
        for vm, problem in ended.items():
            migrating = self._memory.migrating.pop(vm)
            self._log_end(migrating, problem, took.get(vm))
        if ended:
            self._services.memory.save(self._cluster)

    def adopt(self, state: ClusterState) -> None:
        """Follow the migrations that run already, whoever asked for them."""
        for vm, vm_state in state.vms.items():
            if vm_state.is_migrating and vm not in self._memory.migrating:
                step = Step.planned(vm, "", state)
                self._memory.migrating[vm] = Migrating(step, time.monotonic(), moving=True)

    def _log_asked(self, step: Step, problem: Optional[EngineUnavailable]) -> None:
        reason = (
            problem.words if isinstance(problem, EngineRefusal) else str(problem or step.reason)
        )
        fields = _step_fields(self._cluster, step, reason=reason)
        if problem is None:
            _log.info(
                "cluster %(cluster)s: migrating %(vm)s from %(source_host)s to %(target_host)s: "
                "%(reason)s",
                fields,
            )
        elif isinstance(problem, AnswerLost):
            _log.warning(
                "cluster %(cluster)s: the engine did not confirm that %(vm)s migrates from "
                "%(source_host)s to %(target_host)s: %(reason)s",
                fields,
            )
        elif self._refused.get(step.vm) != (step.target, reason):  # the scheduler may want it often
            self._refused[step.vm] = step.target, reason
            _log.warning(
                "cluster %(cluster)s: cannot migrate %(vm)s from %(source_host)s "
                "to %(target_host)s: %(reason)s",
                fields,
            )

    def _log_end(self, migrating: Migrating, problem: str, took: Optional[float]) -> None:
        step, settings = migrating.step, self._settings
        seconds = time.monotonic() - migrating.begun if took is None else took
        fields = _step_fields(self._cluster, step, reason=problem, seconds=seconds)
        if problem:
            _log.warning(
                "cluster %(cluster)s: the migration of %(vm)s to %(target_host)s "
                "%(reason)s after %(seconds).0f s",
                fields,
            )
        else:
            duration = f"within {seconds:.0f} s" if took is None else f"in {seconds:.1f} s"
            _log.info(
                "cluster %(cluster)s: the migration of %(vm)s to %(target_host)s is done "
                "%(reason)s",
                {**fields, "reason": duration},
            )
        count = self.limits.exhausted(time.monotonic()).get(step.vm)
        if count is not None:
            unit = settings.scheduler if settings.balance is None else settings.balance.name
            _log.warning(
                "cluster %(cluster)s: %(vm)s was migrated %(count)d times within an hour, and now "
                "stays where it is: does %(unit)s move it back and forth?",
                _step_fields(self._cluster, step, count=count, unit=unit),
            )


class ClusterActions:
    """Acts on what is answered for one cluster; used by the thread that looks after it.

    Attributes:
        migrations: of this cluster.
        imbalance: in percent, as the last balancing found it; None if that is not known.
    """

    def __init__(self, settings: ClusterSettings, services: ClusterServices) -> None:
        self._settings = settings
        self._cluster = settings.name
        self._services = services
        self._memory = services.memory.cluster(settings.name)
        self.migrations = ClusterMigrations(settings, services)
        self._limits = self.migrations.limits
        self._logged: dict[str, frozenset[str]] = {}  # as ``_log_not_made`` was called last
        # Plans that this look may make: id to method.
        self._approved: dict[str, str] = {}
        self.imbalance: Optional[float] = None

    def begin_look(self) -> bool:
        """Note which plans are approved now: one that is approved later waits for the next look.

        Returns:
            Whether the plan of a balancing is among them, so that the cluster is to be balanced.
        """
        plans = self._services.plans.of_cluster(self._cluster)
        self._approved = {plan.id: plan.method for plan in plans if plan.state == APPROVED}
        return BALANCE in self._approved.values()

    def destinations(self, driver: DriverUnit, method: str, view: View) -> ClusterDestinations:
        """The destinations of the VMs that a method's answer will name; none is known yet."""
        now = time.monotonic()
        staying = [*self.migrations.under_way, *self._limits.exhausted(now)]
        former: Mapping[str, frozenset[str]] = {}
        if method == BALANCE:
            staying += self._memory.moved  # by the last balancing: it may have been in vain
            former = self._limits.former_hosts(now)
        services = self._services
        return ClusterDestinations(
            services.decisions, self._settings, driver, method, view, staying, former,
            services.stopping,
        )  # fmt: skip

    def act(
        self,
        answer: Migrations,
        destinations: ClusterDestinations,
        events: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Act on an answer.

        Args:
            events: of a hook's answer, the change of status that each VM leaves its host for.
            destinations: know the VMs of the answer, and the cluster; for a balancing, also how
                much its hosts and VMs use.
        """
        method, state = destinations.method, destinations.view.state
        chosen, unfit = destinations.choose(answer)
        self._log_not_made(method, {step.vm: step for step in unfit})
        if method != BALANCE:
            steps = [Step.planned(vm, to, state, events.get(vm, "")) for vm, to in chosen.items()]
            self._act(method, steps, state)
            return
        self.imbalance = cluster_imbalance(state)
        self._memory.moved = []
        judged = self._limits.judge(chosen, state, time.monotonic())
        # The log has only the first migration off each host.
        waiting = {each.source: each for each in reversed(judged) if each.problem}
        self._log_not_made("waiting", waiting)
        plan = self._services.plans.open(self._cluster, BALANCE)
        if plan is not None and self._settings.drive is Drive.APPROVE:
            over = self._limits.why_over(plan.steps, judged, state)
            if not over:
                self._make_approved(plan)
                return
            self._services.plans.end(plan, LEFT_BEHIND, over)
        self._act(BALANCE, [each for each in judged if not each.problem], state)

    def settle_plans(self, state: ClusterState) -> None:
        """End the plans that the cluster has left behind, and make those that were approved.

        An approved plan of a balancing is left to the next balancing, which shows whether it is
        still worth it.
        """
        for plan in self._services.plans.of_cluster(self._cluster):
            if plan.state not in (WAITING, APPROVED):
                continue
            problem = left_behind(plan, state, self.migrations.under_way)
            if problem:
                self._services.plans.end(plan, LEFT_BEHIND, problem)
            elif plan.method != BALANCE:
                self._make_approved(plan)

    def _make_approved(self, plan: Plan) -> None:
        if plan.id in self._approved:
            self._services.plans.end(plan, MADE, self._make(plan.method, plan.steps))

    def _act(self, method: str, wanted: Sequence[Step], state: ClusterState) -> None:
        """Make a plan of migrations, and make them, tell them or have them wait."""
        if self._services.stopping.is_set() and self._settings.drive is not Drive.ON:
            return  # the daemon stops: nobody would carry it out
        asked = f"{method} of {self._settings.scheduler} asks for it"
        if method == BALANCE and self._settings.balance is not None:
            asked = f"{self._settings.balance.name} asks for it"
        steps = [replace(each, reason=each.reason or asked) for each in wanted]
        if self._settings.drive is Drive.APPROVE:
            steps = self._to_approve(method, steps, state)
        becomes = {Drive.DRY_RUN: TOLD, Drive.APPROVE: WAITING}.get(self._settings.drive, MADE)
        plan = Plan(self._cluster, method, tuple(steps), time.time(), self.imbalance, becomes)
        if self._settings.drive is Drive.ON:
            plan = replace(plan, because=self._make(method, steps))
        is_another = self._services.plans.add(plan)
        if self._settings.drive is Drive.DRY_RUN and (is_another or method in HOOKS):
            for step in steps:
                _log.info(
                    "cluster %(cluster)s: would migrate %(vm)s from %(source_host)s "
                    "to %(target_host)s: %(reason)s",
                    _step_fields(self._cluster, step, reason=step.reason),
                )

    def _to_approve(self, method: str, wanted: list[Step], state: ClusterState) -> list[Step]:
        """Those to wait for approval: what nobody has refused, and what hooks wanted before."""
        refused = self._services.plans.was_refused
        steps = [each for each in wanted if not refused(self._cluster, each.vm, each.target)]
        former = self._services.plans.open(self._cluster, method) if method in HOOKS else None
        if former is not None:  # a hook is not called again: its former plan holds
            taken = {*(each.vm for each in wanted), *self.migrations.under_way}
            steps += [old for old in former.steps if not misfit(old, state, taken)]
        return steps

    def _make(self, method: str, steps: Sequence[Step]) -> str:
        """Make migrations; in words, how many of them the engine does not refuse."""
        if method == BALANCE:
            self._memory.moved = [each.vm for each in steps]
        begun = self.migrations.make(steps, method == BALANCE)
        return f"{begun} of {len(steps)} migrations are begun"

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
                    _step_fields(self._cluster, step, reason=step.problem),
                )


def _step_fields(cluster: str, step: Step, **more: object) -> dict[str, object]:
    """The fields of a migration in the log: names, as an administrator knows them."""
    return {
        "cluster": cluster,
        "vm": step.vm_name,
        "source_host": step.source_name,
        "target_host": step.target_name,
        **more,
    }


def _outcome(migrating: Migrating, state: ClusterState) -> Optional[str]:
    """What went wrong with a migration; empty if it is done; None while it goes on."""
    age, step = time.monotonic() - migrating.begun, migrating.step
    vm = state.vms.get(step.vm)
    if vm is None:
        return "ended with the VM, which is gone,"
    if vm.is_migrating:
        migrating.moving = True
        return "still goes on, and is followed no more," if age > _LONGEST_MIGRATION else None
    elsewhere = vm.host not in (None, step.source)
    if vm.host == step.target or (elsewhere and not step.target):
        return ""
    if not migrating.moving and age <= _BEGIN_SECONDS:
        return None
    where = f"on {state.host_name(vm.host)}" if vm.host else vm.status or "off"
    return f"failed, the VM is {where},"
