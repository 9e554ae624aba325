"""The daemon's side of the process model: hands each request to a process forked for it.

::

    thread of a request ──FORK + socket──► zygote ──fork──► request process
                        ◄──────────── frames ────────────────────┘

    one watching thread ◄─ ENDED, or the end of the control socket ── zygote

A process that has served a request without documents waits for the next one. A request whose
process dies is a failure of the units that had not answered; the next one is
served. A zygote that dies is replaced at once.
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
from dataclasses import replace
from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

from ovirt_scheduler import frames, launch
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
from ovirt_scheduler.told import Message, Told

_log = logging.getLogger(__name__)

_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_ANALYSIS_SECONDS = 15.0
_GRACE = 2.0  # seconds for a request process to tell what happened by the deadline
_OBEY_SECONDS = 3.0  # for the zygote to kill a process
_STATUS_SECONDS = 1.0  # for the zygote to tell how a process ended
_FRAME_LIMIT = 256 << 20
_SEND_SECONDS = 5.0  # for the zygote to take a message
_CHUNK = 1 << 18

_TRIES = 3  # to hand a task to a process that lives


class _Lost(Exception):
    """A request process ended before it said that it was done.

    It is harmless where that was none of the task's doing: the zygote died, or the process had
    died while it waited.
    """

    def __init__(self, how: str, harmless: bool) -> None:
        super().__init__(how)
        self.harmless = harmless


class Executor:
    """Runs jobs in processes of their own. Safe to use from many threads.

    Args:
        parallel: plugin calls that may run at once, over all requests.
        max_waiting: requests that may wait for one of them to end.
        user: whom plugins run as, which takes root; None: this process's own user.
    """

    def __init__(self, parallel: int, max_waiting: int, user: Optional[PluginUser] = None) -> None:
        self._slots = Slots(parallel, max_waiting)
        self._parallel = parallel
        self._user = user
        self._lock = threading.Lock()
        self._zygote: Optional[_Zygote] = None
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
            ExecutorUnavailable: the zygote could not be started again.
        """
        wanted = len(job.calls) if job.kind is Kind.COST_FUNCTION else 1
        with self._slots.taken(max(1, wanted), job.deadline) as parallel:
            if self._closed:
                raise Overloaded("the daemon is shutting down; ask again when it has started")
            payload = frames.pack_task(replace(job, parallel=parallel))
            # Entities that are read from documents are shared by fork: a process of its own.
            fresh = isinstance(job.hosts, Document) or isinstance(job.vm, Document)
            for tries_left in reversed(range(_TRIES)):
                told = Told(job)
                try:
                    told.take_all(self._talk(payload, job.deadline, fresh))
                    return told.whole()
                except _Lost as lost:
                    # Where no plugin has run yet, the same again in another process.
                    if told.opened or not lost.harmless or not tries_left:
                        return told.cut_short(str(lost))
                fresh = True
            raise AssertionError("the last try returns")

    def analyse(self, candidate: Candidate) -> Analysis:
        """Look at a plugin's file in a process of its own; a fault in it is in the result.

        Raises:
            ExecutorUnavailable: the zygote could not be started again.
        """
        deadline = time.monotonic() + _ANALYSIS_SECONDS
        problem = "its process said nothing"
        try:
            for kind, fields in self._talk(frames.pack_task(candidate), deadline, fresh=True):
                if kind == "analysis":
                    return frames.unpack_analysis(fields)
        except (_Lost, frames.FrameError) as error:
            problem = str(error)
        path = candidate.source.path
        return Analysis(fault=FileFault(path, None, f"loading it failed: {problem}"))

    def _talk(self, payload: bytes, deadline: float, fresh: bool) -> Iterator[Message]:
        """Hand a task to a request process, and give its messages until it is done.

        Args:
            fresh: fork one for it, even if one waits.

        Raises:
            _Lost: it ended, or its time did, before it was done.
        """
        process = self._take(fresh)
        again = False
        try:
            for message in process.talk(payload, deadline + _GRACE):
                if message[0] == "done":
                    again = message[1]["again"]
                    return
                yield message
        finally:
            process.give_back(again)

    def _take(self, fresh: bool) -> _Process:
        """A request process that waits, or a new one; a new zygote if the present one has died.

        Raises:
            ExecutorUnavailable: there is none to be had.
        """
        zygote = self._live_zygote()
        waiting = None if fresh else zygote.waiting()
        if waiting is not None:
            return waiting
        try:
            return zygote.fork()
        except OSError:
            zygote.bury()
        try:
            return self._live_zygote().fork()
        except OSError as error:
            raise ExecutorUnavailable(f"the zygote takes no request: {error}") from None

    def _live_zygote(self) -> _Zygote:
        with self._lock:
            if self._closed:
                raise ExecutorUnavailable("the executor is closed")
            if self._zygote is None or not self._zygote.alive:
                most_waiting = max(1, self._parallel // 2)
                self._zygote = _Zygote(self._replace, most_waiting, self._user)
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


class _Process:
    """The daemon's end of one request process."""

    def __init__(self, zygote: _Zygote, serial: int, ours: socket.socket) -> None:
        self._zygote = zygote
        self._serial = serial
        self._ours = ours
        self.has_waited = False

    def talk(self, payload: bytes, give_up: float) -> Iterator[Message]:
        """Send a task and give the messages, ``done`` the last.

        Args:
            give_up: seconds on the monotonic clock.

        Raises:
            _Lost: it ended, or its time did, before that.
        """
        try:
            for piece in frames.frame(payload):
                self._ours.settimeout(max(0.001, give_up - time.monotonic()))
                self._ours.sendall(piece)
            unframer = frames.Unframer(_FRAME_LIMIT)
            while True:
                self._ours.settimeout(max(0.001, give_up - time.monotonic()))
                data = self._ours.recv(_CHUNK)
                if not data:
                    raise ConnectionResetError
                for message in map(frames.unpack, unframer.feed(data)):
                    yield message
                    if message[0] == "done":
                        return
        except socket.timeout:
            self._zygote.kill(self._serial)
            raise _Lost("did not answer in time", harmless=False) from None
        except frames.FrameError as error:
            raise _Lost(f"answered what cannot be read ({error})", harmless=False) from None
        except ConnectionError:
            how, zygote_died = self._zygote.fate(self._serial)
            raise _Lost(how, harmless=zygote_died or self.has_waited) from None

    def give_back(self, again: bool) -> None:
        """Keep it for the next request, or be done with it."""
        if not (again and self._zygote.keep(self)):
            self.close()

    def close(self) -> None:
        self._ours.close()
        self._zygote.forget(self._serial)


class _Zygote:
    """A running zygote, and the thread that watches it."""

    def __init__(
        self, on_death: Callable[[], None], most_waiting: int, user: Optional[PluginUser]
    ) -> None:
        """
        Args:
            on_death: called by the watching thread.
            most_waiting: request processes that are kept for the next request.
            user: whom it is to run as.

        Raises:
            ExecutorUnavailable: it did not start.
        """
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A stopped zygote must not stop the daemon's threads.
        timeval = struct.pack("ll", int(_SEND_SECONDS), 0)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        with theirs:
            self._process = launch.zygote(theirs.fileno(), user)
        self.pid = self._process.pid
        self.alive = True
        self._on_death = on_death
        self._stopping = False
        self._news = threading.Condition()
        self._serials = itertools.count(1)
        self._waiting: List[_Process] = []
        self._most_waiting = most_waiting
        self._asked: Set[int] = set()
        self._statuses: Dict[int, int] = {}
        self._await_ready()
        self._watcher = threading.Thread(target=self._watch, name="zygote-watcher", daemon=True)
        self._watcher.start()

    def waiting(self) -> Optional[_Process]:
        """A request process that has been used before and waits, the last one first."""
        with self._news:
            return self._waiting.pop() if self._waiting else None

    def fork(self) -> _Process:
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

    def _hand_out(self, ours: socket.socket, theirs: socket.socket) -> _Process:
        with self._news:
            serial = next(self._serials) & 0xFFFFFFFF
            self._asked.add(serial)
        order = frames.ORDER.pack(frames.FORK, serial)
        socket.send_fds(self._control, [order], [theirs.fileno()])
        return _Process(self, serial, ours)

    def warm(self) -> None:
        """Have a request process wait before it is asked for."""
        with contextlib.suppress(OSError):  # whoever asks for one finds the same, and tells
            self.keep(self.fork())

    def keep(self, process: _Process) -> bool:
        """Keep a request process for the next request; False where there are enough."""
        with self._news:
            if not self.alive or self._stopping or len(self._waiting) >= self._most_waiting:
                return False
            process.has_waited = True
            self._waiting.append(process)
            return True

    def kill(self, serial: int) -> None:
        """Have a request process killed that does not answer in time.

        A zygote that does not see to it, stopped by a plugin maybe, is killed: there is another.
        """
        with contextlib.suppress(OSError):
            self._control.send(frames.ORDER.pack(frames.KILL, serial))
        with self._news:
            obeyed = self._news.wait_for(
                lambda: serial in self._statuses or not self.alive, timeout=_OBEY_SECONDS
            )
        if not obeyed:
            _log.error("the zygote (pid %(pid)d) kills no process any more", {"pid": self.pid})
            self._process.kill()

    def forget(self, serial: int) -> None:
        with self._news:
            self._asked.discard(serial)
            self._statuses.pop(serial, None)

    def fate(self, serial: int) -> Tuple[str, bool]:
        """How a request process ended, in words; and whether the zygote ended too."""
        with self._news:
            self._news.wait_for(
                lambda: serial in self._statuses or not self.alive, timeout=_STATUS_SECONDS
            )
            status = self._statuses.get(serial)
            if status is None:
                return ("ended with the zygote" if not self.alive else "ended"), not self.alive
        if status < 0:
            return f"could not be started ({os.strerror(-status)})", False
        if os.WIFSIGNALED(status):
            return f"died by {frames.signal_name(os.WTERMSIG(status))}", False
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
                serial, status = frames.ENDED.unpack(message)
                with self._news:
                    if serial in self._asked:
                        self._statuses[serial] = status
                        self._news.notify_all()
        status = self._process.wait()
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
