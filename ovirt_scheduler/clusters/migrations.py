"""Makes the migrations of one cluster, or logs which it would make, and follows them to their end.

::

    an answer ──► wanted ──► remembered ──► the engine is asked ──► followed until the VM is there,
                  (may go)    (on disk)          │                   or is not
                                                 └─► refused: forgotten again

A migration is remembered before the engine is asked for it. So each migration under way is
followed, whatever happens to the daemon, to the call or to the engine's answer: the state of the
VM shows how it ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Optional

from ovirt_scheduler.clusters.destinations import ClusterDestinations
from ovirt_scheduler.clusters.ownership import ClusterOwnership
from ovirt_scheduler.clusters.persistence import Migrating
from ovirt_scheduler.clusters.services import ClusterServices
from ovirt_scheduler.errors import EngineUnavailable
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.drivers import DriverRequest, Migrations
from ovirt_scheduler.model.plans import Step
from ovirt_scheduler.model.requests import Caller
from ovirt_scheduler.settings.config import ClusterSettings

_log = logging.getLogger(__name__)

_HOUR = 3600.0
_BEGIN_SECONDS = 60.0  # in which a migration that was asked for is to be seen on its way
_EVENTS_SECONDS = 5.0  # for the engine to tell how long migrations took
_LONGEST_MIGRATION = 3600.0  # seconds until one is not followed any more

HOOKS = ("on_host_status_changed", "on_vm_status_changed")  # each change is told to them once

_MOVING = ("migrating", "migrating_from", "migrating_to")
_MAKER, _MAKE = "migration", "migrate"  # the shipped driver that asks the engine
_NOT_ASKED = "the engine was not asked: the daemon stops, reloads, or could not"
_AT_ONCE = 10  # migrations in one call of it


class ClusterMigrations:
    """The migrations of one cluster; used by the thread that looks after it."""

    def __init__(
        self, settings: ClusterSettings, services: ClusterServices, ownership: ClusterOwnership
    ) -> None:
        self._cluster = settings.name
        self._settings = settings
        self._drivers = services.drivers
        self._inventory = services.inventory
        self._store = services.memory
        self._memory = services.memory.cluster(settings.name)
        self._migrating = self._memory.migrating
        self._migrated = self._memory.migrated
        self._ownership = ownership
        self._stopping = services.stopping
        self._told: dict[str, frozenset[str]] = {}  # by what is told, of which VMs or hosts it was
        self._refused: dict[str, tuple[str, str]] = {}  # by VM, the host and why, as logged last

    @property
    def under_way(self) -> tuple[str, ...]:
        """The VMs that are migrated."""
        return tuple(self._migrating)

    def exhausted(self) -> tuple[str, ...]:
        """The VMs that were migrated within the hour as often as they may be."""
        since = time.monotonic() - _HOUR
        for vm, times in tuple(self._migrated.items()):
            times[:] = [begun for begun in times if begun > since]
            if not times:
                del self._migrated[vm]
        most = self._settings.migrations_per_vm
        return tuple(vm for vm, times in self._migrated.items() if len(times) >= most)

    def make(self, steps: Sequence[Step]) -> list[str]:
        """Remember migrations, and ask the engine for them, some at a time.

        Returns:
            The VMs that the engine does not refuse to migrate.

        Raises:
            SchedulerError: no process is to be had for it; those not asked for are forgotten.
        """
        for step in steps:
            now = time.monotonic()
            self._inventory.migration_times.forget(step.vm)
            self._migrating[step.vm] = Migrating(
                step.vm_name, step.source or None, step.target, now, reason=step.reason
            )
            self._migrated.setdefault(step.vm, []).append(now)
        self._store.save(self._cluster)
        left = list(steps)
        taken: list[str] = []
        try:
            while left and not self._stopping.is_set():
                asked = left[:_AT_ONCE]
                refused, unanswered = self._ask(asked)
                del left[:_AT_ONCE]
                for step in asked:
                    self._log_asked(step, refused.get(step.vm), unanswered.get(step.vm))
                    if step.vm in refused:
                        self._forget(step.vm)
                    else:
                        self._refused.pop(step.vm, None)
                        self._migrating[step.vm].begun = time.monotonic()
                        taken.append(step.vm)
                        self._log_often(step)
                self._store.save(self._cluster)
        finally:
            for step in left:
                self._log_asked(step, _NOT_ASKED, None)
                self._forget(step.vm)
            if left:
                self._store.save(self._cluster)
        return taken

    def _forget(self, vm: str) -> None:
        """Take back that a migration is under way: it is not made."""
        del self._migrating[vm]
        self._migrated[vm].pop()

    def follow(self, state: ClusterState) -> None:
        """Log the migrations that have ended, and forget them."""
        outcomes = {vm: _outcome(vm, each, state) for vm, each in self._migrating.items()}
        ended = {vm: outcome for vm, outcome in outcomes.items() if outcome is not None}
        took = self._took([vm for vm, (level, _) in ended.items() if level == logging.INFO])
        for vm, (level, words) in ended.items():
            self._log_end(self._migrating.pop(vm), state, level, words, took.get(vm))
        if ended:
            self._store.save(self._cluster)

    def adopt(self, state: ClusterState) -> None:
        """Follow the migrations of others that are under way, as the cluster was taken over."""
        self._memory.taken = False
        now = time.monotonic()
        for vm, vm_state in state.vms.items():
            if vm_state.status in _MOVING and vm not in self._migrating:
                self._migrating[vm] = Migrating(vm_state.name, vm_state.host, "", now, moving=True)

    def _took(self, vms: Collection[str]) -> Mapping[str, float]:
        """The seconds that migrations took which are done, as far as the engine tells them."""
        try:
            deadline = time.monotonic() + _EVENTS_SECONDS
            return self._inventory.migration_seconds(vms, deadline) if vms else {}
        except EngineUnavailable:  # the next look tells
            return {}

    def possible(
        self,
        method: str,
        answer: Migrations,
        state: ClusterState,
        destinations: ClusterDestinations,
    ) -> Mapping[str, str]:
        """Choose the migrations of a scheduler's answer that the cluster's units allow.

        Args:
            destinations: which know the VMs of the answer.

        Returns:
            Id of a VM to the id of the host that it is to go to; empty: to any.
        """
        self._refused = {vm: why for vm, why in self._refused.items() if vm in state.vms}
        possible: dict[str, str] = {}
        unfit: list[Step] = []
        for vm, offered in answer.items():
            target = destinations.best(vm, offered) if vm in state.vms else None
            if target is not None and target != state.vms[vm].host:
                possible[vm] = target
            elif target is None and vm in state.vms and vm not in destinations.staying:
                unfit.append(Step.planned(vm, offered[0] if offered else "", state))
        self._log_unfit(method, unfit, destinations)
        return possible

    def _ask(self, steps: Sequence[Step]) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Ask the engine to migrate VMs.

        Returns:
            VM to why the engine refuses, and VM to why that is not known.
        """
        wanted = {step.vm: step.target for step in steps}
        maker = self._drivers.driver(_MAKER)
        decision = self._drivers.decide(
            DriverRequest(
                Caller.of_cluster(self._cluster),
                maker,
                _MAKE,
                arguments={"migrations": wanted, "mark": self._ownership.mark},
            )
        )
        if decision.failure is not None:  # it may have got as far as asking
            return {}, dict.fromkeys(wanted, decision.failure)
        return decision.answer["refused"], decision.answer["unanswered"]

    def _log_unfit(
        self, method: str, unfit: Sequence[Step], destinations: ClusterDestinations
    ) -> None:
        """Log migrations that are not allowed; what is wanted again and again once."""
        told = unfit if method in HOOKS else self._untold(method, {step.vm: step for step in unfit})
        for step in told:
            if step.target in destinations.former.get(step.vm, ()):
                _log.info(
                    "cluster %(cluster)s: %(vm)s stays on %(source_host)s: a balancing took it "
                    "from %(target_host)s within the hour",
                    self._fields(step),
                )
            else:
                _log.info(
                    "cluster %(cluster)s: %(vm)s stays on %(source_host)s: the filters of the "
                    "cluster do not let it go to %(target_host)s",
                    self._fields(step),
                )

    def _untold(self, what: str, steps: Mapping[str, Step]) -> list[Step]:
        """Those that were not told of the last time.

        Args:
            steps: by the id of a VM or of a host.
        """
        former, self._told[what] = self._told.get(what, frozenset()), frozenset(steps)
        return [step for key, step in steps.items() if key not in former]

    def tell(self, steps: Iterable[Step]) -> None:
        """Log the migrations that would be made."""
        for step in steps:
            _log.info(
                "cluster %(cluster)s: would migrate %(vm)s from %(source_host)s "
                "to %(target_host)s: %(reason)s",
                self._fields(step, reason=step.reason),
            )

    def tell_waiting(self, waiting: Sequence[Step]) -> None:
        """Log that migrations are not made now: the first off each host, while it is named once."""
        first = {step.source: step for step in reversed(waiting)}
        for step in self._untold("waiting", first):
            _log.info(
                "cluster %(cluster)s: %(vm)s does not go from %(source_host)s to "
                "%(target_host)s now: %(reason)s",
                self._fields(step, reason=step.problem),
            )

    def _log_asked(self, step: Step, refused: Optional[str], unanswered: Optional[str]) -> None:
        fields = self._fields(step, reason=refused or unanswered or step.reason)
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

    def _log_often(self, step: Step) -> None:
        count = len(self._migrated[step.vm])
        if count >= self._settings.migrations_per_vm:
            unit = self._settings.balance
            fields = {
                "cluster": self._cluster,
                "vm": step.vm_name,
                "count": count,
                "unit": self._settings.scheduler if unit is None else unit.name,
            }
            _log.warning(
                "cluster %(cluster)s: %(vm)s was migrated %(count)d times within an hour, and now "
                "stays where it is: does %(unit)s move it back and forth?",
                fields,
            )

    def _log_end(
        self,
        migrating: Migrating,
        state: ClusterState,
        level: int,
        words: str,
        took: Optional[float],
    ) -> None:
        fields = {
            "cluster": self._cluster,
            "vm": migrating.name,
            "target_host": state.host_name(migrating.target),
            "reason": words,
            "seconds": time.monotonic() - migrating.begun if took is None else took,
        }
        if took is not None:
            _log.info(
                "cluster %(cluster)s: the migration of %(vm)s to %(target_host)s is done, it took "
                "%(seconds).1f s",
                fields,
            )
        elif level == logging.INFO:
            _log.info(
                "cluster %(cluster)s: the migration of %(vm)s to %(target_host)s is done "
                "within %(seconds).0f s",
                fields,
            )
        else:
            _log.warning(
                "cluster %(cluster)s: the migration of %(vm)s to %(target_host)s "
                "%(reason)s after %(seconds).0f s",
                fields,
            )

    def _fields(self, step: Step, **more: object) -> dict[str, object]:
        """The fields of a migration in the log: names, as an administrator knows them."""
        return {
            "cluster": self._cluster,
            "vm": step.vm_name,
            "source_host": step.source_name,
            "target_host": step.target_name,
            **more,
        }


def _outcome(vm: str, migrating: Migrating, state: ClusterState) -> Optional[tuple[int, str]]:
    """How a migration ended, and the level to log that with; None while it goes on."""
    age = time.monotonic() - migrating.begun
    vm_state = state.vms.get(vm)
    if vm_state is None:
        return logging.WARNING, "ended with the VM, which is gone,"
    if vm_state.status in _MOVING:
        migrating.moving = True
        too_long = logging.WARNING, "still goes on, and is followed no more,"
        return too_long if age > _LONGEST_MIGRATION else None
    elsewhere = vm_state.host not in (None, migrating.source)
    if vm_state.host == migrating.target or (elsewhere and not migrating.target):
        return logging.INFO, "is done"
    if not migrating.moving and age <= _BEGIN_SECONDS:
        return None
    where = f"is {vm_state.status or 'off'}"
    if vm_state.host is not None:
        where = f"is on {state.host_name(vm_state.host)}"
    return logging.WARNING, f"failed, the VM {where},"
