"""Feeds systemd's watchdog as long as plugin calls work.

A daemon that accepts connections but cannot fork looks alive to everybody but its callers. So the
watchdog is fed after a small plugin was analysed, which takes the way of a call: zygote, worker,
task, answer. Calls wait in a queue, an analysis does not: a daemon with too many calls works, and
is not restarted.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Optional

from ovirt_scheduler.daemon.notify import Notifier
from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import Candidate, Source
from ovirt_scheduler.processes.executor import Executor

_log = logging.getLogger(__name__)

_LOOK_EVERY = 30.0  # seconds, at most
_SLOW = 5.0  # seconds; a look takes some milliseconds
_NOTHING = b"def do_filter(hosts, vm, properties):\n    return hosts\n"
_PROBE = Candidate(Source("watchdog", "/watchdog.py", _NOTHING), "/", ())


class Watchdog:
    """A thread that looks whether calls work, and feeds the watchdog of systemd, if it watches.

    It tells systemd the status, too.

    Args:
        line: the status in one line.
    """

    def __init__(self, notifier: Notifier, executor: Executor, line: Callable[[], str]) -> None:
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
        if waited > _SLOW:
            return f"a plugin of two lines is waited for, {waited:.0f} s by now"
        return self._problem

    def start(self) -> None:
        """Start the thread: it looks twice in the time that systemd allows."""
        seconds = self._notifier.watchdog_seconds
        pause = _LOOK_EVERY if seconds is None else min(_LOOK_EVERY, seconds / 2)
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
            self._notifier.tell(self._line())
        except Exception:  # noqa: BLE001
            _log.exception("systemd could not be told the status, this is a bug")

    def _look(self) -> str:
        """Why plugin calls do not work; empty when they do."""
        try:
            fault = self._executor.analyse(_PROBE).fault
        except ExecutorUnavailable as error:
            return str(error)
        return "" if fault is None else fault.message
