"""Drives clusters: calls their schedulers when something happens, and acts on the answers.

::

    the engine ──► a reader ──► states ──► changes since the last look
                   (reader.py)     │              │ one call of a hook each
                       └─ packs ──► the scheduler: load_balance, on_timer_invoked, on_..._changed
                                                │
                              filters, cost functions: where may its VMs go?
                                                │
                                          what is done with it (actions.py)

If something fails, with the engine, the scheduler or a migration, it is logged, and tried again
at the next look. Clusters do not affect each other: each has a thread.

One more thread asks for events. An event of the engine only says which hosts and VMs of a cluster
to look at; the look shows what has changed. No change is lost, because the daemon also looks at a
cluster at its start, and each minute without an event.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Optional

from ovirt_scheduler.clusters import check
from ovirt_scheduler.clusters.actions import (
    HOOKS,
    ClusterActions,
    ClusterMigrations,
    ClusterServices,
)
from ovirt_scheduler.clusters.destinations import BALANCE, StatusChange
from ovirt_scheduler.clusters.ownership import ClusterOwnership
from ovirt_scheduler.clusters.reader import ClusterReader, View
from ovirt_scheduler.errors import (
    ConfigError,
    EngineUnavailable,
    SchedulerError,
    UnreadableDocument,
)
from ovirt_scheduler.model import spelling
from ovirt_scheduler.model.daemon_state import ClusterLook
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings.table import ClusterSettings

_log = logging.getLogger(__name__)

_FOLLOW_EVERY = 2.0  # seconds between looks at VMs that are migrated
_AGAIN_EVERY = 60.0  # seconds between looks while something is wrong, but not with the engine
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 120.0  # seconds after a look that failed
_HOOKS_AT_ONCE = 1.0  # seconds in which hooks are begun before their answers are acted on
_HOOKS_SECONDS = 5.0  # in which hooks are begun before what else is due
_WATCH_EVERY = 2.0  # seconds between two questions for events
_LONGEST_SILENCE = 60.0  # seconds between them while the engine does not answer
_WATCH_SECONDS = 20.0  # for one answer


class ClusterDrive:
    """Does what is due for one cluster; used by one thread.

    Attributes:
        ownership: says whether this daemon drives the cluster.
        news: ids that events have named, from any thread; None: they may have named anything.
    """

    def __init__(self, settings: ClusterSettings, services: ClusterServices) -> None:
        self.name = settings.name
        self.news: SimpleQueue[Optional[frozenset[str]]] = SimpleQueue()
        self._settings = settings
        self._services = services
        self._memory = services.memory.cluster(settings.name)
        self._looked: Optional[float] = None  # seconds since 1970
        self._problem: Optional[Exception] = None
        self._whole_failed = False  # the latest look at all of it, to call the scheduler
        self._reader = ClusterReader(
            settings.name, services.inventory, services.executor, services.stopping
        )
        self.ownership = ClusterOwnership(settings, services.memory)
        self._migrations = ClusterMigrations(settings, services)
        self._actions = ClusterActions(settings, services, self._migrations)
        now = time.monotonic()
        # An interval of 0 is never.
        self._balance_at = now if settings.load_balance_interval else math.inf
        self._timer_at = now + (settings.timer_interval or math.inf)
        self._look_at = now  # when to look again though nothing has happened
        self._begun = -math.inf  # when the latest look began
        self._rest_until = now
        self._failures = 0  # of the engine, since it was well

    def state(self) -> ClusterLook:
        """When the cluster was looked at, and what is wrong."""
        next_look = time.time() + max(0.0, self._next() - time.monotonic())
        plans = tuple(plan for plan in self._services.plans.of_cluster(self.name) if plan.is_open)
        return ClusterLook(
            self.name, self._settings.drive.value, self._looked, next_look, _words(self._problem),
            self._actions.imbalance, plans, self.ownership.driven_by,
        )  # fmt: skip

    def run(self) -> None:
        """Do what is due until the daemon stops."""
        named: Optional[frozenset[str]] = frozenset()
        while not self._services.stopping.is_set():
            again = self.run_due(named)
            try:
                named = self.news.get(timeout=max(0.0, again - time.monotonic()))
            except Empty:
                named = frozenset()

    def run_due(self, named: Optional[frozenset[str]]) -> float:
        """Do what is due.

        Args:
            named: ids of what the engine's events have named since the last time; None where
                they may have named anything.

        Returns:
            When there is something to do again, on the monotonic clock.
        """
        with self._services.memory.alone(self.name):
            if self._services.stopping.is_set():
                return time.monotonic()
            self._reader.hear(named)
            if time.monotonic() >= self._next():
                self._run_due_alone()
            return self._next()

    def _next(self) -> float:
        """When there is something to do again."""
        due = min(self._look_at, self._balance_at, self._timer_at)
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
        pause = self._pause_after(problem)
        if timer or balance:
            self._whole_failed = problem is not None
        if self._services.stopping.is_set():
            return  # a look that is cut off is no problem
        if problem is not None or not self._whole_failed:
            self._report(problem)
        now = time.monotonic()
        longest = math.inf if problem is None else _AGAIN_EVERY
        if balance:
            self._balance_at = begun + min(longest, self._settings.load_balance_interval)
        if timer:
            self._timer_at = begun + min(longest, self._settings.timer_interval)
        # If a look takes long, the engine or this machine has much to do: look less often.
        self._rest_until = now + max(pause, now - begun)
        self._look_at = self._reader.look_at
        if problem is not None:
            self._look_at = now + (pause or _AGAIN_EVERY)
        elif self._migrations.under_way:
            self._look_at = min(self._look_at, begun + _FOLLOW_EVERY)

    def _pause_after(self, problem: Optional[Exception]) -> float:
        """Seconds to leave the engine alone: more each time that a look fails."""
        if problem is None:
            self._failures = 0
            return 0.0
        is_engines = isinstance(problem, (EngineUnavailable, UnreadableDocument))
        if isinstance(problem, SchedulerError) and not is_engines:
            return 0.0
        self._failures = min(self._failures + 1, 10)
        return min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2.0 ** (self._failures - 1))

    def _run(self, timer: bool, balance: bool) -> None:
        """Look at the cluster, call the hooks for changes, and call the scheduler if it is due."""
        self.ownership.settle()  # also if the rest fails: else the marks of others would pile up
        self._scheduler()  # first: a mistake in the section is logged even if the engine is away
        if self._actions.begin_look():
            balance = True  # it shows whether an approved plan is still worth it
        if self.ownership.driven_by:
            timer = balance = False
        # Statistics show whether a migration improves anything.
        statistics = balance or (timer and self._wants_statistics())
        view = self._reader.look(timer or balance, statistics, self._migrations.under_way)
        self._looked = time.time()
        self._migrations.follow(view.state)
        if self.ownership.driven_by:
            self._services.plans.drop(self.name, "another daemon drives the cluster")
            return
        if self._memory.taken:
            self._migrations.adopt(view.state)
        self._actions.settle_plans(view.state)
        self._tell_changes(view)
        if timer and not self._services.stopping.is_set():
            self._ask("on_timer_invoked", view)
        if balance and not self._migrations.under_way and not self._services.stopping.is_set():
            self._ask(BALANCE, self._reader.complete(view, statistics=True))

    def _wants_statistics(self) -> bool:
        """Whether the scheduler, or a policy unit of the section, reads statistics."""
        driver, units = self._scheduler(), self._services.decisions.registry.current().all_units
        called = [(Kind.FILTER, each.name) for each in self._settings.filters]
        called += [(Kind.COST_FUNCTION, each.name) for each in self._settings.cost_functions]
        plugins = [driver.plugin, *(units[key].plugin for key in called if key in units)]
        return any(plugin.wants_statistics for plugin in plugins)

    def _tell_changes(self, view: View) -> None:
        """Call the hooks for each status that has changed since they were called last."""
        memory, state = self._memory, view.state
        now = {key: host.status for key, host in state.hosts.items()}
        now.update((key, vm.status) for key, vm in state.vms.items())
        memory.statuses, changes = _changes(memory.statuses, now)
        self._services.memory.save(self.name)
        give_up = time.monotonic() + _HOOKS_SECONDS
        for method, subjects in zip(HOOKS, (state.hosts, state.vms)):
            untold = deque(each for each in changes if each.subject in subjects)
            if self._scheduler().defines(method) is None:
                memory.statuses.update((each.subject, each.new_status) for each in untold)
                continue
            while untold and not self._services.stopping.is_set():
                if time.monotonic() >= give_up:
                    self._reader.look_at = 0.0  # the next look goes on
                    return
                view = self._reader.complete(view, self._wants_statistics())
                self._call_hook(method, view, untold)

    def _call_hook(self, method: str, view: View, changes: deque[StatusChange]) -> None:
        """Call a hook for as many changes as there is time for, and act on the answers."""
        answers: dict[str, tuple[str, ...]] = {}
        statuses = self._memory.statuses
        destinations = self._actions.destinations(method, view)
        driver = self._scheduler()
        subjects = {**view.state.hosts, **view.state.vms}
        give_up = time.monotonic() + _HOOKS_AT_ONCE
        try:
            while changes and time.monotonic() < give_up:
                change = changes[0]
                if change.subject in subjects:  # else it has gone since
                    request = destinations.request(driver, method, change)
                    decision = self._services.decisions.decide(request, view.replies)
                    for vm, hosts in decision.answer.items():
                        answers.setdefault(vm, hosts)
                del statuses[change.subject]  # and is added at the end: the oldest come first
                statuses[change.subject] = change.new_status
                changes.popleft()
                self._services.memory.save(self.name)
        finally:
            destinations.learn(answers)  # the hook is not called again for the same change
            self._actions.act(method, answers, destinations)

    def _ask(self, method: str, view: View) -> None:
        """Call the scheduler, and act on its answer."""
        destinations = self._actions.destinations(method, view)
        # A failure is in the log already; the answer is then that there is nothing to do.
        answer = destinations.answer(self._scheduler(), method)
        self._actions.act(method, answer, destinations)

    def _scheduler(self) -> DriverUnit:
        """The cluster's scheduler, as it is loaded now.

        Raises:
            ConfigError: there is none, or the cluster's settings do not fit it or a unit.
        """
        catalogue = self._services.decisions.registry.current()
        problem = check.problem(self._settings, catalogue)
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
        if is_away or _words(problem) == _words(former):
            return
        fields = {"cluster": self.name, "reason": _words(problem)}
        if isinstance(problem, ConfigError):
            place = {"file": problem.file, "line": problem.line}
            _log.error("cluster %(cluster)s: %(reason)s", {**fields, **place})
        elif isinstance(problem, SchedulerError):
            _log.warning("cluster %(cluster)s: %(reason)s", fields)
        else:
            _log.error("cluster %(cluster)s: %(reason)s", fields, exc_info=problem)


def _words(problem: Optional[Exception]) -> str:
    """What is wrong; empty if nothing is."""
    if problem is None or isinstance(problem, SchedulerError):
        return str(problem or "")
    return f"looking after it failed, and is tried again: {type(problem).__name__}: {problem}"


def _changes(
    before: Mapping[str, str], now: Mapping[str, str]
) -> tuple[dict[str, str], list[StatusChange]]:
    """The statuses to remember, by id, and what changed since the last look.

    A changed status is remembered when its hook was called. The first status of a new host or VM
    is no change, and comes last.
    """
    remembered = {key: status for key, status in before.items() if key in now}
    changes = [
        StatusChange(key, old, now[key]) for key, old in remembered.items() if old != now[key]
    ]
    return {**remembered, **{key: now[key] for key in now if key not in remembered}}, changes


class ClusterThreads:
    """Drives the clusters from ``start`` to ``stop``.

    Args:
        clusters: each has a thread of its own.
        services: which they share.
    """

    def __init__(self, clusters: Sequence[ClusterSettings], services: ClusterServices) -> None:
        self._inventory = services.inventory
        self._stopping = services.stopping
        self._clusters = {each.name: ClusterDrive(each, services) for each in clusters}
        runs = {f"cluster {name}": each.run for name, each in self._clusters.items()}
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in {"events": self._watch, **runs}.items()
        ]

    def start(self) -> None:
        """Begin with a look at each cluster."""
        for thread in self._threads:
            thread.start()

    def state(self) -> tuple[ClusterLook, ...]:
        """How each cluster is looked after."""
        return tuple(each.state() for each in self._clusters.values())

    def take(self, name: str) -> str:
        """Have this daemon drive a cluster for which it stands by, if it does.

        Returns:
            The daemon that drove it; empty if this one did.

        Raises:
            SchedulerError: none of that name is looked after.
        """
        if name not in self._clusters:
            raise SchedulerError(
                f"no cluster {name!r:.80} is looked after here"
                f"{spelling.hint(name, self._clusters)}; there are "
                f"{', '.join(self._clusters) or 'none'}"
            )
        ownership = self._clusters[name].ownership
        former = ownership.driven_by
        ownership.take()
        self.wake(name)
        return former

    def wake(self, name: str) -> None:
        """Look at a cluster now."""
        if name in self._clusters:
            self._clusters[name].news.put(None)

    def stop(self, seconds: float) -> None:
        """Begin nothing more, and wait so long for running work; may be called again."""
        self._stopping.set()
        for cluster in self._clusters.values():
            cluster.news.put(None)
        give_up = time.monotonic() + seconds
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, give_up - time.monotonic()))

    def _watch(self) -> None:
        """Pass the ids of the engine's events to the clusters, each event once."""
        last: Optional[int] = None
        pause = _WATCH_EVERY
        was_away = is_told = False
        while not self._stopping.is_set():
            asked_at = time.monotonic()
            try:
                last = self._pass_on(last, was_away, asked_at + _WATCH_SECONDS)
                if is_told:
                    _log.info("the engine's events can be read again")
                was_away = is_told = False
                # An engine that takes long to answer is asked less often.
                pause = max(_WATCH_EVERY, time.monotonic() - asked_at)
            except EngineUnavailable as error:
                was_away = True
                pause = min(_LONGEST_SILENCE, 2 * pause)
                # If the engine is away, the looks at clusters report it within this time.
                alone = pause == _LONGEST_SILENCE and not self._inventory.state().problem
                if alone and not is_told:
                    is_told = True
                    _log.warning(
                        "the engine's events cannot be read: %(reason)s; clusters are looked at "
                        "each minute",
                        {"reason": str(error)},
                    )
            except Exception:  # noqa: BLE001  nobody else would tell
                _log.exception("watching for the engine's events failed; it is tried again")
            self._stopping.wait(pause)

    def _pass_on(self, last: Optional[int], was_away: bool, deadline: float) -> Optional[int]:
        """Pass on the events after one; return the number of the latest."""
        if was_away and last is not None:
            # An engine that was restored counts on from the number in its backup.
            last = min(last, self._inventory.events(None, deadline).latest or 0)
        events = self._inventory.events(last, deadline)
        for cluster in self._clusters.values():
            cluster.ownership.heard(events.correlation_ids)
            if events.named != frozenset():
                cluster.news.put(events.named)
        return events.latest
