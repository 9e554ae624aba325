"""The warm process that request processes are forked from; it forks, and nothing else.

::

    daemon ──(GO + a socket)──► zygote ──fork──► request process
           ◄─(READY, ENDED)───┘

Started by exec with one descriptor, the daemon's control socket. It has one thread, no secret
and no plugin, and never reads a request. It ends when that socket ends, and everything that
was forked from it ends before it does. A request process that is over its deadline is killed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
from typing import Dict, NoReturn, Optional, Tuple

from ovirt_scheduler import frames, limits, request_process

# Loaded once, here, for every plugin call.
_PRELOADED = ("lxml.etree", "ovirtsdk4.services", "ovirtsdk4.types", "ovirtsdk4.writers")

_GRACE = 1.0  # seconds that a request process has to tell of its own deadline


def main(control_fd: int) -> NoReturn:
    """Serve the daemon's control socket until it ends.

    Args:
        control_fd: a SOCK_SEQPACKET socket, the only descriptor beyond the standard three.
    """
    control = socket.socket(fileno=control_fd)
    limits.become_subreaper()
    for name in _PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    _Zygote(control).run()
    sys.exit(0)


class _Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        # Its writing end is nobody else's: request processes see the zygote's end by it.
        self._lifeline, self._held_open = os.pipe()
        self._requests: Dict[int, Tuple[int, float]] = {}  # pid: serial, deadline
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
                ready = {key.fd for key, _ in selector.select(self._until_deadline())}
                if self._wakeup in ready:
                    os.read(self._wakeup, 4096)
                self._reap()
                self._kill_overdue()
                if self._control.fileno() in ready and not self._next_request():
                    break
        self._end_all()

    def _next_request(self) -> bool:
        """Take one message and fork; False when the daemon has gone."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, frames.GO.size, 1)
        except ConnectionResetError:
            return False
        if not message:
            return False
        serial, deadline = frames.GO.unpack(message)
        (client_fd,) = descriptors
        try:
            pid = os.fork()
        except OSError as error:
            os.close(client_fd)
            self._tell(serial, -(error.errno or 1))
            return True
        if pid == 0:
            try:
                request_process.serve(socket.socket(fileno=client_fd), self._lifeline)
            finally:
                os._exit(os.EX_SOFTWARE)
        os.close(client_fd)
        self._requests[pid] = serial, deadline + _GRACE
        return True

    def _reap(self) -> None:
        for pid, status in limits.reap(self._requests):
            serial, _ = self._requests.pop(pid)
            if status:
                # What it left has become this process's, and is not all here at once.
                self._orphans = True
                self._tell(serial, status)
        if self._orphans:
            self._orphans = limits.kill_children(spared=self._requests) > 0

    def _tell(self, serial: int, status: int) -> None:
        with contextlib.suppress(OSError):  # the daemon has gone: the next read says so
            self._control.send(frames.ENDED.pack(serial, status))

    def _until_deadline(self) -> Optional[float]:
        nearest = min((deadline for _, deadline in self._requests.values()), default=None)
        return None if nearest is None else max(0.0, nearest - time.monotonic())

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for pid, (serial, deadline) in self._requests.items():
            if now >= deadline:
                limits.kill(pid)
                self._requests[pid] = serial, float("inf")

    def _end_all(self) -> None:
        while limits.any_child():
            limits.kill_children()
            with selectors.PollSelector() as selector:
                selector.register(self._wakeup, selectors.EVENT_READ)
                selector.select(0.1)
            with contextlib.suppress(OSError):
                os.read(self._wakeup, 4096)
