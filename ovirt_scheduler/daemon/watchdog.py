"""Feeds systemd's watchdog while plugin calls work, and only then.

A daemon that accepts connections while nothing can be forked looks alive to everybody but its
callers. So what feeds the watchdog is the answer of a process that went the way of a plugin:
zygote, worker, task, and back. It is an analysis, as that waits in no queue: a daemon
that has more calls than it can take works, and is not to be restarted in the midst of them.
"""

from __future__ import annotations

import logging
import threading

from ovirt_scheduler.daemon.notify import Notifier
from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import Candidate, Source
from ovirt_scheduler.processes.executor import Executor

_log = logging.getLogger(__name__)

_NOTHING = b"def do_filter(hosts, vm, properties):\n    return hosts\n"
_PROBE = Candidate(Source("watchdog", "/watchdog.py", _NOTHING), "/", ())


class Watchdog:
    """A thread that feeds the watchdog twice in its time, if there is one to feed."""

    def __init__(self, notifier: Notifier, executor: Executor) -> None:
        self._notifier = notifier
        self._executor = executor
        self._ended = threading.Event()

    def start(self) -> None:
        seconds = self._notifier.watchdog_seconds
        if seconds is not None:
            threading.Thread(
                target=self._feed, args=(seconds / 2,), name="watchdog", daemon=True
            ).start()

    def stop(self) -> None:
        """Feed it no more; systemd does not watch a daemon that it is stopping."""
        self._ended.set()

    def _feed(self, pause: float) -> None:
        while True:
            problem = self._problem()
            if self._ended.is_set():
                return
            if problem:
                _log.error(
                    "plugin calls do not work, the watchdog is not fed: %(reason)s",
                    {"reason": problem},
                )
            else:
                self._notifier.alive()
            if self._ended.wait(pause):
                return

    def _problem(self) -> str:
        """Why plugin calls do not work; empty when they do."""
        try:
            fault = self._executor.analyse(_PROBE).fault
        except ExecutorUnavailable as error:
            return str(error)
        return "" if fault is None else fault.message
