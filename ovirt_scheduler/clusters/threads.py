"""The threads that drive the clusters of scheduler.conf: one for each, and one for events.

An event of the engine only wakes the clusters; each then looks for what has changed. So no change
is lost: a cluster is looked at when the daemon starts, too.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Optional, Sequence, Tuple

from ovirt_scheduler.clusters.drive import ClusterDrive
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import EngineUnavailable
from ovirt_scheduler.model.daemon_state import ClusterLook

_log = logging.getLogger(__name__)

_WATCH_EVERY = 2.0  # seconds between two questions for events
_WATCH_SECONDS = 20.0  # for one answer


class ClusterThreads:
    """Drives the clusters from ``start`` to ``stop``.

    Args:
        clusters: each is used by a thread of its own.
        inventory: of the engine that the clusters are in.
    """

    def __init__(self, clusters: Sequence[ClusterDrive], inventory: Inventory) -> None:
        self._inventory = inventory
        self._stopped = threading.Event()
        self._clusters = [_Thread(cluster, self._stopped) for cluster in clusters]
        self._threads = [
            threading.Thread(target=each.run, name=f"cluster {each.cluster.name}", daemon=True)
            for each in self._clusters
        ]
        self._threads.append(threading.Thread(target=self._watch, name="events", daemon=True))

    def start(self) -> None:
        """Begin with a look at each cluster."""
        for thread in self._threads:
            thread.start()

    def state(self) -> Tuple[ClusterLook, ...]:
        """How each cluster is looked after."""
        return tuple(each.cluster.state() for each in self._clusters)

    def wake(self, name: str) -> None:
        """Look at a cluster now."""
        for each in self._clusters:
            if each.cluster.name == name:
                each.wake()

    def stop(self, seconds: float) -> None:
        """Begin nothing more, and wait so long for what is under way; may be called again."""
        self._stopped.set()
        for cluster in self._clusters:
            cluster.stop()
        give_up = time.monotonic() + seconds
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, give_up - time.monotonic()))

    def _watch(self) -> None:
        """Wake the clusters when the engine has an event that is newer than the last."""
        last: Optional[int] = None
        while not self._stopped.is_set():
            try:
                latest = self._inventory.latest_event(last, time.monotonic() + _WATCH_SECONDS)
                if last is not None and latest != last:
                    for cluster in self._clusters:
                        cluster.wake()
                last = latest
            except EngineUnavailable as error:
                # The clusters tell, too.
                _log.debug("events cannot be watched: %(reason)s", {"reason": str(error)})
            except Exception:  # noqa: BLE001  nobody else would tell
                _log.exception("watching for the engine's events failed; it is tried again")
            self._stopped.wait(_WATCH_EVERY)


class _Thread:
    """The thread of one cluster."""

    def __init__(self, cluster: ClusterDrive, stopped: threading.Event) -> None:
        self.cluster = cluster
        self._stopped = stopped
        self._news = threading.Event()

    def wake(self) -> None:
        self._news.set()

    def stop(self) -> None:
        self.cluster.stop()
        self.wake()

    def run(self) -> None:
        woken = False
        while not self._stopped.is_set():
            again = time.monotonic() + _WATCH_EVERY
            try:
                again = self.cluster.run_due(woken)
            except Exception:  # noqa: BLE001  the other clusters go on, and so does this one
                _log.exception(
                    "cluster %(cluster)s: looking after it failed; it is tried again",
                    {"cluster": self.cluster.name},
                )
            woken = self._news.wait(max(0.0, again - time.monotonic()))
            self._news.clear()
