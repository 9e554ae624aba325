"""The daemon's ends of a zygote and of its request processes.

::

    Zygote.fork ──FORK + socket──► zygote ──fork──► request process
    RequestProcess.talk ◄───────────── frames ──────────┘

    one watching thread ◄─ READY, ENDED, or the end of the control socket ── zygote
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

from ovirt_scheduler import frames, launch, limits
from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model import PluginUser
from ovirt_scheduler.told import Message

_log = logging.getLogger(__name__)

_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_STATUS_SECONDS = 3.0  # for the zygote to tell how a process ended
_ORPHANS_SECONDS = 2.0  # for what a zygote left behind to be gone
_FRAME_LIMIT = 256 << 20
_SEND_SECONDS = 5.0  # for the zygote to take a message
_CHUNK = 1 << 18
_QUIET = 5.0  # seconds without a word from a request process, after which the zygote is asked
_WARM = 2  # request processes that wait: one may fork calls ahead while the other serves
_MANY = 1000
_OBEY_SECONDS = 5.0  # for the zygote to give a sign of life

# What the daemon may lack for a while.
LACKS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ETOOMANYREFS}


def lacking(wanted: str, error: OSError) -> str:
    return f"{wanted} cannot be had: {error.strerror}"


class Lost(Exception):
    """A request process ended before it said that it was done.

    It is harmless where that was none of the task's doing: the zygote died, or the process had
    died while it waited.
    """

    def __init__(self, how: str, harmless: bool) -> None:
        super().__init__(how)
        self.harmless = harmless


class RequestProcess:
    """The daemon's end of one request process."""

    def __init__(self, zygote: Zygote, serial: int, ours: socket.socket) -> None:
        self._zygote = zygote
        self.serial = serial
        self._ours = ours
        self.has_waited = False
        self.ready = _MANY  # calls that it had forked ahead when it was last heard of

    def talk(self, payload: bytes, give_up: float) -> Iterator[Message]:
        """Send a task and give the messages, ``done`` the last.

        Args:
            give_up: seconds on the monotonic clock.

        Raises:
            Lost: it ended, or its time did, before that.
            ExecutorUnavailable: it was never started.
        """
        try:
            for piece in frames.frame(payload):
                self._ours.settimeout(max(0.001, give_up - time.monotonic()))
                self._ours.sendall(piece)
            unframer = frames.Unframer(_FRAME_LIMIT)
            while True:
                data = self._receive(give_up)
                if not data:
                    raise ConnectionResetError
                for message in map(frames.unpack, unframer.feed(data)):
                    yield message
                    if message[0] == "done":
                        return
        except socket.timeout:
            self._zygote.kill(self.serial)
            self._zygote.prove()
            raise Lost("did not answer in time", harmless=False) from None
        except frames.FrameError as error:
            raise Lost(f"answered what cannot be read ({error})", harmless=False) from None
        except ConnectionError:
            how, zygote_died = self._zygote.fate(self.serial)
            raise Lost(how, harmless=zygote_died or self.has_waited) from None

    def _receive(self, give_up: float) -> bytes:
        """
        Raises:
            socket.timeout: nothing came until ``give_up``.
        """
        while True:
            left = give_up - time.monotonic()
            self._ours.settimeout(max(0.001, min(left, _QUIET)))
            try:
                return self._ours.recv(_CHUNK)
            except socket.timeout:
                if left <= _QUIET:
                    raise
                self._zygote.prove()

    def give_back(self, again: bool) -> None:
        """Keep it for the next request, or be done with it."""
        if not (again and self._zygote.keep(self)):
            self.close()
        self._zygote.warm()  # it may have served long enough, or died

    def close(self) -> None:
        self._ours.close()
        self._zygote.forget(self.serial)


class Zygote:
    """A running zygote, and the thread that watches it."""

    def __init__(
        self,
        on_death: Callable[[], None],
        most_waiting: int,
        user: Optional[PluginUser],
        adopts: bool,
    ) -> None:
        """
        Args:
            on_death: called by the watching thread.
            most_waiting: request processes that are kept for the next request.
            user: whom it is to run as; None: this process's own user.
            adopts: what it leaves behind when it dies becomes this process's, and is killed.

        Raises:
            ExecutorUnavailable: it did not start.
        """
        try:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise ExecutorUnavailable(lacking("a zygote", error)) from None
        # A stopped zygote must not stop the daemon's threads.
        timeval = struct.pack("ll", int(_SEND_SECONDS), 0)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        with theirs:
            try:
                self._process = launch.zygote(theirs.fileno(), user)
            except OSError as error:
                self._control.close()
                raise ExecutorUnavailable(lacking("a zygote", error)) from None
        self.pid = self._process.pid
        self.alive = True
        self._on_death = on_death
        self._adopts = adopts
        self._stopping = False
        self._news = threading.Condition()
        self._serials = itertools.count(1)
        self._waiting: List[RequestProcess] = []
        self._most_waiting = most_waiting
        self._signs = 0  # of its life: messages
        self._asked: Set[int] = set()
        self._statuses: Dict[int, int] = {}
        self._await_ready()
        self._watcher = threading.Thread(target=self._watch, name="zygote-watcher", daemon=True)
        try:
            self._watcher.start()
        except RuntimeError as error:
            self._process.kill()
            self._process.wait()
            self._control.close()
            raise ExecutorUnavailable(f"no thread for a zygote: {error}") from None

    def waiting(self) -> Optional[RequestProcess]:
        """A request process that waits: the one with most calls forked ahead.

        So those that have none left have time to fork, while others serve.
        """
        with self._news:
            if not self._waiting:
                return None
            process = max(self._waiting, key=lambda process: process.ready)
            self._waiting.remove(process)
            return process

    def fork(self) -> RequestProcess:
        """A new request process.

        Raises:
            OSError: the zygote takes no message; it is dead, or as good as dead.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                return self._hand_out(ours, theirs)
            except OSError:
                ours.close()
                raise

    def _hand_out(self, ours: socket.socket, theirs: socket.socket) -> RequestProcess:
        with self._news:
            serial = next(self._serials) & 0xFFFFFFFF
            self._asked.add(serial)
        order = frames.ORDER.pack(frames.FORK, serial)
        try:
            socket.send_fds(self._control, [order], [theirs.fileno()])
        except OSError:
            self.forget(serial)
            raise
        return RequestProcess(self, serial, ours)

    def warm(self) -> None:
        """Have request processes wait before they are asked for."""
        with contextlib.suppress(OSError):  # whoever asks for one finds the same, and tells
            while len(self._asked) < min(_WARM, self._most_waiting):
                process = self.fork()
                if not self.keep(process):
                    process.close()
                    return

    def keep(self, process: RequestProcess) -> bool:
        """Keep a request process for the next request; False where there are enough.

        As many as work now, so that after a rush those that it needed go, and their memory.
        """
        with self._news:
            working = len(self._asked) - len(self._waiting)
            most = min(self._most_waiting, max(_WARM, working))
            if not self.alive or self._stopping or len(self._waiting) >= most:
                return False
            process.has_waited = True
            self._waiting.append(process)
            return True

    def kill(self, serial: int) -> None:
        """Have a request process killed that does not answer in time."""
        with contextlib.suppress(OSError):
            self._control.send(frames.ORDER.pack(frames.KILL, serial))

    def prove(self) -> None:
        """Ask for a sign of life; kill it where none comes: it is stopped, by a plugin maybe."""
        with self._news:
            before = self._signs
        with contextlib.suppress(OSError):
            self._control.send(frames.ORDER.pack(frames.ASK, 0), socket.MSG_DONTWAIT)
        with self._news:
            lives = self._news.wait_for(
                lambda: self._signs > before or not self.alive, timeout=_OBEY_SECONDS
            )
        if not lives:
            _log.error(
                "the zygote (pid %(pid)d) gives no sign of life; it is killed", {"pid": self.pid}
            )
            self._process.kill()

    def forget(self, serial: int) -> None:
        with self._news:
            self._asked.discard(serial)
            self._statuses.pop(serial, None)

    def fate(self, serial: int) -> Tuple[str, bool]:
        """How a request process ended, in words; and whether the zygote ended too.

        Raises:
            ExecutorUnavailable: it was never started.
        """
        with self._news:
            self._news.wait_for(
                lambda: serial in self._statuses or not self.alive, timeout=_STATUS_SECONDS
            )
            status = self._statuses.get(serial)
            if status is None:
                return ("ended with the zygote" if not self.alive else "ended"), not self.alive
        if status < 0:
            raise ExecutorUnavailable(f"a request process cannot be had: {os.strerror(-status)}")
        if os.WIFSIGNALED(status):
            return f"died by {frames.signal_name(os.WTERMSIG(status))}", False
        if os.WEXITSTATUS(status) == frames.OUT_OF_MEMORY:
            return "ran out of memory", False
        return f"ended with exit status {os.WEXITSTATUS(status)}", False

    def bury(self) -> None:
        """Make sure that it is dead, and know it."""
        self._process.kill()
        self._watcher.join()

    def stop(self) -> None:
        """End it: it kills what it has forked, and goes."""
        self._stopping = True
        with contextlib.suppress(OSError):  # it has ended by itself, and was noticed
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._watcher.join()

    def _await_ready(self) -> None:
        self._control.settimeout(_START_SECONDS)
        try:
            message = self._control.recv(64)
        except OSError:
            message = b""
        if message != frames.READY:
            self._control.close()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it may have to say why
                self._process.wait(_STOP_SECONDS)
            self._process.kill()
            status = self._process.wait()
            raise ExecutorUnavailable(
                f"the zygote ({sys.executable}) did not start (exit status {status}); "
                "what it said stands above, on standard error"
            )
        self._control.settimeout(None)

    def _watch(self) -> None:
        """Note how processes end, until the zygote does."""
        with contextlib.suppress(OSError):
            while True:
                message = self._control.recv(64)
                if not message:
                    break
                with self._news:
                    self._signs += 1
                    self._news.notify_all()
                    if message == frames.READY:
                        continue
                    serial, status = frames.ENDED.unpack(message)
                    if serial in self._asked:
                        self._statuses[serial] = status
                    lost = [process for process in self._waiting if process.serial == serial]
                    for process in lost:
                        self._waiting.remove(process)
                for process in lost:
                    process.close()
        status = self._process.wait()
        if self._adopts and not limits.end_children(_ORPHANS_SECONDS):
            _log.error(
                "what the zygote (pid %(pid)d) left behind cannot be killed", {"pid": self.pid}
            )
        with self._news:
            self.alive = False
            waiting, self._waiting = self._waiting, []
            self._news.notify_all()
        for process in waiting:
            process.close()
        self._control.close()
        if not self._stopping:
            ended = {"pid": self.pid, "status": status}
            _log.warning(
                "the zygote (pid %(pid)d) ended (status %(status)d); starting another", ended
            )
            self._on_death()
