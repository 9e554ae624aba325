"""With ``record = true``: records the inputs of each decision's request.

::

    decision ──► recordings ──► documents ──► document_elements ──► elements
                 its request    as they came,  the pieces of each     each host's and VM's once
                                cut by a reader

Only a reader opens documents. The thread that writes the history asks it to cut them, without
elements that may hold passwords.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple, Optional

from ovirt_scheduler.errors import SchedulerError
from ovirt_scheduler.history.schema import Row
from ovirt_scheduler.model.jobs import Request
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import EngineReplies, Role

_log = logging.getLogger(__name__)

Pieces = Sequence[bytes]  # what stands before the first element, each element, what is behind
CUT = "splitting:split"  # the function of ``processes.documents`` that cuts documents

Split = Callable[[Sequence[Document]], Sequence[Optional[Pieces]]]


class InputDocument(NamedTuple):
    """A document that came with a request, or that the engine answered to its ids."""

    role: Role
    of_engine: bool
    document: Document


class Inputs(NamedTuple):
    """The inputs of a decision that are not in its record."""

    documents: tuple[InputDocument, ...]
    request: Mapping[str, object]  # of a driver; what JSON has

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return sum(len(each.document.data) for each in self.documents)


DaemonEvent = Mapping[str, object]  # of the daemon: ``event`` says which
PackedDecision = tuple[Row, Optional[Inputs]]  # with inputs where they are recorded


def leave_out(documents: Sequence[Document]) -> Sequence[Optional[Pieces]]:
    """Cuts no document, so that none is recorded."""
    return [None] * len(documents)


def inputs(request: Request, replies: EngineReplies, selected: Sequence[str]) -> Optional[Inputs]:
    """The inputs of a request that are not in its decision's record.

    Args:
        selected: ids of the hosts that its scheduler had selected call.

    Returns:
        None if it is not recorded: for a topic's method, whose arguments are not kept, and if a
        document of the engine is missing.
    """
    entities, call = request.entities, request.driver_call
    if call is not None and call.defined is None:
        return None
    by_role = dict(zip(Role, entities))
    documents = [
        InputDocument(role, False, value)
        for role, value in by_role.items()
        if isinstance(value, Document)
    ]
    of_vm = () if replies.vm is None else (replies.vm,)
    for role, several in ((Role.HOSTS, replies.hosts), (Role.VMS, replies.vms), (Role.VM, of_vm)):
        for reply in several:
            if reply.pack is None or reply.document is None:
                return None
            documents.append(InputDocument(role, True, reply.document))
    if call is None:
        return Inputs(tuple(documents), {})
    ids = {
        role.value: value
        for role, value in by_role.items()
        if role is not Role.HOSTS and value and not isinstance(value, Document)
    }
    driver_call: dict[str, object] = {
        "method": call.method, "ids": ids, "arguments": call.arguments,
        "selected": selected, "destinations": call.destinations, "planned": call.planned,
        "coming": call.coming, "averages": call.averages,
    }  # fmt: skip
    if call.rules.rules.groups:
        driver_call["rules"] = call.rules.plain()
    return Inputs(tuple(documents), driver_call)


def cut(documents: Mapping[bytes, Document], split: Split) -> dict[bytes, Pieces]:
    """The pieces of documents, by their keys; documents that cannot be cut are logged and left out.

    Args:
        split: cuts documents; None for each that cannot be read.
    """
    try:
        pieces = split([*documents.values()]) if documents else ()
    except SchedulerError as error:
        _log.warning("documents of decisions are not recorded: %(reason)s", {"reason": str(error)})
        return {}
    return {key: each for key, each in zip(documents, pieces) if each is not None}


def packed(piece: bytes, base: bytes) -> bytes:
    """A piece as it is stored: its difference from another piece, which may be empty."""
    packer = zlib.compressobj(6, zdict=base)
    return packer.compress(piece) + packer.flush()


def hash_of(data: bytes) -> bytes:
    """A hash that identifies a piece, or the list of a document's pieces."""
    return hashlib.blake2b(data, digest_size=20).digest()
