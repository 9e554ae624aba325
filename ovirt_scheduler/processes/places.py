"""Places for plugin calls that run at once, given out in the order of asking."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator

from ovirt_scheduler.errors import Overloaded


class Places:
    """``capacity`` places; at most ``max_waiting`` askers wait for one."""

    def __init__(self, capacity: int, max_waiting: int) -> None:
        self.capacity = self._free = capacity
        self.refused = 0  # askers
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        # Each asker waits on a condition of its own, so that one free place wakes one thread.
        self._queue: deque[threading.Condition] = deque()

    @contextlib.contextmanager
    def taken(self, wanted: int, deadline: float) -> Iterator[int]:
        """Hold at least one place, and up to ``wanted`` of those that are free just then.

        An asker gets no more than its share: the free places divided by the number of those who
        wait plus one. The one is for whoever comes next, so that a long request leaves some free.

        Args:
            wanted: how many could be used.
            deadline: seconds on the monotonic clock.

        Yields:
            How many places are held.

        Raises:
            Overloaded: too many wait already, or none became free in time.
        """
        turn = threading.Condition(self._lock)
        with self._lock:
            if not self._free and len(self._queue) >= self._max_waiting:
                self.refused += 1
                raise Overloaded(
                    f"as many requests wait already as max_waiting allows, {len(self._queue)}; "
                    "try again later"
                )
            self._queue.append(turn)
            try:
                while not self._free or self._queue[0] is not turn:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        self.refused += 1
                        raise Overloaded("no plugin process became free in the request's time")
                    turn.wait(left)
                askers = len(self._queue) + 1  # this one is in the queue
                held = min(max(1, wanted), -(-self._free // askers))
                self._free -= held
            finally:
                self._queue.remove(turn)
                self._wake_next()
        try:
            yield held
        finally:
            with self._lock:
                self._free += held
                self._wake_next()

    @property
    def is_free(self) -> bool:
        """Whether an asker would now have a place at once."""
        return self._free > 0 and not self._queue

    @property
    def busy(self) -> int:
        """How many places are held."""
        return self.capacity - self._free

    @property
    def waiting(self) -> int:
        """How many askers wait for a place."""
        return len(self._queue)

    def _wake_next(self) -> None:
        if self._free and self._queue:
            self._queue[0].notify()
