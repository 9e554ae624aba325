"""A worker: one process below the zygote, as the daemon sees it.

::

    daemon ── tasks ──► worker
           ◄─ answers, what it prints, READY or why it ends ──

    forked ─► READY ─ setup, or a task that was answered ─► SETTLING
                ▲ ◄──────────────── READY ────────────────────┘
                └ a while without a call ─► PINGED ─ READY ─► PROVEN
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import socket
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Callable, Optional, Union

from ovirt_scheduler.model.plugins import ProcessKey
from ovirt_scheduler.model.tasks import NO_PLUGIN, PingTask, ReaderSetup, Setup
from ovirt_scheduler.processes.protocol import ending, frames
from ovirt_scheduler.processes.protocol.ending import Ending
from ovirt_scheduler.processes.protocol.frames import Unframer

if TYPE_CHECKING:
    from ovirt_scheduler.processes.zygote import Zygote

_CHUNK = 1 << 18
_MOST_CHUNKS = 32  # read at once from a pipe: whoever writes without end must not keep us
_SHORT = 1000  # bytes of what a worker says between answers

NO_SETUP = ProcessKey("no setup", 0, 0, 0, calls_per_process=1)  # of a worker that had none


class WorkerState(enum.Enum):
    """What a worker does between two tasks."""

    READY = "ready"  # it takes a task: it has had none yet, or has said READY to its last one
    SETTLING = "settling"  # it loads its plugin, or compares itself with what it was then
    PINGED = "pinged"  # it was asked to say READY once more, as a call may have said it
    PROVEN = "proven"  # it said so, and takes a task


_TAKE_A_TASK = (WorkerState.READY, WorkerState.PROVEN)


class Worker:
    """One process that the zygote forked, as the daemon sees it; used by one thread at a time.

    Attributes:
        key: what it serves; ``NO_SETUP`` until it knows.
        file: of the plugin whose code may run in it, for the log.
        status: as waitpid(2) gives it, once it has ended; negative: an errno, and it was never
            started.
        was_killed: it did not end by itself in the time that ``end`` allowed.
        state: between two tasks.
        has_grown: it has said that it takes more memory than a new one would.
        nonce: of its last task.
        setup: the rest of the setup's frame that is still to be sent; None: nothing is.
        was_called: it has answered a task since its setup.
        patient: a task waits for it until ``ready_by``, and is given to no other worker before.
        ready_by: when it has to be ready, on the monotonic clock.
        born, used: when it was forked, and when its last call ended.
    """

    def __init__(
        self, zygote: Zygote, serial: int, channel: socket.socket, stdout: int, stderr: int
    ) -> None:
        self.zygote = zygote
        self.serial = serial
        self.channel = channel
        self.stdout, self.stderr = stdout, stderr
        self.file = NO_PLUGIN
        self.unframer = Unframer(0)
        self.status: Optional[int] = None
        self.was_killed = False
        self.key = NO_SETUP
        self.state = WorkerState.READY
        self.has_grown = self.was_called = self.patient = False
        self.nonce = 0
        self.setup: Optional[memoryview] = None
        self.ready_by = 0.0
        self.born = self.used = time.monotonic()
        channel.setblocking(False)
        for pipe in (stdout, stderr):
            os.set_blocking(pipe, False)

    @property
    def is_ready(self) -> bool:
        """Whether it takes a task."""
        return self.state in _TAKE_A_TASK

    def send(self, frame: memoryview, descriptors: Sequence[int] = ()) -> int:
        """Send as much as the socket takes without waiting.

        Returns:
            How many bytes went; 0: none just now.

        Raises:
            ConnectionError: the process has ended.
        """
        try:
            if descriptors:
                return socket.send_fds(self.channel, [frame], [*descriptors])
            return self.channel.send(frame)
        except BlockingIOError:
            return 0

    def receive(self) -> Optional[bytes]:
        """Read what has come, without waiting: None if that is nothing, empty at the end.

        Raises:
            ConnectionError: the process has ended without having read all that was sent.
        """
        try:
            return self.channel.recv(_CHUNK)
        except BlockingIOError:
            return None

    def begin_setup(self, setup: Union[Setup, ReaderSetup], nonce: int, frame: memoryview) -> None:
        """Make it a process of a plugin, or a reader; ``send_setup`` sends the setup's frame."""
        self.key, self.file, self.nonce, self.setup = setup.key, setup.file, nonce, frame
        self.state, self.was_called = WorkerState.SETTLING, False

    def send_setup(self) -> None:
        """Send as much of the setup as goes without waiting; ``setup`` is what is left of it.

        Raises:
            OSError: descriptors or memory lack; the rest can be sent later.
        """
        self.unframer.limit = _SHORT
        with contextlib.suppress(ConnectionError):  # it has ended, as ``poll_messages`` will find
            while self.setup:
                sent = self.send(self.setup)
                if not sent:
                    return
                self.setup = self.setup[sent:] or None

    def has_answered(self, nonce: int, seconds: float) -> None:
        """Note that the task of this nonce was answered, and by when the worker has to be ready."""
        now = time.monotonic()
        self.nonce, self.state, self.was_called = nonce, WorkerState.SETTLING, True
        self.ready_by, self.used = now + seconds, now
        self.unframer.limit = _SHORT

    def prove(self, used_before: float, seconds: float) -> bool:
        """Have it say READY once more, after a while without a call.

        A call may have said it, with an answer of its own, and go on. A child that it made the
        zygote's is looked for, too.

        Args:
            used_before: when its last call has to have ended, on the monotonic clock.
            seconds: for READY, if it had not more.

        Returns:
            Whether it is still to be found out whether it is ready.
        """
        if self.state is not WorkerState.READY:
            return False
        if self.used <= used_before:
            self.zygote.sweep()
            nonce = frames.new_nonce()
            try:
                self.send(frames.pack_task(PingTask(), nonce))
            except OSError:  # it has ended, as ``poll_messages`` will find; or memory lacks
                return True
            self.nonce, self.state = nonce, WorkerState.PINGED
            self.ready_by = max(self.ready_by, time.monotonic() + seconds)
        return True

    def poll_messages(self) -> Optional[Ending]:
        """Read what it has said since its last answer, without waiting.

        Returns:
            Why it ends; None if it does not.
        """
        try:
            data = self.receive()
            for kind, nonce, payload in self.unframer.feed(data or b""):
                if self.is_ready or kind != frames.READY or nonce != self.nonce:
                    ends = kind == frames.DIFFERS and nonce == self.nonce
                    return ending.unpack(payload) if ends else ending.OUT_OF_TURN
                pinged = self.state is WorkerState.PINGED
                self.state = WorkerState.PROVEN if pinged else WorkerState.READY
                self.has_grown = payload == frames.GROWN
        except OSError:
            return ending.ENDED
        except frames.FrameError:  # more than it has to say
            return ending.OUT_OF_TURN
        return ending.ENDED if data == b"" else None

    def drop_output(self) -> None:
        """Read what its pipes hold, and drop it: no call was running."""
        poller = select.poll()
        for pipe in (self.stdout, self.stderr):
            poller.register(pipe, select.POLLIN)
        for pipe, _ in poller.poll(0):  # most calls leave nothing there
            self.drain(pipe)

    def drain(self, descriptor: int, feed: Optional[Callable[[bytes], None]] = None) -> bool:
        """Read what one of its pipes holds, without waiting for more.

        Args:
            feed: gets the output; None: no call was running.

        Returns:
            Whether the pipe has ended.
        """
        for _ in range(_MOST_CHUNKS):
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                return False
            if feed is not None:
                feed(data)
            if len(data) < _CHUNK:  # that was all
                return not data
        return False

    def kill(self) -> None:
        """Have the zygote end it, with all that it started."""
        self.zygote.kill(self)

    def end(self, by_itself: float = 0.0) -> Optional[int]:
        """Have it end, and wait until nothing of it is left.

        Args:
            by_itself: seconds in which it may end without being killed.

        Returns:
            How it ended. None if the zygote does not tell.
        """
        if by_itself:
            self.was_killed = not self.zygote.has_ended(self, by_itself)
        self.kill()
        return self.zygote.await_end(self)

    def abandon(self) -> None:
        """Have it end, without waiting, and close the daemon's ends. Harmless when repeated."""
        try:
            if self.status is None:
                self.kill()
        finally:
            self.close()

    @contextlib.contextmanager
    def abandoned_on_error(self) -> Iterator[None]:
        """While nobody else knows of it: abandon it where the body raises."""
        try:
            yield
        except BaseException:
            self.abandon()
            raise

    def close(self) -> None:
        """Close the daemon's ends; the worker ends when it sees that. Harmless when repeated."""
        if self.channel.fileno() >= 0:
            self.channel.close()
            os.close(self.stdout)
            os.close(self.stderr)
