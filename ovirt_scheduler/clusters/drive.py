"""Looks after one cluster: tells its scheduler what happens, and acts on what it answers.

::

    the engine ──► hosts, VMs ──► a reader ──► Seen ──► changes since the last look
    (documents)        │                                             │ one call of a hook each
                       └──► the scheduler: load_balance, on_timer_invoked, on_..._changed
                                                │
                              filters, cost functions: where may its VMs go?
                                                │
                              migrations: logged (dry-run), or made and followed to their end

Whatever goes wrong, with the engine, the scheduler or a migration, is told and tried again at
the next look; nothing of one cluster reaches another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Deque, Dict, Iterable, Mapping, Optional, Tuple

from ovirt_scheduler.clusters import check
from ovirt_scheduler.clusters.destinations import ClusterDestinations
from ovirt_scheduler.clusters.memory import ClusterMemory, DriveMemory
from ovirt_scheduler.clusters.migrations import ClusterMigrations
from ovirt_scheduler.decisions.drivers import Scheduling
from ovirt_scheduler.decisions.units import Service
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import (
    ConfigError,
    EngineUnavailable,
    SchedulerError,
    UnreadableDocument,
)
from ovirt_scheduler.model.cluster_state import ClusterDocuments, ClusterState
from ovirt_scheduler.model.drivers import (
    DriverRequest,
    DriverUnit,
    Migrations,
    StatusChange,
    Subjects,
)
from ovirt_scheduler.model.requests import Caller, Document
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings.config import ClusterSettings

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 60.0  # for the engine's answers and their reading
_FOLLOW_EVERY = 2.0  # seconds between looks while VMs are migrated
_HOOKS_AT_ONCE = 1.0  # seconds in which hooks are begun before their answers are acted on
_MOST_ANSWERS = 5  # of a scheduler that learns where VMs may go
_HOOKS_SECONDS = 5.0  # in which hooks are begun before what else is due


@dataclass(frozen=True)
class _Look:
    """The cluster at one moment: as documents for the scheduler, and as seen."""

    hosts: Document
    vms: Document
    seen: ClusterState


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
        service: Service,
        executor: Executor,
        memory: DriveMemory,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._inventory = inventory
        self._scheduling = scheduling
        self._service = service
        self._executor = executor
        self._store = memory
        self._memory: ClusterMemory = memory.cluster(settings.name)
        self._problem: Optional[SchedulerError] = None
        self._stopping = threading.Event()
        self._migrations = ClusterMigrations(settings, makes, scheduling, memory, self._stopping)
        now = time.monotonic()
        self._balance_at = now
        self._timer_at = now + settings.timer_interval
        self._look_at = now  # when to look again though nothing has happened

    def stop(self) -> None:
        """Begin nothing more; for another thread."""
        self._stopping.set()

    def go(self, woken: bool) -> float:
        """Do what is due.

        Args:
            woken: something has happened in the engine since the last time.

        Returns:
            When there is something to do again, on the monotonic clock.
        """
        with self._store.alone(self.name):
            return time.monotonic() if self._stopping.is_set() else self._go_alone(woken)

    def _go_alone(self, woken: bool) -> float:
        now = time.monotonic()
        balance = self._settings.load_balance_interval > 0 and now >= self._balance_at
        timer = self._settings.timer_interval > 0 and now >= self._timer_at
        all_told = True
        try:
            if woken or balance or timer or now >= self._look_at:
                all_told = self._go(timer, balance)
            self._tell(None)
        except SchedulerError as error:
            self._tell(error)
        now = time.monotonic()
        if balance:
            self._balance_at = now + self._settings.load_balance_interval
        if timer:
            self._timer_at = now + self._settings.timer_interval
        self._look_at = now
        if all_told:
            self._look_at += _FOLLOW_EVERY if self._migrations.under_way else _LOOK_SECONDS
        return min(
            self._look_at,
            self._balance_at if self._settings.load_balance_interval else self._look_at,
            self._timer_at if self._settings.timer_interval else self._look_at,
        )

    def _go(self, timer: bool, balance: bool) -> bool:
        """
        Returns:
            Whether all changes are told.
        """
        self._scheduler()  # the engine may be away: what is wrong in the section is told first
        look = self._look()
        self._migrations.follow(look.seen)
        all_told = self._tell_changes(look)
        if timer and not self._stopping.is_set():
            self._invoke_timer(look)
        if balance and not self._migrations.under_way and not self._stopping.is_set():
            self._balance(look)
        return all_told

    def _look(self) -> _Look:
        deadline = time.monotonic() + _LOOK_SECONDS
        hosts, vms = self._inventory.cluster(self.name, deadline)
        try:
            seen = self._executor.read_cluster(ClusterDocuments(hosts, vms, deadline))
        except UnreadableDocument as error:
            raise UnreadableDocument(f"what the engine told cannot be read: {error}") from None
        if not seen.hosts:
            raise SchedulerError(
                "the engine knows no host in it; is there a cluster of that name, and may the "
                "user of [engine] see it?"
            )
        return _Look(hosts, vms, seen)

    def _tell_changes(self, look: _Look) -> bool:
        """Call the hooks for each status that is another than the one told last.

        Returns:
            Whether all are told; else there was no more time, and the next look tells the others.
        """
        memory, seen = self._memory, look.seen
        hosts = {key: host.status for key, host in seen.hosts.items()}
        vms = {key: vm.status for key, vm in seen.vms.items()}
        memory.hosts, host_changes = _changes(memory.hosts, hosts)
        memory.vms, vm_changes = _changes(memory.vms, vms)
        self._store.save(self.name)
        give_up = time.monotonic() + _HOOKS_SECONDS
        for method, told, changes in (
            ("on_host_status_changed", memory.hosts, host_changes),
            ("on_vm_status_changed", memory.vms, vm_changes),
        ):
            while changes and not self._stopping.is_set():
                if time.monotonic() >= give_up:
                    return False
                self._call_hook(method, look, told, changes)
        return True

    def _call_hook(
        self, method: str, look: _Look, told: Dict[str, str], changes: Deque[StatusChange]
    ) -> None:
        """Tell the first of the changes, as many as there is time for, and act on the answers."""
        answers: Dict[str, Tuple[str, ...]] = {}

        def heard(change: StatusChange, answer: Optional[Migrations]) -> None:
            for vm, hosts in (answer or {}).items():
                answers.setdefault(vm, hosts)
            del told[change.subject]  # goes to the end: what was told longest ago is first
            told[change.subject] = change.new_status
            changes.popleft()
            self._store.save(self.name)

        driver = self._scheduler()
        if driver.defines(method) is None:
            told.update((change.subject, change.new_status) for change in changes)
            changes.clear()
            self._store.save(self.name)
            return
        destinations = self._destinations(look)
        try:
            request = self._request(driver, method, look, destinations)
            self._scheduling.tell_changes(request, tuple(changes), _HOOKS_AT_ONCE, heard)
        finally:
            destinations.learn(answers)  # the hook is not called again for the same change
            wanted = self._migrations.want(method, answers, look.seen, destinations)
            self._store.save(self.name)
            self._migrations.make(wanted, look.seen)

    def _balance(self, look: _Look) -> None:
        """A VM that the last balancing moved stays this time: it may have been moved in vain."""
        destinations = self._destinations(look, self._memory.moved)
        answer = self._ask("load_balance", look, destinations)
        wanted = self._migrations.want("load_balance", answer, look.seen, destinations)
        self._memory.moved = list(wanted)
        self._store.save(self.name)
        self._memory.moved = self._migrations.make(wanted, look.seen)
        self._store.save(self.name)

    def _invoke_timer(self, look: _Look) -> None:
        destinations = self._destinations(look)
        answer = self._ask("on_timer_invoked", look, destinations)
        wanted = self._migrations.want("on_timer_invoked", answer, look.seen, destinations)
        self._store.save(self.name)
        self._migrations.make(wanted, look.seen)

    def _destinations(self, look: _Look, staying: Iterable[str] = ()) -> ClusterDestinations:
        return ClusterDestinations(
            self._service,
            self._settings,
            look.hosts,
            look.seen,
            (*staying, *self._migrations.under_way, *self._migrations.exhausted()),
            self._stopping,
        )

    def _ask(self, method: str, look: _Look, destinations: ClusterDestinations) -> Migrations:
        """What the scheduler answers: nothing, where it fails or does not define the method.

        It is asked again while it learns of VMs that may not go where it wants them.
        """
        driver = self._scheduler()
        if driver.defines(method) is None:
            return {}
        for _ in range(_MOST_ANSWERS):
            request = self._request(driver, method, look, destinations)
            # Of a failure the log tells, and the answer is that there is nothing to do.
            answer: Migrations = self._scheduling.decide(request).answer
            if not destinations.learn(answer):
                break
        return answer

    def _request(
        self, driver: DriverUnit, method: str, look: _Look, destinations: ClusterDestinations
    ) -> DriverRequest:
        return DriverRequest(
            caller=Caller.of_cluster(self.name),
            driver=driver,
            method=method,
            subjects=Subjects(hosts=look.hosts, vms=look.vms),
            properties=self._settings.properties,
            destinations=destinations.known,
        )

    def _scheduler(self) -> DriverUnit:
        """The scheduler that there is for the cluster now.

        Raises:
            ConfigError: there is none, or it or a unit is not as the settings say.
        """
        catalogue = self._scheduling.catalogue()
        problem = check.problem(self._settings, catalogue.drivers, catalogue.units)
        if problem:
            raise problem
        return catalogue.drivers[self._settings.scheduler]

    def _tell(self, problem: Optional[SchedulerError]) -> None:
        """Say what is wrong, once; and when it is well again."""
        if problem is None and self._problem is not None:
            _log.info("cluster %(cluster)s: is looked after again", {"cluster": self.name})
        elif problem is not None and not _is_same(problem, self._problem):
            told = {"cluster": self.name, "reason": str(problem)}
            if isinstance(problem, ConfigError):
                place = {"file": problem.file, "line": problem.line}
                _log.error("cluster %(cluster)s: %(reason)s", {**told, **place})
            else:
                _log.warning("cluster %(cluster)s: %(reason)s", told)
        self._problem = problem


def _is_same(problem: SchedulerError, former: Optional[SchedulerError]) -> bool:
    """Whether it is no news; an engine that is away is away at any address, after any time."""
    if isinstance(problem, EngineUnavailable):
        return isinstance(former, EngineUnavailable)
    return str(problem) == str(former)


def _changes(
    told: Mapping[str, str], seen: Mapping[str, str]
) -> Tuple[Dict[str, str], Deque[StatusChange]]:
    """What is known of those that are still there, and in what they are another now.

    The first status of one that is new is no change.
    """
    known = {key: told[key] for key in told if key in seen}
    changes = deque(
        StatusChange(key, before, seen[key]) for key, before in known.items() if before != seen[key]
    )
    return {**known, **{key: seen[key] for key in seen if key not in known}}, changes
