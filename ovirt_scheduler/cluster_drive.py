"""Looks after one cluster: tells its scheduler what happens, and acts on what it answers.

::

    the engine ──► hosts, VMs ──► a request process ──► Seen ──► changes since the last look
    (documents)        │                                             │ one call of a hook each
                       └──► the scheduler: load_balance, on_timer_invoked, on_..._changed
                                                │
                              migrations: logged (dry-run), or made and followed to their end

Whatever goes wrong, with the engine, the scheduler or a migration, is told and tried again at
the next look; nothing of one cluster reaches another.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple, cast

from ovirt_scheduler import cluster_report
from ovirt_scheduler.cluster_seen import Seen, Survey
from ovirt_scheduler.config import ClusterSettings
from ovirt_scheduler.drive_memory import ClusterMemory, DriveMemory, Migrating
from ovirt_scheduler.drivers import DriverRequest, DriverUnit, Migrations, Subjects
from ovirt_scheduler.errors import SchedulerError
from ovirt_scheduler.executor import Executor
from ovirt_scheduler.inventory import Inventory
from ovirt_scheduler.model import AnswerForm, Caller, Document
from ovirt_scheduler.scheduling import Scheduling

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 60.0  # for the engine's answers and their reading
_FOLLOW_EVERY = 2.0  # seconds between looks while VMs are migrated
_BEGIN_SECONDS = 60.0  # in which a migration that was accepted is to be seen on its way
_LONGEST_MIGRATION = 3600.0  # seconds until one is not followed any more

_MOVING = ("migrating", "migrating_from", "migrating_to")
_AGAIN_AND_AGAIN = ("load_balance", "on_timer_invoked")
_MAKER, _MAKE = "migration", "migrate"  # the shipped driver that asks the engine
_AT_ONCE = 10  # migrations in one call of it


@dataclass(frozen=True)
class _Look:
    """The cluster at one moment: as documents for the scheduler, and as seen."""

    hosts: Document
    vms: Document
    seen: Seen


class ClusterDrive:
    """Looks after one cluster when it is told to; used by one thread.

    Args:
        makes: make the migrations, rather than log them.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        makes: bool,
        inventory: Inventory,
        scheduling: Scheduling,
        executor: Executor,
        memory: DriveMemory,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._makes = makes
        self._inventory = inventory
        self._scheduling = scheduling
        self._executor = executor
        self._store = memory
        self._memory: ClusterMemory = memory.cluster(settings.name)
        self._problem = ""
        self._stopping = False
        self._shown: Dict[str, Mapping[str, str]] = {}  # by method, so that it is told once
        now = time.monotonic()
        self._balance_at = now
        self._timer_at = now + settings.timer_interval
        self._look_at = now  # when to look again though nothing has happened

    def stop(self) -> None:
        """Begin nothing more; for another thread."""
        self._stopping = True

    def go(self, woken: bool) -> float:
        """Do what is due.

        Args:
            woken: something has happened in the engine since the last time.

        Returns:
            When there is something to do again, on the monotonic clock.
        """
        now = time.monotonic()
        balance = self._settings.load_balance_interval > 0 and now >= self._balance_at
        timer = self._settings.timer_interval > 0 and now >= self._timer_at
        try:
            if woken or balance or timer or now >= self._look_at:
                self._go(timer, balance)
            self._tell("")
        except SchedulerError as error:
            self._tell(str(error))
        now = time.monotonic()
        if balance:
            self._balance_at = now + self._settings.load_balance_interval
        if timer:
            self._timer_at = now + self._settings.timer_interval
        self._look_at = now + (_FOLLOW_EVERY if self._memory.migrating else _LOOK_SECONDS)
        return min(
            self._look_at,
            self._balance_at if self._settings.load_balance_interval else self._look_at,
            self._timer_at if self._settings.timer_interval else self._look_at,
        )

    def _go(self, timer: bool, balance: bool) -> None:
        look = self._look()
        self._follow(look.seen)
        self._scheduler()
        self._tell_changes(look)
        if timer and not self._stopping:
            self._ask("on_timer_invoked", look)
        if balance and not self._memory.migrating and not self._stopping:
            self._balance(look)

    def _look(self) -> _Look:
        deadline = time.monotonic() + _LOOK_SECONDS
        hosts, vms = self._inventory.cluster(self.name, deadline)
        seen = self._executor.survey(Survey(hosts, vms, deadline))
        if not seen.hosts:
            raise SchedulerError(
                "the engine knows no host in it; is there a cluster of that name, and may the "
                "user of [engine] see it?"
            )
        return _Look(hosts, vms, seen)

    def _tell_changes(self, look: _Look) -> None:
        """Call the hooks for each status that is another than the one told last."""
        memory, seen = self._memory, look.seen
        first = memory.hosts is None or memory.vms is None
        hosts, vms = memory.hosts or {}, memory.vms or {}
        if first:
            hosts.update((key, host.status) for key, host in seen.hosts.items())
            vms.update((key, vm.status) for key, vm in seen.vms.items())
        memory.hosts = {key: hosts[key] for key in hosts if key in seen.hosts}
        memory.vms = {key: vms[key] for key in vms if key in seen.vms}
        for key, host in seen.hosts.items():
            self._tell_change("host", look, memory.hosts, key, host.status)
        for key, vm in seen.vms.items():
            self._tell_change("vm", look, memory.vms, key, vm.status)
        self._store.save()

    def _tell_change(
        self, what: str, look: _Look, told: Dict[str, str], key: str, status: str
    ) -> None:
        before = told.get(key)
        if before == status or self._stopping:
            return
        if before is not None:
            arguments = {"old_status": before, "new_status": status}
            if what == "host":
                self._ask("on_host_status_changed", look, arguments, host=key)
            else:
                self._ask("on_vm_status_changed", look, arguments, vm=key)
        told[key] = status
        self._store.save()

    def _balance(self, look: _Look) -> None:
        """A VM that the last balancing moved stays this time: it may have been moved in vain."""
        moved = self._ask("load_balance", look, without=self._memory.moved)
        self._memory.moved = moved
        self._store.save()

    def _ask(
        self,
        method: str,
        look: _Look,
        arguments: Optional[Mapping[str, object]] = None,
        host: Optional[str] = None,
        vm: Optional[str] = None,
        without: Sequence[str] = (),
    ) -> List[str]:
        """Call the scheduler, and act on what it answers; the ids of the VMs that are moved."""
        driver = self._scheduler()
        if driver.defines(method) is None:
            return []
        decision = self._scheduling.decide(
            DriverRequest(
                caller=self._caller(),
                driver=driver,
                method=method,
                subjects=Subjects(hosts=look.hosts, vms=look.vms, host=host, vm=vm),
                arguments=arguments or {},
                properties=self._settings.properties,
            )
        )
        if decision.failure is not None:  # the log has it
            return []
        wanted = self._possible(cast("Migrations", decision.answer), look.seen, without)
        if not self._makes:
            self._tell_plan(method, wanted, look.seen)
            return []
        return self._make(wanted, look.seen)

    def _scheduler(self) -> DriverUnit:
        """The scheduler that there is for the cluster now.

        Raises:
            SchedulerError: there is none, or it refuses what the settings say.
        """
        drivers = self._scheduling.drivers()
        problem = cluster_report.problem(self._settings, drivers)
        if problem:
            raise SchedulerError(problem)
        return drivers[self._settings.scheduler]

    def _possible(
        self, answer: Migrations, seen: Seen, without: Sequence[str]
    ) -> Mapping[str, str]:
        """VM to the host that it is to go to; to none where any will do."""
        first = {vm: targets[0] if targets else "" for vm, targets in answer.items()}
        return {
            vm: target
            for vm, target in first.items()
            if vm in seen.vms
            and vm not in without
            and vm not in self._memory.migrating
            and seen.vms[vm].host != target
        }

    def _tell_plan(self, method: str, wanted: Mapping[str, str], seen: Seen) -> None:
        """What would be done; the same again and again is said once."""
        if method not in _AGAIN_AND_AGAIN or wanted != self._shown.get(method, {}):
            for vm, target in wanted.items():
                _log.info(
                    "cluster %(cluster)s: would migrate %(vm)s from %(source_host)s "
                    "to %(target_host)s",
                    self._named(seen, vm, target),
                )
        self._shown[method] = wanted

    def _make(self, wanted: Mapping[str, str], seen: Seen) -> List[str]:
        """Begin migrations, some at a time; the VMs whose migration the engine took."""
        taken: List[str] = []
        left = list(wanted)
        while left and not self._stopping:
            asked, left = left[:_AT_ONCE], left[_AT_ONCE:]
            refused = self._refused({vm: wanted[vm] for vm in asked})
            for vm in asked:
                if vm in refused:
                    _log.warning(
                        "cluster %(cluster)s: cannot migrate %(vm)s from %(source_host)s "
                        "to %(target_host)s: %(reason)s",
                        {**self._named(seen, vm, wanted[vm]), "reason": refused[vm]},
                    )
                    continue
                _log.info(
                    "cluster %(cluster)s: migrating %(vm)s from %(source_host)s to %(target_host)s",
                    self._named(seen, vm, wanted[vm]),
                )
                migrating = Migrating(seen.vms[vm].host, wanted[vm], time.time())
                self._memory.migrating[vm] = migrating
                taken.append(vm)
            self._store.save()
        return taken

    def _refused(self, wanted: Mapping[str, str]) -> Mapping[str, str]:
        """Ask the engine for migrations; the VMs that it does not migrate, with its reason."""
        maker = self._scheduling.driver(_MAKER)
        decision = self._scheduling.decide(
            DriverRequest(self._caller(), maker, _MAKE, arguments={"migrations": wanted})
        )
        if decision.failure is not None:
            return dict.fromkeys(wanted, decision.failure)
        return cast("Mapping[str, str]", decision.answer)

    def _follow(self, seen: Seen) -> None:
        """See what has become of the migrations under way."""
        for vm, migrating in tuple(self._memory.migrating.items()):
            outcome = _outcome(vm, migrating, seen)
            if outcome is not None:
                level, words = outcome
                told = {
                    "cluster": self.name,
                    "vm": seen.vms[vm].name if vm in seen.vms else vm,
                    "target_host": seen.host_name(migrating.target),
                    "reason": words,
                    "seconds": time.time() - migrating.begun,
                }
                if level == logging.INFO:
                    _log.info(
                        "cluster %(cluster)s: the migration of %(vm)s to %(target_host)s is done "
                        "after %(seconds).0f s",
                        told,
                    )
                else:
                    _log.warning(
                        "cluster %(cluster)s: the migration of %(vm)s to %(target_host)s "
                        "%(reason)s after %(seconds).0f s",
                        told,
                    )
                del self._memory.migrating[vm]
                self._store.save()

    def _named(self, seen: Seen, vm: str, target: str) -> Dict[str, object]:
        """A migration for the log: names, as an administrator knows them."""
        found = seen.vms[vm]
        return {
            "cluster": self.name,
            "vm": found.name,
            "source_host": "nowhere" if found.host is None else seen.host_name(found.host),
            "target_host": seen.host_name(target),
        }

    def _caller(self) -> Caller:
        return Caller(f"cluster {self.name}", AnswerForm.ENGINE, "the daemon itself")

    def _tell(self, problem: str) -> None:
        """Say what is wrong, once; and when it is well again."""
        if problem and problem != self._problem:
            told = {"cluster": self.name, "reason": problem}
            _log.warning("cluster %(cluster)s: %(reason)s", told)
        elif self._problem and not problem:
            _log.info("cluster %(cluster)s: is looked after again", {"cluster": self.name})
        self._problem = problem


def _outcome(vm: str, migrating: Migrating, seen: Seen) -> Optional[Tuple[int, str]]:
    """How a migration ended, with the level of its line in the log; None while it goes on."""
    age = time.time() - migrating.begun
    found = seen.vms.get(vm)
    if found is None:
        return logging.WARNING, "ended with the VM, which is gone,"
    if found.status in _MOVING:
        migrating.moving = True
        too_long = logging.WARNING, "still goes on, and is followed no more,"
        return too_long if age > _LONGEST_MIGRATION else None
    elsewhere = found.host not in (None, migrating.source)
    if found.host == migrating.target or (elsewhere and not migrating.target):
        return logging.INFO, "is done"
    if not migrating.moving and age <= _BEGIN_SECONDS:
        return None
    where = f"is {found.status or 'off'}" if found.host is None else seen.host_name(found.host)
    return logging.WARNING, f"failed, the VM {'' if found.host is None else 'is on '}{where},"
