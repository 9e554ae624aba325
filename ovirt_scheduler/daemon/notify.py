"""Reports the daemon's state to systemd: sd_notify(3), without its library.

Nothing is sent if systemd did not start the daemon (``NOTIFY_SOCKET`` is not set).
"""

from __future__ import annotations

import array
import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Optional

_log = logging.getLogger(__name__)

_SEND_SECONDS = 1.0
_LISTENER = "listener"


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

    def keep(self, listener: socket.socket) -> bool:
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

    def tell(self, status: str) -> None:
        """What ``systemctl status`` shows from now on, in one line."""
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
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
                sender.sendmsg([message], [rights] if descriptors else [])
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
