"""Runs calls of plugins, readers of documents and analyses in worker processes.

::

    a request's thread ── places ── read: one worker ──► packs
                                 └─ call: a process of each plugin ──► results

A plugin's failure is a result. A worker that dies is replaced, a zygote that dies too; what had
not begun there is done again elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional, Union

from ovirt_scheduler.errors import ExecutorUnavailable, Overloaded, UnreadableDocument
from ovirt_scheduler.model.analysis import Analysis, FileFault
from ovirt_scheduler.model.plugins import Candidate, PluginUser
from ovirt_scheduler.model.results import CallResult, Outcome
from ovirt_scheduler.model.tasks import (
    ANALYSIS_LIMITS,
    Pack,
    PrintedTask,
    ReadTask,
    Task,
    Unread,
)
from ovirt_scheduler.model.text import one_line
from ovirt_scheduler.processes import exchange, plugin_call
from ovirt_scheduler.processes.exchange import Exchange, State
from ovirt_scheduler.processes.handles import LACKS, Worker, Zygote, lacking
from ovirt_scheduler.processes.kept_process import Kept, new_nonce
from ovirt_scheduler.processes.kernel import prctl
from ovirt_scheduler.processes.places import Places
from ovirt_scheduler.processes.plugin_call import PluginCall
from ovirt_scheduler.processes.pool import SPARE, Pool
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.frames import FrameError
from ovirt_scheduler.processes.protocol.messages import Answered

_log = logging.getLogger(__name__)


# To hand a task to a process that lives: an idle one, all spare ones and one that was just being
# made may have been killed.
_TRIES = SPARE + 3
_GRACE = 0.25  # seconds for a process to tell that its properties' values took too long
_LAST_SECONDS = 0.5  # for a process whose connection has ended to have ended itself


class _Waiting(NamedTuple):
    """A call that waits for a process.

    Attributes:
        place: of the call among those of its request.
        tries_left: to hand it to a process that lives.
        printed: the call's own exchange, where another process is to read what it printed: it
            printed past Python's streams.
    """

    place: int
    call: PluginCall
    tries_left: int = _TRIES
    printed: Optional[Exchange] = None


@dataclass(eq=False)
class _Running:
    """A call that is under way."""

    of: _Waiting
    kept: Kept
    exchange: Exchange


class Runner:
    """Runs tasks in worker processes. Safe to use from many threads.

    Args:
        parallel: plugin calls that may run at once, over all requests.
        max_waiting: requests that may wait for one of them to end.
        kept: processes of plugins that are kept between calls.
        user: whom plugins run as, which takes root; None: this process's own user.
        adopts: this process has no other children than these, and kills whatever a zygote that
            died leaves behind.
    """

    def __init__(
        self,
        parallel: int,
        max_waiting: int,
        kept: int,
        user: Optional[PluginUser] = None,
        adopts: bool = False,
    ) -> None:
        if adopts:
            prctl.become_subreaper()
        self._adopts = adopts
        self._user = user
        self.places = Places(parallel, max_waiting)
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._zygote: Optional[Zygote] = None
        self._closed = False
        self.started = self.zygotes = 0  # processes since the start
        self.pool = Pool(self._fork, kept, parallel)

    def start(self) -> None:
        """Start the zygote, and the thread that keeps processes ready.

        Raises:
            ExecutorUnavailable: the zygote does not start.
        """
        self._live_zygote()
        self.pool.start()

    def close(self) -> None:
        """End everything below this process; returns when it is gone."""
        with self._lock:
            self._closed = True
            zygote, self._zygote = self._zygote, None
        self.pool.stop()
        if zygote is not None:
            zygote.stop()
        self.pool.close()

    @property
    def zygote_pid(self) -> Optional[int]:
        """The process id of the zygote; None where there is none just now."""
        with self._lock:
            return self._zygote.pid if self._zygote else None

    def call(
        self, calls: Sequence[PluginCall], deadline: float, parallel: int = 1
    ) -> list[CallResult]:
        """Make each call in a process of its plugin.

        Args:
            calls: n calls, begun in this order, at most ``parallel`` under way at once.
            deadline: seconds on the monotonic clock, for all of them together.

        Returns:
            n results in the order of the calls. A plugin's failure is a result.

        Raises:
            ExecutorUnavailable: no process is to be had.
            Overloaded: this is closed.
        """
        results: list[Optional[CallResult]] = [None] * len(calls)
        waiting = deque(_Waiting(place, call) for place, call in enumerate(calls))
        running: list[_Running] = []
        try:
            while waiting or running:
                while waiting and len(running) < parallel:
                    first = waiting.popleft()
                    if first.printed is None and time.monotonic() >= deadline:
                        results[first.place] = plugin_call.not_started(first.call)
                    else:
                        running.append(self._begin(first, deadline))
                if not running:
                    continue
                ended = exchange.wait([each.exchange for each in running])
                for each in [each for each in running if each.exchange in ended]:
                    running.remove(each)
                    result = self._finished(each)
                    if isinstance(result, CallResult):
                        results[each.of.place] = result
                    else:
                        waiting.appendleft(result)
        except ExecutorUnavailable as error:
            raise self._unavailable(error) from None
        finally:
            for each in running:
                self.pool.discard(each.kept, "abandoned")
        return [result for result in results if result is not None]

    def _begin(self, of: _Waiting, deadline: float) -> _Running:
        """Hand a call, or what it printed, to a process of its plugin."""
        call, printed = of.call, of.printed
        task: Task
        if printed is None:
            seconds = min(call.limits.timeout, deadline - time.monotonic())
            task, descriptors = call.task(seconds)
        else:
            stdout, stderr = bytes(printed.stdout.data), bytes(printed.stderr.data)
            task = PrintedTask(call.function, call.inputs.hosts, stdout, stderr)
            descriptors = []
        nonce = new_nonce()
        frame = frames.pack_task(task, nonce)
        limit = messages.answer_limit(call.function, call.inputs)
        kept = self._taken(call, of.tries_left)
        # From here on its time counts. It tells itself which regex was not done in that time.
        until = min(time.monotonic() + call.limits.timeout, deadline)
        until += _GRACE if call.has_values else 0.0
        begun = Exchange(
            kept.worker,
            (frame, descriptors),
            nonce,
            until if printed is None else printed.deadline,
            limit,
            call.kept if printed is None else call.shown,
            former=None if kept.ready else kept.nonce,
            patience=kept.patience(),
            setup=kept.setup,
        )
        kept.setup = None
        begun.begin()
        return _Running(of, kept, begun)

    def _taken(self, call: PluginCall, tries_left: int) -> Kept:
        """Take a process for a call.

        First one that is idle, then a new one; on the last try whichever there is, however long it
        takes to settle, as there may be no new one.

        Raises:
            ExecutorUnavailable: there is none at all.
        """
        plugin, bounds = call.plugin, call.limits
        if tries_left == _TRIES - 1:
            with contextlib.suppress(ExecutorUnavailable):
                return self.pool.take(plugin, bounds, fresh=True)
            tries_left = 1
        kept = self.pool.take(plugin, bounds)
        kept.patient = kept.patient or tries_left == 1
        return kept

    def _finished(self, running: _Running) -> Union[CallResult, _Waiting]:
        """Take in an exchange that has ended: the call's result, or what is to be done next."""
        of, done, kept = running.of, running.exchange, running.kept
        if done.state is State.ANSWERED:
            return self._answered(running)
        if done.state is State.NOT_READY:
            self.pool.put_back(kept)
            return of._replace(tries_left=of.tries_left - 1)
        status = kept.worker.end(_LAST_SECONDS if done.state is State.ENDED else 0.0)
        if done.state is State.NOT_BEGUN:
            if of.tries_left > 1:
                self.pool.discard(kept, done.differs or "ended")
                return of._replace(tries_left=of.tries_left - 1)
            if status is not None and status < 0:
                self.pool.discard(kept, "not started")
                raise plugin_call.never_started(status)
        outcome, message = plugin_call.how_it_ended(done, status, of.call.limits, kept.worker)
        self.pool.discard(kept, outcome.value)
        return plugin_call.result(of.call, of.printed or done, Answered(outcome, message=message))

    def _answered(self, running: _Running) -> Union[CallResult, _Waiting]:
        of, done, kept = running.of, running.exchange, running.kept
        if done.differs:
            kept.worker.end()
        shown = of.printed or done
        try:
            answered = messages.unpack_answer(done.answer, of.call.function, of.call.inputs)
        except FrameError as error:
            kept.worker.end()
            self.pool.discard(kept, "misled")
            message = f"its answer cannot be read: {error}"
            return plugin_call.result(of.call, shown, Answered(Outcome.BAD_ANSWER, message=message))
        if done.differs:
            self.pool.discard(kept, done.differs)
        else:
            called = not of.call.checks and of.printed is None
            self.pool.give_back(kept, done.nonce, called)
        read = (len(shown.stdout.data), len(shown.stderr.data))
        if answered.read is None or answered.read == read or of.printed is not None:
            return plugin_call.result(of.call, shown, answered)
        return of._replace(tries_left=_TRIES, printed=done)

    def read(
        self, documents: Sequence[Unread], deadline: float, tells_states: bool = False
    ) -> tuple[list[Pack], tuple[messages.ReadDocument, ...], object]:
        """Read documents, in a process of their own.

        Returns:
            The packs of those that could be read, in their order; what is to be said of each
            document; what was seen in them, for ``messages.unpack_hosts`` and ``unpack_vms``.

        Raises:
            UnreadableDocument: its process did not live to tell.
            ExecutorUnavailable: no process is to be had.
            Overloaded: this is closed.
        """
        task = ReadTask(tuple(documents), tells_states)
        packs, found, seen = self._read(task, deadline, frames.FORK_READER)
        if documents and not found:  # one of them takes the SDK
            packs, found, seen = self._read(task, deadline, frames.FORK)
        good = [each for each in found if not each.problem]
        if len(good) != len(packs) or len(found) != len(documents):
            raise UnreadableDocument("the process that read the documents lost some of them")
        for pack, each in zip(packs, good):
            pack.ids = each.ids
            pack.names = {key or "": name for key, name in zip(each.ids, each.names) if name}
        return packs, found, seen

    def _read(
        self, task: ReadTask, deadline: float, order: bytes
    ) -> tuple[list[Pack], tuple[messages.ReadDocument, ...], object]:
        """Have a reader read: with the SDK where the order is FORK. What it tells is unchecked."""
        size = sum(len(each.document.data) for each in task.documents)
        limit, most = messages.read_limit(size), len(task.documents)
        try:
            done = self.alone(task, deadline, limit, most, order)
        except ExecutorUnavailable as error:
            raise self._unavailable(error) from None
        packs = [Pack(descriptor, ()) for descriptor in done.descriptors]
        if done.state is not State.ANSWERED:
            status = done.worker.end()
            how = plugin_call.how_a_reader_ended(done, status)
            done.worker.close()
            if done.lacks_descriptors:
                lacking = os.strerror(errno.EMFILE)
                raise ExecutorUnavailable(f"documents cannot be passed on: {lacking}")
            raise UnreadableDocument(f"the process that read the documents {how}")
        done.worker.kill()  # it has no more to do, whatever a document made of it
        done.worker.close()
        try:
            found, seen = messages.unpack_read(done.answer, size)
        except FrameError as error:
            raise UnreadableDocument(
                f"the process that read the documents answered what cannot be read ({error})"
            ) from None
        return packs, found, seen

    def analyse(self, candidate: Candidate) -> Analysis:
        """Look at a plugin's file in a process of its own; a fault in it is in the result.

        Raises:
            ExecutorUnavailable: no process is to be had for it.
        """
        deadline = time.monotonic() + ANALYSIS_LIMITS.timeout
        done = self.alone(candidate, deadline, messages.ANALYSIS_LIMIT)
        worker = done.worker
        problem = ""
        analysis = None
        if done.state is State.ANSWERED:
            try:
                analysis = messages.unpack_analysis(done.answer)
            except FrameError as error:
                problem = str(error)
        status = worker.end()
        worker.close()
        if analysis is not None:
            return analysis
        if not problem:
            _, problem = plugin_call.how_it_ended(done, status, ANALYSIS_LIMITS, worker)
        message = f"loading it failed: {problem}"
        last_words = plugin_call.printed(done.stderr).strip().rpartition("\n")[2]
        if last_words:
            message += f"; it said: {one_line(last_words)}"
        return Analysis(fault=FileFault(candidate.source.path, None, message))

    def alone(
        self,
        task: Task,
        deadline: float,
        limit: int,
        most_descriptors: int = 0,
        order: bytes = frames.FORK,
    ) -> Exchange:
        """Have a spare worker do one task, and wait until that has ended."""
        nonce = new_nonce()
        frame = frames.pack_task(task, nonce)
        for tries_left in reversed(range(_TRIES)):
            worker = self.pool.spare(order)
            done = Exchange(
                worker,
                (frame, []),
                nonce,
                deadline,
                limit,
                plugin_call.OUTPUT_LIMIT,
                most_descriptors=most_descriptors,
            )
            done.begin()
            while done.open:
                exchange.wait([done])
            if done.state is not State.NOT_BEGUN or not tries_left:
                return done
            for descriptor in done.descriptors:
                os.close(descriptor)
            status = worker.end()
            worker.close()
            if status is not None and status < 0:
                raise plugin_call.never_started(status)
        raise AssertionError("the last try returns")

    def _unavailable(self, error: ExecutorUnavailable) -> Exception:
        if self._closed:
            return Overloaded("the daemon is shutting down; ask again when it has started")
        return error

    def _fork(self, order: bytes) -> Worker:
        """Fork a new worker, of a new zygote if the present one has died.

        Raises:
            ExecutorUnavailable: there is none to be had.
        """
        zygote = self._live_zygote()
        self.started += 1
        for tries_left in reversed(range(2)):
            try:
                return zygote.fork(order)
            except OSError as error:
                if error.errno in LACKS:  # it is well, and others use it
                    raise ExecutorUnavailable(lacking("a process", error)) from None
                if not tries_left:
                    raise ExecutorUnavailable(f"the zygote takes no request: {error}") from None
                zygote.bury()
            zygote = self._live_zygote()
        raise AssertionError("the last try returns or raises")

    def _live_zygote(self) -> Zygote:
        """The zygote that lives; a new one where there is none.

        Raises:
            ExecutorUnavailable: it does not start, or this is closed.
        """
        with self._starting:
            for tries_left in reversed(range(_TRIES)):
                with self._lock:
                    if self._closed:
                        raise ExecutorUnavailable("the executor is closed")
                    if self._zygote is not None and self._zygote.alive:
                        return self._zygote
                    # close() finds it, and need not wait until it has started
                    self.zygotes += 1
                    zygote = Zygote(self.pool.ended, self._replace, self._user, self._adopts)
                    self._zygote = zygote
                try:
                    zygote.start()
                except ExecutorUnavailable:
                    if not zygote.was_killed or not tries_left:
                        raise
                else:
                    return zygote
        raise AssertionError("the last try returns or raises")

    def _replace(self) -> None:
        """Start the next zygote at once when one has died."""
        self.pool.clear()
        try:
            self._live_zygote()
        except ExecutorUnavailable as error:
            if not self._closed:
                _log.error(
                    "no process for plugin calls can be started, the next request tries again: "
                    "%(reason)s",
                    {"reason": str(error)},
                )
