"""The questions to the engine for which it asks our own filters: these calls refuse nobody.

::

    hosts?migration_target_of=VM ──► the engine ──► runFilters about the VM, here
                                          └──► its answer

Nothing in such a call says what it is for. It is known by its VM and its time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_MOST = 1000  # VMs that are remembered
_LONGEST = 30.0  # seconds of one question, if its end is never told


class Inquiries:
    """When the engine was asked about which VM last. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[str, tuple[float, float]] = {}  # by VM: begin and end, since 1970

    @contextmanager
    def about(self, vm: str) -> Iterator[None]:
        """Around a question about a VM, by its id."""
        began = time.time()
        self.note(vm, began, began + _LONGEST)
        try:
            yield
        finally:
            self.note(vm, began, time.time())

    def cover(self, vm: str, at: float) -> bool:
        """Whether the engine was being asked about a VM then (seconds since 1970)."""
        with self._lock:
            began, ended = self._spans.get(vm, (math.inf, -math.inf))
        return began <= at <= ended

    def note(self, vm: str, began: float, ended: float) -> None:
        """Note when a question about a VM began and ended, in seconds since 1970."""
        with self._lock:
            self._spans.pop(vm, None)
            self._spans[vm] = began, ended
            while len(self._spans) > _MOST:
                del self._spans[next(iter(self._spans))]
