"""The zygote: the process that all workers are forked from. It forks them, and reaps them.

::

    daemon ──(FORK + 3 descriptors, KILL, ASK)──► zygote ──fork──► worker
           ◄─(ALIVE, ENDED)──────────────────────┘

Started by exec with one descriptor, the daemon's control socket. It has one thread, no secret
and no plugin, and never reads a task. What a worker leaves behind when it ends becomes the
zygote's child, and is killed before the daemon is told of that end. When the control socket
ends, so does everything that was forked from here, and then the zygote.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
from typing import Dict, List, NamedTuple, NoReturn, Optional, Sequence, Set

from ovirt_scheduler.processes.kernel import limits, malloc, privileges, secrecy, titles
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.worker import loaded_modules
from ovirt_scheduler.processes.worker.main import serve

# Loaded once, here, for every process of a plugin.
_PRELOADED = ("lxml.etree", "ovirtsdk4.services", "ovirtsdk4.types", "ovirtsdk4.writers")
# Where plugins import from: the standard library, other packages, and this one.
_NEEDED = ("os", "ovirtsdk4", __name__)

_SWEEP_SECONDS = 2.0  # for what a worker left behind to be gone: then the daemon is told
_SWEEP_EVERY = 0.05  # seconds between two passes where something does not end


def main(control_fd: int, user: Sequence[int]) -> NoReturn:
    """Serve the daemon's control socket until it ends.

    Args:
        control_fd: a SOCK_SEQPACKET socket, the only descriptor beyond the standard three.
        user: whom to run as: uid, gid, further groups; empty: the daemon's own user.
    """
    control = socket.socket(fileno=control_fd)
    limits.become_subreaper()
    limits.gain_no_privileges()
    limits.be_killed_first()
    malloc.give_back_large_blocks()
    secrecy.hide_memory()
    if user:
        _change_to(user)
    secrecy.leave_keyring()
    titles.show("zygote")
    for name in _PRELOADED:
        importlib.import_module(name)
    loaded_modules.know()
    gc.collect()
    gc.freeze()
    _Zygote(control).run()
    sys.exit(0)


def _change_to(user: Sequence[int]) -> None:
    uid, gid, *groups = user
    try:
        privileges.become(uid, gid, groups)
    except privileges.NotGivenUp as error:
        sys.exit(f"plugin_user: {error}")
    secrecy.hide_memory()  # the change may have shown it
    for name in _NEEDED:
        file = sys.modules[name].__file__ or ""
        if not os.access(file, os.R_OK):
            sys.exit(f"plugin_user: user {uid} cannot read {file}, and so not run plugins")


class _Ended(NamedTuple):
    """A worker that has ended, of whose end the daemon has not been told yet."""

    serial: int
    status: int  # as waitpid(2) gives it
    until: float  # how long to wait for what it left, on the monotonic clock


class _Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: Dict[int, int] = {}  # pid: serial
        self._ended: List[_Ended] = []
        self._lasting: Set[int] = (
            set()
        )  # pids: killed, and there for all that; nobody waits for them
        self._sweeping = False  # something may be left behind
        self._wakeup, write_end = os.pipe()
        for end in (self._wakeup, write_end):
            os.set_blocking(end, False)
        # The handler does nothing: the byte in the pipe ends the wait.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def run(self) -> None:
        """Take orders until the daemon has gone, then end everything."""
        self._control.send(frames.ALIVE)
        with selectors.PollSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wakeup, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select(self._pause())}
                if self._wakeup in ready:
                    os.read(self._wakeup, 4096)
                self._reap()
                if self._control.fileno() in ready and not self._obey():
                    break
        self._end_all()

    def _pause(self) -> Optional[float]:
        """Seconds to wait for the next event; None: without end."""
        if limits.one_has_ended():  # the pass before took as many as it may
            return 0.0
        return _SWEEP_EVERY if self._sweeping else None

    def _obey(self) -> bool:
        """Take one message; False when the daemon has gone."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, frames.ORDER.size, 3)
        except ConnectionResetError:
            return False
        if not message:
            return False
        order, serial = frames.ORDER.unpack(message)
        if order == frames.ASK:
            self._control.send(frames.ALIVE)
        elif order == frames.FORK and len(descriptors) < 3:  # there was none left for it
            self._tell(serial, -errno.EMFILE)
        elif order == frames.FORK:
            self._fork(serial, descriptors)
        else:
            for pid, known in self._workers.items():
                if known == serial:
                    limits.kill(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork(self, serial: int, descriptors: Sequence[int]) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(serial, -(error.errno or 1))
            return
        if pid == 0:
            try:
                serve(parent, *descriptors)
            finally:
                os._exit(os.EX_SOFTWARE)
        self._workers[pid] = serial

    def _reap(self) -> None:
        """Collect the workers that have ended, and kill what they left, in a bounded time."""
        now = time.monotonic()
        for pid, status in limits.reap(self._workers):
            self._ended.append(_Ended(self._workers.pop(pid), status, now + _SWEEP_SECONDS))
        if not self._ended and not self._sweeping:
            return
        # What they left has become this process's, and is not all here at once.
        left = limits.children(spared=self._workers)
        limits.kill_all(left)
        self._sweeping = bool(left)
        self._lasting &= set(left)
        waited_for = set(left) - self._lasting
        due = [each for each in self._ended if not waited_for or now >= each.until]
        for each in due:
            self._ended.remove(each)
            self._tell(each.serial, each.status, bool(waited_for))
        if due:
            self._lasting |= waited_for

    def _tell(self, serial: int, status: int, left: bool = False) -> None:
        with contextlib.suppress(OSError):  # the daemon has gone: the next read says so
            self._control.send(frames.ENDED.pack(serial, status, left))

    def _end_all(self) -> None:
        while True:
            self._reap()
            left = limits.children()
            if not left:
                return
            limits.kill_all(left)
            with selectors.PollSelector() as selector:
                selector.register(self._wakeup, selectors.EVENT_READ)
                selector.select(0.1)
            with contextlib.suppress(OSError):
                os.read(self._wakeup, 4096)
