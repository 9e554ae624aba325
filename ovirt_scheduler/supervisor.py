"""Forks processes for plugin calls, watches them, and ends them with all that they started.

One thread, one selector: the pipes of each call, the death of children (SIGCHLD), the nearest
deadline, and the descriptors whose end means that nobody waits any more. No polling.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections import deque
from dataclasses import dataclass
from typing import Callable, Deque, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple

from ovirt_scheduler import frames, limits
from ovirt_scheduler.model import Limits

OUTPUT_LIMIT = 1 << 20  # bytes kept of each of a call's stdout and stderr (contract 5.4)

_CHUNK = 1 << 16
_FINAL_CHUNKS = 32  # read at most from a pipe whose writer has been killed
_SWEEP_SECONDS = 2.0  # for killed processes to be gone


class Abandoned(Exception):
    """The daemon closed its socket, or the zygote ended: stop and leave nothing behind."""


@dataclass(frozen=True)
class Work:
    """One process to fork: what it does, and within what bounds.

    ``enter`` gets the parent's pid and the descriptors for stdout, stderr and the answer;
    it does not return.
    """

    enter: Callable[[int, int, int, int], NoReturn]
    limits: Limits


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
    """The frame on the answer's pipe."""

    def __init__(self) -> None:
        self._unframer = frames.Unframer(frames.ANSWER_LIMIT)
        self.payload: Optional[bytes] = None
        self.problem = ""

    def feed(self, data: bytes) -> None:
        if self.problem or self.payload is not None:
            return
        try:
            self.payload = next(iter(self._unframer.feed(data)), None)
        except frames.FrameError as error:
            self.problem = f"its answer cannot be read: {error}"


@dataclass
class _Running:
    index: int
    pid: int
    started: float
    deadline: float
    answer: _Answer
    stdout: _Capture
    stderr: _Capture
    pipes: Tuple[int, int, int]
    timed_out: bool = False

    def feeds(self) -> Iterator[Tuple[int, Callable[[bytes], None]]]:
        """Each pipe, with what takes its bytes."""
        yield from zip(self.pipes, (self.answer.feed, self.stdout.feed, self.stderr.feed))


class Supervisor:
    """Runs works in processes of their own."""

    def __init__(self, lifelines: Sequence[int]) -> None:
        """
        Args:
            lifelines: descriptors; when one becomes readable, nobody waits any more.
        """
        self._running: Dict[int, _Running] = {}
        self._selector = selectors.PollSelector()
        self._wakeup, write_end = os.pipe()
        for end in (self._wakeup, write_end):
            os.set_blocking(end, False)
        # The handler does nothing: the byte in the pipe ends the wait.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._woken)
        for lifeline in lifelines:
            self._selector.register(lifeline, selectors.EVENT_READ, self._abandon)

    def run(
        self, works: Sequence[Work], deadline: float, parallel: int = 1
    ) -> Iterator[Tuple[int, Ended]]:
        """Run each work; at most ``parallel`` at a time.

        When the last one is yielded, nothing that any of them started is left.

        Args:
            works: started in this order.
            deadline: seconds on the monotonic clock, for all of them together.

        Yields:
            The index of a work and how it ended, in the order in which they end.

        Raises:
            Abandoned: nobody waits any more; everything has been killed.
        """
        waiting: Deque[Tuple[int, Work]] = deque(enumerate(works))
        try:
            while waiting or self._running:
                while waiting and len(self._running) < parallel:
                    index, work = waiting.popleft()
                    never_ran = self._start(index, work, deadline)
                    if never_ran is not None:
                        yield index, never_ran
                yield from self._wait()
        finally:
            self._end_all()

    def _start(self, index: int, work: Work, deadline: float) -> Optional[Ended]:
        now = time.monotonic()
        if now >= deadline:
            return Ended(timed_out=True)
        pipes: List[int] = []
        try:
            for _ in range(3):
                pipes.extend(os.pipe())
            parent = os.getpid()
            pid = os.fork()
        except OSError as error:
            for end in pipes:
                os.close(end)
            return Ended(problem=f"no process could be started for it: {error.strerror}")
        answer_r, answer_w, stdout_r, stdout_w, stderr_r, stderr_w = pipes
        if pid == 0:
            try:
                work.enter(parent, stdout_w, stderr_w, answer_w)
            finally:
                os._exit(os.EX_SOFTWARE)
        for end in (answer_w, stdout_w, stderr_w):
            os.close(end)
        running = _Running(
            index, pid, now, min(deadline, now + work.limits.timeout),
            _Answer(), _Capture(), _Capture(), (answer_r, stdout_r, stderr_r),
        )  # fmt: skip
        self._running[pid] = running
        for end, feed in running.feeds():
            os.set_blocking(end, False)
            self._selector.register(end, selectors.EVENT_READ, feed)
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
                limits.kill(running.pid)
        for pid, status in limits.reap(self._running):
            running = self._running.pop(pid)
            if not self._running:
                self._sweep()
            yield running.index, self._ended(running, status)

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
            os.close(end)
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
        for pid in self._running:
            limits.kill(pid)
        self._sweep()
        for running in self._running.values():
            self._ended(running, 0)
        self._running.clear()

    def _sweep(self) -> None:
        """Kill whatever is left below this process, until there is nothing."""
        give_up = time.monotonic() + _SWEEP_SECONDS
        while limits.any_child() and time.monotonic() < give_up:
            limits.kill_children()
            with selectors.PollSelector() as selector:
                selector.register(self._wakeup, selectors.EVENT_READ)
                selector.select(_SWEEP_SECONDS / 10)
            with contextlib.suppress(OSError):
                os.read(self._wakeup, _CHUNK)
