"""Makes the migrations of one cluster, and follows them to their end.

::

    remembered ──► the engine is asked ──► followed until the VM is there, or is not
     (on disk)            └─► refused: forgotten again

A migration is remembered before the engine is asked for it. So each running migration is followed,
even if the daemon ends, the call fails or the engine's answer is lost: the state of the VM shows
how it ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Optional

from ovirt_scheduler.clusters import calm
from ovirt_scheduler.clusters.persistence import Migrating
from ovirt_scheduler.clusters.services import ClusterServices
from ovirt_scheduler.errors import EngineUnavailable, SchedulerError
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.decisions import DriverCall, Request
from ovirt_scheduler.model.plans import Step
from ovirt_scheduler.model.requests import Caller, Subjects
from ovirt_scheduler.settings.config import ClusterSettings

_log = logging.getLogger(__name__)

_BEGIN_SECONDS = 60.0  # in which a migration that was asked for is to be seen on its way
_EVENTS_SECONDS = 5.0  # for the engine to tell how long migrations took
_LONGEST_MIGRATION = 3600.0  # seconds until one is not followed any more

_MOVING = ("migrating", "migrating_from", "migrating_to")
_MAKER, _MAKE = "migration", "migrate"  # the shipped driver that asks the engine
_NOT_ASKED = "the engine was not asked: the daemon stops, or reloads"
_AT_ONCE = 10  # migrations in one call of it


class ClusterMigrations:
    """The migrations of one cluster; used by the thread that looks after it."""

    def __init__(self, settings: ClusterSettings, services: ClusterServices) -> None:
        self._cluster = settings.name
        self._settings = settings
        self._services = services
        self._memory = services.memory.cluster(settings.name)
        self._migrating = self._memory.migrating
        self._refused: dict[str, tuple[str, str]] = {}  # by VM, the host and why, as logged last

    @property
    def under_way(self) -> tuple[str, ...]:
        """The VMs that are migrated."""
        return tuple(self._migrating)

    def exhausted(self) -> tuple[str, ...]:
        """The VMs that were migrated within the hour as often as allowed."""
        most = self._settings.migrations_per_vm
        return calm.exhausted(self._memory.migrated, most, time.monotonic())

    def make(self, steps: Sequence[Step]) -> list[str]:
        """Make migrations, some at a time.

        Returns:
            The VMs that the engine does not refuse to migrate.

        Raises:
            SchedulerError: no process is to be had for it; those not asked for are forgotten.
        """
        taken: list[str] = []
        for start in range(0, len(steps), _AT_ONCE):
            asked = steps[start : start + _AT_ONCE]
            refused, unanswered = self._ask(asked)
            for step in asked:
                self._log_asked(step, refused.get(step.vm), unanswered.get(step.vm))
                if step.vm in refused:
                    self._migrating.pop(step.vm, None)
                else:
                    self._refused.pop(step.vm, None)
                    self._migrating[step.vm].begun = time.monotonic()
                    taken.append(step.vm)
            self._services.memory.save(self._cluster)
        return taken

    def _ask(self, steps: Sequence[Step]) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Remember migrations, and ask the engine for them.

        Returns:
            VM to why the engine refuses, and VM to why that is not known.
        """
        wanted = {step.vm: step.target for step in steps}
        if self._services.stopping.is_set():
            return dict.fromkeys(wanted, _NOT_ASKED), {}
        latest_event = self._services.inventory.latest_event or 0
        for step in steps:
            self._migrating[step.vm] = Migrating(step, time.monotonic(), event=latest_event)
        self._services.memory.save(self._cluster)
        arguments = {"migrations": wanted, "mark": self._memory.mark}
        try:
            maker = self._services.decisions.driver(_MAKER)
            caller = Caller.of_cluster(self._cluster)
            request = Request(caller, Subjects(), last=DriverCall(maker, _MAKE, arguments))
            decision = self._services.decisions.decide(request)
        except SchedulerError:
            for vm in wanted:
                del self._migrating[vm]
            self._services.memory.save(self._cluster)
            raise
        if decision.failure is not None:  # it may have got as far as asking
            return {}, dict.fromkeys(wanted, decision.failure)
        return decision.answer["refused"], decision.answer["unanswered"]

    def follow(self, state: ClusterState) -> None:
        """Log the migrations that have ended, and forget them."""
        self._refused = {vm: why for vm, why in self._refused.items() if vm in state.vms}
        outcomes = {vm: _outcome(each, state) for vm, each in self._migrating.items()}
        ended = {vm: problem for vm, problem in outcomes.items() if problem is not None}
        took = self._took([self._migrating[vm] for vm in ended if not ended[vm]])
        for vm, problem in ended.items():
            migrating = self._migrating.pop(vm)
            self._memory.migrated.setdefault(vm, []).append(migrating.begun)
            self._log_end(migrating, problem, took.get(vm))
        if ended:
            self._services.memory.save(self._cluster)

    def adopt(self, state: ClusterState) -> None:
        """Follow the running migrations of another daemon, after this one took the cluster over."""
        self._memory.taken = False
        for vm, vm_state in state.vms.items():
            if vm_state.status in _MOVING and vm not in self._migrating:
                step = Step.planned(vm, "", state)
                self._migrating[vm] = Migrating(step, time.monotonic(), moving=True)

    def _took(self, done: Sequence[Migrating]) -> Mapping[str, float]:
        """The seconds that finished migrations took, as far as the engine's events have them."""
        after = {each.step.vm: each.event for each in done}
        deadline = time.monotonic() + _EVENTS_SECONDS
        try:
            return self._services.inventory.migration_seconds(after, deadline)
        except EngineUnavailable:  # the next look tells
            return {}

    def _log_asked(self, step: Step, refused: Optional[str], unanswered: Optional[str]) -> None:
        reason = refused or unanswered or step.reason
        fields = step_fields(self._cluster, step, reason=reason)
        if refused is not None:
            if self._refused.get(step.vm) == (step.target, refused):
                return  # the scheduler wants it again and again
            self._refused[step.vm] = step.target, refused
            _log.warning(
                "cluster %(cluster)s: cannot migrate %(vm)s from %(source_host)s "
                "to %(target_host)s: %(reason)s",
                fields,
            )
        elif unanswered is not None:
            _log.warning(
                "cluster %(cluster)s: the engine did not confirm that %(vm)s migrates from "
                "%(source_host)s to %(target_host)s: %(reason)s",
                fields,
            )
        else:
            _log.info(
                "cluster %(cluster)s: migrating %(vm)s from %(source_host)s to %(target_host)s: "
                "%(reason)s",
                fields,
            )

    def _log_end(self, migrating: Migrating, problem: str, took: Optional[float]) -> None:
        step, settings = migrating.step, self._settings
        seconds = time.monotonic() - migrating.begun if took is None else took
        fields = step_fields(self._cluster, step, reason=problem, seconds=seconds)
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
        if step.vm in self.exhausted():
            unit = settings.scheduler if settings.balance is None else settings.balance.name
            count = len(self._memory.migrated[step.vm])
            _log.warning(
                "cluster %(cluster)s: %(vm)s was migrated %(count)d times within an hour, and now "
                "stays where it is: does %(unit)s move it back and forth?",
                step_fields(self._cluster, step, count=count, unit=unit),
            )


def step_fields(cluster: str, step: Step, **more: object) -> dict[str, object]:
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
    if vm.status in _MOVING:
        migrating.moving = True
        return "still goes on, and is followed no more," if age > _LONGEST_MIGRATION else None
    elsewhere = vm.host not in (None, step.source)
    if vm.host == step.target or (elsewhere and not step.target):
        return ""
    if not migrating.moving and age <= _BEGIN_SECONDS:
        return None
    where = f"is {vm.status or 'off'}"
    if vm.host is not None:
        where = f"is on {state.host_name(vm.host)}"
    return f"failed, the VM {where},"
