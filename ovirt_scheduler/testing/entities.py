"""Hosts, VMs and clusters of a made cluster: entities of the SDK, filled with likely values."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional
from xml.etree.ElementTree import Element, fromstring

from ovirtsdk4 import types
from ovirtsdk4.reader import Reader
from ovirtsdk4.writer import Writer

from ovirt_scheduler.workbench.snapshot import Snapshot

GIB = 2**30


def make_cluster(name: str = "Default", **attributes: Any) -> types.Cluster:
    """A cluster; its id is made of its name, unless it is given."""
    values = {"id": _id("cluster", name), "affinity_groups": [], **attributes}
    return types.Cluster(name=name, **values)


def make_host(
    name: str = "host",
    *,
    running: int = 0,
    processors: int = 16,
    cluster: Optional[types.Cluster] = None,
    **attributes: Any,
) -> types.Host:
    """A host; the fixture of this name has what may be said of it."""
    values = {
        "id": _id("host", name),
        "status": types.HostStatus.UP,
        "memory": 64 * GIB,
        "cpu": _cpu(processors),
        "cluster": cluster or make_cluster(),
        "summary": types.VmSummary(active=running, migrating=0, total=running),
        **_collections(**attributes),
    }
    values.setdefault("max_scheduling_memory", values["memory"])
    return types.Host(name=name, **values)


def make_vm(
    name: str = "vm",
    *,
    processors: int = 1,
    cluster: Optional[types.Cluster] = None,
    **attributes: Any,
) -> types.Vm:
    """A VM; the fixture of this name has what may be said of it."""
    values = {
        "id": _id("vm", name),
        "status": types.VmStatus.UP,
        "memory": 4 * GIB,
        "cpu": _cpu(processors),
        "cluster": cluster or make_cluster(),
        **_collections(**attributes),
    }
    return types.Vm(name=name, **values)


def saved_cluster(path: Path) -> tuple[list[types.Host], list[types.Vm]]:
    """The hosts and VMs of a snapshot, with their tags, affinity labels and statistics.

    Raises:
        BadInput: the file cannot be read, or is no snapshot.
    """
    snapshot = Snapshot.read(Path(path))
    hosts, vms = (Reader.read(snapshot.document(name).data.decode()) for name in ("hosts", "vms"))
    return hosts, vms


def elements(entities: Iterable[Any]) -> list[Element]:
    """What a made engine is given: hosts, VMs or clusters, with all that is in them."""
    return [fromstring(Writer.write(each)) for each in entities]  # noqa: S314  just written


def _collections(
    *,
    tags: Sequence[str] = (),
    affinity_labels: Sequence[str] = (),
    statistics: Mapping[str, float] = MappingProxyType({}),
    **others: Any,
) -> dict[str, Any]:
    """The attributes of which the engine has collections; the others as they are."""
    labels: list[types.AffinityLabel] = [
        types.AffinityLabel(id=_id("label", name), name=name) for name in affinity_labels
    ]
    return {
        **others,
        "tags": [types.Tag(id=_id("tag", name), name=name) for name in tags],
        "affinity_labels": labels,
        "statistics": [
            types.Statistic(
                id=_id("statistic", name), name=name, values=[types.Value(datum=float(datum))]
            )
            for name, datum in statistics.items()
        ],
    }


def _cpu(processors: int) -> types.Cpu:
    return types.Cpu(topology=types.CpuTopology(sockets=1, cores=processors, threads=1))


def _id(what: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{what}:{name}"))
