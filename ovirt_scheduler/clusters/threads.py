"""The threads that drive the clusters of scheduler.conf: one for each, and one for events.

An event of the engine only tells a cluster which of its hosts and VMs to look at; that shows what
has changed. So no change is lost: a cluster is looked at when the daemon starts, too, and without
an event each minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Optional

from ovirt_scheduler.clusters.drive import ClusterDrive
from ovirt_scheduler.clusters.services import ClusterServices
from ovirt_scheduler.errors import EngineUnavailable, SchedulerError
from ovirt_scheduler.model import spelling
from ovirt_scheduler.model.daemon_state import ClusterLook

_log = logging.getLogger(__name__)

_WATCH_EVERY = 2.0  # seconds between two questions for events
_LONGEST_PAUSE = 60.0  # seconds between them while the engine does not answer
_WATCH_SECONDS = 20.0  # for one answer


class ClusterThreads:
    """Drives the clusters from ``start`` to ``stop``.

    Args:
        clusters: each is used by a thread of its own.
        services: which they share.
    """

    def __init__(self, clusters: Sequence[ClusterDrive], services: ClusterServices) -> None:
        self._inventory = services.inventory
        self._stopping = services.stopping
        self._clusters = {each.name: each for each in clusters}
        # What events have named, for each cluster; None: it may be anything.
        self._news: dict[str, SimpleQueue[Optional[frozenset[str]]]] = {
            name: SimpleQueue() for name in self._clusters
        }
        self._threads = [threading.Thread(target=self._watch, name="events", daemon=True)]
        self._threads += [
            threading.Thread(
                target=self._look_after, args=(each,), name=f"cluster {each.name}", daemon=True
            )
            for each in clusters
        ]

    def start(self) -> None:
        """Begin with a look at each cluster."""
        for thread in self._threads:
            thread.start()

    def state(self) -> tuple[ClusterLook, ...]:
        """How each cluster is looked after."""
        return tuple(each.state() for each in self._clusters.values())

    def take(self, name: str) -> str:
        """Have this daemon drive a cluster for which it stands by, if it does.

        Returns:
            The daemon that drove it; empty where this one did.

        Raises:
            SchedulerError: none of that name is looked after.
        """
        if name not in self._clusters:
            raise SchedulerError(
                f"no cluster {name!r:.80} is looked after here"
                f"{spelling.hint(name, self._clusters)}; there are "
                f"{', '.join(self._clusters) or 'none'}"
            )
        ownership = self._clusters[name].ownership
        former = ownership.driven_by
        ownership.take()
        self.wake(name)
        return former

    def wake(self, name: str) -> None:
        """Look at a cluster now."""
        if name in self._news:
            self._news[name].put(None)

    def stop(self, seconds: float) -> None:
        """Begin nothing more, and wait so long for what is under way; may be called again."""
        self._stopping.set()
        for news in self._news.values():
            news.put(None)
        give_up = time.monotonic() + seconds
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, give_up - time.monotonic()))

    def _look_after(self, cluster: ClusterDrive) -> None:
        named: Optional[frozenset[str]] = frozenset()
        while not self._stopping.is_set():
            again = cluster.run_due(named)
            try:
                named = self._news[cluster.name].get(timeout=max(0.0, again - time.monotonic()))
            except Empty:
                named = frozenset()

    def _watch(self) -> None:
        """Tell the clusters what the engine's events name, each event once."""
        last: Optional[int] = None
        pause = _WATCH_EVERY
        was_away = False
        while not self._stopping.is_set():
            asked_at = time.monotonic()
            deadline = asked_at + _WATCH_SECONDS
            try:
                if was_away and last is not None:
                    # One that was restored goes on from the number of its backup.
                    last = min(last, self._inventory.events(None, deadline).latest or 0)
                was_away = False
                events = self._inventory.events(last, deadline)
                last = events.latest
                for name, cluster in self._clusters.items():
                    cluster.ownership.heard(events.correlation_ids)
                    if events.named != frozenset():
                        self._news[name].put(events.named)
                # One that takes long to answer is not to be asked all the time.
                pause = max(_WATCH_EVERY, time.monotonic() - asked_at)
            except EngineUnavailable as error:
                # The clusters tell, too.
                _log.debug("events cannot be watched: %(reason)s", {"reason": str(error)})
                pause = min(_LONGEST_PAUSE, 2 * pause)
                was_away = True
            except Exception:  # noqa: BLE001  nobody else would tell
                _log.exception("watching for the engine's events failed; it is tried again")
            self._stopping.wait(pause)
