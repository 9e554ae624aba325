"""What is seen of a cluster when the engine's documents are read: who is in which state where.

The daemon opens no document. It hands them to a reader as a ``Survey``, and gets back
a ``Seen``: as much as it has to know of its own to look after a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional

from ovirt_scheduler.model.requests import Document


@dataclass(frozen=True)
class Survey:
    """The task: documents in version 4 of the representation."""

    hosts: Document
    vms: Document
    deadline: float  # seconds on the monotonic clock


@dataclass(frozen=True)
class SeenHost:
    name: str
    status: str  # in the engine's words; empty where it tells none


@dataclass(frozen=True)
class SeenVm:
    name: str
    status: str
    host: Optional[str]  # the id of the host that it runs on


@dataclass(frozen=True)
class Seen:
    """Hosts and VMs by id, in the documents' order."""

    hosts: Mapping[str, SeenHost]
    vms: Mapping[str, SeenVm]

    def host_name(self, host: str) -> str:
        """What an administrator knows it by; no id stands for any of them."""
        return self.hosts[host].name if host in self.hosts else host or "any host"
