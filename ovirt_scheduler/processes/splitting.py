"""Has documents cut into the elements of their hosts and VMs, for the history.

::

    the history's thread ── documents of many requests ──► a reader, less urgent than any call
                         ◄── pieces, in a sealed file ────
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from typing import Optional

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import SplitTask
from ovirt_scheduler.processes.exchange import State
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.frames import FrameError
from ovirt_scheduler.processes.runner import Runner

_SECONDS = 30.0
_MOST_GROWN = 3  # times, by which a document can grow that becomes UTF-8


def split(runner: Runner, documents: Sequence[Document]) -> list[Optional[list[bytes]]]:
    """Cut documents that were read before, in a process of their own; it takes no call's place.

    Returns:
        For each its pieces, in UTF-8, without what is never recorded (contract 10.5); None where
        it cannot be read.

    Raises:
        UnreadableDocument: its process did not live to tell.
        ExecutorUnavailable: no process is to be had.
    """
    size = sum(len(each.data) for each in documents)
    task, deadline = SplitTask(tuple(documents)), time.monotonic() + _SECONDS
    done = runner.alone(task, deadline, messages.read_limit(size), 1, frames.FORK_READER)
    done.worker.kill()
    done.worker.close()
    try:
        if done.state is not State.ANSWERED or len(done.descriptors) != 1:
            raise UnreadableDocument("the process that was to cut documents did not live to tell")
        lengths = messages.unpack_split(done.answer, len(documents), size)
        total = sum(map(sum, filter(None, lengths)))
        if total > _MOST_GROWN * size or total != os.fstat(done.descriptors[0]).st_size:
            raise UnreadableDocument("the process that cut documents gave other bytes")
        whole = os.pread(done.descriptors[0], total, 0)
    except FrameError as error:
        raise UnreadableDocument(str(error)) from None
    finally:
        for descriptor in done.descriptors:
            os.close(descriptor)
    places = itertools.accumulate((n for each in lengths for n in each or ()), initial=0)
    return [
        None if each is None else [whole[at : at + length] for length, at in zip(each, places)]
        for each in lengths
    ]
