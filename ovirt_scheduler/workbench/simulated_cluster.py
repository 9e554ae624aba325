"""A simulated cluster: the use of its hosts and VMs, and their documents.

::

    snapshot ──► documents ──► SimulatedHost, SimulatedVm ──► place, remove, load, status
                    ▲                                            │
                    └──────────── values that changed ◄──────────┘
                    │
                    └──► documents for calls: those that changed are made anew

A VM takes its use along. Its processor time comes from its statistics, else it is a share of the
use of its host's VMs, by processors. Its memory comes from its statistics, else it is all of it.
The rest of a host's use stays with the host.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple, Optional
from xml.sax.saxutils import escape

from ovirt_scheduler.errors import BadInput
from ovirt_scheduler.model.cluster_state import (
    HOSTED_ENGINE,
    ClusterState,
    HostState,
    VmState,
    status_words,
)
from ovirt_scheduler.model.plugins import EngineAccess
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import EngineReplies, EngineReply, Sought
from ovirt_scheduler.model.values.statistics import busy_percent, used_memory
from ovirt_scheduler.workbench.entity_document import CPU, HOST, MEMORY, EntityDocument
from ovirt_scheduler.workbench.fake_cluster import FakeCluster
from ovirt_scheduler.workbench.fake_engine import FakeEngine
from ovirt_scheduler.workbench.snapshot import Snapshot

UP, DOWN = "up", "down"
_WITHOUT_HOST = (DOWN, "suspended", "image_locked", "unassigned")  # a VM runs in any other status
_OFF = ("down", "non_responsive")
_TOGETHER = 4  # hosts or VMs in one document, or more; it is made anew when one of them changes
_MOST_DOCUMENTS = 256  # of a kind; each has a descriptor open once it was read


class HostView(NamedTuple):
    """A host at one moment; cpu and memory are the parts that are used, from 0 to 1."""

    name: str
    status: str
    vms: int
    cpu: float
    memory: float

    @property
    def used(self) -> float:
        """The part of it that is used: processors or memory, whichever is more."""
        return max(self.cpu, self.memory)


class SimulatedVm(EntityDocument):
    """A VM.

    Attributes:
        processors: that it has.
        memory, used_memory: bytes.
        tells_load: whether its statistics have its load; else it follows from its host's.
        load: how many processors it keeps busy, such as 1.5, if ``factor`` is 1.
        factor: of its load, which changes in time.
        host: where it runs.
        ends: the hour when it ends.
        waits: why it waits for a host: placed, restarted; empty: it does not wait.
        fell: the host that it failed with, and that has not returned.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.processors = self.processors or 1
        used, percent = self.number(f"{MEMORY}used"), self.number(f"{CPU}total")
        self.used_memory = self.memory if used is None else used
        self.tells_load = percent is not None
        self.load = (percent or 0.0) / 100
        self.factor = 1.0
        self.host: Optional[SimulatedHost] = None
        self.ends = math.inf
        self.waits = ""
        self.fell: Optional[SimulatedHost] = None
        self._affinity = self.values.get("placement_policy/affinity", "migratable")
        self.is_movable = self._affinity == "migratable"
        self.is_highly_available = self.values.get("high_availability/enabled") == "true"

    @property
    def busy(self) -> float:
        """How many processors it keeps busy now."""
        return self.load * self.factor

    def vary(self, factor: float) -> bool:
        """Set the factor of its load; return whether it has changed."""
        changed, self.factor = factor != self.factor, factor
        if changed:
            self.set(f"{CPU}total", round(100 * self.busy, 3))
        return changed

    @property
    def is_hosted_engine(self) -> bool:
        """Whether the engine itself runs in it."""
        return self.values.get("origin") in HOSTED_ENGINE

    @property
    def why_stays(self) -> str:
        """Why an engine does not migrate it off a host that goes to maintenance; empty: it does."""
        if not self.is_movable:
            by_hand = self._affinity == "user_migratable"
            return "may be migrated by hand only" if by_hand else "may not be migrated"
        status = self.values.get("status", UP)
        return "" if status == UP or status.startswith("migrating") else status_words(status)

    @property
    def remedy(self) -> str:
        """What to do about a VM that stays."""
        if self._affinity == "pinned":
            return "shut it down"
        act = "wait until it may leave" if self.is_movable else "migrate it by hand"
        return f"{act}, or shut it down"

    @property
    def is_up(self) -> bool:
        """Whether it runs, and could be migrated."""
        return self.host is not None and self.values.get("status", UP) == UP


class SimulatedHost(EntityDocument):
    """A host.

    Attributes:
        vms: those that run on it, by id.
        room: bytes for VMs, with those that are there; infinite if that is not known.
        tells_load: whether its statistics have its load; else a policy does not learn of any.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.vms: dict[str, SimulatedVm] = {}
        self.room = 0.0
        self._own_processors = self._own_memory = 0.0
        self._statistics = self.statistics()  # as they are at first
        self.tells_load = busy_percent(self._statistics) is not None
        self._vm_memory: Optional[float] = None  # so not each VM to come asks them all
        self._is_stale = False  # its document lacks what its VMs have changed

    def divide_use(self) -> None:
        """Divide its use among itself and its first VMs."""
        vms, percent = self.vms.values(), busy_percent(self._statistics)
        used = used_memory(self._statistics, int(self.memory), None)
        if percent is not None:
            busy = percent / 100 * (self.processors or 1)
            unexplained = busy - sum(vm.load for vm in vms)
            silent = [vm for vm in vms if not vm.tells_load]
            number = sum(vm.processors for vm in silent)
            for vm in silent:
                vm.load = max(0.0, unexplained) * vm.processors / number
            self._own_processors = 0.0 if silent else max(0.0, unexplained)
            total = sum(vm.load for vm in vms)
            for vm in vms:  # together they use no more than the host does
                vm.load *= min(1.0, busy / total) if total else 1.0
        of_vms = sum(vm.used_memory for vm in vms)
        if used is not None:
            for vm in vms:
                vm.used_memory *= min(1.0, used / of_vms) if of_vms else 1.0
            self._own_memory = max(0.0, used - of_vms)
        left_over = self.number("max_scheduling_memory")
        self.room = self.memory or math.inf if left_over is None else left_over + self.vm_memory

    @property
    def status(self) -> str:
        """Its status in the engine's words; up if the document has none."""
        return self.values.get("status", UP)

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
    def free_memory(self) -> float:
        """Bytes for VMs that are started there; infinite if that is not known."""
        return self.room - self.vm_memory

    def view(self) -> HostView:
        """Its use now; 0 if it is not known."""
        cpu = min(1.0, self.busy / self.processors) if self.processors else 0.0
        memory = min(1.0, self.used_memory / self.memory) if self.memory else 0.0
        return HostView(self.name, self.status, len(self.vms), cpu, memory)

    def refusal(self, vm: SimulatedVm) -> str:
        """Why the engine itself would not allow the VM there; empty if it would."""
        if self.status != UP:
            return status_words(self.status)
        if self.processors and vm.processors > self.processors:
            return "has too few processors"
        if vm.memory > self.free_memory:
            return "has too little memory left"
        if vm.pinned_to and self.id not in vm.pinned_to:
            return "is not among those that it is pinned to"
        return ""

    @property
    def vm_memory(self) -> float:
        """Bytes that its VMs have."""
        if self._vm_memory is None:
            self._vm_memory = sum(vm.memory for vm in self.vms.values())
        return self._vm_memory

    def note_change(self) -> None:
        """Note that its VMs have changed, or their load: its document follows when it is read."""
        self._vm_memory, self._is_stale = None, True

    def written(self) -> bytes:
        """The element with the use that there is now."""
        if self._is_stale:
            self._is_stale = False
            self._write_use()
        return super().written()

    def _write_use(self) -> None:
        vms = self.vms.values()
        self.set("summary/active", sum(vm.is_up for vm in vms))
        self.set("summary/total", len(vms))
        if "max_scheduling_memory" in self.values:
            self.set("max_scheduling_memory", int(max(0.0, self.room - self.vm_memory)))
        self.set(f"{MEMORY}used", int(self.used_memory))
        self.set(f"{MEMORY}free", int(max(0.0, self.memory - self.used_memory)))
        if self.tells_load:
            percent = round(100 * self.view().cpu, 3)
            self.set(f"{CPU}idle", round(100 - percent, 3))
            self.set(f"{CPU}system", 0)
            self.set(f"{CPU}user", percent)


class SimulatedCluster:
    """The changing hosts and VMs of a snapshot, and an engine that serves them.

    A document is made anew only when something in it has changed, because its packs are kept with
    it.

    Attributes:
        name: of the cluster.
        left_out: names of VMs that run on a missing host, and why they do not count.

    Raises:
        BadInput: there is no host; or a host or VM is of version 3 of the engine's API, or has a
            wrong number.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.name = snapshot.cluster
        self._clusters = snapshot.elements("clusters")
        self.hosts = {key: SimulatedHost(data) for key, data in snapshot.hosts.items()}
        self.vms = {key: SimulatedVm(data) for key, data in snapshot.vms.items()}
        if not self.hosts:
            raise BadInput("there is no host in the cluster: nothing can be simulated")
        entities: list[EntityDocument] = [*self.hosts.values(), *self.vms.values()]
        if any("status/state" in each.values for each in entities):
            raise BadInput("its hosts or VMs are of version 3 of the engine's API; 4 is needed")
        self.left_out: dict[str, str] = {}
        for vm in self.vms.values():
            runs_on, status = vm.values.get("host"), vm.values.get("status", UP)
            if not runs_on or status in _WITHOUT_HOST:
                continue
            if runs_on in self.hosts:
                vm.host = self.hosts[runs_on]
                vm.host.vms[vm.id] = vm
            else:
                self.left_out[vm.name] = f"runs on host {runs_on}, which is not there"
        for host in self.hosts.values():
            host.divide_use()
        # By kind and place: the elements in it.
        self._replies: dict[tuple[str, int], tuple[list[bytes], EngineReply]] = {}
        self._engine: Optional[FakeEngine] = None  # for plugins that ask more

    def add(self, name: str, memory: int, processors: int, load: float) -> SimulatedVm:
        """A new VM that does not run yet.

        Args:
            memory: bytes.
            load: how many processors it will keep busy.
        """
        identity = str(uuid.uuid5(uuid.NAMESPACE_URL, f"vm:{self.name}:{name}"))
        vm = SimulatedVm(
            _VM.format(
                id=identity, name=escape(name), memory=memory, processors=processors,
                percent=round(100 * load, 3),
            ).encode()
        )  # fmt: skip
        self.vms[identity] = vm
        return vm

    def add_like(self, vm: SimulatedVm) -> SimulatedVm:
        """A new VM that is as another one, and does not run."""
        identity = str(uuid.uuid5(uuid.NAMESPACE_URL, f"like:{self.name}:{vm.id}"))
        copy = SimulatedVm(vm.written().replace(vm.id.encode(), identity.encode()))
        self.vms[identity] = copy
        self.remove(copy)
        return copy

    def place(self, vm: SimulatedVm, host: SimulatedHost) -> None:
        """Have a VM run on a host, wherever it was."""
        self.remove(vm)
        vm.host = host
        host.vms[vm.id] = vm
        vm.set(HOST, host.id)
        vm.set("status", UP)
        host.note_change()

    def remove(self, vm: SimulatedVm) -> None:
        """Have a VM run nowhere."""
        former, vm.host = vm.host, None
        vm.set(HOST, "")
        vm.set("status", DOWN)
        if former is not None:
            del former.vms[vm.id]
            former.note_change()

    def load(self, factor: Callable[[str], float]) -> None:
        """Change the load of all VMs, by their names."""
        changed: dict[str, SimulatedHost] = {}
        for vm in self.vms.values():
            if vm.vary(factor(vm.name)) and vm.host is not None:
                changed[vm.host.id] = vm.host
        for host in changed.values():
            host.note_change()

    def state(self) -> ClusterState:
        """Statuses, where each VM runs, and what is used."""
        hosts, vms = self.hosts.items(), self.vms.items()
        return ClusterState(
            {key: HostState(
                host.name, host.status, host.processors if host.tells_load else 0, host.busy,
                int(host.memory), int(host.used_memory),
            ) for key, host in hosts},
            {key: VmState(
                vm.name, UP if vm.is_up else DOWN, vm.host.id, vm.processors, int(vm.memory),
                vm.busy, origin=vm.values.get("origin", ""),
            ) for key, vm in vms if vm.host is not None},
        )  # fmt: skip

    def look_up(self, sought: Sought, deadline: float) -> EngineReplies:  # noqa: ARG002
        """The documents of hosts and VMs, always with statistics."""
        return EngineReplies(
            self._several("hosts", self.hosts) if sought.hosts else (),
            None if sought.vm is None else self._reply("vm", 0, [self.vms[sought.vm]]),
            self._several("vms", self.vms) if sought.vms else (),
        )

    def access(self, deadline: float) -> EngineAccess:  # noqa: ARG002
        """The way to a fake engine that has the cluster as it is now."""
        if self._engine is None:
            self._engine = FakeEngine()
        hosts, vms = (
            [each.element() for each in entities.values()] for entities in (self.hosts, self.vms)
        )
        self._engine.cluster = FakeCluster(hosts, vms, self._clusters, self.name)
        return self._engine.access()

    def close(self) -> None:
        """End the fake engine, if there is one."""
        if self._engine is not None:
            self._engine.close()

    def _several(
        self, kind: str, entities: Mapping[str, EntityDocument]
    ) -> tuple[EngineReply, ...]:
        every = [*entities.values()]
        together = max(_TOGETHER, math.ceil(len(every) / _MOST_DOCUMENTS))
        starts = range(0, len(every), together)
        return tuple(self._reply(kind, at, every[at : at + together]) for at in starts)

    def _reply(self, kind: str, place: int, entities: Sequence[EntityDocument]) -> EngineReply:
        """A document of ``hosts`` or ``vms`` from a place on, or the latest of a single ``vm``."""
        elements = [each.written() for each in entities]
        former, reply = self._replies.get((kind, place), ([], None))
        if reply is None or former != elements:
            data = b"".join(elements)
            if kind != "vm":
                data = b"<%b>%b</%b>" % (kind.encode(), data, kind.encode())
            ids = tuple(each.id for each in entities)
            reply = EngineReply(Document(data, "utf-8"), ids, keeps_document=False)
            self._replies[kind, place] = elements, reply
        return reply


_VM = (
    '<vm href="/ovirt-engine/api/vms/new" id="{id}"><name>{name}</name><cpu><topology><cores>'
    "{processors}</cores><sockets>1</sockets><threads>1</threads></topology></cpu>"
    "<memory>{memory}</memory><placement_policy><affinity>migratable</affinity>"
    "</placement_policy><statistics><statistic><name>cpu.current.total</name><kind>gauge</kind>"
    "<type>decimal</type><unit>percent</unit><values><value><datum>{percent}</datum></value>"
    "</values></statistic></statistics><status>down</status></vm>"
)
