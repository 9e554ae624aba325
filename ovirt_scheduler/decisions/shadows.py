"""Calls units in shadow, after the answer, and has the decision kept with what they said.

They never delay a request (contract 10.4): one thread calls them one after another, only while a
place for calls is free, and holds none. What cannot be called so is skipped, and recorded as such.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Callable, List, Tuple

from ovirt_scheduler.catalogue.snapshot import UnitCalls
from ovirt_scheduler.decisions import log
from ovirt_scheduler.errors import ExecutorUnavailable, RequestError
from ovirt_scheduler.history import record
from ovirt_scheduler.model.decisions import Decision, Job, ShadowCall
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.executor import Executor

_log = logging.getLogger(__name__)

_MOST_WAITING = 32  # decisions whose shadows are not called yet
_MOST_BYTES = 128 << 20  # of memory that these and their documents keep, about

Keep = Callable[[Decision], None]
AddEngine = Callable[[Job], Tuple[Job, Tuple[str, ...]]]


class Shadows:
    """Safe to use from many threads.

    Args:
        executor: runs the units.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._thread = ThreadPoolExecutor(1, "shadows")
        self._lock = threading.Lock()
        self._waiting = self._bytes = 0
        self._closed = False

    def put(
        self, decision: Decision, calls: UnitCalls, job: Job, add_engine: AddEngine, keep: Keep
    ) -> None:
        """Call units in shadow soon, and keep the decision then.

        Args:
            decision: whose answer is out.
            calls: of the units in shadow.
            job: on what they are called.
            add_engine: adds to a job what the engine knows.
            keep: has the history keep a decision.
        """
        documents = [each for each in (job.hosts, job.vm) if isinstance(each, Document)]
        size = record.size(decision) + sum(pack.size for pack in job.packs.values())
        size += sum(len(each.data) for each in documents)
        with self._lock:
            room = self._waiting < _MOST_WAITING and self._bytes + size <= _MOST_BYTES
            put = room and not self._closed
            if put:
                self._waiting += 1
                self._bytes += size
                self._thread.submit(self._run, decision, calls, job, add_engine, keep, size)
        if not put:
            why = "in shadow, and too many decisions wait for theirs"
            ended = [ShadowCall(*each, problem=why) for each in calls]
            keep(replace(decision, shadows=tuple(ended)))

    def close(self) -> None:
        """Keep what waits, without a further call; to be called when the executor is closed."""
        with self._lock:
            self._closed = True
        self._thread.shutdown()

    def _run(
        self,
        decision: Decision,
        calls: UnitCalls,
        job: Job,
        add_engine: AddEngine,
        keep: Keep,
        size: int,
    ) -> None:
        try:
            ended = self._called(decision, calls, job, add_engine)
        except Exception:  # noqa: BLE001  nobody else would tell
            _log.exception("units in shadow could not be called, this is a bug")
            ended = []
        keep(replace(decision, shadows=tuple(ended)))
        with self._lock:
            self._waiting -= 1
            self._bytes -= size

    def _called(
        self, decision: Decision, calls: UnitCalls, job: Job, add_engine: AddEngine
    ) -> List[ShadowCall]:
        request = decision.request
        ended: List[ShadowCall] = []
        for wanted, call in calls:
            one = replace(job, calls=(call,), deadline=time.monotonic() + call.unit.limits.timeout)
            problem, result = "in shadow, and no place was free", None
            try:
                if not self._closed and self._executor.is_free:
                    one, _ = add_engine(one)
                    execution = self._executor.look_on(one)
                    result = next(iter(execution.results), None)
                    job = replace(job, packs=execution.packs)
                    problem = "; ".join(execution.errors)
            except (RequestError, ExecutorUnavailable) as error:
                problem = str(error)
            if result is not None:
                log.log_shadow(request.caller.request_id, call.unit, result, execution.hosts)
            ended.append(ShadowCall(wanted, call, result, problem))
        return ended
