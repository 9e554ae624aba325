"""Remembers the hosts that each scheduler selected last; a scheduler itself keeps nothing."""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence

_MOST_KEPT = 1000  # hosts of one selection, the best first


class Selections:
    """By the scheduler's name. Safe to use from many threads; the last one to keep wins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._selected: dict[str, tuple[str, ...]] = {}

    def keep(self, scheduler: str, hosts: Sequence[str]) -> None:
        """Remember the hosts that a scheduler selected, the best first."""
        with self._lock:
            self._selected[scheduler] = tuple(hosts[:_MOST_KEPT])

    def last(self, scheduler: str) -> tuple[str, ...]:
        """The hosts that a scheduler selected last; empty where it selected none."""
        with self._lock:
            return self._selected.get(scheduler, ())

    def forget_others(self, schedulers: Container[str]) -> None:
        """Forget what was selected by any but these, which are all that there are."""
        with self._lock:
            for gone in [name for name in self._selected if name not in schedulers]:
                del self._selected[gone]
