"""Tasks of processes that do one thing and end: documents are cut, a file is analysed.

::

    documents of many requests, for the history ──► a process less urgent than any call ──► pieces
    a plugin's file ──► an analysis: the file is run ──► its units
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from typing import Optional

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.analysis import Analysis, FileFault
from ovirt_scheduler.model.plugins import Candidate
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import ANALYSIS_LIMITS, SplitTask, Task
from ovirt_scheduler.model.values.text import one_line
from ovirt_scheduler.processes import exchange
from ovirt_scheduler.processes.exchange import OUTPUT_LIMIT, Exchange, State
from ovirt_scheduler.processes.pool import TRIES, Pool
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.frames import FrameError

_SPLIT_SECONDS = 30.0
_MOST_GROWN = 3  # times, by which a document can grow that becomes UTF-8


def split(pool: Pool, cut: str, documents: Sequence[Document]) -> list[Optional[list[bytes]]]:
    """Cut documents that were read before into the elements of their hosts and VMs.

    Args:
        cut: as in ``SplitTask``.

    Returns:
        For each its pieces, in UTF-8, without what is never recorded (contract 10.5); None where
        it cannot be read.

    Raises:
        UnreadableDocument: its process died before it answered.
        ExecutorUnavailable: no process is available.
    """
    size = sum(len(each.data) for each in documents)
    task, deadline = SplitTask(tuple(documents), cut), time.monotonic() + _SPLIT_SECONDS
    with _done(pool, task, deadline, messages.read_limit(size), 1) as done:
        if done.state is not State.ANSWERED or len(done.descriptors) != 1:
            raise UnreadableDocument("the process that cut documents died before it answered")
        try:
            lengths = messages.unpack_split(done.answer, len(documents), size)
        except FrameError as error:
            raise UnreadableDocument(str(error)) from None
        total = sum(map(sum, filter(None, lengths)))
        if total > _MOST_GROWN * size or total != os.fstat(done.descriptors[0]).st_size:
            raise UnreadableDocument("the process that cut documents gave other bytes")
        whole = os.pread(done.descriptors[0], total, 0)
    places = itertools.accumulate((n for each in lengths for n in each or ()), initial=0)
    return [
        None if each is None else [whole[at : at + length] for length, at in zip(each, places)]
        for each in lengths
    ]


def analyse(pool: Pool, candidate: Candidate) -> Analysis:
    """Look at a plugin's file; a fault in it is in the result.

    Raises:
        ExecutorUnavailable: no process is available for it.
    """
    deadline = time.monotonic() + ANALYSIS_LIMITS.timeout
    problem = ""
    analysis = None
    with _done(pool, candidate, deadline, messages.ANALYSIS_LIMIT) as done:
        if done.state is State.ANSWERED:
            try:
                analysis = messages.unpack_analysis(done.answer)
            except FrameError as error:
                problem = str(error)
        status = done.end_worker()
    if analysis is not None:
        return analysis
    if not problem:
        _, problem = done.how_it_ended(status, ANALYSIS_LIMITS)
    message = f"loading it failed: {problem}"
    last_words = done.stderr.text().strip().rpartition("\n")[2]
    if last_words:
        message += f"; it said: {one_line(last_words)}"
    return Analysis(fault=FileFault(candidate.source.path, None, message))


@contextlib.contextmanager
def _done(
    pool: Pool, task: Task, deadline: float, limit: int, most_descriptors: int = 0
) -> Iterator[Exchange]:
    """Have a spare process do a task; afterwards it is ended.

    Yields:
        The exchange, when that has ended.

    Raises:
        ExecutorUnavailable: no process is available.
    """
    nonce = frames.new_nonce()
    frame = frames.pack_task(task, nonce)
    for tried in range(TRIES):
        done = Exchange(frame, nonce, limit, OUTPUT_LIMIT, most_descriptors=most_descriptors)
        worker = pool.spare(deadline)
        try:
            if isinstance(task, Candidate):
                worker.file = task.source.path
            done.begin(worker, deadline)
            exchange.wait([done])
            if done.state is not State.NOT_BEGUN or tried == TRIES - 1:
                yield done
                return
            status = worker.end()
        finally:
            for descriptor in done.descriptors:
                os.close(descriptor)
            worker.abandon()
        if status is not None and status < 0:
            raise exchange.never_started(status)
