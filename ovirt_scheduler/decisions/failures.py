"""Counts equal failures of units, so that the log need not have each of them (contract 8.6)."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field
from typing import Optional

from ovirt_scheduler.model.results import CallResult

_TOLD_AT = (1, 10, 100)
_AND_EACH = 1000
_MOST_UNITS = 10_000
_MOST_WAYS = 16  # in which one unit is remembered to fail
_NUMBER = re.compile(r"\d+")


@dataclass
class Failing:
    """Equal failures of one unit."""

    count: int = 0
    since: float = field(default_factory=time.time)

    @property
    def is_due(self) -> bool:
        """Whether the last one has to be logged."""
        return self.count in _TOLD_AT or self.count % _AND_EACH == 0


class Failures:
    """Those of all units since each worked last. Safe to use from many threads.

    Two are equal if their messages differ only in numbers, such as times.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._units: dict[tuple[str, str], dict[str, Failing]] = {}

    def add(self, kind: str, result: CallResult) -> Failing:
        """Count a failure, with how often there was an equal one."""
        what = f"{result.outcome.value} {_NUMBER.sub('0', result.message)}"
        with self._lock:
            if len(self._units) >= _MOST_UNITS:
                self._units.clear()
            ways = self._units.setdefault((kind, result.unit), {})
            if len(ways) >= _MOST_WAYS and what not in ways:
                ways.clear()
            failing = ways.setdefault(what, Failing())
            failing.count += 1
            return Failing(failing.count, failing.since)

    def over(self, kind: str, unit: str) -> Optional[Failing]:
        """After a successful call: how often the calls before it failed, if they did."""
        if not self._units:  # nearly always, and so without the lock
            return None
        with self._lock:
            ways = self._units.pop((kind, unit), None)
        if ways is None:
            return None
        all_of_them = ways.values()
        return Failing(
            sum(each.count for each in all_of_them), min(each.since for each in all_of_them)
        )
