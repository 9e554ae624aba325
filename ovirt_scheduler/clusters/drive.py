"""Drives clusters: calls their schedulers when something happens, and acts on the answers.

::

    the engine ──► a reader ──► states ──► changes since the last look
           (cluster_reader.py)     │              │ one call of a hook each
                       └─ packs ──► the scheduler: load_balance, on_timer_invoked, on_..._changed
                                                │
                              filters, cost functions: where may its VMs go?
                                                │
                                          what is done with it (planning.py)

If something fails, with the engine, the scheduler or a migration, it is logged, and tried again
at the next look. Clusters do not affect each other: each has a thread (threads.py).
"""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections import deque
from typing import Optional, Union

from ovirt_scheduler.clusters import overview
from ovirt_scheduler.clusters.cluster_reader import ClusterReader, ClusterView
from ovirt_scheduler.clusters.destinations import BALANCE, ClusterDestinations, StatusChange
from ovirt_scheduler.clusters.engine_events import News
from ovirt_scheduler.clusters.engine_side import EngineSide
from ovirt_scheduler.clusters.loss_watch import ClusterLosses
from ovirt_scheduler.clusters.migrations import ClusterServices
from ovirt_scheduler.clusters.ownership import ClusterOwnership
from ovirt_scheduler.clusters.planning import HOOKS, ClusterPlanning
from ovirt_scheduler.clusters.section_check import SectionCheck
from ovirt_scheduler.errors import ConfigError, EngineUnavailable, SchedulerError
from ovirt_scheduler.model.cluster_state import HostState, VmState
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.plans import ClusterLook
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings.table import ClusterSettings

_log = logging.getLogger(__name__)

_FOLLOW_EVERY = 2.0  # seconds between looks at VMs that are migrated
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds after a query or a look that failed
_HOOKS_SECONDS = 5.0  # in which hooks are begun before their answers are acted on


class ClusterDrive:
    """Does what is due for one cluster; used by one thread.

    Attributes:
        ownership: says whether this daemon drives the cluster.
        news: what has happened, from any thread.
        losses: what the cluster can lose; another thread counts it.
    """

    def __init__(self, settings: ClusterSettings, services: ClusterServices) -> None:
        self.name = settings.name
        self.news = News()
        self._settings = settings
        self._services = services
        self._memory = services.memory.cluster(settings.name)
        self._looked: Optional[float] = None  # seconds since 1970
        self._problem: Optional[Exception] = None
        # Whether the latest balancing or timer failed; a look at statuses alone does not clear it.
        self._call_failed = False
        self._reader = ClusterReader(
            settings.name, services.inventory, services.executor, services.stopping
        )
        self._check = SectionCheck(settings, services.executor)
        self.ownership = ClusterOwnership(settings, services.memory)
        self._engine_side = EngineSide(settings, services.inventory)
        self._planning = ClusterPlanning(settings, services, self._engine_side)
        self.losses = ClusterLosses(settings, services, self.ownership)
        self._migrations, self._affinity = self._planning.migrations, self._planning.affinity
        now = time.monotonic()
        # An interval of 0 is never.
        self._balance_at = now if settings.load_balance_interval else math.inf
        self._timer_at = now + (settings.timer_interval or math.inf)
        self._begun = -math.inf  # when the latest look began
        self._rest_until = now
        self._pause = 0.0  # seconds after the latest look, if it failed

    def state(self) -> ClusterLook:
        """When the cluster was looked at, and what is wrong."""
        next_look = time.time() + max(0.0, self._next() - time.monotonic())
        plans = tuple(plan for plan in self._services.plans.of_cluster(self.name) if plan.is_open)
        driven_by = self.ownership.driven_by
        imbalance = None if driven_by else self._planning.imbalance  # it would be an old one
        words, since = self._migrations.denial or ("", None)
        return ClusterLook(
            self.name, self._settings.drive.value, self._looked, next_look,
            _in_words(self._problem), imbalance, plans, driven_by, self._migrations.refused,
            words, since, self._engine_side.conflict, self._engine_side.is_upgraded,
            () if driven_by else self._affinity.broken_groups, self._affinity.problem,
            overview.hosts(self._reader), self._planning.course, overview.policy(self._settings),
            None if driven_by else self.losses.worst,
        )  # fmt: skip

    def run(self) -> None:
        """Do what is due until the daemon stops."""
        again = self.run_due()
        while not self._services.stopping.is_set():
            events = self.news.take(again)
            if events is not None:
                self.ownership.add_marks(events.correlation_ids)
                self._reader.note_named(events.named)
            again = self.run_due()
        self._services.following.forget(self.name)

    def run_due(self) -> float:
        """Do what is due.

        Returns:
            When there is something to do again, on the monotonic clock.
        """
        with self._services.memory.alone(self.name):
            if not self._services.stopping.is_set() and time.monotonic() >= self._next():
                self._run_due_alone()
            return self._next()

    def _next(self) -> float:
        """When there is something to do again."""
        if self._pause:
            return self._rest_until
        due = min(self._reader.look_at, self._balance_at, self._timer_at)
        if self._migrations.under_way:
            due = min(due, self._begun + _FOLLOW_EVERY)
        if self._reader.has_news:
            due = min(due, self._begun + self._services.inventory.settings.look_distance)
        return max(due, self._rest_until)

    def _run_due_alone(self) -> None:
        self._begun = begun = time.monotonic()
        balance, timer = begun >= self._balance_at, begun >= self._timer_at
        problem: Optional[Exception] = None
        try:
            self._run(timer, balance)
        except Exception as error:  # noqa: BLE001  a bug is one that other clusters may not have
            problem = error
            _forget_locals(error)
        if self._services.stopping.is_set():
            return  # a look that is cut off is no problem
        if timer or balance:
            self._call_failed = problem is not None
        if problem is not None or not self._call_failed:
            self._report(problem)
        longest = math.inf if problem is None else LONGEST_PAUSE
        if balance:
            self._balance_at = begun + min(longest, self._settings.load_balance_interval)
        if timer:
            self._timer_at = begun + min(longest, self._settings.timer_interval)
        self._pause = 0.0 if problem is None else longer_pause(self._pause)
        # If a look takes long, the engine or this machine has much to do: look less often.
        now = time.monotonic()
        self._rest_until = now + max(self._pause, now - begun)

    def _run(self, timer: bool, balance: bool) -> None:
        """Look at the cluster, and call the scheduler for what is due."""
        self.ownership.determine()  # also if the rest fails: else the marks of others would pile up
        try:
            driver = self._scheduler()  # first: a mistake in the section is logged in any case
        except SchedulerError:
            if self._migrations.under_way:  # they are followed to their end all the same
                view = self._reader.read(False, False, self._migrations.under_way)
                self._migrations.follow(view.state)
            raise
        balance |= self._planning.begin_look()  # is an approved plan still worth it?
        if self.ownership.driven_by:
            timer = balance = False
        balances = balance and not self._migrations.under_way
        if balances:
            self._engine_side.ask()
            balances = balance = not self._engine_side.is_upgraded
        # Statistics show whether a migration improves anything.
        statistics = balances or (timer and self._wants_statistics(driver))
        statistics |= self.losses.begin_look(self._begun)
        view = self._reader.read(timer or balances, statistics, self._migrations.under_way)
        self._looked = time.time()
        state = view.state
        running = {key: vm.host for key, vm in state.vms.items() if vm.host is not None}
        self._services.decisions.note_cluster(self.name, running, self._affinity.read(state))
        following, migrated = self._services.following, self._migrations.under_way
        if self.ownership.driven_by:
            following.forget(self.name)  # the migrations of the daemon that drives are not known
        else:
            following.note_places(self.name, running, migrated, self._begun)
        self._migrations.follow(state)
        if self.ownership.driven_by:
            self._services.plans.drop(self.name, "another daemon drives the cluster")
            return
        if not self._memory.statuses:  # the cluster is new, or was taken over
            self._migrations.adopt(state)
        self.losses.note(view, self._affinity.rules, self._engine_side.reserves)
        self._planning.settle_plans(driver, view)
        self._call(driver, view, timer, balance)

    def _call(self, driver: DriverUnit, view: ClusterView, timer: bool, balance: bool) -> None:
        """Call the hooks for changes, and the scheduler if it is due."""
        stopping = self._services.stopping
        try:
            self._call_hooks(driver, view)
        finally:  # however often a hook's answer cannot be acted on
            if timer and not stopping.is_set():
                self._call_scheduler(driver, "on_timer_invoked", view)
            if balance and not self._migrations.under_way and not stopping.is_set():
                view = self._reader.complete(view, statistics=True)
                self._planning.mend(driver, view)
                if not self._migrations.under_way:
                    self._call_scheduler(driver, BALANCE, view)

    def _wants_statistics(self, driver: DriverUnit) -> bool:
        """Whether the scheduler, or a policy unit of the section, reads statistics."""
        units = self._services.decisions.registry.current().all_units
        called = [(Kind.FILTER, each.name) for each in self._settings.filters]
        called += [(Kind.COST_FUNCTION, each.name) for each in self._settings.cost_functions]
        plugins = [driver.plugin, *(units[key].plugin for key in called if key in units)]
        return any(plugin.wants_statistics for plugin in plugins)

    def _call_hooks(self, driver: DriverUnit, view: ClusterView) -> None:
        """Call the hooks for each status that has changed since they were called last."""
        memory, state, stopping = self._memory, view.state, self._services.stopping
        now = {key: host.status for key, host in state.hosts.items()}
        now.update((key, vm.status) for key, vm in state.vms.items())
        memory.statuses = former = {key: old for key, old in memory.statuses.items() if key in now}
        changes = [
            StatusChange(key, old, now[key]) for key, old in former.items() if old != now[key]
        ]
        for key, status in now.items():  # the first status of a host or VM is no change
            former.setdefault(key, status)
        self._services.memory.save(self.name)
        give_up = 0.0
        for method, subjects in zip(HOOKS, (state.hosts, state.vms)):
            untold = deque(each for each in changes if each.subject in subjects)
            if driver.defines(method) is None:
                memory.statuses.update((each.subject, each.new_status) for each in untold)
            elif untold:
                view = self._reader.complete(view, self._wants_statistics(driver))
                read_at = time.monotonic()
                give_up = give_up or read_at + max(_HOOKS_SECONDS, read_at - self._begun)
                while untold and time.monotonic() < give_up and not stopping.is_set():
                    self._call_hook(self._planning.destinations(driver, method, view), untold)
                if untold:
                    self._reader.look_at = 0.0  # the next look goes on
                    return

    def _call_hook(self, destinations: ClusterDestinations, changes: deque[StatusChange]) -> None:
        """Call a hook for changes for some seconds, and act on the answers."""
        answers: dict[str, tuple[str, ...]] = {}
        events: dict[str, str] = {}  # by VM
        handled: list[StatusChange] = []
        give_up = time.monotonic() + _HOOKS_SECONDS
        statuses, view = self._memory.statuses, destinations.view
        stopping = self._services.stopping
        subjects: dict[str, Union[HostState, VmState]] = {**view.state.hosts, **view.state.vms}
        try:
            while changes and time.monotonic() < give_up and not stopping.is_set():
                change = changes[0]
                if change.subject in subjects:  # else it has gone since
                    request = destinations.request(change)
                    decision = self._services.decisions.decide(request, view.replies)
                    name = subjects[change.subject].name
                    event = f"{name} went from {change.old_status} to {change.new_status}"
                    news = {vm: to for vm, to in decision.answer.items() if vm not in answers}
                    destinations.learn(news)
                    destinations.plan(news)  # the next call is to know of it
                    answers.update(news)
                    events.update(dict.fromkeys(news, event))
                handled.append(changes.popleft())
        finally:
            # If an answer is not acted on, the next look calls the hook again for its change.
            self._planning.perform(destinations, lambda: answers, events)
            if not (answers and stopping.is_set()):  # a daemon that stops does not act on all
                for change in handled:
                    del statuses[change.subject]  # and is added at the end: the oldest come first
                    statuses[change.subject] = change.new_status
                self._services.memory.save(self.name)

    def _call_scheduler(self, driver: DriverUnit, method: str, view: ClusterView) -> None:
        """Call the scheduler, and act on its answer."""
        destinations = self._planning.destinations(driver, method, view)
        # A failure is in the log already; the answer is then that there is nothing to do.
        self._planning.perform(destinations, destinations.answer)

    def _scheduler(self) -> DriverUnit:
        """The cluster's scheduler, as it is loaded now.

        Raises:
            ConfigError: there is none, or the cluster's settings do not fit it or a unit.
            SchedulerError: whether they fit cannot be found out now.
        """
        catalogue = self._services.decisions.registry.current()
        problem = self._check.problem(catalogue)
        if problem:
            raise problem
        return catalogue.drivers[self._settings.scheduler]

    def _report(self, problem: Optional[Exception]) -> None:
        """Log a problem once, and once more when it is over.

        An engine that is away is one problem, whatever the text says.
        """
        former, self._problem = self._problem, problem
        if problem is None:
            if former is not None:
                _log.info("cluster %(cluster)s: is looked after again", {"cluster": self.name})
            return
        is_away = isinstance(problem, EngineUnavailable) and isinstance(former, EngineUnavailable)
        if is_away or _in_words(problem) == _in_words(former):
            return
        fields = {"cluster": self.name, "reason": _in_words(problem)}
        if isinstance(problem, ConfigError):
            place = {"file": problem.file, "line": problem.line}
            _log.error("cluster %(cluster)s: %(reason)s", {**fields, **place})
        elif isinstance(problem, SchedulerError):
            _log.warning("cluster %(cluster)s: %(reason)s", fields)
        else:
            _log.error("cluster %(cluster)s: %(reason)s", fields, exc_info=problem)


def _forget_locals(error: Optional[BaseException]) -> None:
    """Give back what the functions had read that an error ended: it keeps them."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def longer_pause(pause: float) -> float:
    """The pause after one more failure, in seconds."""
    return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, 2 * pause))


def _in_words(problem: Optional[Exception]) -> str:
    """What is wrong; empty if nothing is."""
    if problem is None or isinstance(problem, SchedulerError):
        return str(problem or "")
    return f"looking after it failed, and is tried again: {type(problem).__name__}: {problem}"
