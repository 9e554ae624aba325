"""A cluster that is simulated: what its hosts and VMs use, and the documents that tell of it.

::

    snapshot ──► documents ──► SimulatedHost, SimulatedVm ──► place, remove, load, status
                    ▲                                            │
                    └──────────── values that changed ◄──────────┘
                    │
                    └──► SimulatedEngine: documents for calls, those that changed made anew

What a VM uses goes with it: its processor time as its statistics tell, else its share by processors
of what its host's VMs use; its memory as its statistics tell, else all of it. What a host uses
without its VMs stays with it.
"""

from __future__ import annotations

import uuid
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union
from xml.etree.ElementTree import Element, fromstring
from xml.sax.saxutils import escape, quoteattr

from ovirt_scheduler.errors import BadInput
from ovirt_scheduler.model.cluster_state import ClusterState, HostState, VmState
from ovirt_scheduler.model.plugins import EngineAccess
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import EngineReplies, EngineReply
from ovirt_scheduler.workbench.engine import MadeEngine
from ovirt_scheduler.workbench.entity_document import EntityDocument
from ovirt_scheduler.workbench.made_cluster import MadeCluster
from ovirt_scheduler.workbench.snapshot import Snapshot

UP, DOWN = "up", "down"
_RUNNING = (UP, "paused", "migrating", "migrating_from", "migrating_to", "powering_up")
_OFF = ("down", "non_responsive")
_TOGETHER = 16  # hosts or VMs in one document, which is made anew when one of them changes

_CPU = "statistics/cpu.current."


class SimulatedVm:
    """A VM.

    Attributes:
        processors: that it has.
        memory, used_memory: bytes.
        load: how many processors it keeps busy, such as 1.5, where ``factor`` is 1.
        factor: of its load, which changes in time.
        host: where it runs.
    """

    def __init__(self, identity: str, data: bytes) -> None:
        self.id = identity
        self.document = document = EntityDocument(data)
        self.name = document.values.get("name", identity)
        self.memory = document.number("memory") or 0.0
        told = document.number("statistics/memory.used")
        self.used_memory = self.memory if told is None else told
        self.processors = _processors(document) or 1
        self.told = document.number(_CPU + "total")
        self.load = (self.told or 0.0) / 100
        self.factor = 1.0
        self.host: Optional[SimulatedHost] = None
        self.is_movable = document.values.get("placement_policy/affinity") in (None, "migratable")
        self.is_highly_available = document.values.get("high_availability/enabled") == "true"

    @property
    def busy(self) -> float:
        """How many processors it keeps busy now."""
        return self.load * self.factor

    @property
    def is_up(self) -> bool:
        """Whether it runs, and could be migrated."""
        return self.host is not None and self.document.values.get("status", UP) == UP


class SimulatedHost:
    """A host.

    Attributes:
        memory: bytes; 0: not known.
        processors: 0: not known.
        vms: those that run on it, by id.
    """

    def __init__(self, identity: str, data: bytes) -> None:
        self.id = identity
        self.document = document = EntityDocument(data)
        self.name = document.values.get("name", identity)
        self.memory = document.number("memory") or 0.0
        self.processors = _processors(document)
        self.vms: Dict[str, SimulatedVm] = {}
        self._room = document.number("max_scheduling_memory")
        self._own_processors = self._own_memory = 0.0

    def settle(self) -> None:
        """Divide what it uses among itself and the VMs that it has at the beginning."""
        vms = self.vms.values()
        told = self._told_processors()
        untold = [vm for vm in vms if vm.told is None]
        if told is not None:
            left = told - sum(vm.load for vm in vms)
            number = sum(vm.processors for vm in untold)
            for vm in untold:
                vm.load = max(0.0, left) * vm.processors / number
            _scale(vms, told)
            self._own_processors = 0.0 if untold else max(0.0, left)
        of_vms, used = sum(vm.used_memory for vm in vms), self._told_memory()
        if used is not None:
            for vm in vms:
                vm.used_memory *= min(1.0, used / of_vms) if of_vms else 1.0
            self._own_memory = max(0.0, used - of_vms)
        if self._room is not None:
            self._room += sum(vm.memory for vm in vms)

    @property
    def status(self) -> str:
        """In the engine's words; up where it is not told."""
        return self.document.values.get("status", UP)

    @property
    def busy(self) -> float:
        """How many processors are busy."""
        own = 0.0 if self.status in _OFF else self._own_processors
        return own + sum(vm.busy for vm in self.vms.values())

    @property
    def used_memory(self) -> float:
        """Bytes."""
        own = 0.0 if self.status in _OFF else self._own_memory
        return own + sum(vm.used_memory for vm in self.vms.values())

    @property
    def cpu(self) -> float:
        """The part of its processors that is busy, from 0 to 1."""
        return min(1.0, self.busy / self.processors) if self.processors else 0.0

    @property
    def memory_part(self) -> float:
        """The part of its memory that is used, from 0 to 1."""
        return min(1.0, self.used_memory / self.memory) if self.memory else 0.0

    @property
    def used(self) -> float:
        """The part of it that is used: of its processors or memory, whichever is more."""
        return max(self.cpu, self.memory_part)

    def refusal(self, vm: SimulatedVm) -> str:
        """Why the engine itself would not let the VM go there; empty where it would."""
        if self.status != UP:
            return f"is {self.status}"
        if self.processors and vm.processors > self.processors:
            return "has too few processors"
        taken = sum(each.memory for each in self.vms.values())
        room = self._room if self._room is not None else self.memory or None
        if room is not None and vm.memory > room - taken:
            return "has too little memory left"
        return ""

    def tell(self) -> None:
        """Have its document say what it uses now."""
        vms, document = self.vms.values(), self.document
        document.set("summary/active", sum(vm.is_up for vm in vms))
        document.set("summary/total", len(vms))
        if self._room is not None:
            room = max(0.0, self._room - sum(vm.memory for vm in vms))
            document.set("max_scheduling_memory", int(room))
        document.set("statistics/memory.used", int(self.used_memory))
        document.set("statistics/memory.free", int(max(0.0, self.memory - self.used_memory)))
        percent = round(100 * self.cpu, 3)
        user, system = (document.number(f"{_CPU}{kind}") or 0.0 for kind in ("user", "system"))
        part = system / (user + system) if user + system else 0.0
        document.set(f"{_CPU}idle", round(100 - percent, 3))
        document.set(f"{_CPU}system", round(percent * part, 3))
        document.set(f"{_CPU}user", round(percent - percent * part, 3))

    def _told_processors(self) -> Optional[float]:
        """How many processors are busy, as its statistics tell."""
        number = self.document.number
        idle, user = number(f"{_CPU}idle"), number(f"{_CPU}user")
        if idle is None and user is None:
            return None
        busy = (user or 0.0) + (number(f"{_CPU}system") or 0.0) if idle is None else 100 - idle
        return min(100.0, max(0.0, busy)) / 100 * (self.processors or 1)

    def _told_memory(self) -> Optional[float]:
        used = self.document.number("statistics/memory.used")
        free = self.document.number("statistics/memory.free")
        if used is None and free is not None and self.memory:
            return max(0.0, self.memory - free)
        return used


Entity = Union[SimulatedHost, SimulatedVm]


class SimulatedCluster:
    """The hosts and VMs of a snapshot, which change.

    Attributes:
        name: of the cluster.
        changed: ids of the hosts and VMs whose document is another since it was asked for.

    Raises:
        BadInput: an element of the snapshot is of version 3 of the engine's API.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.name = snapshot.cluster
        self.hosts = {key: SimulatedHost(key, data) for key, data in snapshot.hosts.items()}
        self.vms: Dict[str, SimulatedVm] = {}
        self.changed: Set[str] = set()
        entities = [each.document for each in self.hosts.values()]
        for key, data in snapshot.vms.items():
            vm = self.vms[key] = SimulatedVm(key, data)
            entities.append(vm.document)
            host = self.hosts.get(vm.document.values.get("host", ""))
            if host is not None and vm.document.values.get("status", UP) in _RUNNING:
                vm.host = host
                host.vms[key] = vm
        if any("status/state" in each.values for each in entities):
            raise BadInput("its hosts or VMs are of version 3 of the engine's API; 4 is needed")
        for host in self.hosts.values():
            host.settle()

    def add(self, name: str, memory: int, processors: int, load: float) -> SimulatedVm:
        """A new VM that does not run yet.

        Args:
            memory: bytes.
            load: how many processors it will keep busy.
        """
        identity = str(uuid.uuid5(uuid.NAMESPACE_URL, f"vm:{self.name}:{name}"))
        percent = round(100 * load, 3)
        vm = SimulatedVm(identity, _VM.format(
            id=quoteattr(identity), name=escape(name), memory=memory, processors=processors,
            percent=percent,
        ).encode())  # fmt: skip
        self.vms[identity] = vm
        self.changed.add(identity)
        return vm

    def place(self, vm: SimulatedVm, host: SimulatedHost) -> None:
        """Have a VM run on a host, wherever it was."""
        self.remove(vm)
        vm.host = host
        host.vms[vm.id] = vm
        vm.document.run_on(host.id)
        vm.document.set("status", UP)
        self._tell(vm, host)

    def remove(self, vm: SimulatedVm) -> None:
        """Have a VM run nowhere."""
        former, vm.host = vm.host, None
        vm.document.run_on(None)
        vm.document.set("status", DOWN)
        if former is not None:
            del former.vms[vm.id]
            self._tell(vm, former)

    def load(self, vm: SimulatedVm, factor: float) -> None:
        """Change the load of a VM."""
        if factor != vm.factor:
            vm.factor = factor
            vm.document.set(f"{_CPU}total", round(100 * vm.busy, 3))
            self._tell(vm, *(() if vm.host is None else (vm.host,)))

    def set_status(self, host: SimulatedHost, status: str) -> None:
        """Change the status of a host."""
        host.document.set("status", status)
        self.changed.add(host.id)

    def state(self) -> ClusterState:
        """Statuses, where each VM runs, and what is used."""
        hosts, vms = self.hosts.items(), self.vms.items()
        return ClusterState(
            {key: HostState(
                host.name, host.status, host.processors, host.busy, int(host.memory),
                int(host.used_memory),
            ) for key, host in hosts},
            {key: VmState(
                vm.name, UP if vm.is_up else DOWN, vm.host.id, vm.processors, int(vm.memory),
                vm.busy,
            ) for key, vm in vms if vm.host is not None},
        )  # fmt: skip

    def _tell(self, vm: SimulatedVm, *hosts: SimulatedHost) -> None:
        self.changed.update((vm.id, *(host.id for host in hosts)))
        for host in hosts:
            host.tell()


class SimulatedEngine:
    """What the engine would tell of a simulated cluster (``decisions.engine_data``).

    Documents that did not change since they were asked for are those of that time, so that they
    are not read anew.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._places: Dict[str, Tuple[str, int]] = {}  # of each host and VM: kind, and piece
        self._replies: Dict[Tuple[str, int], EngineReply] = {}
        self._made: Optional[MadeEngine] = None  # for plugins that ask more
        self._elements: Dict[str, Element] = {}  # by id, for it

    def look_up(
        self,
        hosts: Sequence[str],
        vm: Optional[str],
        deadline: float,  # noqa: ARG002
        vms: Sequence[str] = (),
        statistics: bool = False,  # noqa: ARG002
    ) -> EngineReplies:
        """The documents of hosts and VMs, always with statistics."""
        self._forget_changed()
        return EngineReplies(
            self._pieces("hosts", self._cluster.hosts) if hosts else (),
            self._one(vm) if vm is not None else None,
            self._pieces("vms", self._cluster.vms) if vms else (),
        )

    def access(self, deadline: float) -> EngineAccess:  # noqa: ARG002
        """The way to a made engine that has the cluster as it is now."""
        self._forget_changed()
        if self._made is None:
            self._made = MadeEngine()
        held = [
            [self._element(each) for each in entities.values()]
            for entities in (self._cluster.hosts, self._cluster.vms)
        ]
        self._made.cluster = MadeCluster(*held)
        return self._made.access

    def close(self) -> None:
        """End the made engine, if there is one."""
        if self._made is not None:
            self._made.close()

    def _element(self, entity: Entity) -> Element:
        if entity.id not in self._elements:
            self._elements[entity.id] = fromstring(entity.document.written())  # noqa: S314
        return self._elements[entity.id]

    def _forget_changed(self) -> None:
        changed = self._cluster.changed
        for key in changed:
            self._replies.pop(self._places.get(key, ("", 0)), None)
            self._replies.pop((key, 0), None)
            self._elements.pop(key, None)
        changed.clear()

    def _pieces(self, kind: str, entities: Mapping[str, Entity]) -> Tuple[EngineReply, ...]:
        ids = list(entities)
        found: List[EngineReply] = []
        for first in range(0, len(ids), _TOGETHER):
            some = tuple(ids[first : first + _TOGETHER])
            reply = self._replies.get((kind, first))
            if reply is None or reply.asked != some:
                inside = b"".join(entities[key].document.written() for key in some)
                tag = kind.encode()
                reply = EngineReply(Document(b"<%s>%s</%s>" % (tag, inside, tag), "utf-8"), some)
                self._replies[kind, first] = reply
                self._places.update(dict.fromkeys(some, (kind, first)))
            found.append(reply)
        return tuple(found)

    def _one(self, vm: str) -> EngineReply:
        """A VM's document: with others, where that was read already."""
        reply = self._replies.get(self._places.get(vm, ("", 0)))
        if reply is None or reply.pack is None:
            reply = self._replies.get((vm, 0))
        if reply is None:
            document = Document(self._cluster.vms[vm].document.written(), "utf-8")
            reply = self._replies[vm, 0] = EngineReply(document, (vm,))
        return reply


_VM = (
    '<vm href="/ovirt-engine/api/vms/new" id={id}><name>{name}</name><cpu><topology><cores>'
    "{processors}</cores><sockets>1</sockets><threads>1</threads></topology></cpu>"
    "<memory>{memory}</memory><placement_policy><affinity>migratable</affinity>"
    "</placement_policy><statistics><statistic><name>cpu.current.total</name><kind>gauge</kind>"
    "<type>decimal</type><unit>percent</unit><values><value><datum>{percent}</datum></value>"
    "</values></statistic></statistics><status>down</status></vm>"
)


def _processors(document: EntityDocument) -> int:
    parts = [document.number(f"cpu/topology/{each}") for each in ("sockets", "cores", "threads")]
    if not any(parts):
        return 0
    number = 1
    for part in parts:
        number *= int(part or 1)
    return number


def _scale(vms: Iterable[SimulatedVm], most: float) -> None:
    """Have VMs use no more than their host does."""
    total = sum(vm.load for vm in vms)
    if total > most:
        for vm in vms:
            vm.load *= most / total
