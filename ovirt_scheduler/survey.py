"""Reads what the engine tells of a cluster, in a request process, for the daemon that may not."""

from __future__ import annotations

from typing import Any

from ovirt_scheduler import entities, given
from ovirt_scheduler.cluster_seen import Seen, SeenHost, SeenVm, Survey


def seen(survey: Survey) -> Seen:
    """What is in the documents.

    Raises:
        UnreadableDocument: one of them cannot be read.
    """
    with given.reading([survey.hosts, survey.vms]):
        hosts = entities.read_hosts(survey.hosts)
        vms = entities.read_vms(survey.vms)
    return Seen(
        {host.id: SeenHost(host.name or host.id, _status(host)) for host in hosts},
        {
            vm.id: SeenVm(vm.name or vm.id, _status(vm), vm.host.id if vm.host else None)
            for vm in vms
        },
    )


def _status(entity: Any) -> str:
    """In the engine's words."""
    return "" if entity.status is None else str(entity.status.value)
