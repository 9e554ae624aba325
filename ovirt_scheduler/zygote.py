"""The warm process that request processes are forked from; it forks, and nothing else.

::

    daemon ──(FORK + a socket, KILL, ASK)──► zygote ──fork──► request process
           ◄─(READY, ENDED)─────────────────┘

Started by exec with one descriptor, the daemon's control socket. It has one thread, no secret
and no plugin, and never reads a request. It ends when that socket ends, and everything that
was forked from it ends before it does.
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
from typing import Dict, NoReturn, Sequence

from ovirt_scheduler import frames, heap, limits, privileges, request_process, secrecy, titles

# Loaded once, here, for every plugin call.
_PRELOADED = ("lxml.etree", "ovirtsdk4.services", "ovirtsdk4.types", "ovirtsdk4.writers")
# Where plugins import from: the standard library, other packages, and this one.
_NEEDED = ("os", "ovirtsdk4", __name__)


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
    heap.give_back_large_blocks()
    secrecy.hide_memory()  # calls of one request see nothing of another's
    if user:
        _change_to(user)
    secrecy.leave_keyring()
    titles.show("zygote")
    for name in _PRELOADED:
        importlib.import_module(name)
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


class _Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        # Its writing end is nobody else's: request processes see the zygote's end by it.
        self._lifeline, self._held_open = os.pipe()
        self._requests: Dict[int, int] = {}  # pid: serial
        self._orphans = False
        self._wakeup, write_end = os.pipe()
        for end in (self._wakeup, write_end):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def run(self) -> None:
        self._control.send(frames.READY)
        with selectors.PollSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wakeup, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if self._wakeup in ready:
                    os.read(self._wakeup, 4096)
                self._reap()
                if self._control.fileno() in ready and not self._obey():
                    break
        self._end_all()

    def _obey(self) -> bool:
        """Take one message; False when the daemon has gone."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, frames.ORDER.size, 1)
        except ConnectionResetError:
            return False
        if not message:
            return False
        order, serial = frames.ORDER.unpack(message)
        if order == frames.ASK:
            self._control.send(frames.READY)
        elif order == frames.FORK and not descriptors:  # there was none left for it
            self._tell(serial, -errno.EMFILE)
        elif order == frames.FORK:
            self._fork(serial, *descriptors)
        else:
            for pid, known in self._requests.items():
                if known == serial:
                    limits.kill(pid)
        return True

    def _fork(self, serial: int, client: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(serial, -(error.errno or 1))
        else:
            if pid == 0:
                try:
                    request_process.serve(socket.socket(fileno=client), self._lifeline)
                finally:
                    os._exit(os.EX_SOFTWARE)
            self._requests[pid] = serial
        os.close(client)

    def _reap(self) -> None:
        for pid, status in limits.reap(self._requests):
            serial = self._requests.pop(pid)
            if status:
                # What it left has become this process's, and is not all here at once.
                self._orphans = True
                self._tell(serial, status)
        if self._orphans:
            left = limits.children(spared=self._requests)
            limits.kill_all(left)
            self._orphans = bool(left)

    def _tell(self, serial: int, status: int) -> None:
        with contextlib.suppress(OSError):  # the daemon has gone: the next read says so
            self._control.send(frames.ENDED.pack(serial, status))

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
