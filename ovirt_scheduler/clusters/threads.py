"""The threads that look after clusters: one for each, and two for all of them.

One counts what each cluster can lose. The other one asks for the engine's events. An event only
says which hosts and VMs of a cluster to look at; the look shows what has changed. No change is
lost, because the daemon also looks at a cluster at its start, and each minute without an event.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Optional

from ovirt_scheduler.clusters import drive, engine_events
from ovirt_scheduler.clusters.drive import ClusterDrive
from ovirt_scheduler.clusters.migrations import ClusterServices
from ovirt_scheduler.errors import EngineUnavailable, SchedulerError
from ovirt_scheduler.log.trouble import Trouble
from ovirt_scheduler.model.plans import ClusterLook
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.settings.table import ClusterSettings

_log = logging.getLogger(__name__)

_WATCH_EVERY, _WATCH_SECONDS = 2.0, 20.0  # seconds between questions for events; for one answer
_COUNT_EVERY = 1.0  # seconds between two looks for what is to be counted
_ANYTHING = engine_events.Events(None, named=None)  # may have happened: a cluster is looked at now


class ClusterThreads:
    """Drives the clusters from ``start`` to ``stop``.

    Args:
        clusters: each has a thread of its own.
        services: which they share.

    Attributes:
        trouble: the failures of the thread that asks for events.
    """

    def __init__(self, clusters: Sequence[ClusterSettings], services: ClusterServices) -> None:
        self.trouble = Trouble("watching for the engine's events")
        self._inventory, self._memory = services.inventory, services.memory
        self._stopping = services.stopping
        self._clusters = {each.name: ClusterDrive(each, services) for each in clusters}
        runs = {f"cluster {name}": each.run for name, each in self._clusters.items()}
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in {"events": self._watch, "losses": self._count, **runs}.items()
        ]
        self._lock = threading.Lock()  # of those who start threads

    def start(self) -> None:
        """Begin with a look at each cluster; called again, start the threads that do not run yet.

        Raises:
            RuntimeError: a thread cannot be started.
        """
        with self._lock:
            for thread in self._threads:
                if thread.ident is None:
                    thread.start()

    def state(self) -> tuple[ClusterLook, ...]:
        """How each cluster is looked after."""
        return tuple(each.state() for each in self._clusters.values())

    def take_over(self, name: str) -> str:
        """Have this daemon drive a cluster for which it stands by, if it does.

        Returns:
            The daemon that drove it; empty if this one did.

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
        ownership.take_over()
        self.wake(name)
        return former

    def wake(self, name: str) -> None:
        """Look at a cluster now."""
        if name in self._clusters:
            self._clusters[name].news.put(_ANYTHING)

    def stop(self, seconds: float) -> None:
        """Begin nothing more, and wait so long for running work; may be called again."""
        self._stopping.set()
        for cluster in self._clusters.values():
            cluster.news.put(_ANYTHING)
        give_up = time.monotonic() + seconds
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, give_up - time.monotonic()))

    def _count(self) -> None:
        """Count what each cluster can lose, as there is something to count and a slot is free."""
        while not self._stopping.wait(_COUNT_EVERY):
            for cluster in self._clusters.values():
                cluster.losses.count()

    def _watch(self) -> None:
        """Pass the engine's events to the clusters, each event once."""
        last: Optional[int] = None
        pause, is_told, was_away = _WATCH_EVERY, False, False
        while not self._stopping.is_set():
            asked_at = time.monotonic()
            until = asked_at + _WATCH_SECONDS
            try:
                if was_away and last is not None:
                    # An engine that was restored counts on from the number in its backup.
                    last = min(last, engine_events.ask(self._inventory, None, until).latest or 0)
                events = engine_events.ask(self._inventory, last, until)
                last = self._memory.latest_event = events.latest
                if events.named != frozenset():
                    for cluster in self._clusters.values():
                        cluster.news.put(events)
                self.trouble.clear()
                if is_told:
                    _log.info("the engine's events can be read again")
                is_told = was_away = False
                # An engine that takes long to answer is asked less often.
                pause = max(_WATCH_EVERY, time.monotonic() - asked_at)
            except EngineUnavailable as error:
                was_away = True
                pause = drive.longer_pause(pause)
                # If the engine is away, the looks at clusters report it within this time.
                alone = pause == drive.LONGEST_PAUSE and not self._inventory.state().problem
                if alone and not is_told:
                    is_told = True
                    _log.warning(
                        "the engine's events cannot be read: %(reason)s; clusters are looked at "
                        "each minute",
                        {"reason": str(error)},
                    )
            except Exception as error:  # noqa: BLE001  clusters are looked at each minute
                pause = max(_WATCH_EVERY, self.trouble.note(error))
            self._stopping.wait(pause)
