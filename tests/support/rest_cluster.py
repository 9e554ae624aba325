"""Hosts, VMs and events of a fake engine, and the elements that it writes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NamedTuple, Optional, Union

from tests.support.elements import Element, at, id_of, link, statistic

GIB = 2**30


@dataclass
class Host:
    name: str
    memory: int = 64 * GIB
    max_scheduling_memory: Optional[int] = 32 * GIB
    free_memory: Optional[int] = 8 * GIB  # None: its statistics do not tell
    status: str = "up"
    cluster: str = "Default"
    measured: bool = False  # its statistics tell what its VMs use
    busy: Optional[int] = None  # percent of its four processors; None: not told
    kind = "host"

    @property
    def id(self) -> str:
        return id_of(self.name)


@dataclass
class Vm:
    name: str
    host: Optional[str] = None  # the name of the host that it runs on
    memory: int = GIB
    os: str = "rhel_9x64"
    affinity: str = "migratable"
    status: str = "up"
    busy: Optional[int] = None  # percent of one processor; None: not told
    cluster: str = "Default"
    origin: str = "ovirt"
    is_highly_available: bool = False
    pinned_to: Sequence[str] = ()  # names of hosts
    processors: int = 0  # 0: not told
    kind = "vm"

    @property
    def id(self) -> str:
        return id_of(self.name)


Named = Union[Host, Vm]


class Event(NamedTuple):
    code: int
    named: Sequence[Named]
    time: float = 0.0
    correlation_id: str = ""
    description: str = ""
    origin: str = "oVirt"


def of_host(host: Host, on_it: Sequence[Vm], follow: bool = False) -> Element:
    """With its statistics, or a link to them."""
    active = sum(vm.status == "up" for vm in on_it)
    summary = {"active": active, "migrating": 0, "total": len(on_it)}
    content = [
        Element("name", host.name),
        Element("statistics", statistics(host, on_it))
        if follow
        else link("hosts", host.id, "statistics"),
        Element("cluster", "", at("clusters", id_of(f"cluster {host.cluster}"))),
        Element("address", f"{host.name}.example.org"),
        Element("memory", host.memory),
        Element("status", host.status),
        Element("summary", [Element(name, number) for name, number in summary.items()]),
    ]
    if host.busy is not None:
        content.append(Element("cpu", [Element("topology", [Element("cores", 4)])]))
    if host.max_scheduling_memory is not None:
        content.append(Element("max_scheduling_memory", host.max_scheduling_memory))
    return Element("host", content, at("hosts", host.id))


def statistics(host: Host, on_it: Sequence[Vm]) -> list[Element]:
    values = {"memory.total": host.memory, "memory.free": host.free_memory}
    if host.measured:
        used = sum(vm.memory for vm in on_it)
        values = {"memory.total": host.memory, "memory.used": used}
    if host.busy is not None:
        values["cpu.current.idle"] = 100 - host.busy
    return [statistic(name, value) for name, value in values.items() if value is not None]


def of_vm(vm: Vm, follow: bool = False) -> Element:
    busy = [] if vm.busy is None else [statistic("cpu.current.total", vm.busy)]
    pins = [Element("host", "", at("hosts", id_of(name))) for name in vm.pinned_to]
    content = [
        Element("name", vm.name),
        Element("statistics", busy) if follow else link("vms", vm.id, "statistics"),
        Element("cluster", "", at("clusters", id_of(f"cluster {vm.cluster}"))),
        Element("memory", vm.memory),
        Element("os", [Element("type", vm.os)]),
        Element("origin", vm.origin),
        Element("high_availability", [Element("enabled", str(vm.is_highly_available).lower())]),
        Element("placement_policy", [Element("affinity", vm.affinity), Element("hosts", pins)]),
        Element("status", vm.status),
    ]
    if vm.processors:
        content.append(Element("cpu", [Element("topology", [Element("cores", vm.processors)])]))
    if vm.host is not None:
        content.append(Element("host", "", at("hosts", id_of(vm.host))))
    return Element("vm", content, at("vms", vm.id))


def of_event(number: int, event: Event) -> Element:
    links = [Element(each.kind, "", at(f"{each.kind}s", each.id)) for each in event.named]
    moment = datetime.fromtimestamp(event.time, timezone.utc).isoformat(timespec="milliseconds")
    told = [Element("code", str(event.code)), Element("time", moment), *links]
    told += [Element("correlation_id", event.correlation_id)] if event.correlation_id else []
    told += [Element("origin", event.origin)]
    told += [Element("description", event.description)] if event.description else []
    return Element("event", told, at("events", str(number)))
