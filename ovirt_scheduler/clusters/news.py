"""What has happened in a cluster, for the thread that looks after it."""

from __future__ import annotations

import threading
import time
from typing import Optional

from ovirt_scheduler.clusters.engine_events import Events


class News:
    """What has happened in a cluster since its thread asked last. Safe to use from many threads."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._events: Optional[Events] = None

    def put(self, events: Events) -> None:
        """Add events to those that wait."""
        with self._condition:
            self._events = events if self._events is None else self._events.with_later(events)
            self._condition.notify()

    def take(self, until: float) -> Optional[Events]:
        """All that wait, as soon as there are some; None: none came until then."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._events is not None, max(0.0, until - time.monotonic())
            )
            events, self._events = self._events, None
            return events
