"""A zygote and the workers that it forks, as the daemon sees them.

::

    Zygote.fork ──FORK + 3 descriptors──► zygote ──fork──► worker
    Worker  ───── tasks, answers, what it prints ───────────┘

    one watching thread ◄─ ALIVE, ENDED, or the end of the control socket ── zygote
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Callable, Optional, Union

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import PluginUser, ProcessKey
from ovirt_scheduler.model.tasks import ENDS, NO_PLUGIN, ReaderSetup, Setup
from ovirt_scheduler.model.values.text import one_line
from ovirt_scheduler.processes import interpreter
from ovirt_scheduler.processes.kernel import children
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.protocol.frames import Unframer

_log = logging.getLogger(__name__)

_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_END_SECONDS = 5.0  # for the zygote to end a worker, and to tell how it ended
_ORPHANS_SECONDS = 2.0  # for what a zygote left behind to be gone
_OBEY_SECONDS = 5.0  # for the zygote to give a sign of life
_CHUNK = 1 << 18
_MOST_CHUNKS = 32  # read at once from a pipe: whoever writes without end must not keep us

_SHORT = 1000  # bytes of what a worker says between answers
_REASON = 200  # characters
OUT_OF_TURN = "spoke out of turn"

_SERIALS = itertools.count(1)


def unavailable(wanted: str, error: OSError) -> str:
    """The message of an error: descriptors or memory are short, or a file to run is missing."""
    file = f"{error.filename}: " if error.filename else ""
    return f"{wanted} cannot be had: {file}{error.strerror}"


def reason(frame: frames.Frame, nonce: int) -> str:
    """The reason that a worker gives for its end: one of ``ENDS``, with details after a colon."""
    if frame.kind == frames.DIFFERS and frame.nonce == nonce:
        text = one_line(frame.payload.decode("utf-8", "replace"), _REASON)
        if text.partition(":")[0] in ENDS:
            return text
    return OUT_OF_TURN


class Worker:
    """One process that the zygote forked, as the daemon sees it; used by one thread at a time.

    Attributes:
        key: what a process that is kept serves.
        file: of the plugin whose code may run in it, for the log.
        status: as waitpid(2) gives it, once it has ended; negative: an errno, and it was never
            started.
        was_killed: it did not end by itself in the time that ``end`` allowed.
        ready: it takes a task: it has had none yet, or has said READY to its last one.
        grown: it has said that it takes more memory than a new one would.
        nonce: of its last task.
        setup: the rest of the setup's frame that is still to be sent; None: nothing is.
        loading: its last task was the setup: nobody has called it yet.
        patient: a call waits for it until ``ready_by``, and uses no other process instead.
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
        self.key: ProcessKey
        self.ready = True
        self.grown = self.loading = self.patient = False
        self.nonce = 0
        self.setup: Optional[memoryview] = None
        self.ready_by = 0.0
        self.born = self.used = time.monotonic()
        channel.setblocking(False)
        for pipe in (stdout, stderr):
            os.set_blocking(pipe, False)

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
        self.ready, self.loading = False, True

    def send_setup(self) -> None:
        """Send as much of the setup as goes without waiting; ``setup`` is what is left of it.

        Raises:
            OSError: descriptors or memory lack; the rest can be sent later.
        """
        self.unframer.limit = _SHORT
        with contextlib.suppress(ConnectionError):  # it has ended, as ``hear`` will find
            while self.setup:
                sent = self.send(self.setup)
                if not sent:
                    return
                self.setup = self.setup[sent:] or None

    def has_answered(self, nonce: int, seconds: float) -> None:
        """Note that the task of this nonce was answered, and by when the worker has to be ready."""
        now = time.monotonic()
        self.nonce, self.ready, self.loading = nonce, False, False
        self.ready_by, self.used = now + seconds, now
        self.unframer.limit = _SHORT

    def hear(self) -> str:
        """Read what it has said since its last answer, without waiting.

        Returns:
            Why it ends: one of ``ENDS``, with details after a colon; ``ended`` or ``OUT_OF_TURN``.
            Empty if it does not.
        """
        try:
            data = self.receive()
            for frame in self.unframer.feed(data or b""):
                if self.ready or frame.kind != frames.READY or frame.nonce != self.nonce:
                    return reason(frame, self.nonce)
                self.ready, self.grown = True, frame.payload == frames.GROWN
        except OSError:
            return "ended"
        except frames.FrameError:  # more than it has to say
            return OUT_OF_TURN
        return "ended" if data == b"" else ""

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

    def close(self) -> None:
        """Close the daemon's ends; the worker ends when it sees that. Harmless when repeated."""
        if self.channel.fileno() >= 0:
            self.channel.close()
            os.close(self.stdout)
            os.close(self.stderr)


class Zygote:
    """A zygote as the daemon sees it, from its start, with the thread that watches it.

    Args:
        on_end: called with each worker that has ended, in the watching thread.
        on_death: called when the zygote has ended without being told to, in the same thread.
        user: whom plugins run as; None: this process's own user.
        adopts: whether processes that the zygote leaves behind become children of this process,
            which ends them.

    Attributes:
        alive: it has started, and has not ended.
        over: it has ended, or did not start; ``problem`` says why it did not.
        was_killed: by somebody else, before it had started.

    Raises:
        ExecutorUnavailable: it cannot be started.
    """

    def __init__(
        self,
        on_end: Callable[[Worker], None],
        on_death: Callable[[], None],
        user: Optional[PluginUser],
        adopts: bool,
    ) -> None:
        try:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            # A thread may be about to send there when the zygote ends: were it closed then, its
            # number could be another socket's.
            weakref.finalize(self, self._control.close)
            # One that is stopped takes no messages, and must not stop who has one for it.
            self._control.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_OBEY_SECONDS), 0)
            )
            with theirs:
                self._process = interpreter.start_zygote(theirs.fileno(), user)
        except OSError as error:
            wanted = "the process that starts those of plugins"
            raise ExecutorUnavailable(unavailable(wanted, error)) from None
        self.pid = self._process.pid
        self.alive = self.over = self.was_killed = False
        self.problem = ""
        self._on_end = on_end
        self._on_death = on_death
        self._adopts = adopts
        self._stopping = False
        self._news = threading.Condition()
        self._signs = 0  # of its life: messages
        self._workers: dict[int, Worker] = {}  # by serial: those that have not ended
        self._watcher = threading.Thread(target=self._watch, name="zygote-watcher", daemon=True)
        try:
            self._watcher.start()
        except RuntimeError as error:
            self._process.kill()
            self._process.wait()
            raise ExecutorUnavailable(f"no thread for a zygote: {error}") from None

    def await_start(self, deadline: float) -> None:
        """Wait until it can fork.

        Args:
            deadline: seconds on the monotonic clock.

        Raises:
            ExecutorUnavailable: it does not start, or not until then.
        """
        if not self._await(lambda: self.alive or self.over, deadline - time.monotonic()):
            raise ExecutorUnavailable(f"the zygote (pid {self.pid}) was not ready in time")
        if self.problem:
            raise ExecutorUnavailable(self.problem)

    def fork(self) -> Worker:
        """A new worker; tasks can be sent to it at once, before it has started.

        Raises:
            OSError: descriptors lack, or the zygote takes no message, and counts as dead.
        """
        with contextlib.ExitStack() as opened:
            ours, theirs = socket.socketpair()
            opened.callback(theirs.close)
            opened.callback(ours.close)
            ends: list[int] = []
            for _ in range(2):
                for end in os.pipe():
                    ends.append(end)
                    opened.callback(os.close, end)
            stdout, stdout_w, stderr, stderr_w = ends
            serial = next(_SERIALS) & 0xFFFFFFFF
            worker = Worker(self, serial, ours, stdout, stderr)
            with self._news:
                self._workers[serial] = worker
            message = frames.ORDER.pack(frames.FORK, serial)
            try:
                socket.send_fds(self._control, [message], [theirs.fileno(), stdout_w, stderr_w])
            except OSError:
                with self._news:
                    self._workers.pop(serial, None)
                raise
            opened.pop_all()
            theirs.close()
            os.close(stdout_w)
            os.close(stderr_w)
            return worker

    def kill(self, worker: Worker) -> None:
        """Have the zygote kill a worker."""
        try:
            self._control.send(frames.ORDER.pack(frames.KILL, worker.serial))
        except BlockingIOError:  # it has taken no message for a while
            self._give_up()
        except OSError:  # it has ended
            pass

    def has_ended(self, worker: Worker, seconds: float) -> bool:
        """Whether a worker ends within so many seconds, or the zygote does."""
        return self._await(lambda: worker.status is not None or not self.alive, seconds)

    def _await(self, happened: Callable[[], bool], seconds: float) -> bool:
        """Wait for news of the zygote, at most so many seconds; whether it has happened."""
        with self._news:
            return self._news.wait_for(happened, min(seconds, threading.TIMEOUT_MAX))

    def await_end(self, worker: Worker) -> Optional[int]:
        """Wait for the end of a worker that has been killed; its status."""
        ended = self.has_ended(worker, _END_SECONDS)
        if not ended and self.check_alive() and worker.status is None:
            _log.error(
                "a process of %(file)s was killed and does not end (below the zygote, pid %(pid)d)",
                {"file": worker.file, "pid": self.pid},
            )
        return worker.status

    def check_alive(self) -> bool:
        """Ask the zygote for an answer, and kill it if none comes: it may be stopped.

        Returns:
            Whether it lives.
        """
        with self._news:
            before = self._signs
        with contextlib.suppress(OSError):
            self._control.send(frames.ORDER.pack(frames.ASK, 0), socket.MSG_DONTWAIT)
        lives = self._await(lambda: self._signs > before or not self.alive, _OBEY_SECONDS)
        if not lives:
            self._give_up()
            self._await(lambda: self.over, _OBEY_SECONDS)  # from then on others know
        return lives and self.alive

    def _give_up(self) -> None:
        _log.error(
            "the zygote (pid %(pid)d) gives no sign of life; it is killed", {"pid": self.pid}
        )
        self._process.kill()

    def kill_and_wait(self, deadline: float) -> None:
        """Kill the zygote, and wait until its end is known, but not for the next one's start.

        Args:
            deadline: seconds on the monotonic clock.
        """
        self._process.kill()
        self._await(lambda: self.over, deadline - time.monotonic())

    def stop(self) -> None:
        """End the zygote, which kills what it has forked. One that is starting is killed."""
        self._stopping = True
        if not self.alive:
            self._process.kill()
        with contextlib.suppress(OSError):  # it has ended by itself, and was noticed
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._watcher.join()

    def _why_not_ready(self) -> str:
        """Wait until it has started; empty then, else why it has not."""
        self._control.settimeout(_START_SECONDS)
        message, is_silent = b"", False
        try:
            message = self._control.recv(64)
        except OSError as error:
            is_silent = isinstance(error, socket.timeout)
        if message == frames.ALIVE:
            self._control.settimeout(None)
            return ""
        if not is_silent:  # it may have to say why
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.was_killed = self._process.wait(_STOP_SECONDS) < 0
        self._process.kill()
        status = self._process.wait()
        if self._stopping:
            return "it is closed"
        if is_silent:
            return (
                f"the zygote was not ready after {_START_SECONDS:g} s, and was killed: the machine "
                "is overloaded, or it was stopped"
            )
        if self.was_killed:
            return f"the zygote died by {frames.signal_name(-status)} while it started"
        return (
            f"the zygote ({sys.executable}) did not start (exit status {status}); "
            "see its message above, on standard error"
        )

    def _watch(self) -> None:
        """Wait until the zygote can fork, and note how workers end, until it ends."""
        problem = self._why_not_ready()
        with self._news:
            self.problem = problem
            self.alive, self.over = not problem, bool(problem)
            self._news.notify_all()
        if problem:
            return
        try:
            while message := self._control.recv(64):
                self._hear(message)
        except ConnectionError:  # it has ended, and had messages to read
            pass
        except Exception as error:  # noqa: BLE001  nobody would hear of another end
            self._process.kill()
            _log.error(
                "the zygote (pid %(pid)d) is killed, an end cannot be noted: %(reason)s",
                {"pid": self.pid, "reason": repr(error)},
            )
        status = self._process.wait()
        if self._adopts and not children.end_all(_ORPHANS_SECONDS):
            _log.error(
                "what the zygote (pid %(pid)d) left behind cannot be killed", {"pid": self.pid}
            )
        with self._news:
            self.alive, self.over = False, True
            workers, self._workers = [*self._workers.values()], {}
            self._news.notify_all()
        try:
            for worker in workers:
                self._on_end(worker)
        finally:
            if not self._stopping:
                ended = {"pid": self.pid, "status": status}
                _log.warning(
                    "the zygote (pid %(pid)d) ended (status %(status)d); starting another", ended
                )
                self._on_death()

    def _hear(self, message: bytes) -> None:
        serial, status, left = 0, 0, False
        if message != frames.ALIVE:
            serial, status, left = frames.ENDED.unpack(message)
        with self._news:
            worker = self._workers.pop(serial, None)
        if left and worker is not None:  # told before the call that waits for the end goes on
            _log.error(
                "what a call of %(file)s left behind does not end (below the zygote, pid %(pid)d)",
                {"file": worker.file, "pid": self.pid},
            )
        with self._news:
            self._signs += 1
            if worker is not None:
                worker.status = status
            self._news.notify_all()
        if worker is not None:
            self._on_end(worker)
