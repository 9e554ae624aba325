"""What a request brings, as the entities that its calls get; read once, in its process.

What came as a document is read from it. What came as an id is what the engine told of it, where
that was asked, else an entity that holds nothing but its id (contract 5.2).
"""

from __future__ import annotations

import contextlib
import gc
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, cast

from ovirtsdk4 import types

from ovirt_scheduler import entities, limits
from ovirt_scheduler.answers import one_line
from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model import Document, Hosts, Job, Known, Vm

_MOST_IDS = 200  # more are read once, and shared by a fork

# For the entities of a request: so much, or so many times the documents' size.
_READING_MEMORY = 1 << 30
_READING_FACTOR = 24

HostsById = Mapping[str, types.Host]  # in the order given
VmsById = Mapping[str, types.Vm]


@dataclass(frozen=True)
class Given:
    """What the units of a job are called with."""

    ids: Tuple[str, ...]
    vm_id: Optional[str]
    # None where nothing but ids is known, and they are few or all that is asked for: then each
    # call makes its own entities, if any, and may have been forked before.
    hosts: Optional[HostsById] = None
    vm: Optional[types.Vm] = None
    problems: Sequence[str] = ()  # with what the engine told


def documents(job: Job) -> List[Document]:
    parts = (job.hosts, job.vm, job.known.vm, *job.known.hosts)
    return [part for part in parts if isinstance(part, Document)]


def read(job: Job) -> Given:
    """Read what a job brings.

    Raises:
        UnreadableDocument: of the caller's documents (contract 1.5, fault 102).
    """
    found = documents(job)
    if not found:
        ids, vm_id = cast("Tuple[str, ...]", job.hosts), cast("Optional[str]", job.vm)
        by_ids = all(call.unit.class_name is not None for call in job.calls)
        if by_ids or len(ids) <= _MOST_IDS:
            return Given(ids, vm_id)
    problems: List[str] = []
    with reading(found):
        hosts = read_hosts(job.hosts, job.known, problems)
        vm = None if job.vm is None else read_vm(job.vm, job.known, problems)
    return Given(tuple(hosts), vm and vm.id, hosts, vm, problems)


@contextlib.contextmanager
def reading(found: Sequence[Document]) -> Iterator[None]:
    """Around the reading of documents: bounded, and its entities kept from being copied.

    Raises:
        UnreadableDocument: it takes more memory than it may have.
    """
    size = sum(len(document.data) for document in found)
    gc.disable()  # nothing of what reading makes is garbage
    limits.limit_memory(max(_READING_MEMORY, _READING_FACTOR * size))
    try:
        yield
    except MemoryError:
        raise UnreadableDocument(
            f"reading the documents ({size} bytes) takes more memory than they may have"
        ) from None
    finally:
        limits.unlimit_memory()
        gc.enable()
    gc.freeze()  # a collection in a call would touch, and so copy, every entity


def read_hosts(hosts: Hosts, known: Known, problems: List[str]) -> HostsById:
    if isinstance(hosts, Document):
        found = entities.read_hosts(hosts)
    else:
        told = _told(known.hosts, entities.read_hosts, hosts, "hosts", problems)
        found = [told.get(host.id, host) for host in entities.hosts_of_ids(hosts)]
    return {cast("str", host.id): host for host in found}


def read_vm(vm: Vm, known: Known, problems: List[str]) -> types.Vm:
    if isinstance(vm, Document):
        return entities.read_vm(vm)
    told = _told((known.vm,) if known.vm else (), entities.read_vms, (vm,), "VMs", problems)
    return told.get(vm) or entities.vm_of_id(vm)


def read_vms(vms: Hosts, known: Known, problems: List[str]) -> VmsById:
    if isinstance(vms, Document):
        found = entities.read_vms(vms)
    else:
        told = _told(known.vms, entities.read_vms, vms, "VMs", problems)
        found = [told.get(vm_id) or entities.vm_of_id(vm_id) for vm_id in vms]
    return {cast("str", vm.id): vm for vm in found}


def _told(
    found: Sequence[Document],
    read: Callable[[Document], Sequence[Any]],
    ids: Sequence[str],
    what: str,
    problems: List[str],
) -> Dict[str, Any]:
    """What the engine told, by the ids as they were asked for.

    What cannot be read of it, and what was not asked for, is a problem that is told, and no more.
    """
    asked = {each.lower(): each for each in ids}  # the engine writes its ids in small letters
    told: Dict[str, Any] = {}
    strangers: List[str] = []
    for document in found:
        try:
            for entity in read(document):
                entity_id = asked.get(entity.id.lower())
                if entity_id is None:
                    strangers.append(entity.id)
                else:
                    entity.id = entity_id
                    told[entity_id] = _linked(entity)
        except UnreadableDocument as error:
            problems.append(f"what the engine told cannot be read: {error}")
    if strangers:
        shown = ", ".join(strangers[:3]) + (", ..." if len(strangers) > 3 else "")
        told_of = f"the engine told of {what} that it was not asked for"
        problems.append(one_line(f"{told_of} ({len(strangers)} dropped: {shown:.200})"))
    return told


def _linked(entity: Any) -> Any:
    """With the link that statistics have where they are not in the document themselves."""
    found = entity.statistics
    if found is not None and found.href is None and entity.href is not None:
        found.href = f"{entity.href}/statistics"
    return entity
