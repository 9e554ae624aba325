"""What is recorded beside a decision, with ``record = true``: all that its request was made on.

::

    decision ──► recordings ──► documents ──► document_elements ──► elements
                 its request    as they came,  the pieces of each     each host's and VM's once
                                cut by a reader

Only a reader opens documents. It cuts them when the decision is made, asked by the thread that
writes the history, and leaves out what may hold passwords.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable, NamedTuple, Optional

from ovirt_scheduler.errors import SchedulerError
from ovirt_scheduler.history import schema
from ovirt_scheduler.history.schema import Row
from ovirt_scheduler.model.drivers import DriverJob, Subjects
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import EngineReplies, Role

_log = logging.getLogger(__name__)

_MOST_AT_ONCE = 16 << 20  # bytes of documents, given to one process

Pieces = Sequence[bytes]  # what stands before the first element, each element, what is behind
Split = Callable[[Sequence[Document]], Sequence[Optional[Pieces]]]


class Given(NamedTuple):
    """A document that came with a request, or that the engine answered to its ids."""

    role: Role
    of_engine: bool
    document: Document


class Inputs(NamedTuple):
    """What a decision was made on, beside what is in its record."""

    documents: tuple[Given, ...]
    request: Mapping[str, object]  # of a driver; what JSON has

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return sum(len(each.document.data) for each in self.documents)


Made = tuple[Row, Optional[Inputs]]  # a decision, with what it was made on where that is recorded


class Recording(NamedTuple):
    """A decision, ready to be written.

    Attributes:
        request: of a driver; None: what the decision was made on is not recorded.
        documents: that it was made on: what each is, whether it is of the engine, its key.
        pieces: by key, of those documents that were not written before.
    """

    row: Row
    request: Optional[str] = None
    documents: Sequence[tuple[Role, bool, bytes]] = ()
    pieces: Mapping[bytes, Pieces] = {}


def leave_out(documents: Sequence[Document]) -> Sequence[Optional[Pieces]]:
    """Cuts no document, so that none is recorded."""
    return [None] * len(documents)


def inputs(
    subjects: Subjects, replies: EngineReplies, request: Mapping[str, object]
) -> Optional[Inputs]:
    """What a request was made on; None where a document of the engine's is not there."""
    documents = [
        Given(role, False, document)
        for role, document in (
            (Role.HOSTS, subjects.hosts), (Role.VMS, subjects.vms),
            (Role.VM, subjects.vm), (Role.HOST, subjects.host),
        )
        if isinstance(document, Document)
    ]  # fmt: skip
    of_vm = () if replies.vm is None else (replies.vm,)
    for role, several in ((Role.HOSTS, replies.hosts), (Role.VMS, replies.vms), (Role.VM, of_vm)):
        for each in several:
            if each.pack is None or each.document is None:
                return None
            documents.append(Given(role, True, each.document))
    return Inputs(tuple(documents), request)


def of_driver(job: DriverJob) -> Mapping[str, object]:
    """What a driver was asked, beside what is in the record and in documents."""
    request, subjects = job.request, job.request.subjects
    ids = {
        name: each
        for name, each in (
            ("vms", subjects.vms), ("vm", subjects.vm), ("host", subjects.host)
        )
        if each and not isinstance(each, Document)
    }  # fmt: skip
    return {
        "method": request.method, "ids": ids, "arguments": request.arguments,
        "selected": job.selected, "destinations": request.destinations,
    }  # fmt: skip


class Cutter:
    """Has documents cut into pieces.

    Args:
        split: cuts documents; None for each that cannot be read.
    """

    def __init__(self, split: Split) -> None:
        self._split = split
        # What is recorded has no passwords. Keys are of the whole documents: that nobody can try
        # passwords against them they are this process's own, and are written nowhere.
        self._secret = secrets.token_bytes(32)

    def ready(self, made: Sequence[Made], is_known: Callable[[bytes], bool]) -> list[Recording]:
        """Decisions, ready to be written, with the documents cut that they were made on.

        Args:
            is_known: whether the document of a key was written before.
        """
        unknown: dict[bytes, Document] = {}
        pieces: dict[bytes, Pieces] = {}
        recordings = []
        for row, inputs in made:
            if inputs is None:
                recordings.append(Recording(row))
                continue
            documents = []
            for role, of_engine, document in inputs.documents:
                key = self._key(document)
                documents.append((role, of_engine, key))
                if not is_known(key):
                    unknown[key] = document
            recordings.append(Recording(row, schema.as_json(inputs.request), documents, pieces))
        pieces.update(self._cut(unknown))
        return recordings

    def _key(self, document: Document) -> bytes:
        encoding = (document.encoding or "").encode()
        return hashlib.blake2b(encoding + b"\0" + document.data, key=self._secret).digest()

    def _cut(self, documents: Mapping[bytes, Document]) -> Iterator[tuple[bytes, Pieces]]:
        for keys in _batches(documents):
            try:
                cut = self._split([documents[key] for key in keys])
            except SchedulerError as error:
                _log.warning(
                    "documents of decisions are not recorded: %(reason)s", {"reason": str(error)}
                )
                continue
            yield from ((key, each) for key, each in zip(keys, cut) if each is not None)


def _batches(documents: Mapping[bytes, Document]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for key, document in documents.items():
        if batch and size + len(document.data) > _MOST_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(key)
        size += len(document.data)
    if batch:
        yield batch


def packed(piece: bytes, base: bytes) -> bytes:
    """A piece as it is kept: by what differs from another one."""
    packer = zlib.compressobj(6, zdict=base) if base else zlib.compressobj(6)
    return packer.compress(piece) + packer.flush()


def hash_of(data: bytes) -> bytes:
    """What tells a piece, or the list of a document's pieces, from all others."""
    return hashlib.blake2b(data, digest_size=20).digest()


def unpacked(data: bytes, base: bytes) -> bytes:
    """The piece again."""
    unpacker = zlib.decompressobj(zdict=base) if base else zlib.decompressobj()
    return unpacker.decompress(data)
