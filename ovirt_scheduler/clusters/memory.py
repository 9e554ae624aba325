"""What the daemon has to know of its clusters after a restart: the statuses that it saw last, and
the migrations under way.

A status change is told to a scheduler once, also where the daemon was away when it happened.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ContextManager, Dict, List, Mapping, Optional

from ovirt_scheduler.security import trust
from ovirt_scheduler.security.whole_file import write_whole

_log = logging.getLogger(__name__)


@dataclass
class Migrating:
    """A migration that was begun."""

    name: str  # of the VM, which may be gone when it is told how it ended
    source: Optional[str]  # an id
    target: str  # empty: any host but the source
    begun: float  # seconds on the monotonic clock; in the file, since the epoch
    moving: bool = False  # it has been seen on its way


@dataclass
class ClusterMemory:
    """Of one cluster.

    Attributes:
        hosts, vms: id to the status that its scheduler knows of; the one told last comes last.
        moved: ids of the VMs that the latest balancing moved.
        migrating: VM id to its migration.
        migrated: VM id to when its latest migrations were begun; as ``Migrating.begun``.
    """

    hosts: Dict[str, str] = field(default_factory=dict)
    vms: Dict[str, str] = field(default_factory=dict)
    moved: List[str] = field(default_factory=list)
    migrating: Dict[str, Migrating] = field(default_factory=dict)
    migrated: Dict[str, List[float]] = field(default_factory=dict)


class DriveMemory:
    """All clusters' memory, in one file of the state folder. Safe to use from many threads."""

    def __init__(self, file: Path) -> None:
        self._file = file.absolute()
        self._lock = threading.Lock()
        self._clusters = self._read()
        self._saved = {name: _record(memory) for name, memory in self._clusters.items()}
        self._turns: Dict[str, threading.Lock] = {}
        self._told = False

    def cluster(self, name: str) -> ClusterMemory:
        """To be changed in place by whoever is ``alone`` with it, and saved."""
        with self._lock:
            return self._clusters.setdefault(name, ClusterMemory())

    def alone(self, name: str) -> ContextManager[object]:
        """Wait until no other thread looks after the cluster: a former one may, after a reload."""
        with self._lock:
            return self._turns.setdefault(name, threading.Lock())

    def save(self, name: str) -> None:
        """Write what is known of a cluster.

        What cannot be written is told once, and is known until a restart.
        """
        record = _record(self.cluster(name))  # the others are changed by their own threads just now
        with self._lock:
            self._saved[name] = record
            try:
                self._write(json.dumps(self._saved))
            except OSError as error:
                if not self._told:
                    _log.warning(
                        "%(file)s cannot be written: %(reason)s; after a restart schedulers may "
                        "hear of a change of status twice, and migrations are not followed",
                        {"file": str(self._file), "reason": error.strerror},
                    )
                self._told = True
            else:
                self._told = False

    def _write(self, text: str) -> None:
        folder = self._file.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        distrust = trust.tampering(folder)
        if distrust:  # what is written could be led elsewhere
            raise OSError(errno.EPERM, f"{folder}: {distrust}")
        write_whole(self._file, text.encode("ascii"))

    def _read(self) -> Dict[str, ClusterMemory]:
        try:
            distrust = trust.tampering(self._file)
            if distrust:
                told = {"file": str(self._file), "reason": distrust}
                _log.warning("%(file)s is not read: %(reason)s", told)
                return {}
            record = json.loads(self._file.read_bytes())
            return {name: _memory(fields) for name, fields in record.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            _log.warning(
                "%(file)s cannot be read: %(reason)s; clusters are looked at afresh",
                {"file": str(self._file), "reason": str(error)},
            )
            return {}


def _record(memory: ClusterMemory) -> Mapping[str, Any]:
    """As it is in the file: the monotonic clock means nothing after a restart."""
    record = asdict(memory)
    since_epoch = time.time() - time.monotonic()
    for each in record["migrating"].values():
        each["begun"] += since_epoch
    for times in record["migrated"].values():
        times[:] = [begun + since_epoch for begun in times]
    return record


def _memory(fields: Mapping[str, Any]) -> ClusterMemory:
    """
    Raises:
        TypeError, ValueError, AttributeError: it has not the shape of a record.
    """
    memory = ClusterMemory(**fields)
    memory.migrating = {vm: _migrating(each) for vm, each in fields.get("migrating", {}).items()}
    memory.migrated = {vm: [*map(_monotonic, times)] for vm, times in memory.migrated.items()}
    for text in (*memory.hosts.values(), *memory.vms.values(), *memory.moved):
        _expect(str, text)
    _expect(list, memory.moved)
    return memory


def _migrating(fields: Mapping[str, Any]) -> Migrating:
    migrating = Migrating(**fields)
    _expect(str, migrating.name, migrating.target, migrating.source or "")
    _expect(bool, migrating.moving)
    return replace(migrating, begun=_monotonic(migrating.begun))


def _monotonic(since_epoch: float) -> float:
    """A time of the file on the monotonic clock; now at the latest, if the clock was set back."""
    _expect(float, since_epoch)
    if not math.isfinite(since_epoch):
        raise ValueError(f"{since_epoch} is no time")
    return time.monotonic() - max(0.0, time.time() - since_epoch)


def _expect(kind: type, *values: object) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r:.60} is no {kind.__name__}")
