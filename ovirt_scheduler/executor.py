"""The daemon's side of the process model: hands each request to a process forked for it.

::

    thread of a request ──GO + socket──► zygote ──fork──► request process
                        ◄─────────── frames ───────────────────┘

    one watching thread ◄─ ENDED, or the end of the control socket ── zygote

A request whose process dies is a failure of the units that had not answered; the next one is
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
from typing import Callable, Dict, Iterator, Mapping, Optional, Set, Tuple

from ovirt_scheduler import frames
from ovirt_scheduler.errors import (
    ExecutorUnavailable,
    Overloaded,
    RefusedProperty,
    UnreadableDocument,
)
from ovirt_scheduler.model import (
    Analysis,
    CallResult,
    Candidate,
    Document,
    Execution,
    FileFault,
    Job,
    Kind,
    Outcome,
)
from ovirt_scheduler.slots import Slots

_log = logging.getLogger(__name__)

_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_ANALYSIS_SECONDS = 15.0
_GRACE = 2.0  # seconds for a request process to tell what happened by the deadline
_STATUS_SECONDS = 1.0  # for the zygote to tell how a process ended
_FRAME_LIMIT = 256 << 20
_SEND_SECONDS = 5.0  # for the zygote to take a message
_CHUNK = 1 << 18

# The faults that a request process finds.
_REFUSALS = {refusal.fault_code: refusal for refusal in (RefusedProperty, UnreadableDocument)}

# What plugins get of the daemon's environment; anything else could be a secret.
_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR")

_BOOT = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from ovirt_scheduler.zygote import main; main(int(sys.argv[1]))"
)


class _Lost(Exception):
    """A request process ended before it said that it was done."""

    def __init__(self, how: str, zygote_died: bool) -> None:
        super().__init__(how)
        self.zygote_died = zygote_died


class Executor:
    """Runs jobs in processes of their own. Safe to use from many threads.

    Args:
        parallel: plugin calls that may run at once, over all requests.
        max_waiting: requests that may wait for one of them to end.
    """

    def __init__(self, parallel: int, max_waiting: int) -> None:
        self._slots = Slots(parallel, max_waiting)
        self._parallel = parallel
        self._lock = threading.Lock()
        self._zygote: Optional[_Zygote] = None
        self._serials = itertools.count(1)
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
            told = _Told(job)
            try:
                told.take_all(self._talk(payload, job.deadline))
            except _Lost as lost:
                if not lost.zygote_died or told.opened:
                    return told.cut_short(str(lost))
                # No plugin has run yet: the same again, below a new zygote.
                try:
                    told.take_all(self._talk(payload, job.deadline))
                except _Lost as again:
                    return told.cut_short(str(again))
            return told.whole()

    def analyse(self, candidate: Candidate) -> Analysis:
        """Look at a plugin's file in a process of its own; a fault in it is in the result.

        Raises:
            ExecutorUnavailable: the zygote could not be started again.
        """
        deadline = time.monotonic() + _ANALYSIS_SECONDS
        problem = "its process said nothing"
        try:
            for kind, fields in self._talk(frames.pack_task(candidate), deadline):
                if kind == "analysis":
                    return frames.unpack_analysis(fields)
        except (_Lost, frames.FrameError) as error:
            problem = str(error)
        path = candidate.source.path
        return Analysis(fault=FileFault(path, None, f"loading it failed: {problem}"))

    def _talk(self, payload: bytes, deadline: float) -> Iterator[Tuple[str, frames.Head]]:
        """Hand a task to a process forked for it, and give its messages until it is done.

        Raises:
            _Lost: it ended, or its time did, before it was done.
        """
        serial = next(self._serials) & 0xFFFFFFFF
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                zygote = self._go(serial, deadline, theirs)
            give_up = deadline + _GRACE
            try:
                for piece in frames.frame(payload):
                    ours.settimeout(max(0.001, give_up - time.monotonic()))
                    ours.sendall(piece)
                unframer = frames.Unframer(_FRAME_LIMIT)
                while True:
                    ours.settimeout(max(0.001, give_up - time.monotonic()))
                    data = ours.recv(_CHUNK)
                    if not data:
                        raise ConnectionResetError
                    for message in map(frames.unpack, unframer.feed(data)):
                        if message[0] == "done":
                            return
                        yield message
            except socket.timeout:
                raise _Lost("did not answer in time", zygote_died=False) from None
            except (ConnectionError, frames.FrameError) as error:
                how, zygote_died = zygote.fate(serial)
                if isinstance(error, frames.FrameError):
                    how = f"answered what cannot be read ({error})"
                raise _Lost(how, zygote_died) from None
            finally:
                zygote.forget(serial)

    def _go(self, serial: int, deadline: float, theirs: socket.socket) -> _Zygote:
        """Have a zygote fork for this request, a new one if the present one has died."""
        zygote = self._live_zygote()
        try:
            zygote.go(serial, deadline, theirs)
        except OSError:
            zygote.bury()
            zygote = self._live_zygote()
            try:
                zygote.go(serial, deadline, theirs)
            except OSError as error:
                raise ExecutorUnavailable(f"the zygote takes no request: {error}") from None
        return zygote

    def _live_zygote(self) -> _Zygote:
        with self._lock:
            if self._closed:
                raise ExecutorUnavailable("the executor is closed")
            if self._zygote is None or not self._zygote.alive:
                self._zygote = _Zygote(self._replace)
            return self._zygote

    def _replace(self) -> None:
        """The zygote has died: have the next one warm before it is asked for."""
        try:
            self._live_zygote()
        except ExecutorUnavailable as error:
            if not self._closed:
                _log.error("%s; the next request tries again", error)


class _Told:
    """What a request process has told of its job so far."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._hosts: Optional[Tuple[str, ...]] = None
        self._vm: Optional[str] = None
        self._results: Dict[int, CallResult] = {}
        self._errors: Tuple[str, ...] = ()
        if not isinstance(job.hosts, Document) and not isinstance(job.vm, Document):
            self._hosts, self._vm = job.hosts, job.vm
        self.opened = False

    def take_all(self, messages: Iterator[Tuple[str, frames.Head]]) -> None:
        """
        Raises:
            UnreadableDocument, RefusedProperty: the request process says so.
        """
        for kind, fields in messages:
            if kind == "refused":
                raise _REFUSALS[fields["code"]](fields["message"])
            if kind == "opened":
                self.opened = True
                self._hosts, self._vm = tuple(fields["hosts"]), fields["vm"]
                self._errors = tuple(fields["errors"])
            elif kind == "result":
                position, result = frames.unpack_result(fields, self._job.kind)
                self._results[position] = result

    def whole(self) -> Execution:
        results = tuple(self._results[position] for position in sorted(self._results))
        return Execution(self._hosts or (), self._vm, results, self._errors)

    def cut_short(self, how: str) -> Execution:
        """The same, with a failure for each unit that had not answered."""
        if self._hosts is None:
            raise UnreadableDocument(f"the process that read the documents {how}")
        for position, call in enumerate(self._job.calls):
            failure = CallResult(
                call.unit.name, Outcome.KILLED, message=f"the process of its request {how}"
            )
            self._results.setdefault(position, failure)
        return self.whole()


class _Zygote:
    """A running zygote, and the thread that watches it."""

    def __init__(self, on_death: Callable[[], None]) -> None:
        """
        Raises:
            ExecutorUnavailable: it did not start.
        """
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A stopped zygote must not stop the daemon's threads.
        timeval = struct.pack("ll", int(_SEND_SECONDS), 0)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        paths = [os.path.abspath(path) for path in sys.path]  # noqa: PTH100  "" is the folder we are in
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, str(theirs.fileno()), *paths],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=_environment(os.environ),
                cwd="/",
                start_new_session=True,  # a Ctrl-C at the terminal is the daemon's to handle
            )
        self.pid = self._process.pid
        self.alive = True
        self._on_death = on_death
        self._stopping = False
        self._news = threading.Condition()
        self._asked: Set[int] = set()
        self._statuses: Dict[int, int] = {}
        self._await_ready()
        self._watcher = threading.Thread(target=self._watch, name="zygote-watcher", daemon=True)
        self._watcher.start()

    def go(self, serial: int, deadline: float, theirs: socket.socket) -> None:
        """
        Raises:
            OSError: it takes no message; it is dead, or as good as dead.
        """
        with self._news:
            self._asked.add(serial)
        socket.send_fds(self._control, [frames.GO.pack(serial, deadline)], [theirs.fileno()])

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
            self._news.notify_all()
        self._control.close()
        if not self._stopping:
            _log.error("the zygote (pid %d) ended (status %d); starting another", self.pid, status)
            self._on_death()


def _environment(environ: Mapping[str, str]) -> Dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name in _ENVIRONMENT or name.startswith("LC_")
    }
