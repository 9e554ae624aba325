"""Documents are read by a reader: a process that is kept between requests.

::

    documents of one request ──► a reader of the pool ──► packs: sealed files in memory
       ▲             it is not ready, or it died before the task came: another one ──┐
       └──────────────────────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Optional, Union

from ovirt_scheduler.errors import ExecutorUnavailable, UnreadableDocument
from ovirt_scheduler.model.tasks import Pack, ReaderSetup, ReadTask, Unread
from ovirt_scheduler.model.values.hidden import without_secrets
from ovirt_scheduler.processes import exchange
from ovirt_scheduler.processes.exchange import OUTPUT_LIMIT, Exchange, State
from ovirt_scheduler.processes.pool import TRIES, Pool
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.ending import ABANDONED, ENDED, Ending, Reason
from ovirt_scheduler.processes.protocol.frames import FrameError

_WHO = "the process that read the documents"

# Why a reader is ended, where it is no failure that the exchange names.
_ENDINGS = {
    State.ANSWERED: Ending(Reason.MISLED),
    State.MISLED: Ending(Reason.MISLED),
    State.NOT_BEGUN: ENDED,
    State.ENDED: ENDED,
}


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
    size = sum(len(each.document.data) for each in documents)
    limit, most = messages.read_limit(size), len(documents)
    nonce = frames.new_nonce()
    frame = frames.pack_task(ReadTask(tuple(documents)), nonce)
    for tried in range(TRIES):
        done = Exchange(frame, nonce, limit, OUTPUT_LIMIT, most_descriptors=most)
        reader = pool.take(ReaderSetup(), deadline, tried)
        why: Optional[Ending] = ABANDONED
        try:
            done.begin(reader, deadline)
            exchange.wait([done])
            why = done.ending or _ENDINGS.get(done.state, Ending(Reason.FAILED, done.state.value))
            is_last = tried == TRIES - 1
            if done.state is State.NOT_READY or (done.state is State.NOT_BEGUN and not is_last):
                continue
            if done.state is not State.ANSWERED:
                raise _failure(done)
            read = _answered(done, size, documents)
            why = None
        finally:
            for descriptor in done.descriptors:
                os.close(descriptor)
            if done.state is State.NOT_READY:
                pool.put_back(reader)
            elif why:
                pool.discard(reader, why)
            else:
                pool.give_back(reader, nonce, called=False)
        return read
    raise ExecutorUnavailable("no process that reads documents was ready in time")


def _failure(done: Exchange) -> Union[UnreadableDocument, ExecutorUnavailable]:
    """Why there is no answer."""
    status = done.end_worker()
    if done.lacks_descriptors:
        lacking = os.strerror(errno.EMFILE)
        return ExecutorUnavailable(f"documents cannot be passed on: {lacking}")
    if done.state is State.NOT_SENT:
        return ExecutorUnavailable(f"documents cannot be read: {done.problem}")
    if status is not None and status < 0:
        return exchange.never_started(status)
    return UnreadableDocument(f"{_WHO} {done.how_a_reader_ended(status)}")


def _answered(
    done: Exchange, size: int, documents: Sequence[Unread]
) -> tuple[list[Pack], tuple[messages.ReadDocument, ...], list[object]]:
    """What ``read`` returns, of these documents of so many bytes.

    Raises:
        UnreadableDocument: the answer has not the shape, or a document or a pack is missing.
    """
    try:
        found, seen = messages.unpack_read(done.answer, size)
    except FrameError as error:
        raise UnreadableDocument(f"{_WHO} answered what cannot be read ({error})") from None
    good = [(each, unread.document) for each, unread in zip(found, documents) if not each.problem]
    if len(found) != len(documents) or len(good) != len(done.descriptors) or done.ending:
        raise UnreadableDocument(f"{_WHO} answered what cannot be read (documents are missing)")
    packs = []
    while done.descriptors:
        packs.append(Pack(done.descriptors.pop(0), ()))
    for pack, (each, document) in zip(packs, good):
        pack.claim = document.claim and document.claim.another(pack.size)
        pack.ids = each.ids
        pack.names = {key or "": name for key, name in zip(each.ids, each.names) if name}
    told = tuple(
        each._replace(problem=without_secrets(each.problem), note=without_secrets(each.note))
        for each in found
    )
    return packs, told, seen
