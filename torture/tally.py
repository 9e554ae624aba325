"""What has been counted, and what has been found wrong. Safe to use from many threads."""

from __future__ import annotations

import threading
import time
from collections import Counter

_MOST_FINDINGS = 50


class Tally:
    """Counts by name; findings, each a sentence; and when harm was done.

    Attributes:
        counts: what happened, how often.
        findings: what must not have happened.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self._lock = threading.Lock()
        self._harm: list[tuple[float, float]] = []

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def find(self, wrong: str) -> None:
        with self._lock:
            self.counts["findings"] += 1
            if len(self.findings) < _MOST_FINDINGS:
                self.findings.append(wrong)

    def harm(self, seconds: float) -> None:
        """From now on, and for so long, calls may suffer from a process killed or stopped."""
        now = time.monotonic()
        with self._lock:
            if self._harm and now <= self._harm[-1][1]:
                begin, end = self._harm[-1]
                self._harm[-1] = begin, max(end, now + seconds)
            else:
                self._harm.append((now, now + seconds))

    def harmed(self, begin: float) -> bool:
        """Whether a call that began then, and has ended now, may have suffered."""
        now = time.monotonic()
        with self._lock:
            return any(start <= now and begin <= end for start, end in self._harm)
