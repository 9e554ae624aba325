"""A zygote as the daemon sees it, and the thread that watches it.

::

    fork, kill ── orders, with the descriptors of a new worker ──► zygote ──fork──► worker

    one watching thread ◄─ ALIVE, ENDED, or the end of the control socket ── zygote
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from typing import Callable, Optional

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import PluginUser
from ovirt_scheduler.processes import interpreter
from ovirt_scheduler.processes.kernel import children
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.timing import TIMES, ProcessTimes
from ovirt_scheduler.processes.worker_handle import Worker

_log = logging.getLogger(__name__)

_STOP_SECONDS = 5.0
_ORPHANS_SECONDS = 2.0  # for what a zygote left behind to be gone
_SWEPT_SECONDS = 0.05  # after which a sweep has been made
_PAGE = 4096  # bytes: one read of a list of children gives no more

_SERIALS = itertools.count(1)


def unavailable(what: str, error: OSError) -> str:
    """The message of an error: descriptors or memory are short, or a file to run is missing."""
    file = f"{error.filename}: " if error.filename else ""
    return f"{what} cannot be had: {file}{error.strerror}"


def _opened_children(pid: int) -> int:
    """The list of a process's children, to be read again and again.

    An empty file where there is none: without CONFIG_PROC_CHILDREN, or if it is hidden. Then the
    zygote alone looks, every few seconds.
    """
    try:
        return os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY)
    except OSError:
        return os.open(os.devnull, os.O_RDONLY)


class Zygote:
    """A zygote as the daemon sees it, from its start, with the thread that watches it.

    Args:
        on_end: called with each worker that has ended, in the watching thread.
        on_death: called when the zygote has ended without being told to, in the same thread.
        user: whom plugins run as; None: this process's own user.
        adopts: whether processes that the zygote leaves behind become children of this process,
            which ends them.
        times: how long it is waited for.

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
        times: ProcessTimes = TIMES,
    ) -> None:
        self._times = times
        try:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            # A thread may be about to send there when the zygote ends: were it closed then, its
            # number could be another socket's.
            weakref.finalize(self, self._control.close)
            # One that is stopped takes no messages, and must not stop who has one for it.
            limit = struct.pack("ll", *divmod(round(times.obey * 1e6), 10**6))
            self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            with theirs:
                self._process = interpreter.start_zygote(theirs.fileno(), user)
        except OSError as error:
            what = "the process that starts those of plugins"
            raise ExecutorUnavailable(unavailable(what, error)) from None
        self.pid = self._process.pid
        self.alive = self.over = self.was_killed = False
        self.problem = ""
        self._on_end = on_end
        self._on_death = on_death
        self._adopts = adopts
        self._stopping = False
        self._news = threading.Condition()
        self._signs = 0  # of its life: messages
        self._children = _opened_children(self.pid)
        weakref.finalize(self, os.close, self._children)
        self._swept = b""  # the list of its children when it was told to sweep last
        self._swept_by = 0.0  # when that has been done, on the monotonic clock
        self._is_settled = False  # the list is the same since; who is new stands at its end
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
            except BaseException:
                with self._news:
                    self._workers.pop(serial, None)
                raise
            opened.pop_all()
            theirs.close()
            os.close(stdout_w)
            os.close(stderr_w)
            return worker

    def trace(self, worker: Worker) -> None:
        """Have a worker print where it is, if it can; a child of the call may do so, too."""
        with contextlib.suppress(OSError):  # it has ended, or takes no message: it is killed soon
            order = frames.ORDER.pack(frames.TRACE, worker.serial)
            self._control.send(order, socket.MSG_DONTWAIT)

    def kill(self, worker: Worker) -> None:
        """Have the zygote kill a worker."""
        try:
            self._control.send(frames.ORDER.pack(frames.KILL, worker.serial))
        except BlockingIOError:  # it has taken no message for a while
            self._give_up()
        except OSError:  # it has ended
            pass

    def sweep(self) -> None:
        """Have the zygote end children that are none of its workers, if it has others than before.

        clone(2) can make them (CLONE_PARENT). This is done with each answer: where nothing has
        changed, the end of the list is read, which takes a microsecond.
        """
        if self._is_settled and not os.pread(self._children, _PAGE, len(self._swept)):
            return
        with self._news:
            listed, now = b"", time.monotonic()
            while part := os.pread(self._children, _PAGE, len(listed)):
                listed += part
            is_same = listed == self._swept
            self._is_settled = is_same and now >= self._swept_by
            if is_same:
                return
            self._swept, self._swept_by = listed, now + _SWEPT_SECONDS
        with contextlib.suppress(OSError):  # it has ended, or takes no message now
            self._control.send(frames.ORDER.pack(frames.SWEEP, 0), socket.MSG_DONTWAIT)

    def has_ended(self, worker: Worker, seconds: float) -> bool:
        """Whether a worker ends within so many seconds, or the zygote does."""
        return self._await(lambda: worker.status is not None or not self.alive, seconds)

    def _await(self, happened: Callable[[], bool], seconds: float) -> bool:
        """Wait for news of the zygote, at most so many seconds; whether it has happened."""
        with self._news:
            return self._news.wait_for(happened, min(seconds, threading.TIMEOUT_MAX))

    def await_end(self, worker: Worker) -> Optional[int]:
        """Wait for the end of a worker that has been killed; its status."""
        ended = self.has_ended(worker, self._times.end)
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
        lives = self._await(lambda: self._signs > before or not self.alive, self._times.obey)
        if not lives:
            self._give_up()
            self._await(lambda: self.over, self._times.obey)  # from then on others know
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
        self._control.settimeout(self._times.start)
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
                f"the zygote was not ready after {self._times.start:g} s, and was killed: the "
                "machine is overloaded, or it was stopped"
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
                self._note(message)
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

    def _note(self, message: bytes) -> None:
        serial, status, has_remains = 0, 0, False
        if message != frames.ALIVE:
            serial, status, has_remains = frames.ENDED.unpack(message)
        with self._news:
            worker = self._workers.pop(serial, None)
            self._is_settled = False  # the list has become shorter
        if has_remains and worker is not None:  # before the call that waits goes on
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
