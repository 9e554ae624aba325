"""The daemon's side of the process model: hands each request to a process forked for it.

::

    thread of a request ──FORK + socket──► zygote ──fork──► request process
                        ◄──────────── frames ────────────────────┘

    one watching thread ◄─ ENDED, or the end of the control socket ── zygote

A process that has served a request without documents waits for the next one. A request whose
process dies is a failure of the units that had not answered. A zygote that dies is replaced at
once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import replace
from typing import Callable, Generator, Optional, TypeVar

from ovirt_scheduler import frames, limits
from ovirt_scheduler.cluster_seen import Seen, Survey
from ovirt_scheduler.drivers import Changes, DriverExecution, DriverJob
from ovirt_scheduler.errors import ExecutorUnavailable, Overloaded
from ovirt_scheduler.model import (
    Analysis,
    Candidate,
    Document,
    Execution,
    FileFault,
    Job,
    Kind,
    PluginUser,
)
from ovirt_scheduler.slots import Slots
from ovirt_scheduler.told import (
    ChangesTold,
    DriverTold,
    HearChange,
    Listener,
    Message,
    SeenTold,
    Told,
)
from ovirt_scheduler.zygote_client import LACKS, Lost, RequestProcess, Zygote, lacking

_log = logging.getLogger(__name__)

_ANALYSIS_SECONDS = 15.0
_GRACE = 2.0  # seconds for a request process to tell what happened by the deadline

_TRIES = 3  # to hand a task to a process that lives


E = TypeVar("E")


class Executor:
    """Runs jobs in processes of their own. Safe to use from many threads.

    Args:
        parallel: plugin calls that may run at once, over all requests.
        max_waiting: requests that may wait for one of them to end.
        user: whom plugins run as, which takes root; None: this process's own user.
        adopts: this process has no other children than the executor's, and kills whatever a
            zygote that died leaves behind.
    """

    def __init__(
        self,
        parallel: int,
        max_waiting: int,
        user: Optional[PluginUser] = None,
        adopts: bool = False,
    ) -> None:
        if adopts:
            limits.become_subreaper()
        self._adopts = adopts
        self._slots = Slots(parallel, max_waiting)
        self._parallel = parallel
        self._user = user
        self._lock = threading.Lock()
        self._zygote: Optional[Zygote] = None
        self._closed = False

    def start(self) -> None:
        """Start the zygote.

        Raises:
            ExecutorUnavailable: it does not start.
        """
        self._live_zygote()

    def close(self) -> None:
        """End the zygote and everything below it; returns when they are gone."""
        with self._lock:
            self._closed = True
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.stop()

    @property
    def zygote_pid(self) -> Optional[int]:
        with self._lock:
            return self._zygote.pid if self._zygote else None

    def run(self, job: Job) -> Execution:
        """Run a job in a process of its own.

        Returns:
            The results of the units that ran. A plugin's failure is a result.

        Raises:
            UnreadableDocument: the hosts or the VM cannot be read.
            RefusedProperty: a value that a unit refuses, where the job is strict.
            Overloaded: no place became free in time, too many wait, or it is closed.
            ExecutorUnavailable: no process is to be had for it.
        """
        wanted = len(job.calls) if job.kind is Kind.COST_FUNCTION else 1
        # Entities that are read from documents are shared by fork: a process of its own.
        fresh = isinstance(job.hosts, Document) or isinstance(job.vm, Document)
        with self._slots.taken(max(1, wanted), job.deadline) as parallel:
            payload = frames.pack_task(replace(job, parallel=parallel))
            return self._done(payload, job.deadline, fresh, lambda: Told(job))

    def run_driver(self, job: DriverJob) -> DriverExecution:
        """Run a driver's job, and the policy units that it asks for, as ``run`` does.

        Raises:
            BadParameters: the host whose status has changed is not among the hosts.
            And what ``run`` raises.
        """
        with self._slots.taken(max(1, len(job.cost_functions)), job.deadline) as parallel:
            payload = frames.pack_task(replace(job, parallel=parallel))
            return self._done(payload, job.deadline, bool(job.documents), lambda: DriverTold(job))

    def tell_changes(self, job: DriverJob, changes: Changes, hear: HearChange) -> None:
        """Call a hook for each of the changes that there is time for, one after another.

        Args:
            hear: called with each change that was told, and how that ended, at once.

        Raises:
            UnreadableDocument, Overloaded, ExecutorUnavailable: as for ``run``.
        """
        with self._slots.taken(1, job.deadline):
            payload = frames.pack_task(replace(job, changes=changes))
            self._done(payload, job.deadline, True, lambda: ChangesTold(job, changes, hear))

    def _done(
        self, payload: bytes, deadline: float, fresh: bool, listen: Callable[[], Listener[E]]
    ) -> E:
        """Have a task done, and hear what comes of it."""
        for tries_left in reversed(range(_TRIES)):
            told = listen()
            try:
                # Whoever keeps an error must not keep the process with it.
                with contextlib.closing(self._talk(payload, deadline, fresh)) as messages:
                    told.take_all(messages)
                return told.whole()
            except ExecutorUnavailable:
                if not self._closed:
                    raise
                raise Overloaded(
                    "the daemon is shutting down; ask again when it has started"
                ) from None
            except Lost as lost:
                # Where no plugin has run yet, the same again in another process.
                if told.opened or not lost.harmless or not tries_left:
                    return told.cut_short(str(lost))
            fresh = True
        raise AssertionError("the last try returns")

    def survey(self, survey: Survey) -> Seen:
        """Read what the engine tells of a cluster, in a process of its own.

        Raises:
            UnreadableDocument: it cannot be read.
            Overloaded, ExecutorUnavailable: as for ``run``.
        """
        with self._slots.taken(1, survey.deadline):
            return self._done(frames.pack_task(survey), survey.deadline, True, SeenTold)

    def analyse(self, candidate: Candidate) -> Analysis:
        """Look at a plugin's file in a process of its own; a fault in it is in the result.

        Raises:
            ExecutorUnavailable: no process is to be had for it.
        """
        deadline = time.monotonic() + _ANALYSIS_SECONDS
        problem = "its process said nothing"
        for _ in range(_TRIES):
            try:
                for kind, fields in self._talk(frames.pack_task(candidate), deadline, fresh=True):
                    if kind == "analysis":
                        return frames.unpack_analysis(fields)
            except frames.FrameError as error:
                problem = str(error)
            except Lost as lost:
                problem = str(lost)
                if lost.harmless:
                    continue
            break
        path = candidate.source.path
        return Analysis(fault=FileFault(path, None, f"loading it failed: {problem}"))

    def _talk(self, payload: bytes, deadline: float, fresh: bool) -> Generator[Message, None, None]:
        """Hand a task to a request process, and give its messages until it is done.

        Args:
            fresh: fork one for it, even if one waits.

        Raises:
            Lost: it ended, or its time did, before it was done.
        """
        process = self._take(fresh)
        again = False
        try:
            for message in process.talk(payload, deadline + _GRACE):
                if message[0] == "done":
                    again, process.ready = message[1]["again"], message[1]["ready"]
                    return
                yield message
        finally:
            process.give_back(again)

    def _take(self, fresh: bool) -> RequestProcess:
        """A request process that waits, or a new one; a new zygote if the present one has died.

        Raises:
            ExecutorUnavailable: there is none to be had.
        """
        zygote = self._live_zygote()
        waiting = None if fresh else zygote.waiting()
        if waiting is not None:
            return waiting
        for tries_left in reversed(range(2)):
            try:
                return zygote.fork()
            except OSError as error:
                if error.errno in LACKS:  # it is well, and others use it
                    raise ExecutorUnavailable(lacking("a request process", error)) from None
                if not tries_left:
                    raise ExecutorUnavailable(f"the zygote takes no request: {error}") from None
                zygote.bury()
            zygote = self._live_zygote()
        raise AssertionError("the last try returns or raises")

    def _live_zygote(self) -> Zygote:
        with self._lock:
            if self._closed:
                raise ExecutorUnavailable("the executor is closed")
            if self._zygote is None or not self._zygote.alive:
                most_waiting = max(1, self._parallel // 2)
                self._zygote = Zygote(self._replace, most_waiting, self._user, self._adopts)
                self._zygote.warm()
            return self._zygote

    def _replace(self) -> None:
        """The zygote has died: have the next one warm before it is asked for."""
        try:
            self._live_zygote()
        except ExecutorUnavailable as error:
            if not self._closed:
                _log.error(
                    "no process for plugin calls can be started, the next request tries again: "
                    "%(reason)s",
                    {"reason": str(error)},
                )
