"""The state of a cluster: the statuses of its hosts and VMs, and where each VM runs.

The daemon opens no document. It hands the engine's documents to readers, which return the values
of a ``ClusterState``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

_MIGRATING = ("migrating", "migrating_from", "migrating_to")
ANY_HOST_NAME = "any host"
HOSTED_ENGINE = ("managed_hosted_engine", "hosted_engine")  # the origin of the engine's own VM


_STATUS_WORDS = {
    "maintenance": "is in maintenance", "preparing_for_maintenance": "goes to maintenance",
    "non_responsive": "does not respond", "non_operational": "is not operational",
    "error": "has an error", "reboot": "reboots", "install_failed": "is not installed",
}  # fmt: skip


def status_words(status: str) -> str:
    """What a host or a VM of a status does, or is: ``is in maintenance``, ``is paused``."""
    return _STATUS_WORDS.get(status, f"is {status.replace('_', ' ')}")


class HostState(NamedTuple):
    """A host of the cluster."""

    name: str
    status: str  # in the engine's words; empty if it tells none
    processors: int = 0  # 0: how many are busy is not known
    busy_processors: float = 0.0
    memory: int = 0  # bytes; 0: how much is used is not known
    used_memory: int = 0
    cluster: Optional[str] = None  # the cluster's id
    room: Optional[int] = None  # bytes for VMs that are started there; None: not known

    @property
    def is_up(self) -> bool:
        """Whether VMs may run on it, as far as is known."""
        return self.status in ("", "up")


class VmState(NamedTuple):
    """A VM of the cluster."""

    name: str
    status: str
    host: Optional[str]  # the id of the host that it runs on
    processors: int = 1
    memory: int = 0  # bytes
    busy_processors: Optional[float] = None  # None: its share of what its host uses
    cluster: Optional[str] = None  # the cluster's id
    origin: str = ""  # in the engine's words; empty if it tells none
    is_highly_available: bool = False
    pinned_to: frozenset[str] = frozenset()  # ids of the only hosts that it may run on; empty: any

    @property
    def is_migrating(self) -> bool:
        """Whether it is on its way to another host."""
        return self.status in _MIGRATING

    @property
    def is_hosted_engine(self) -> bool:
        """Whether the engine itself runs in the VM; no balancing moves it."""
        return self.origin in HOSTED_ENGINE


class ClusterState(NamedTuple):
    """The hosts and VMs of a cluster by id, in the documents' order."""

    hosts: Mapping[str, HostState]
    vms: Mapping[str, VmState]

    def host_name(self, host: str) -> str:
        """The host's name for a message: its id if that is unknown, other words for no id."""
        return self.hosts[host].name if host in self.hosts else host or ANY_HOST_NAME


def imbalance(used: Iterable[float]) -> float:
    """How unequally the hosts of a cluster are used, from 0 to 100 percent.

    ::

                           standard deviation of what is used of the hosts
        imbalance = 100 × ──────────────────────────────────────────────────
                           the largest that any hosts of the same mean have

    The largest is √(mean × (1 - mean)): some hosts are full, and all others are empty. So 0 is a
    cluster whose hosts are used alike. Little use makes little imbalance, even if one of two hosts
    is empty: 2 % and 0 % are 10 % imbalance, 50 % and 0 % are 58 %, 100 % and 0 % are 100 %.

    Args:
        used: the used part of each host, from 0 to 1; values beyond count as 0 or 1.
    """
    parts = [min(1.0, max(0.0, part)) for part in used]
    mean = math.fsum(parts) / max(1, len(parts))
    largest = mean * (1 - mean) * len(parts)
    if largest <= 0:  # no host, or all of them full or empty
        return 0.0
    return min(100.0, 100 * math.sqrt(math.fsum((part - mean) ** 2 for part in parts) / largest))
