"""The zygote that workers are forked from, and the next one when it dies."""

from __future__ import annotations

import errno
import logging
import math
import threading
from typing import Callable, Optional

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import PluginUser
from ovirt_scheduler.processes.kernel import prctl
from ovirt_scheduler.processes.timing import TIMES, ProcessTimes
from ovirt_scheduler.processes.worker_handle import Worker
from ovirt_scheduler.processes.zygote import Zygote, unavailable

_log = logging.getLogger(__name__)

# What the daemon may be out of for a while.
_LACKS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ETOOMANYREFS}


class Forker:
    """Forks workers of a zygote that lives. Safe to use from many threads.

    Args:
        user: whom plugins run as, which takes root; None: this process's own user.
        adopts: this process has no other children than zygotes, and kills whatever one that died
            leaves behind.
        times: how long a zygote is waited for.

    Attributes:
        started: zygotes since the start.
        forked: workers since then.
        closed: all is ended, or about to be.
    """

    def __init__(
        self, user: Optional[PluginUser], adopts: bool, times: ProcessTimes = TIMES
    ) -> None:
        self._times = times
        if adopts:
            prctl.become_subreaper()
        self.started = self.forked = 0
        self.closed = False
        self._user = user
        self._adopts = adopts
        self._on_end: Callable[[Worker], None]
        self._on_death: Callable[[], None]
        self._lock = threading.Lock()
        self._zygote: Optional[Zygote] = None

    def start(self, on_end: Callable[[Worker], None], on_death: Callable[[], None]) -> None:
        """Start the first zygote.

        Args:
            on_end: called with each worker that has ended.
            on_death: called when a zygote has died, before the next one is started.

        Raises:
            ExecutorUnavailable: it does not start.
        """
        self._on_end, self._on_death = on_end, on_death
        self._live(math.inf)

    def close(self) -> None:
        """End the zygote and what it has forked; returns when it is gone."""
        with self._lock:
            self.closed = True
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.stop()

    def fork(self, deadline: float) -> Worker:
        """Fork a new worker, of a new zygote if the present one has died.

        Args:
            deadline: for a zygote to have started, in seconds on the monotonic clock.

        Raises:
            ExecutorUnavailable: none is available, or this is closed.
        """
        for is_last in (False, True):
            zygote = self._live(deadline)
            try:
                worker = zygote.fork()
            except OSError as error:
                if error.errno in _LACKS:  # it is well, and others use it
                    raise ExecutorUnavailable(unavailable("a process", error)) from None
                if is_last:
                    raise ExecutorUnavailable(f"the zygote takes no request: {error}") from None
            else:
                with self._lock:
                    self.forked += 1
                return worker
            zygote.kill_and_wait(deadline)
        raise AssertionError("the last try returns or raises")

    def _live(self, deadline: float) -> Zygote:
        """The zygote that lives; a new one where there is none.

        Raises:
            ExecutorUnavailable: it does not start, or not until the deadline, or this is closed.
        """
        for tries_left in reversed(range(self._times.starts)):
            with self._lock:
                if self.closed:
                    raise ExecutorUnavailable("the executor is closed")
                if self._zygote is None or self._zygote.over:
                    self.started += 1
                    self._zygote = Zygote(
                        self._on_end, self._replace, self._user, self._adopts, self._times
                    )
                zygote = self._zygote
            try:
                zygote.await_start(deadline)
            except ExecutorUnavailable:
                if not zygote.was_killed or not tries_left:
                    raise
            else:
                return zygote
        raise AssertionError("the last try returns or raises")

    def _replace(self) -> None:
        """Start the next zygote at once when one has died."""
        self._on_death()
        try:
            self._live(math.inf)
        except ExecutorUnavailable as error:
            if not self.closed:
                _log.error(
                    "no process for plugin calls can be started, the next request tries again: "
                    "%(reason)s",
                    {"reason": str(error)},
                )
