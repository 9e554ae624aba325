"""Reports the daemon's state to systemd, and feeds its watchdog as long as plugin calls work.

The reports are those of sd_notify(3), without its library. Nothing is sent if systemd did not start
the daemon (``NOTIFY_SOCKET`` is not set).

A daemon that accepts connections but cannot fork seems to be alive. So the watchdog is fed after
the analysis of a small plugin, which goes the way of a call: zygote, worker, task, answer. An
analysis does not wait in the queue of calls, so a daemon with too many calls is not restarted.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import Candidate, Source
from ovirt_scheduler.processes.executor import Executor

_log = logging.getLogger(__name__)

_SEND_SECONDS = 1.0
_LISTENER = "listener"
_LOOK_EVERY = 30.0  # seconds, at most
_SLOW = 5.0  # seconds; a look takes some milliseconds
_NOTHING = b"def do_filter(hosts, vm, properties):\n    return hosts\n"
_PROBE = Candidate(Source("watchdog", "/watchdog.py", _NOTHING), "/", ())


class Notifier:
    """Sends the daemon's state to systemd. Safe to use from many threads.

    Attributes:
        watchdog_seconds: silence after which systemd ends the daemon; None: it does not.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):  # an abstract socket's name starts with a zero byte
            self._address = f"\0{self._address[1:]}"
        self.watchdog_seconds = _watchdog_seconds(environ) if self._address else None

    def ready(self, status: str) -> None:
        """Say that the daemon serves: a start or a reload has ended."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Say that a reload begins; ``ready`` ends it."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now}", "STATUS=reloading")

    def stopping(self) -> None:
        """Say that the daemon stops."""
        self._send("STOPPING=1", "STATUS=waiting for the calls under way")

    def store_socket(self, listener: socket.socket) -> bool:
        """Have systemd keep a listening socket for the next daemon, while the unit restarts.

        Returns:
            Whether it was handed to systemd, which keeps it if the unit says so
            (FileDescriptorStoreMax). It keeps none without being told by the daemon.
        """
        # One that was kept before may be at another address.
        self._send("FDSTOREREMOVE=1", f"FDNAME={_LISTENER}")
        return self._send(
            "FDSTORE=1", f"FDNAME={_LISTENER}", "FDPOLL=0", descriptors=[listener.fileno()]
        )

    def show_status(self, status: str) -> None:
        """Have ``systemctl status`` show this line from now on."""
        self._send(f"STATUS={status}")

    def alive(self) -> None:
        """Feed systemd's watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str, descriptors: Sequence[int] = ()) -> bool:
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_SEND_SECONDS)
                sender.connect(self._address)
                message = "\n".join(line.replace("\n", " ") for line in lines).encode()
                socket.send_fds(sender, [message], descriptors)
        except OSError as error:
            _log.warning(
                "systemd could not be told %(state)s: %(reason)s",
                {"state": lines[0], "reason": error.strerror or str(error)},
            )
            return False
        return True


def _watchdog_seconds(environ: Mapping[str, str]) -> Optional[float]:
    """Seconds of silence after which systemd ends this process; None if it does not watch it."""
    microseconds = environ.get("WATCHDOG_USEC", "")
    meant = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
    if not meant or not microseconds.isdecimal() or int(microseconds) == 0:
        return None
    return int(microseconds) / 1e6


class Watchdog:
    """A thread that looks whether calls work, and feeds the watchdog of systemd, if it watches.

    It tells systemd the status, too.

    Args:
        line: the status in one line.
        look_every: seconds between two looks, at most.
        slow: seconds after which a look under way is a problem.
    """

    def __init__(
        self,
        notifier: Notifier,
        executor: Executor,
        line: Callable[[], str],
        look_every: float = _LOOK_EVERY,
        slow: float = _SLOW,
    ) -> None:
        self._look_every = look_every
        self._slow = slow
        self._problem = ""  # of the last look
        self._looks_since: Optional[float] = None  # on the monotonic clock; None: it does not look
        self._line = line
        self._notifier = notifier
        self._executor = executor
        self._ended = threading.Event()

    @property
    def problem(self) -> str:
        """Why plugin calls do not work; empty when they do."""
        since = self._looks_since
        waited = 0.0 if since is None else time.monotonic() - since
        if waited > self._slow:
            return f"a plugin of two lines is waited for, {waited:.0f} s by now"
        return self._problem

    def start(self) -> None:
        """Start the thread: it looks twice in the time that systemd allows."""
        seconds = self._notifier.watchdog_seconds
        pause = self._look_every if seconds is None else min(self._look_every, seconds / 2)
        threading.Thread(target=self._feed, args=(pause,), name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Feed the watchdog no more; systemd does not watch a daemon that stops."""
        self._ended.set()

    def _feed(self, pause: float) -> None:
        while True:
            self._looks_since = time.monotonic()
            self._problem = problem = self._look()
            self._looks_since = None
            if self._ended.is_set():
                return
            if problem:
                _log.error(
                    "plugin calls do not work, the watchdog is not fed: %(reason)s",
                    {"reason": problem},
                )
            else:
                self._notifier.alive()
            self._tell()
            if self._ended.wait(pause):
                return

    def _tell(self) -> None:
        """Tell systemd the status; a mistake in it must not end what feeds the watchdog."""
        try:
            self._notifier.show_status(self._line())
        except Exception:  # noqa: BLE001
            _log.exception("systemd could not be told the status, this is a bug")

    def _look(self) -> str:
        """Why plugin calls do not work; empty when they do."""
        try:
            fault = self._executor.analyse(_PROBE).fault
        except ExecutorUnavailable as error:
            return str(error)
        except Exception as error:  # noqa: BLE001  the next look may be well
            return f"{type(error).__name__}: {error}"
        return "" if fault is None else fault.message
