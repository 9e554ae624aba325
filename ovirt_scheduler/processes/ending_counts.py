"""Logs and counts why processes have ended."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque

from ovirt_scheduler.processes.protocol.ending import OWN, Ending, Reason

_log = logging.getLogger(__name__)

_MOST_LATEST = 100


class EndingCounts:
    """Why processes have ended. Safe to use from many threads."""

    def __init__(self) -> None:
        self._counts: Counter[Reason] = Counter()
        self._latest: deque[Ending] = deque(maxlen=_MOST_LATEST)
        self._lock = threading.Lock()

    def note(self, ending: Ending, file: str, is_of_a_plugin: bool) -> None:
        """Log and count an end.

        Args:
            file: of the plugin whose process it was, or what stands for it.
        """
        _log.debug(
            "a process of %(file)s is ended: %(reason)s", {"file": file, "reason": str(ending)}
        )
        with self._lock:
            self._counts[ending.reason] += 1
            if is_of_a_plugin and ending.reason in OWN:
                self._latest.append(ending)

    def counts(self) -> dict[str, int]:
        """How many processes have ended, by the reason."""
        with self._lock:
            return {reason.word: count for reason, count in self._counts.items()}

    def pop_latest(self) -> list[str]:
        """Why processes of plugins have ended by themselves since the last call of this.

        Without those that have done their share.
        """
        with self._lock:
            latest = [*self._latest]
            self._latest.clear()
        return [str(ending) for ending in latest if ending.reason is not Reason.SERVED]
