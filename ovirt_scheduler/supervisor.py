"""Forks processes for plugin calls, watches them, and ends them with all that they started.

One thread, one selector: the pipes of each call, the death of children (SIGCHLD), the nearest
deadline, and the descriptors whose end means that nobody waits any more. No polling.

Processes may be forked ahead, while there is nothing to do: they wait for a task on a socket, and
each is used once, so that the fork is not in the way of a request. Nor is the end of a process
that had nothing left to do but to end, and said so.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import Callable, Deque, Dict, Iterator, List, NoReturn, Optional, Sequence, Set, Tuple

from ovirt_scheduler import frames, limits, titles
from ovirt_scheduler.model import Limits

OUTPUT_LIMIT = 1 << 20  # bytes kept of each of a call's stdout and stderr (contract 5.4)

_CHUNK = 1 << 16
_FINAL_CHUNKS = 32  # read at most from a pipe whose writer has been killed
_SWEEP_SECONDS = 2.0  # for killed processes to be gone
_QUIET = 0.02  # seconds without a request after which there is time to fork
_MOST_LEAVING = 8  # processes whose end nobody waits for


BEGUN = b"b"  # what a process that was forked ahead says when it has its task


class Abandoned(Exception):
    """The daemon closed its socket, or the zygote ended: stop and leave nothing behind."""


@dataclass(frozen=True)
class Pipes:
    """What a call's process has of its supervisor: descriptors, and the supervisor's pid."""

    parent: int
    stdout: int
    stderr: int
    answer: int
    task: int  # a socket: for those forked ahead a task comes from it, and BEGUN goes back


Enter = Callable[[Pipes], NoReturn]


@dataclass(frozen=True)
class Work:
    """One process to fork: what it does, and within what bounds.

    ``task`` is the same for a process that was forked ahead; None where it cannot be told.
    """

    enter: Enter
    limits: Limits
    task: Optional[bytes] = None


@dataclass(frozen=True)
class Ended:
    """How one process ended. ``status`` is None where it never ran."""

    payload: Optional[bytes] = None  # its answer, where it gave a whole one
    status: Optional[int] = None  # as waitpid(2) gives it
    timed_out: bool = False
    problem: str = ""  # why it could not be forked, or its answer could not be read
    seconds: float = 0.0
    stdout: bytes = b""
    stderr: bytes = b""
    cut: bool = False  # more was printed than is kept


class _Capture:
    """What comes out of a pipe, up to a limit; the rest is read and thrown away."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.cut = False

    def feed(self, data: bytes) -> None:
        room = OUTPUT_LIMIT - len(self.data)
        self.data += data[:room]
        self.cut = self.cut or len(data) > room


class _Answer:
    """The frames on the answer's pipe: the answer; an empty one where nothing is left to do."""

    def __init__(self) -> None:
        self._unframer = frames.Unframer(frames.ANSWER_LIMIT)
        self.payload: Optional[bytes] = None
        self.final = False
        self.problem = ""

    def feed(self, data: bytes) -> None:
        if self.problem or self.final:
            return
        try:
            for payload in self._unframer.feed(data):
                if self.payload is not None:
                    self.final = True
                    return
                self.payload = payload
        except frames.FrameError as error:
            self.problem = f"its answer cannot be read: {error}"


@dataclass
class _Process:
    """A process and the supervisor's ends of its pipes."""

    pid: int
    pipes: Tuple[int, int, int]  # answer, stdout, stderr
    task: int  # a socket

    def began(self) -> bool:
        """Whether it began its task; it must have ended."""
        try:
            return os.read(self.task, 1) == BEGUN
        except ConnectionResetError:  # it has not even read all of it
            return False

    def close(self) -> None:
        for end in (*self.pipes, self.task):
            os.close(end)


@dataclass
class _Running:
    index: int
    work: Work
    ahead: bool  # its process was forked before
    process: _Process
    started: float
    deadline: float
    answer: _Answer
    stdout: _Capture
    stderr: _Capture
    timed_out: bool = False

    def feeds(self) -> Iterator[Tuple[int, Callable[[bytes], None]]]:
        """Each pipe, with what takes its bytes."""
        yield from zip(self.process.pipes, (self.answer.feed, self.stdout.feed, self.stderr.feed))


class Supervisor:
    """Runs works in processes of their own."""

    def __init__(self, client: int, lifeline: int, wait_for_task: Enter) -> None:
        """
        Args:
            client: the daemon's socket; while works run nothing comes from it but its end.
            lifeline: ends with the zygote.
            wait_for_task: what a process that is forked ahead does.
        """
        self._client = client
        self._wait_for_task = wait_for_task
        self._running: Dict[int, _Running] = {}
        self._ready: Dict[int, _Process] = {}
        self._leaving: Set[int] = set()  # said that they were done, and are being reaped
        self._orphans = False  # there may be some of theirs
        self._unswept = False  # one has ended that may have left something behind
        self._since = 0  # the last pid before the works at hand
        self._deadline = 0.0  # of the works at hand
        self._wakeup, write_end = os.pipe()
        for end in (self._wakeup, write_end):
            os.set_blocking(end, False)
        # The handler does nothing: the byte in the pipe ends the wait.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        self._selector = selectors.PollSelector()
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._woken)
        self._selector.register(lifeline, selectors.EVENT_READ, self._abandon)
        self._selector.register(client, selectors.EVENT_READ, self._abandon)

    def await_client(self, ahead: int) -> None:
        """Wait for something from the client; meanwhile fork processes ahead.

        Several at once, when none is left or the client is quiet: what this process touches
        between two forks has to be copied again.

        Args:
            ahead: how many should wait.

        Raises:
            Abandoned: the zygote has ended.
        """
        self._selector.modify(self._client, selectors.EVENT_READ, None)
        pause: float = _QUIET if self._ready else 0
        try:
            while True:
                short = len(self._ready) < ahead
                events = self._selector.select(pause if short else None)
                if any(key.fd == self._client for key, _ in events):
                    return
                for key, _ in events:
                    self._read(key)
                self._reap()
                if short and not events:
                    pause = 0
                    self._fork_ahead()
        finally:
            self._selector.modify(self._client, selectors.EVENT_READ, self._abandon)

    @property
    def ready(self) -> int:
        """How many processes wait."""
        return len(self._ready)

    def run(
        self, works: Sequence[Work], deadline: float, parallel: int = 1
    ) -> Iterator[Tuple[int, Ended]]:
        """Run each work; at most ``parallel`` at a time.

        When the last one is yielded, nothing that any of them started is left, and nothing of
        them but processes that are ending.

        Args:
            works: started in this order.
            deadline: seconds on the monotonic clock, for all of them together.

        Yields:
            The index of a work and how it ended, in the order in which they end.

        Raises:
            Abandoned: nobody waits any more; everything has been killed.
        """
        waiting: Deque[Tuple[int, Work]] = deque(enumerate(works))
        if not self._leaving:
            self._since = limits.last_pid() if self._ready else 0
        self._deadline = deadline
        try:
            while waiting or self._running:
                while waiting and len(self._running) < parallel:
                    index, work = waiting.popleft()
                    never_ran = self._start(index, work, deadline)
                    if never_ran is not None:
                        yield index, never_ran
                yield from self._wait()
        finally:
            if self._running:
                self._end_all()

    def close(self) -> None:
        """Kill those that wait, and whatever else is left."""
        for process in self._ready.values():
            limits.kill(process.pid)
            process.close()
        self._ready.clear()
        self._since = 0
        self._sweep()

    def _start(
        self, index: int, work: Work, deadline: float, ahead: bool = True
    ) -> Optional[Ended]:
        now = time.monotonic()
        if now >= deadline:
            return Ended(timed_out=True)
        process = self._hand_over(work.task) if ahead and work.task is not None else None
        forked_ahead = process is not None
        if process is None:
            try:
                process = self._fork(work.enter)
            except OSError as error:
                return Ended(problem=f"no process could be started for it: {error.strerror}")
        running = _Running(
            index, work, forked_ahead, process, now, min(deadline, now + work.limits.timeout),
            _Answer(), _Capture(), _Capture(),
        )  # fmt: skip
        self._running[process.pid] = running
        for end, feed in running.feeds():
            self._selector.register(end, selectors.EVENT_READ, feed)
        return None

    def _fork(self, enter: Enter) -> _Process:
        """
        Raises:
            OSError: no more processes, or no more descriptors.
        """
        ends: List[int] = []
        parent = os.getpid()
        try:
            for _ in range(3):
                ends.extend(os.pipe())
            ends.extend(end.detach() for end in socket.socketpair())
            pid = os.fork()
        except OSError:
            for end in ends:
                os.close(end)
            raise
        answer_r, answer_w, stdout_r, stdout_w, stderr_r, stderr_w, task_r, task_w = ends
        if pid == 0:
            try:
                titles.show("plugin call")
                enter(Pipes(parent, stdout_w, stderr_w, answer_w, task_r))
            finally:
                os._exit(os.EX_SOFTWARE)
        for end in (answer_w, stdout_w, stderr_w, task_r):
            os.close(end)
        pipes = (answer_r, stdout_r, stderr_r)
        for end in pipes:
            os.set_blocking(end, False)
        return _Process(pid, pipes, task_w)

    def _fork_ahead(self) -> None:
        try:
            process = self._fork(self._wait_for_task)
        except OSError:  # it is tried again when there is a task
            self._selector.select()
        else:
            self._ready[process.pid] = process

    def _hand_over(self, task: bytes) -> Optional[_Process]:
        """Give the task to a process that waits; None where none does."""
        while self._ready:
            _, process = self._ready.popitem()
            try:
                frames.write(process.task, task)
            except ConnectionError:  # it has been killed
                process.close()
            else:
                return process
        return None

    def _wait(self) -> Iterator[Tuple[int, Ended]]:
        """Wait for the next thing to happen, and tell which works have ended by it."""
        alive = [running for running in self._running.values() if not running.timed_out]
        # Those killed already have no deadline left: SIGCHLD will tell.
        nearest = min((running.deadline for running in alive), default=None)
        if self._running:
            left = None if nearest is None else max(0.0, nearest - time.monotonic())
            for key, _ in self._selector.select(left):
                self._read(key)
        now = time.monotonic()
        for running in alive:
            if now >= running.deadline:
                running.timed_out = True
                limits.kill(running.process.pid)
        final = [pid for pid, running in self._running.items() if running.answer.final]
        for pid in final[: _MOST_LEAVING - len(self._leaving)]:
            yield self._let_go(pid)
        for pid, status in self._reap():
            running = self._running.pop(pid)
            self._unswept = True
            self._sweep_at_last()
            begun = not running.ahead or running.process.began()
            ended = self._ended(running, status)
            if not begun and not ended.timed_out:
                # Killed by somebody while it waited: the work has not begun, and still can.
                never_ran = self._start(running.index, running.work, self._deadline, ahead=False)
                if never_ran is not None:
                    yield running.index, never_ran
            else:
                yield running.index, ended

    def _let_go(self, pid: int) -> Tuple[int, Ended]:
        """It has answered, and said that nothing of it is left: do not wait for its end.

        Killed, so that what it says is as good as true.
        """
        limits.kill(pid)
        self._leaving.add(pid)
        running = self._running.pop(pid)
        self._sweep_at_last()
        return running.index, self._ended(running, 0)

    def _reap(self) -> List[Tuple[int, int]]:
        """Pid and wait status of the works that have ended."""
        known = {*self._running, *self._ready, *self._leaving}
        ended = list(limits.reap(known))
        for pid, _ in ended:
            if pid in self._ready:  # killed by somebody before it was used
                self._ready.pop(pid).close()
            elif pid in self._leaving:
                self._leaving.remove(pid)
                self._orphans = True
        if self._orphans:  # of one that lied: there should be none
            left = limits.children(known, self._since)
            limits.kill_all(left)
            self._orphans = bool(left)
        return [(pid, status) for pid, status in ended if pid in self._running]

    def _read(self, key: selectors.SelectorKey) -> None:
        """Read once from a pipe; at its end, or after an error, forget it."""
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(key.fd, _CHUNK)
        key.data(data)
        if not data:
            self._selector.unregister(key.fd)

    @staticmethod
    def _woken(_data: bytes) -> None:
        """A child has ended; which one, ``limits.reap`` tells."""

    @staticmethod
    def _abandon(_data: bytes) -> None:
        raise Abandoned

    def _ended(self, running: _Running, status: int) -> Ended:
        for end, feed in running.feeds():
            self._drain(end, feed)
            with contextlib.suppress(KeyError):
                self._selector.unregister(end)
        running.process.close()
        return Ended(
            payload=running.answer.payload,
            status=status,
            timed_out=running.timed_out and running.answer.payload is None,
            problem=running.answer.problem,
            seconds=time.monotonic() - running.started,
            stdout=bytes(running.stdout.data),
            stderr=bytes(running.stderr.data),
            cut=running.stdout.cut or running.stderr.cut,
        )

    @staticmethod
    def _drain(end: int, feed: Callable[[bytes], None]) -> None:
        """Take what a pipe still holds, without waiting for its end."""
        for _ in range(_FINAL_CHUNKS):
            try:
                data = os.read(end, _CHUNK)
            except OSError:
                return
            if not data:
                return
            feed(data)

    def _end_all(self) -> None:
        """Nobody wants the answers: kill what runs."""
        for pid in self._running:
            limits.kill(pid)
        for running in self._running.values():
            self._ended(running, 0)
        self._running.clear()
        self._sweep()

    def _sweep_at_last(self) -> None:
        """Sweep where that is needed, when nothing runs any more."""
        if self._unswept and not self._running:
            self._sweep()

    def _sweep(self) -> None:
        """Kill whatever the works left behind, until there is nothing."""
        self._unswept = False
        give_up = time.monotonic() + _SWEEP_SECONDS
        while time.monotonic() < give_up:
            for pid, _ in self._reap():
                self._running.pop(pid)
            left = limits.children(self._ready, self._since)
            if not left:
                return
            limits.kill_all(left)
            with selectors.PollSelector() as selector:
                selector.register(self._wakeup, selectors.EVENT_READ)
                selector.select(_SWEEP_SECONDS / 10)
            with contextlib.suppress(OSError):
                os.read(self._wakeup, _CHUNK)
