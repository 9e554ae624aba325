"""Tasks of processes that do one thing and end: documents are cut, a file is analysed.

::

    documents of many requests, for the history ──► a process less urgent than any call ──► pieces
    a plugin's file ──► an analysis: the file is run ──► its units
"""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Optional

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.analysis import Analysis, FileFault
from ovirt_scheduler.model.plugins import Candidate
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import ANALYSIS_LIMITS, SplitTask
from ovirt_scheduler.model.values.text import one_line
from ovirt_scheduler.processes.exchange import Exchange, ExchangeState, completed
from ovirt_scheduler.processes.plugin_calls import how_it_ended
from ovirt_scheduler.processes.pool import Pool
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
    size = sum(len(document.data) for document in documents)
    exchange = Exchange(
        None, time.monotonic() + _SPLIT_SECONDS, messages.read_limit(size),
        SplitTask(tuple(documents), cut), most_descriptors=1,
    )  # fmt: skip
    for cutter in completed(pool, deque([exchange])):
        if cutter.state is not ExchangeState.ANSWERED or len(cutter.descriptors) != 1:
            raise UnreadableDocument("the process that cut documents died before it answered")
        try:
            lengths = messages.unpack_split(cutter.payloads[frames.ANSWER], len(documents), size)
        except FrameError as error:
            raise UnreadableDocument(str(error)) from None
        total = sum(map(sum, filter(None, lengths)))
        if total > _MOST_GROWN * size or total != os.fstat(cutter.descriptors[0]).st_size:
            raise UnreadableDocument("the process that cut documents gave other bytes")
        whole = os.pread(cutter.descriptors[0], total, 0)
    begins = itertools.accumulate((n for each in lengths for n in each or ()), initial=0)
    return [
        None if sizes is None else [whole[at : at + size] for size, at in zip(sizes, begins)]
        for sizes in lengths
    ]


def analyse(pool: Pool, candidate: Candidate) -> Analysis:
    """Look at a plugin's file; a fault in it is in the result.

    Raises:
        ExecutorUnavailable: no process is available for it.
    """
    deadline = time.monotonic() + ANALYSIS_LIMITS.timeout
    file = candidate.source.path
    exchange = Exchange(None, deadline, messages.ANALYSIS_LIMIT, candidate, file)
    for analyser in completed(pool, deque([exchange])):
        if analyser.state is ExchangeState.ANSWERED:
            analyser.worker.end()
            try:
                return messages.unpack_analysis(analyser.payloads[frames.ANSWER])
            except FrameError as error:
                problem = str(error)
        else:
            _, problem = how_it_ended(analyser, ANALYSIS_LIMITS)
    message = f"loading it failed: {problem}"
    last_words = exchange.output[1].decode("utf-8", "replace").strip().rpartition("\n")[2]
    if last_words:
        message += f"; it said: {one_line(last_words)}"
    return Analysis(fault=FileFault(file, None, message))
