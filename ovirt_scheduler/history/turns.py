"""Whose turn it is to read the history for a caller: a few at a time, each for a bounded time.

To unpack and to encode records is work of Python. Threads that do it hold up all others, so they
give way to those that wait for the interpreter.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from ovirt_scheduler.errors import HistoryUnreadable, Overloaded

_READERS = 2
_WAITING = 8  # callers that wait for their turn; further ones are refused

_WORK = 0.001  # seconds of work from one pause to the next
_PAUSE, _LONG_PAUSE = 0.0002, 0.01
_LATE = 0.002  # seconds by which a pause lasts too long where others wait for the interpreter
_PATIENCE = 0.5  # seconds of a turn in which it gives way at most


class Turn:
    """The time that one query may take, with all that is done to its answer.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._next_pause = 0.0
        self._patience = _PATIENCE

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._until

    def check(self) -> None:
        """Go on only while there is time; gives way to other threads now and then.

        Raises:
            HistoryUnreadable: the time is up.
        """
        if time.monotonic() >= self._next_pause:
            self._give_way()
        if self.is_over:
            raise HistoryUnreadable(
                f"the query takes more than {self._seconds:g} s; ask for less: a VM, a host, a "
                "unit, a smaller limit or a shorter time"
            )

    def _give_way(self) -> None:
        """Pause, and go on pausing while others wait; that time is not the query's."""
        pause = _PAUSE
        while True:
            begun = time.monotonic()
            time.sleep(pause)
            paused = time.monotonic() - begun
            if paused < pause + _LATE or self._patience <= 0:
                break
            self._patience -= paused
            self._until += paused
            pause = _LONG_PAUSE
        self._next_pause = time.monotonic() + _WORK


class Turns:
    """Gives turns to callers; safe to use from many threads.

    Args:
        seconds: that a turn lasts, and that a caller may wait for one.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._readers = threading.BoundedSemaphore(_READERS)
        self._waiting = threading.BoundedSemaphore(_WAITING)

    @contextlib.contextmanager
    def next_turn(self) -> Iterator[Turn]:
        """Wait for a turn, and hold it.

        Raises:
            Overloaded: too many wait already, or none became free in time.
        """
        if not self._readers.acquire(blocking=False):
            self._wait()
        try:
            yield Turn(self._seconds)
        finally:
            self._readers.release()

    def _wait(self) -> None:
        if self._waiting.acquire(blocking=False):
            try:
                if self._readers.acquire(timeout=self._seconds):
                    return
            finally:
                self._waiting.release()
        raise Overloaded("others read the history just now, as many as may; try again later")
