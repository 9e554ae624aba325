"""The zygote: the process that forks all workers, and reaps them.

::

    daemon ──(FORK, KILL, TRACE, …)────► zygote ──fork──► process of a plugin, reader, ...
           ◄─(ALIVE, ENDED)─────┘

It is started by exec with one descriptor, the daemon's control socket. It has one thread, no secret
and no plugin, and never reads a task. Processes that a worker leaves behind become its children,
and are killed before it reports the worker's end. When the control socket ends, so do all workers,
and then the zygote.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import fcntl
import gc
import importlib
import importlib.util
import math
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Callable, NamedTuple, NoReturn

from ovirt_scheduler.processes.kernel import children, limits, malloc, prctl, privileges, titles
from ovirt_scheduler.processes.protocol import frames

# Loaded once, here, for all workers.
_PRELOADED = ("lxml.etree", "ovirtsdk4.services", "ovirtsdk4.types", "ovirtsdk4.writers")
_MAIN = "ovirt_scheduler.processes.worker.main"

_SWEEP_SECONDS = 2.0  # for what a worker left behind to be gone: then the daemon is told
_SWEEP_EVERY = 0.05  # seconds between two passes where something does not end
_LOOK_EVERY = 5.0  # for children that are not its own: clone(2) can make them (CLONE_PARENT)

DESCRIPTORS = (3, 4, 5)  # of a worker: the daemon's socket, what becomes stdout, and stderr
_ASIDE = 16  # above these

Do = Callable[[socket.socket], None]


def main(control_fd: int, user: Sequence[int]) -> NoReturn:
    """Serve the daemon's control socket until it ends.

    Args:
        control_fd: a SOCK_SEQPACKET socket, the only descriptor beyond the standard three.
        user: whom to run as: uid, gid, further groups; empty: the daemon's own user.
    """
    control = socket.socket(fileno=control_fd)
    prctl.become_subreaper()
    prctl.gain_no_privileges()
    limits.be_killed_first()
    malloc.give_back_large_blocks()
    prctl.hide_memory()
    if user:
        _change_to(user)
    privileges.leave_keyring()
    titles.set_title("zygote")
    for name in _PRELOADED:
        importlib.import_module(name)
    main_of_workers = importlib.import_module(_MAIN)
    main_of_workers.warm_up()
    # For all workers. The handler runs no Python, so it works wherever a plugin hangs.
    faulthandler.register(frames.TRACE_SIGNAL, file=2, all_threads=False)
    gc.collect()
    gc.freeze()
    _ZygoteProcess(control, main_of_workers.run).run()
    sys.exit(0)


def _change_to(user: Sequence[int]) -> None:
    uid, gid, *groups = user
    sdk = importlib.util.find_spec("ovirtsdk4")  # not loaded yet
    # Where plugins import from: the standard library, other packages, and this one.
    needed = (os.__file__, getattr(sdk, "origin", None) or "", __file__)
    try:
        privileges.become(uid, gid, groups)
    except privileges.NotGivenUp as error:
        sys.exit(f"plugin_user: {error}")
    prctl.hide_memory()  # the change may have shown it
    for file in needed:
        if not os.access(file, os.R_OK):
            sys.exit(f"plugin_user: user {uid} cannot read {file}, and so not run plugins")


class _Ended(NamedTuple):
    """A worker that has ended, and whose end is not reported yet."""

    serial: int
    status: int  # as waitpid(2) gives it
    until: float  # how long to wait for what it left, on the monotonic clock


class _ZygoteProcess:
    """Carries out the daemon's orders: forks processes, kills them, and reports their ends.

    Args:
        control: the socket for orders, and for reports of ended workers.
        do: what a process does with its task.
    """

    def __init__(self, control: socket.socket, do: Do) -> None:
        self._control = control
        self._do = do
        self._workers: dict[int, int] = {}  # pid: serial
        self._ended: list[_Ended] = []
        # Pids of killed processes that do not end; nobody waits for them.
        self._lasting: set[int] = set()
        self._sweeping = False  # something may be left behind
        self._wakeup, write_end = os.pipe()
        for end in (self._wakeup, write_end):
            os.set_blocking(end, False)
        # The handler does nothing: the byte in the pipe ends the wait.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def run(self) -> None:
        """Say that it can fork, take orders until the daemon has gone, then end everything."""
        self._say(frames.ALIVE)
        with selectors.PollSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wakeup, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select(self._pause())}
                self._sweeping = self._sweeping or not ready
                if self._wakeup in ready:
                    os.read(self._wakeup, 4096)
                self._reap()
                if self._control.fileno() in ready and not self._obey():
                    break
        children.end_all(math.inf)

    def _pause(self) -> float:
        """Seconds to wait for the next event."""
        if children.one_has_ended():  # the pass before took as many as it may
            return 0.0
        return _SWEEP_EVERY if self._sweeping else _LOOK_EVERY

    def _obey(self) -> bool:
        """Take one message; False when the daemon has gone."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, frames.ORDER.size, 3)
        except ConnectionResetError:  # it had not read all that it was told
            return False
        if not message:
            return False
        order, serial = frames.ORDER.unpack(message)
        if order == frames.FORK and len(descriptors) < 3:
            self._report(serial, -errno.EMFILE)  # there was none left for it
        elif order == frames.ASK:
            self._say(frames.ALIVE)
        elif order == frames.SWEEP:
            self._sweeping = True
            self._reap()
        elif order in (frames.KILL, frames.TRACE):
            for pid in [pid for pid, known in self._workers.items() if known == serial]:
                if order == frames.TRACE:
                    os.kill(pid, frames.TRACE_SIGNAL)
                else:
                    children.kill(pid)
        else:
            self._fork(serial, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork(self, serial: int, descriptors: Sequence[int]) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._report(serial, -(error.errno or 1))
            return
        if pid == 0:
            try:
                _serve(self._do, parent, *descriptors)
            finally:
                os._exit(os.EX_SOFTWARE)
        self._workers[pid] = serial

    def _reap(self) -> None:
        """Collect the workers that have ended, and kill what they left, in a bounded time."""
        now = time.monotonic()
        for pid, status in children.reap(self._workers):
            self._ended.append(_Ended(self._workers.pop(pid), status, now + _SWEEP_SECONDS))
        if not self._ended and not self._sweeping:
            return
        # Their children become this process's, but not all at once.
        orphans = children.pids(spared=self._workers)
        children.kill_all(orphans)
        self._sweeping = bool(orphans)
        self._lasting &= set(orphans)
        waited_for = set(orphans) - self._lasting
        due = [each for each in self._ended if not waited_for or now >= each.until]
        for worker in due:
            self._ended.remove(worker)
            self._report(worker.serial, worker.status, bool(waited_for))
        if due:
            self._lasting |= waited_for

    def _report(self, serial: int, status: int, has_remains: bool = False) -> None:
        self._say(frames.ENDED.pack(serial, status, has_remains))

    def _say(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # the daemon has gone: the next read says so
            self._control.send(message)


def _serve(do: Do, zygote: int, channel: int, stdout: int, stderr: int) -> NoReturn:
    """Be a worker: it leads a session of its own, and dies with its zygote.

    Args:
        do: takes a task from the daemon's socket, and does it.
        zygote: its pid.
        channel: the daemon's socket, from which tasks come.
        stdout, stderr: pipes to the daemon.
    """
    status = 0
    try:
        titles.set_title("waiting")
        do(_enter(zygote, channel, (stdout, stderr)))
    except (EOFError, OSError):  # nobody is there to be told
        status = os.EX_UNAVAILABLE
    except MemoryError:
        with contextlib.suppress(OSError):
            os.write(2, b"a process below the zygote ran out of memory\n")
        status = frames.OUT_OF_MEMORY
    except BaseException:  # noqa: BLE001  our own fault: say where, and end
        with contextlib.suppress(BaseException):
            traceback.print_exc()
        status = os.EX_SOFTWARE
    finally:
        os._exit(status)


def _enter(zygote: int, channel: int, pipes: tuple[int, int]) -> socket.socket:
    """Leave what is the zygote's; the descriptors become the same in every worker."""
    os.setsid()
    prctl.die_with_parent(zygote)
    prctl.become_subreaper()
    children.reset_signals([signal.SIGCHLD, signal.SIGINT])
    aside = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _ASIDE) for each in (channel, *pipes)]
    for descriptor, fixed in zip(aside, DESCRIPTORS):
        os.dup2(descriptor, fixed, inheritable=False)
    children.close_all_but(DESCRIPTORS)
    return socket.socket(fileno=DESCRIPTORS[0])
