"""Documents are read by a reader: a process that is kept between requests.

::

    documents of one request ──► a reader of the pool ──► packs: sealed files in memory
       ▲             it is not ready, or it died before the task came: another one ──┐
       └──────────────────────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Sequence
from typing import Union

from ovirt_scheduler.errors import ExecutorUnavailable, UnreadableDocument
from ovirt_scheduler.model.tasks import Pack, ReaderSetup, ReadTask, Unread
from ovirt_scheduler.model.values.hidden import without_secrets
from ovirt_scheduler.processes.exchange import Exchange, ExchangeState, completed
from ovirt_scheduler.processes.pool import Pool
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.ending import Ending, Reason
from ovirt_scheduler.processes.protocol.frames import FrameError

_WHO = "the process that read the documents"


def read(
    pool: Pool, documents: Sequence[Unread], deadline: float
) -> tuple[list[Pack], tuple[messages.ReadDocument, ...], list[object]]:
    """Read documents.

    Returns:
        The packs of those that could be read, in their order; what is to be said of each
        document; what the report says of each, unchecked.

    Raises:
        UnreadableDocument: its process died before it answered.
        ExecutorUnavailable: no process is available.
    """
    size = sum(len(unread.document.data) for unread in documents)
    exchange = Exchange(
        ReaderSetup(), deadline, messages.read_limit(size), ReadTask(tuple(documents)),
        most_descriptors=len(documents),
    )  # fmt: skip
    for reader in completed(pool, deque([exchange])):
        if reader.state is not ExchangeState.ANSWERED:
            raise _failure(reader)
        try:
            answer = _answered(reader, size, documents)
        except UnreadableDocument:
            reader.ending = reader.ending or Ending(Reason.MISLED)
            raise
    return answer


def _failure(reader: Exchange) -> Union[UnreadableDocument, ExecutorUnavailable]:
    """Why there is no answer."""
    if reader.state is ExchangeState.TOO_LATE:
        return ExecutorUnavailable("no process that reads documents was ready in time")
    if reader.lacks_descriptors:
        lacking = os.strerror(errno.EMFILE)
        return ExecutorUnavailable(f"documents cannot be passed on: {lacking}")
    if reader.state is ExchangeState.NOT_SENT:
        return ExecutorUnavailable(f"documents cannot be read: {reader.problem}")
    if reader.state is ExchangeState.TIMED_OUT:
        return UnreadableDocument(f"{_WHO} did not answer in time")
    if reader.state is ExchangeState.MISLED:
        return UnreadableDocument(f"{_WHO} answered what cannot be read ({reader.problem})")
    return UnreadableDocument(f"{_WHO} {reader.how_the_worker_ended()}")


def _answered(
    reader: Exchange, size: int, documents: Sequence[Unread]
) -> tuple[list[Pack], tuple[messages.ReadDocument, ...], list[object]]:
    """What ``read`` returns, of these documents of so many bytes.

    Raises:
        UnreadableDocument: the answer has not the shape, or a document or a pack is missing.
    """
    try:
        read, states = messages.unpack_read(reader.payloads[frames.ANSWER], size)
    except FrameError as error:
        raise UnreadableDocument(f"{_WHO} answered what cannot be read ({error})") from None
    good = [(each, unread.document) for each, unread in zip(read, documents) if not each.problem]
    if len(read) != len(documents) or len(good) != len(reader.descriptors) or reader.ending:
        raise UnreadableDocument(f"{_WHO} answered what cannot be read (documents are missing)")
    packs = []
    while reader.descriptors:
        packs.append(Pack(reader.descriptors.pop(0), ()))
    for pack, (about, document) in zip(packs, good):
        pack.claim = document.claim and document.claim.another(pack.size)
        pack.ids = about.ids
        pack.names = {key or "": name for key, name in zip(about.ids, about.names) if name}
    shown = tuple(
        about._replace(problem=without_secrets(about.problem), note=without_secrets(about.note))
        for about in read
    )
    return packs, shown, states
