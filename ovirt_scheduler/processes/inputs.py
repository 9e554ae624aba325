"""The inputs of a request's calls: its documents and the engine's replies, read and packed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Optional, cast

from ovirt_scheduler.errors import BadParameters, ExecutorUnavailable, UnreadableDocument
from ovirt_scheduler.model.decisions import Job
from ovirt_scheduler.model.requests import Document, Entities
from ovirt_scheduler.model.tasks import (
    CallInputs,
    EngineReply,
    Pack,
    Role,
    Unread,
)
from ovirt_scheduler.processes import readers
from ovirt_scheduler.processes.kernel import memory_files
from ovirt_scheduler.processes.pool import Pool
from ovirt_scheduler.processes.protocol import frames

# Packs of one role: a plugin's process may have few descriptors open, and each pack is one.
_MOST_PACKS = 2

_VM_SIZES = "amounts:vm_sizes"  # what the daemon has to know of a VM that is placed


def read_inputs(pool: Pool, job: Job) -> tuple[CallInputs, tuple[str, ...]]:
    """The inputs of a job's calls, and what was wrong in the engine's replies.

    Raises:
        UnreadableDocument: of the caller's documents.
        BadParameters: the host whose status has changed is not among the hosts.
    """
    entities, replies, known = job.request.entities, job.replies, job.packs
    brought = {
        role: document
        for role, document in (
            (Role.HOSTS, entities.hosts), (Role.VMS, entities.vms),
            (Role.VM, entities.vm), (Role.HOST, entities.host),
        )
        if isinstance(document, Document) and role not in known
    }  # fmt: skip
    by_role = {
        Role.HOSTS: replies.hosts,
        Role.VMS: replies.vms,
        Role.VM: () if replies.vm is None else (replies.vm,),
    }
    packs = _packs(pool, brought, by_role, job.deadline)
    packs.update((role, (pack,)) for role, pack in known.items())
    problems = tuple(p for each in by_role.values() for one in each for p in one.problems)
    return _call_inputs(entities, packs), problems


def _report(role: Role) -> str:
    return _VM_SIZES if role is Role.VM else ""


def _packs(
    pool: Pool,
    brought: Mapping[Role, Document],
    by_role: Mapping[Role, Sequence[EngineReply]],
    deadline: float,
) -> dict[Role, tuple[Pack, ...]]:
    """The packs of each role: of documents that were read before, or are read now."""
    # The engine's first: what a caller's document does to the reader is no other request's.
    due: list[tuple[Unread, Optional[EngineReply]]] = [
        (Unread(Role.VMS if role is Role.VM else role, document, each.ids, _report(role)), each)
        for role, several in by_role.items()
        for each in several
        if (document := each.document) and each.pack is None and not each.problems
    ]  # the reply on one VM is read as a collection is
    due += [
        (Unread(role, document, report=_report(role)), None) for role, document in brought.items()
    ]
    found: dict[Role, tuple[Pack, ...]] = {}
    for first in range(0, len(due), frames.MOST_DESCRIPTORS):
        some = due[first : first + frames.MOST_DESCRIPTORS]
        packs, documents, seen = readers.read(pool, [unread for unread, _ in some], deadline)
        left = iter(packs)
        for (unread, reply), about, states in zip(some, documents, seen):
            pack = None if about.problem else next(left)
            if pack is not None:
                pack.states = states
            if reply is None:
                if pack is None:
                    raise UnreadableDocument(about.problem)
                found[unread.role] = (pack,)
            elif about.problem:
                reply.problems = (f"the engine's reply cannot be read: {about.problem}",)
            else:
                reply.problems = (about.note,) if about.note else ()
                reply.pack = pack
                if not reply.keeps_document:  # it takes more memory than the pack
                    reply.document = None
    for role, several in by_role.items():
        kept = tuple(each.pack for each in several if each.pack is not None)
        if kept:
            found[role] = kept if len(kept) <= _MOST_PACKS else (joined([*kept]),)
    return found


def _call_inputs(entities: Entities, packs: dict[Role, tuple[Pack, ...]]) -> CallInputs:
    """The inputs of a request's calls, of its entities and the packs that were read.

    Raises:
        BadParameters: the host whose status has changed is not among the hosts.
    """
    ids: dict[Role, tuple[str, ...]] = {}
    for role, which in ((Role.HOSTS, entities.hosts), (Role.VMS, entities.vms)):
        if isinstance(which, Document):
            which = cast("tuple[str, ...]", packs[role][0].ids)  # noqa: PLW2901
        ids[role] = which
    vm, host = entities.vm, entities.host
    if isinstance(vm, Document):
        vm = packs[Role.VM][0].ids[0]
    elif vm is not None and vm in ids[Role.VMS] and Role.VMS in packs:
        packs[Role.VM] = packs[Role.VMS]
    if isinstance(host, Document):
        host = packs[Role.HOST][0].ids[0]
    elif host is not None:
        if host not in ids[Role.HOSTS]:
            raise BadParameters(
                f"host: {host!r:.80} is not among the hosts; give it with them, or "
                "its document here"
            )
        packs[Role.HOST] = packs.get(Role.HOSTS, ())
    return CallInputs(ids[Role.HOSTS], ids[Role.VMS], vm, host, packs)


def packs_of(entities: Entities, inputs: CallInputs) -> dict[Role, Pack]:
    """The packs of the hosts and the VM that came as documents."""
    return {
        role: inputs.packs[role][0]
        for role, brought in ((Role.HOSTS, entities.hosts), (Role.VM, entities.vm))
        if isinstance(brought, Document)
    }


def joined(packs: list[Pack]) -> Pack:
    """Copy several packs into one file, one after another.

    Args:
        packs: each is taken out as soon as it was copied, and goes if nobody else has it.

    Raises:
        ExecutorUnavailable: descriptors or memory lack.
    """
    ids = tuple(each for pack in packs for each in pack.ids)
    sizes = tuple(pack.size for pack in packs)
    names = {key: name for pack in packs for key, name in pack.names.items()}
    claim = packs[0].claim
    contents = (_content(packs.pop(0)) for _ in sizes)
    try:
        one = Pack(memory_files.sealed(contents), ids, sizes)
    except OSError as error:
        raise ExecutorUnavailable(f"documents cannot be passed on: {error.strerror}") from None
    one.names, one.claim = names, claim and claim.another(one.size)
    return one


def _content(pack: Pack) -> bytes:
    return os.pread(pack.descriptor, pack.size, 0)
