"""The state of a cluster: the statuses of its hosts and VMs, and where each VM runs.

The daemon opens no document. It hands the engine's to readers, and gets back what a
``ClusterState`` is made of: all that it needs to look after a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional


class HostState(NamedTuple):
    """A host of the cluster."""

    name: str
    status: str  # in the engine's words; empty where it tells none
    processors: int = 0  # 0: how many are busy is not known
    busy_processors: float = 0.0
    memory: int = 0  # bytes; 0: how much is used is not known
    used_memory: int = 0
    cluster: Optional[str] = None  # the cluster's id


class VmState(NamedTuple):
    """A VM of the cluster."""

    name: str
    status: str
    host: Optional[str]  # the id of the host that it runs on
    processors: int = 1
    memory: int = 0  # bytes
    busy_processors: Optional[float] = None  # None: its share of what its host uses
    cluster: Optional[str] = None  # the cluster's id


class ClusterState(NamedTuple):
    """The hosts and VMs of a cluster by id, in the documents' order."""

    hosts: Mapping[str, HostState]
    vms: Mapping[str, VmState]

    def host_name(self, host: str) -> str:
        """The host's name for a message: its id where that is unknown, "any host" for no id."""
        return self.hosts[host].name if host in self.hosts else host or "any host"
