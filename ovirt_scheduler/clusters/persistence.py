"""What the daemon knows of its clusters, kept over a restart.

These are the statuses that it saw last, the running migrations, and what the engine refused. So a
scheduler hears of each change of status once, also of those that came while the daemon was away.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Optional

from ovirt_scheduler.clusters.migration_limits import Migrated
from ovirt_scheduler.model.losses import WorstLoss
from ovirt_scheduler.model.plans import Refusal, Step
from ovirt_scheduler.model.values import typed_json
from ovirt_scheduler.security.atomic_file import write_state

_log = logging.getLogger(__name__)

FILE = "clusters.json"  # in the state folder


@dataclass
class Migrating:
    """A migration that was begun."""

    step: Step  # whose names are for the log: the VM may be gone when the migration ends
    begun: float  # seconds on the monotonic clock
    moving: bool = False  # it has been seen on its way
    event: int = 0  # the number of the engine's latest event before it, as far as it is known
    confirmed: bool = True  # the engine said that it makes it for this daemon


@dataclass
class ClusterMemory:
    """What the daemon knows of one cluster.

    Attributes:
        statuses: by the id of a host or VM the one that the scheduler was last sent, oldest first.
        moved: ids of the VMs that the latest balancing moved.
        migrating: each VM's id with its migration.
        migrated: the migrations that were begun within the last hour.
        refusals: what kept VMs from going within the last hour.
        mark: of this daemon, and ``driven_by`` of the one for which it stands by, if any.
        taking: the cluster is to be taken over at the next look.
    """

    statuses: dict[str, str] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)
    migrating: dict[str, Migrating] = field(default_factory=dict)
    migrated: list[Migrated] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    mark: str = ""
    driven_by: str = ""
    taking: bool = False


class DriveMemory:
    """What the daemon knows of all clusters, in one file. Many threads may use it at once.

    Attributes:
        latest_event: the number of the engine's latest event that is known; it is in no file.
        worst_losses: by cluster, as they were counted last; they are in no file.
    """

    def __init__(self, file: Path) -> None:
        self.latest_event: Optional[int] = None
        self.worst_losses: dict[str, WorstLoss] = {}
        self._file = file.absolute()
        self._lock = threading.Lock()
        self._clusters = self._read()
        self._saved = {name: _dumped(each) for name, each in self._clusters.items()}
        self._turns: dict[str, threading.Lock] = {}
        self._warned = False

    def cluster(self, name: str) -> ClusterMemory:
        """What is known of a cluster. Change it in place while ``alone`` with it, then save it."""
        with self._lock:
            return self._clusters.setdefault(name, ClusterMemory())

    def alone(self, name: str) -> AbstractContextManager[object]:
        """A lock for the cluster's thread: after a reload a former one may still run."""
        with self._lock:
            return self._turns.setdefault(name, threading.Lock())

    def save(self, name: str) -> None:
        """Write what is known of a cluster.

        If that fails, a warning says so once. The cluster is known until the daemon ends.
        """
        memory = self.cluster(name)
        with self._lock:  # the other clusters are changed by their own threads just now
            former, self._saved[name] = self._saved.get(name), _dumped(memory)
            if self._saved[name] != former or self._warned:
                self._write()

    def request_takeover(self, name: str) -> None:
        """Have a cluster taken over at the next look, also after a restart; any thread may."""
        with self._lock:
            self._clusters.setdefault(name, ClusterMemory()).taking = True
            saved = typed_json.load(self._saved.get(name, b"{}"), ClusterMemory)
            self._saved[name] = typed_json.dump(replace(saved, taking=True))
            self._write()

    def _write(self) -> None:
        try:
            clusters = (
                b"%s:%s" % (typed_json.dump(name), text) for name, text in self._saved.items()
            )
            write_state(self._file, b"{%s}" % b",".join(clusters))
            self._warned = False
        except OSError as error:
            if not self._warned:
                _log.warning(
                    "%(file)s cannot be written: %(reason)s; after a restart schedulers may "
                    "hear of a change of status twice, and migrations are not followed",
                    {"file": str(self._file), "reason": error.strerror},
                )
            self._warned = True

    def _read(self) -> dict[str, ClusterMemory]:
        """What is in the file."""
        try:
            clusters = typed_json.load(self._file.read_bytes(), dict[str, ClusterMemory])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            _log.warning(
                "%(file)s cannot be read: %(reason)s; clusters count as new",
                {"file": str(self._file), "reason": str(error)},
            )
            return {}
        # The clock may have been set back meanwhile: nothing has begun later than now.
        latest, ahead = time.monotonic(), _seconds_ahead()
        return {
            name: _timed(memory, lambda moment: min(latest, moment - ahead))
            for name, memory in clusters.items()
        }


def _seconds_ahead() -> float:
    """How far the time of day is ahead of the monotonic clock, which each boot begins anew."""
    return time.time() - time.monotonic()


def _dumped(memory: ClusterMemory) -> bytes:
    """What the file has of a cluster; its times are whole seconds since 1970."""
    ahead = _seconds_ahead()
    return typed_json.dump(_timed(memory, lambda moment: float(round(moment + ahead))))


def _timed(memory: ClusterMemory, convert: Callable[[float], float]) -> ClusterMemory:
    """The same with all times by another clock."""

    def timed(moments: Any, *names: str) -> Any:
        times = {name: getattr(moments, name) for name in names}
        changed = {name: convert(moment) for name, moment in times.items() if moment is not None}
        return replace(moments, **changed)

    return replace(
        memory,
        migrating={vm: timed(each, "begun") for vm, each in memory.migrating.items()},
        migrated=[timed(each, "begun", "ended") for each in memory.migrated],
        refusals=[timed(each, "since", "latest") for each in memory.refusals],
    )
