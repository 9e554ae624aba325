"""Snapshots of fake clusters, and what simulations make of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ovirt_scheduler.workbench.simulation import ClusterMoment
from ovirt_scheduler.workbench.snapshot import Snapshot
from tests.support.rest_server import GIB, id_of

_CPU = "<cpu><topology><cores>{}</cores><sockets>1</sockets><threads>1</threads></topology></cpu>"
_CLUSTER = f'<cluster id="{id_of("cluster Default")}"/>'


def statistics(**values: float) -> str:
    """Of names in which ``__`` stands for a dot."""
    inside = "".join(
        f"<statistic><name>{name.replace('__', '.')}</name><values><value><datum>{value}</datum>"
        "</value></values></statistic>"
        for name, value in values.items()
    )
    return f"<statistics>{inside}</statistics>"


def host(
    name: str,
    memory: int = 64,
    *,
    processors: int = 16,
    used: float = 0,
    busy: float = 0,
    running: int = 0,
    status: str = "up",
    taken: float | None = None,
    more: str = "",
    bounded: bool = True,
) -> str:
    """A host.

    Args:
        memory, used: GiB; ``taken`` by VMs, as far as starting others goes (as ``used``).
        busy: how many processors are.
        bounded: whether it tells how much memory it has for other VMs.
        running: VMs.
    """  # fmt: skip
    taken = used if taken is None else taken
    room = f"<max_scheduling_memory>{int((memory - taken) * GIB)}</max_scheduling_memory>"
    percent = 100 * busy / (processors or 1)
    told = statistics(
        memory__used=int(used * GIB), memory__free=int((memory - used) * GIB),
        cpu__current__user=percent, cpu__current__system=0, cpu__current__idle=100 - percent,
    )  # fmt: skip
    return (
        f'<host id="{id_of(name)}"><name>{name}</name>{_CLUSTER}{_CPU.format(processors)}'
        f"{room * bounded}"
        f"<memory>{memory * GIB}</memory>{told}<status>{status}</status><summary>"
        f"<active>{running}</active><migrating>0</migrating><total>{running}</total></summary>"
        f"{more}</host>"
    )


def vm(
    name: str,
    on: str | None = None,
    memory: int = 4,
    processors: int = 1,
    busy: float = 0.0,
    affinity: str = "migratable",
    available: bool = False,
) -> str:
    """A VM.

    Args:
        memory: GiB.
        busy: how many processors it keeps busy.
    """  # fmt: skip
    where = f'<host id="{id_of(on)}"/>' if on else ""
    ha = f"<high_availability><enabled>{str(available).lower()}</enabled></high_availability>"
    return (
        f'<vm id="{id_of(name)}"><name>{name}</name>{_CLUSTER}{_CPU.format(processors)}{ha}'
        f"<memory>{memory * GIB}</memory>"
        f"<placement_policy><affinity>{affinity}</affinity></placement_policy>"
        f"{statistics(cpu__current__total=100 * busy)}{where}<status>{'up' if on else 'down'}"
        "</status></vm>"
    )


def snapshot(hosts: Iterable[str], vms: Iterable[str] = ()) -> Snapshot:
    """Of the elements of hosts and VMs."""

    def by_id(elements: Iterable[str]) -> Mapping[str, bytes]:
        return {each.split('"')[1]: each.encode() for each in elements}

    return Snapshot("Default", "2026-01-31T08:00:00Z", by_id(hosts), by_id(vms))


def filled(**hosts: Sequence[tuple]) -> Snapshot:
    """A cluster of hosts, each with VMs of so many GiB that keep so many processors busy."""
    elements, vms = [], []
    for name, each in hosts.items():
        used, busy = sum(memory for memory, _ in each), sum(busy for _, busy in each)
        elements.append(host(name, used=used, busy=busy, running=len(each)))
        vms += [
            vm(f"{name}-{number}", name, memory, busy=busy)
            for number, (memory, busy) in enumerate(each, 1)
        ]
    return snapshot(elements, vms)


def vm_counts(view: ClusterMoment) -> dict[str, int]:
    """How many VMs each host has."""
    return {host.name: host.vms for host in view.hosts}
