"""What the daemon has to know of its clusters after a restart: the statuses that it saw last, and
the migrations under way.

A status change is told to a scheduler once, also where the daemon was away when it happened.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from ovirt_scheduler import trust

_log = logging.getLogger(__name__)


@dataclass
class Migrating:
    """A migration that was begun."""

    source: Optional[str]  # an id
    target: str  # empty: any host but the source
    begun: float  # seconds since the epoch
    moving: bool = False  # it has been seen on its way


@dataclass
class ClusterMemory:
    """Of one cluster.

    Attributes:
        hosts, vms: id to the status that its scheduler knows of; None before the first look.
        moved: ids of the VMs that the latest balancing moved.
        migrating: VM id to its migration.
    """

    hosts: Optional[Dict[str, str]] = None
    vms: Optional[Dict[str, str]] = None
    moved: List[str] = field(default_factory=list)
    migrating: Dict[str, Migrating] = field(default_factory=dict)


class DriveMemory:
    """All clusters' memory, in one file of the state folder. Safe to use from many threads."""

    def __init__(self, file: Path) -> None:
        self._file = file.absolute()
        self._lock = threading.Lock()
        self._clusters = self._read()
        self._told = False

    def cluster(self, name: str) -> ClusterMemory:
        """To be changed in place by the one thread that looks after the cluster, and saved."""
        with self._lock:
            return self._clusters.setdefault(name, ClusterMemory())

    def save(self) -> None:
        """Write it; what cannot be written is told once, and is there until a restart."""
        with self._lock:
            record = {name: asdict(memory) for name, memory in list(self._clusters.items())}
            try:
                self._write(json.dumps(record))
            except OSError as error:
                if not self._told:
                    _log.warning(
                        "%(file)s cannot be written: %(reason)s; after a restart schedulers may "
                        "hear of a change of status twice",
                        {"file": str(self._file), "reason": error.strerror},
                    )
                self._told = True
            else:
                self._told = False

    def _write(self, text: str) -> None:
        folder, unfinished = self._file.parent, self._file.with_suffix(".new")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        distrust = trust.tampering(folder)
        if distrust:  # what is written could be led elsewhere
            raise OSError(errno.EPERM, f"{folder}: {distrust}")
        unfinished.write_text(text, "ascii")
        os.replace(unfinished, self._file)  # noqa: PTH105  replace is the word for atomic

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
        except (OSError, ValueError, TypeError, AttributeError) as error:
            _log.warning(
                "%(file)s cannot be read: %(reason)s; clusters are looked at afresh",
                {"file": str(self._file), "reason": str(error)},
            )
            return {}


def _memory(fields: Mapping[str, Any]) -> ClusterMemory:
    memory = ClusterMemory(**fields)
    memory.migrating = {vm: Migrating(**each) for vm, each in fields.get("migrating", {}).items()}
    return memory
