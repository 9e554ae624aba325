"""Acts on a scheduler's answer, as ``drive`` says: its plan is logged, made, or has to wait.

::

    an answer ──► what filters allow ──► of a balancing: what is calm ──► a plan ──► dry-run: told
                  (destinations.py)      (calm.py)                        │          on: made
                                                                          └─ approve: waits
                                                                             (plans.py)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_scheduler.clusters.calm import Calm, cluster_imbalance
from ovirt_scheduler.clusters.destinations import BALANCE, ClusterDestinations
from ovirt_scheduler.clusters.migrations import ClusterMigrations, step_fields
from ovirt_scheduler.clusters.plans import left_behind, misfit
from ovirt_scheduler.clusters.reader import View
from ovirt_scheduler.clusters.services import ClusterServices
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.drivers import Migrations
from ovirt_scheduler.model.plans import APPROVED, LEFT_BEHIND, MADE, TOLD, WAITING, Plan, Step
from ovirt_scheduler.settings.config import ClusterSettings
from ovirt_scheduler.settings.values import Drive

_log = logging.getLogger(__name__)

HOOKS = ("on_host_status_changed", "on_vm_status_changed")  # each change is told to them once


class ClusterActions:
    """Acts on what is answered for one cluster; used by the thread that looks after it.

    Args:
        migrations: of this one.

    Attributes:
        imbalance: in percent, as the last balancing found it; None if that is not known.
    """

    def __init__(
        self, settings: ClusterSettings, services: ClusterServices, migrations: ClusterMigrations
    ) -> None:
        self._settings = settings
        self._cluster = settings.name
        self._drive = settings.drive
        self._services = services
        self._migrations = migrations
        self._memory = services.memory.cluster(settings.name)
        self._calm = Calm(settings.hold, settings.margin, self._memory.left)
        self._told: dict[str, frozenset[str]] = {}  # by what is told, of which VMs or hosts it was
        # By the ids of plans that the look under way may make, whose they are.
        self._approved: dict[str, str] = {}
        self.imbalance: Optional[float] = None

    def begin_look(self) -> bool:
        """Note which plans are approved: of a later one only a later look tells whether it fits.

        Returns:
            Whether one of a balancing is among them, so that the cluster is to be balanced.
        """
        plans = self._services.plans.of_cluster(self._cluster)
        self._approved = {plan.id: plan.method for plan in plans if plan.state == APPROVED}
        return BALANCE in self._approved.values()

    def destinations(self, method: str, view: View) -> ClusterDestinations:
        """Where VMs may go that a call of a method names."""
        staying = [*self._migrations.under_way, *self._migrations.exhausted()]
        former: Mapping[str, frozenset[str]] = {}
        if method == BALANCE:
            staying += self._memory.moved  # by the last balancing: it may have been in vain
            former = self._calm.former_hosts(time.monotonic())
        services = self._services
        return ClusterDestinations(
            services.decisions, self._settings, view, staying, former, services.stopping
        )

    def act(self, method: str, answer: Migrations, destinations: ClusterDestinations) -> None:
        """Act on an answer.

        Args:
            destinations: which know the VMs of the answer, and the cluster; of a balancing with
                what is used.
        """
        state = destinations.view.state
        chosen, unfit = destinations.choose(answer)
        self._log_not_made(method, {step.vm: step for step in unfit})
        if method != BALANCE:
            self._act(method, [Step.planned(vm, to, state) for vm, to in chosen.items()], state)
            return
        self.imbalance = cluster_imbalance(state)
        self._memory.moved = []
        judged = self._calm.judge(chosen, state, time.monotonic())
        # Of those off a host the first is told.
        waiting = {each.source: each for each in reversed(judged) if each.problem}
        self._log_not_made("waiting", waiting)
        plan = self._services.plans.open(self._cluster, BALANCE)
        if plan is not None and self._drive is Drive.APPROVE:
            over = self._calm.why_over(plan.steps, judged, state)
            if not over:
                self._make_approved(plan)
                return
            self._services.plans.end(plan, LEFT_BEHIND, over)
        self._act(BALANCE, [each for each in judged if not each.problem], state)

    def settle_plans(self, state: ClusterState) -> None:
        """End the plans that the cluster has left behind, and make those that were approved.

        Whether one of a balancing is still worth it, only the next balancing shows.
        """
        for plan in self._services.plans.of_cluster(self._cluster):
            if plan.state not in (WAITING, APPROVED):
                continue
            problem = left_behind(plan, state, self._migrations.under_way)
            if problem:
                self._services.plans.end(plan, LEFT_BEHIND, problem)
            elif plan.method != BALANCE:
                self._make_approved(plan)

    def _make_approved(self, plan: Plan) -> None:
        if plan.id in self._approved:
            self._services.plans.end(plan, MADE, self._make(plan.method, plan.steps))

    def _act(self, method: str, wanted: Sequence[Step], state: ClusterState) -> None:
        """Make a plan of migrations, and make them, tell them or have them wait."""
        if self._services.stopping.is_set() and self._drive is not Drive.ON:
            return  # nobody is left who would make it
        asked = f"{method} of {self._settings.scheduler} asks for it"
        if method == BALANCE and self._settings.balance is not None:
            asked = f"{self._settings.balance.name} asks for it"
        steps = [replace(each, reason=each.reason or asked) for each in wanted]
        if self._drive is Drive.APPROVE:
            steps = self._to_approve(method, steps, state)
        becomes = {Drive.DRY_RUN: TOLD, Drive.APPROVE: WAITING}.get(self._drive, MADE)
        plan = Plan(self._cluster, method, tuple(steps), time.time(), self.imbalance, becomes)
        if self._drive is Drive.ON:
            plan = replace(plan, because=self._make(method, steps))
        is_another = self._services.plans.add(plan)
        if self._drive is Drive.DRY_RUN and (is_another or method in HOOKS):
            for step in steps:
                _log.info(
                    "cluster %(cluster)s: would migrate %(vm)s from %(source_host)s "
                    "to %(target_host)s: %(reason)s",
                    step_fields(self._cluster, step, reason=step.reason),
                )

    def _to_approve(self, method: str, wanted: list[Step], state: ClusterState) -> list[Step]:
        """Those to wait for approval: what nobody has refused, and what hooks wanted before."""
        steps = [
            each
            for each in wanted
            if not self._services.plans.was_refused(self._cluster, each.vm, each.target)
        ]
        former = self._services.plans.open(self._cluster, method) if method in HOOKS else None
        if former is not None:  # each change is told once: what it led to stays wanted
            vms = {each.vm for each in wanted}
            steps += [
                each for each in former.steps if each.vm not in vms and not misfit(each, state)
            ]
        return steps

    def _make(self, method: str, steps: Sequence[Step]) -> str:
        """Make migrations; tells how many of them the engine does not refuse."""
        now = time.monotonic()
        if method == BALANCE:
            self._memory.moved = [each.vm for each in steps]
        taken = self._migrations.make(steps)
        if method == BALANCE:
            self._memory.moved = taken
            self._calm.made((each for each in steps if each.vm in taken), now)
            self._services.memory.save(self._cluster)
        return f"{len(taken)} of {len(steps)} migrations are begun"

    def _log_not_made(self, what: str, steps: Mapping[str, Step]) -> None:
        """Log why migrations are not made; what is wanted again and again once.

        Args:
            what: the method that asks for them, or "waiting".
            steps: by the id of a VM or of a host.
        """
        told, self._told[what] = self._told.get(what, frozenset()), frozenset(steps)
        for key, step in steps.items():
            if what in HOOKS or key not in told:
                _log.info(
                    "cluster %(cluster)s: %(vm)s does not go from %(source_host)s to "
                    "%(target_host)s now: %(reason)s",
                    step_fields(self._cluster, step, reason=step.problem),
                )
