"""One request's process: reads its documents once, calls its units, tells how each ended.

::

    daemon ──(socket: Job)──► request process ──fork──► call, call, ...
           ◄─(socket: OPENED, RESULT per call, DONE)─┘   ▲ stdout, stderr, answer: pipes

The entities are read before the calls are forked, so they share them by copy-on-write.
Filters run one after another, each on the hosts that are left; cost functions side by side.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import traceback
from dataclasses import replace
from typing import List, NoReturn

from ovirt_scheduler import call, driver_request, frames, given, limits, survey, titles, unit_calls
from ovirt_scheduler.answers import one_line
from ovirt_scheduler.cluster_seen import Survey
from ovirt_scheduler.drivers import DriverJob
from ovirt_scheduler.errors import RequestError
from ovirt_scheduler.model import Analysis, Candidate, FileFault, Job, Limits
from ovirt_scheduler.supervisor import Abandoned, Supervisor

_AHEAD = 4  # calls that wait for the next request; one takes 4 MiB
_MOST_TASKS = 1000  # of one process
_MOST_GROWTH = 8 << 20  # bytes of its own, beyond what it was forked with
_TASK_LIMIT = 1 << 30  # bytes
_CHUNK = 1 << 20
_FAULT_LIMIT = 4096  # characters

_ANALYSIS_LIMITS = Limits(timeout=10.0, memory=512 << 20, cpu=10, open_files=256)


def serve(client: socket.socket, lifeline: int) -> NoReturn:
    """Be the request process: one task from the daemon's socket, then the end.

    Args:
        client: the daemon's end is closed when it waits no more.
        lifeline: the reading end of a pipe that the zygote holds open.
    """
    status = 0
    try:
        titles.show("request")
        limits.become_subreaper()
        limits.reset_signals()
        limits.close_all_but({client.fileno(), lifeline})
        _RequestProcess(client, lifeline).run()
    except (Abandoned, OSError):  # nobody is there to be told
        status = os.EX_UNAVAILABLE
    except MemoryError:
        with contextlib.suppress(OSError):
            os.write(2, b"a request process ran out of memory\n")
        status = frames.OUT_OF_MEMORY
    except BaseException:  # noqa: BLE001  our own fault: say where, and end
        traceback.print_exc()
        status = os.EX_SOFTWARE
    finally:
        sys.stderr.flush()
        os._exit(status)


def _opens_documents(task: frames.Task) -> bool:
    """Whether a task makes its process one that is not used again."""
    if isinstance(task, DriverJob):
        return bool(task.documents)
    return not isinstance(task, Job) or bool(given.documents(task))


def _surveyed(task: Survey) -> bytes:
    try:
        return frames.pack_seen(survey.seen(task))
    except RequestError as error:
        return frames.pack("refused", code=error.fault_code, message=str(error))


class _RequestProcess:
    def __init__(self, client: socket.socket, lifeline: int) -> None:
        self._client = client
        self._supervisor = Supervisor(client.fileno(), lifeline, call.wait_for_task)
        self._untold: List[bytes] = []
        self._small = limits.data_bytes() + _MOST_GROWTH

    def run(self) -> None:
        """Serve tasks until one came with documents.

        What reads documents is not used again: they come from outside, and what they did to
        the memory of this process must not be seen by another request.
        """
        for served in range(_MOST_TASKS, 0, -1):
            task = self._receive()
            again = served > 1 and not _opens_documents(task)
            if isinstance(task, Job):
                self._work(task)
            elif isinstance(task, DriverJob):
                driver_request.work(task, self._supervisor, self._tell_at_once)
            elif isinstance(task, Candidate):
                self._tell(self._analyse(task))
            elif isinstance(task, Survey):
                self._tell(_surveyed(task))
            # One that many ids have made large would stay so: a new one shares the zygote's memory.
            again = again and limits.data_bytes() < self._small
            self._tell(frames.pack("done", again=again, ready=self._supervisor.ready))
            self._send()
            if not again:
                break
        self._supervisor.close()
        if limits.children():  # one could not be killed in time: the zygote goes on trying
            os._exit(os.EX_TEMPFAIL)

    def _receive(self) -> frames.Task:
        unframer = frames.Unframer(_TASK_LIMIT)
        self._supervisor.await_client(_AHEAD)
        while True:  # what has begun to come is waited for, and nothing forked meanwhile
            data = self._client.recv(_CHUNK)
            if not data:
                raise Abandoned
            for payload in unframer.feed(data):
                return frames.unpack_task(payload)

    def _tell(self, payload: bytes) -> None:
        """Have the daemon told of it, with what else is told before the next ``_send``."""
        self._untold += frames.frame(payload)

    def _tell_at_once(self, payload: bytes) -> None:
        self._tell(payload)
        self._send()

    def _send(self) -> None:
        self._client.sendall(b"".join(self._untold))
        self._untold.clear()

    def _analyse(self, candidate: Candidate) -> bytes:
        work = unit_calls.work(_ANALYSIS_LIMITS, lambda: call.run_analysis(candidate))
        deadline = time.monotonic() + _ANALYSIS_LIMITS.timeout
        ((_, ended),) = self._supervisor.run([work], deadline)
        if ended.payload is not None:
            try:
                _, fields = frames.unpack(ended.payload)
                return frames.pack_analysis(_bounded(frames.unpack_analysis(fields)))
            except frames.FrameError as error:
                ended = replace(ended, problem=str(error))
        message = f"loading it failed: {unit_calls.how_it_ended(ended, _ANALYSIS_LIMITS)[1]}"
        last_words = unit_calls.printed(ended.stderr).strip().rpartition("\n")[2]
        if last_words:
            message += f"; it said: {one_line(last_words)}"
        path = candidate.source.path
        return frames.pack_analysis(Analysis(fault=FileFault(path, None, message)))

    def _work(self, job: Job) -> None:
        try:
            if job.strict:
                for unit_call in job.calls:
                    unit_calls.check_properties(unit_call, job.deadline)
            brought = given.read(job)
        except RequestError as error:
            self._tell(frames.pack("refused", code=error.fault_code, message=str(error)))
            return
        self._tell(
            frames.pack("opened", hosts=brought.ids, vm=brought.vm_id, errors=brought.problems)
        )
        self._send()
        left = len(job.calls)
        for position, result in unit_calls.run(self._supervisor, job, brought):
            self._tell(frames.pack_result(result, position))
            left -= 1
            if left:  # the last goes with "done"
                self._send()


def _bounded(analysis: Analysis) -> Analysis:
    """As the process tells that ran the file: it may say anything, at any length."""
    fault = analysis.fault
    if fault is None:
        return analysis
    return replace(analysis, fault=replace(fault, message=one_line(fault.message, _FAULT_LIMIT)))
