"""The thread that keeps processes ready, and how many it may make.

::

    wake, miss ──► due ──► a turn: what has to end is ended, what is missing is made
                    ▲               │ how long to rest        │ it raises
                    └───────────────┴──── a longer pause ◄────┘

Whatever happens, it makes ``MOST_A_SECOND`` processes a second at most, and one for each that a
call has used up.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from typing import Callable

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.log.trouble import Trouble
from ovirt_scheduler.model.plugins import ProcessKey

MOST_A_SECOND = 100  # processes
_LONGEST_DELAY = 60.0  # seconds between two loads ahead of a plugin whose process ends by itself


class Maintenance:
    """A thread that takes one turn after another, each when it is due. Safe to use from any thread.

    Args:
        breath: says how many seconds to wait before a turn that is due.
        turn: returns for how many seconds to rest at most.

    Attributes:
        trouble: the turns that failed.
    """

    def __init__(self, breath: Callable[[], float], turn: Callable[[], float]) -> None:
        self.trouble = Trouble("keeping processes ready")
        self._breath = breath
        self._turn = turn
        self._due = 0.0  # on the monotonic clock
        self._closed = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        """Start the thread.

        Raises:
            ExecutorUnavailable: there is no thread for it.
        """
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ExecutorUnavailable(f"no thread to keep processes with: {error}") from None

    def stop(self) -> None:
        """Begin no further turn."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def join(self, seconds: float) -> None:
        """Wait until the turn under way has ended, so long at most."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def wake(self, seconds: float = 0.0) -> None:
        """Have it take a turn within so many seconds, unless it pauses after a failure."""
        when = time.monotonic() + seconds
        with self._news:
            if when < self._due:
                self._due = when
                self._news.notify_all()

    def _run(self) -> None:
        pause_until = 0.0
        while True:
            with self._news:
                while not self._closed and (due := max(self._due, pause_until)) > time.monotonic():
                    self._news.wait(due - time.monotonic())
                if self._closed:
                    return
            try:
                time.sleep(self._breath())
                self._due = math.inf  # what is missed from now on needs another turn
                rest = self._turn()
                self.trouble.clear()
            except Exception as error:  # noqa: BLE001  nobody else would keep processes ready
                rest = self.trouble.note(error)
                pause_until = time.monotonic() + rest
            self.wake(rest)


class Allowance:
    """Bounds how many processes are made ahead; used by one thread, but for ``earn``."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MOST_A_SECOND)  # of the latest, monotonic clock

    def spend(self) -> bool:
        """Whether one more may be made now; if so, it counts as made."""
        now = time.monotonic()
        if len(self._times) == MOST_A_SECOND and now < self._times[0] + 1.0:
            return False
        self._times.append(now)
        return True

    def earn(self) -> None:
        """Let one more be made: a call has used one up."""
        with contextlib.suppress(IndexError):
            self._times.popleft()


class Delays:
    """Which loads ahead have failed, and when each may be tried again."""

    def __init__(self) -> None:
        # How often in a row, and when the next is due, on the monotonic clock.
        self._failed: dict[ProcessKey, tuple[int, float]] = {}
        self._lock = threading.Lock()

    def put_off(self, key: ProcessKey, seconds: float) -> None:
        """Note that a load has failed: the next waits so long, and twice as long each time."""
        with self._lock:
            times, _ = self._failed.get(key, (0, 0.0))
            delay = min(_LONGEST_DELAY, seconds * 2 ** min(times, 10))
            self._failed[key] = times + 1, time.monotonic() + delay

    def forget(self, key: ProcessKey) -> None:
        """Note that a load went well."""
        with self._lock:
            self._failed.pop(key, None)

    def clear(self) -> None:
        """Let each load be tried at once."""
        with self._lock:
            self._failed.clear()

    def holds_up(self, key: ProcessKey) -> bool:
        """Whether a load may not be tried now."""
        return time.monotonic() < self._failed.get(key, (0, 0.0))[1]

    def shortest(self) -> float:
        """Seconds until a load may be tried again; infinite if none is put off."""
        with self._lock:
            now = time.monotonic()
            return min(
                (due - now for _, due in self._failed.values() if due > now), default=math.inf
            )
