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

from ovirt_scheduler.errors import ExecutorUnavailable, UnreadableDocument
from ovirt_scheduler.model.tasks import Pack, ReaderSetup, ReadTask, Unread
from ovirt_scheduler.processes import exchange
from ovirt_scheduler.processes.exchange import OUTPUT_LIMIT, Exchange, State
from ovirt_scheduler.processes.kernel import memory_files
from ovirt_scheduler.processes.pool import TRIES, Pool
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.frames import FrameError

_WHO = "the process that read the documents"


def read(
    pool: Pool, documents: Sequence[Unread], deadline: float, tells_states: bool = False
) -> tuple[list[Pack], tuple[messages.ReadDocument, ...], object]:
    """Read documents.

    Returns:
        The packs of those that could be read, in their order; what is to be said of each
        document; what was seen in them, for ``messages.unpack_hosts`` and ``unpack_vms``.

    Raises:
        UnreadableDocument: its process died before it answered.
        ExecutorUnavailable: no process is available.
    """
    size = sum(len(each.document.data) for each in documents)
    done = _exchange(pool, ReadTask(tuple(documents), tells_states), size, deadline)
    packs = [Pack(descriptor, ()) for descriptor in done.descriptors]
    if done.state is not State.ANSWERED:
        status = done.worker.end()
        pool.discard(done.worker, done.state.value)
        if done.lacks_descriptors:
            lacking = os.strerror(errno.EMFILE)
            raise ExecutorUnavailable(f"documents cannot be passed on: {lacking}")
        raise UnreadableDocument(f"{_WHO} {done.how_a_reader_ended(status)}")
    try:
        found, seen = _unpacked(done, size, len(documents))
    except FrameError as error:
        pool.discard(done.worker, "misled")
        raise UnreadableDocument(f"{_WHO} answered what cannot be read ({error})") from None
    pool.give_back(done.worker, done.nonce, called=False)
    for pack, each in zip(packs, [each for each in found if not each.problem]):
        pack.ids = each.ids
        pack.names = {key or "": name for key, name in zip(each.ids, each.names) if name}
    return packs, found, seen


def _exchange(pool: Pool, task: ReadTask, size: int, deadline: float) -> Exchange:
    """Hand the task to readers until one has taken it, and wait until that has ended.

    Raises:
        ExecutorUnavailable: no process is available.
    """
    nonce = frames.new_nonce()
    frame = frames.pack_task(task, nonce)
    limit, most = messages.read_limit(size), len(task.documents)
    for tries_left in range(TRIES, 0, -1):
        reader = pool.take(ReaderSetup(), deadline, tries_left)
        done = Exchange(reader, frame, nonce, deadline, limit, OUTPUT_LIMIT, most_descriptors=most)
        try:
            done.begin()
            while done.open:
                exchange.wait([done])
        except BaseException:
            pool.discard(reader, "abandoned")
            raise
        if done.state is State.NOT_READY:
            pool.put_back(reader)
            continue
        if done.state is not State.NOT_BEGUN:
            return done
        status = reader.end()
        pool.discard(reader, done.differs or "ended")
        if status is not None and status < 0:
            raise exchange.never_started(status)
    raise ExecutorUnavailable("each process that was to read the documents ended before")


def _unpacked(
    done: Exchange, size: int, number: int
) -> tuple[tuple[messages.ReadDocument, ...], object]:
    """What is said of so many documents of so many bytes, and what was seen in them.

    Raises:
        FrameError: it has not the shape, or a document or a pack is missing.
    """
    found, seen = messages.unpack_read(done.answer, size)
    packs = sum(not each.problem for each in found)
    if len(found) != number or packs != len(done.descriptors):
        raise FrameError("some of them are missing")
    return found, seen


def joined(packs: Sequence[Pack]) -> Pack:
    """Copy several packs into one file, one after another.

    Raises:
        ExecutorUnavailable: descriptors or memory lack.
    """
    sizes = tuple(pack.size for pack in packs)
    contents = (os.pread(pack.descriptor, size, 0) for pack, size in zip(packs, sizes))
    try:
        descriptor = memory_files.sealed(contents)
    except OSError as error:
        raise ExecutorUnavailable(f"documents cannot be passed on: {error.strerror}") from None
    one = Pack(descriptor, tuple(each for pack in packs for each in pack.ids), sizes)
    for pack in packs:
        one.names.update(pack.names)
    return one
