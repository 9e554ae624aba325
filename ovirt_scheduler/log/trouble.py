"""The failures of a thread that goes on after each of them.

Such a thread works in turns. After a turn that raised it pauses, longer after each in a row. The
failures are counted, and ``/health`` and the status show the latest one until a turn succeeds.
"""

from __future__ import annotations

import logging

from ovirt_scheduler.model.values.text import one_line

_log = logging.getLogger(__name__)

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.25, 60.0  # seconds


class Trouble:
    """The failures of one thread's turns.

    Args:
        work: what the thread does: ``keeping processes ready``.

    Attributes:
        failures: turns that failed since the start.
        problem: why the latest turn failed; empty if it did not.
    """

    def __init__(self, work: str) -> None:
        self.work = work
        self.failures = 0
        self.problem = ""
        self._in_a_row = 0

    def note(self, error: Exception) -> float:
        """Note that a turn failed, and log it unless the turn before failed in the same way.

        Returns:
            Seconds to pause before the next turn.
        """
        former, self.problem = self.problem, one_line(f"{type(error).__name__}: {error}")
        if self.problem != former:
            _log.error(
                "the daemon made a mistake, which is a bug, and tries again: %(reason)s",
                {"reason": f"{self.work}: {self.problem}"},
                exc_info=error,
            )
        pause = min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2.0 ** min(self._in_a_row, 10))
        self.failures += 1
        self._in_a_row += 1
        return pause

    def clear(self) -> None:
        """Note that a turn succeeded."""
        self.problem = ""
        self._in_a_row = 0
