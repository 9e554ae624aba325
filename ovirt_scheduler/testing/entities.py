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
    name: str = "host", *, running: int = 0, processors: int = 16, **attributes: Any
) -> types.Host:
    """A host; the fixture of this name has what may be said of it."""
    values = {
        "status": types.HostStatus.UP,
        "memory": 64 * GIB,
        "summary": types.VmSummary(active=running, migrating=0, total=running),
        **attributes,
    }
    values.setdefault("max_scheduling_memory", values["memory"])
    return _made(types.Host, name, processors, **values)


def make_vm(name: str = "vm", *, processors: int = 1, **attributes: Any) -> types.Vm:
    """A VM; the fixture of this name has what may be said of it."""
    values = {"status": types.VmStatus.UP, "memory": 4 * GIB, **attributes}
    return _made(types.Vm, name, processors, **values)


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


def _made(
    kind: Any,
    name: str,
    processors: int,
    *,
    cluster: Optional[types.Cluster] = None,
    tags: Sequence[str] = (),
    affinity_labels: Sequence[str] = (),
    statistics: Mapping[str, float] = MappingProxyType({}),
    **values: Any,
) -> Any:
    """A host or a VM, with what the engine has of both: its cluster and its collections."""
    topology = types.CpuTopology(sockets=1, cores=processors, threads=1)
    values = {
        "id": _id(kind.__name__.lower(), name),
        "cpu": types.Cpu(topology=topology),
        "cluster": cluster or make_cluster(),
        **values,
    }
    return kind(
        name=name,
        tags=[types.Tag(id=_id("tag", tag), name=tag) for tag in tags],
        affinity_labels=[
            types.AffinityLabel(id=_id("label", label), name=label) for label in affinity_labels
        ],
        statistics=[
            types.Statistic(
                id=_id("statistic", each), name=each, values=[types.Value(datum=float(datum))]
            )
            for each, datum in statistics.items()
        ],
        **values,
    )


def _id(what: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{what}:{name}"))
