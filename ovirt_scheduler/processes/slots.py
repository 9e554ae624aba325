"""Slots for plugin calls that run at once, given out in the order of asking."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator

from ovirt_scheduler.errors import Overloaded


class Slots:
    """``capacity`` slots; at most ``max_waiting`` askers wait for one."""

    def __init__(self, capacity: int, max_waiting: int) -> None:
        self.capacity = self._free = capacity
        self.refused = 0  # askers
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        # Each asker waits on a condition of its own, so that one free slot wakes one thread.
        self._queue: deque[threading.Condition] = deque()

    @contextlib.contextmanager
    def hold(self, requested: int, deadline: float) -> Iterator[int]:
        """Hold at least one slot, and up to ``requested`` of those that are free just then.

        An asker gets no more than its share: the free slots divided by the number of those who
        wait plus one. The one is for whoever comes next, so that a long request leaves some free.

        Args:
            requested: how many could be used.
            deadline: seconds on the monotonic clock.

        Yields:
            How many slots are held.

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
                    seconds = deadline - time.monotonic()
                    if seconds <= 0:
                        self.refused += 1
                        raise Overloaded("no plugin process became free in the request's time")
                    turn.wait(seconds)
                askers = len(self._queue) + 1  # this one is in the queue
                count = min(max(1, requested), -(-self._free // askers))
                self._free -= count
            finally:
                self._queue.remove(turn)
                self._wake_next()
        try:
            yield count
        finally:
            with self._lock:
                self._free += count
                self._wake_next()

    @property
    def is_free(self) -> bool:
        """Whether an asker would now have a slot at once."""
        return self._free > 0 and not self._queue

    @property
    def busy(self) -> int:
        """How many slots are held."""
        return self.capacity - self._free

    @property
    def waiting(self) -> int:
        """How many askers wait for a slot."""
        return len(self._queue)

    def _wake_next(self) -> None:
        if self._free and self._queue:
            self._queue[0].notify()
