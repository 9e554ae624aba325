"""The inputs of a request's calls: its documents and the engine's replies, read and packed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Optional, cast

from ovirt_scheduler.errors import BadParameters, ExecutorUnavailable, UnreadableDocument
from ovirt_scheduler.model.jobs import Job
from ovirt_scheduler.model.requests import Document, Entities
from ovirt_scheduler.model.tasks import CallInputs, EngineReply, Pack, Role, Unread
from ovirt_scheduler.processes import document_reading
from ovirt_scheduler.processes.kernel import memory_files
from ovirt_scheduler.processes.pool import Pool
from ovirt_scheduler.processes.protocol import frames

# Packs of one role: a plugin's process may have few descriptors open, and each pack is one.
_MOST_PACKS = 2

_REPORTS = {Role.VM: "amounts:vm_sizes"}  # what the daemon has to know of a VM that is placed


def read_inputs(pool: Pool, job: Job) -> tuple[CallInputs, tuple[str, ...]]:
    """The inputs of a job's calls, and what was wrong in the engine's replies.

    Raises:
        UnreadableDocument: of the caller's documents.
        BadParameters: the host whose status has changed is not among the hosts.
    """
    of_vm = () if job.replies.vm is None else (job.replies.vm,)
    replies = (Role.HOSTS, job.replies.hosts), (Role.VMS, job.replies.vms), (Role.VM, of_vm)
    documents = _unread(job, replies)
    packs = _read_packs(pool, documents, job.deadline) if documents else {}
    problems: list[str] = []
    for role, of_role in replies:
        if of_role:
            of_engine = [reply.pack for reply in of_role if reply.pack is not None]
            if len(of_engine) > _MOST_PACKS:
                of_engine = [joined(of_engine)]
            if of_engine:
                packs[role] = tuple(of_engine)
            problems += [problem for reply in of_role for problem in reply.problems]
    for role, pack in job.packs.items():
        packs[role] = (pack,)
    return _call_inputs(job.request.entities, packs), tuple(problems)


def _unread(
    job: Job, replies: Sequence[tuple[Role, Sequence[EngineReply]]]
) -> list[tuple[Unread, Optional[EngineReply]]]:
    """The documents that are yet to be read, those of the engine with its reply."""
    documents: list[tuple[Unread, Optional[EngineReply]]] = []
    # The engine's first: what a caller's document does to the reader is no other request's.
    for role, of_role in replies:
        for reply in of_role:
            if reply.document and reply.pack is None and not reply.problems:
                like = Role.VMS if role is Role.VM else role  # it is read as a collection is
                unread = Unread(like, reply.document, reply.ids, _REPORTS.get(role, ""))
                documents.append((unread, reply))
    for role, document in zip(Role, job.request.entities):
        if isinstance(document, Document) and role not in job.packs:
            documents.append((Unread(role, document, report=_REPORTS.get(role, "")), None))
    return documents


def _read_packs(
    pool: Pool, documents: Sequence[tuple[Unread, Optional[EngineReply]]], deadline: float
) -> dict[Role, tuple[Pack, ...]]:
    """Read documents: the packs of the caller's; the engine's are put into its replies."""
    packs_by_role: dict[Role, tuple[Pack, ...]] = {}
    for first in range(0, len(documents), frames.MOST_DESCRIPTORS):
        some = documents[first : first + frames.MOST_DESCRIPTORS]
        packs, read, reports = document_reading.read(pool, [unread for unread, _ in some], deadline)
        packs.reverse()
        for (unread, reply), about, report in zip(some, read, reports):
            pack = None if about.problem else packs.pop()
            if pack is not None:
                pack.states = report
            if reply is None:
                if pack is None:
                    raise UnreadableDocument(about.problem)
                packs_by_role[unread.role] = (pack,)
            elif about.problem:
                reply.problems = (f"the engine's reply cannot be read: {about.problem}",)
            else:
                reply.problems = (about.note,) if about.note else ()
                reply.pack = pack
                if not reply.keeps_document:  # it takes more memory than the pack
                    reply.document = None
    return packs_by_role


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
