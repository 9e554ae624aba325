"""Calls units in shadow after the answer, and has what they say added to the decision's record.

::

    an answer is out ──► History.decided ──► the record
                    └──► Shadows.decided ──► one thread ──► History.add_shadows ──► more of it

They never delay a request (contract 10.4), nor a record: one thread calls them one after another,
only while a place for calls is free, and takes none. Other calls are skipped, and recorded as such.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Optional

from ovirt_scheduler.decisions import call_log
from ovirt_scheduler.decisions.engine_replies import EngineData, with_engine
from ovirt_scheduler.errors import ExecutorUnavailable, RequestError
from ovirt_scheduler.history import conversion
from ovirt_scheduler.history.store import History
from ovirt_scheduler.model.jobs import Decision, Job, Reported, Request, ShadowCall
from ovirt_scheduler.model.requests import Entities
from ovirt_scheduler.model.units import Kind, UnitCall
from ovirt_scheduler.processes.executor import Executor

_log = logging.getLogger(__name__)

_MOST_BYTES = 128 << 20  # of memory that decisions keep whose shadows are not called yet, about
_LEAST_BYTES = 4 << 20  # for which each of them counts, so that no more than 32 wait
# Seconds; half of them are the engine's, as of a request's. With less, an engine that is only slow
# would count as away, and requests would fail at once.
_ENGINE_SECONDS = 20.0
_STOPS = "in shadow, and the daemon stops"


class Shadows:
    """Calls units in shadow. Safe to use from many threads.

    Args:
        executor: runs the units.
        history: has the decisions' records, and adds to them.
        engine: returns the engine that is in force; None if none is configured.
    """

    def __init__(
        self,
        executor: Executor,
        history: History,
        engine: Callable[[], Optional[EngineData]] = lambda: None,
    ) -> None:
        self._executor, self._history, self._engine = executor, history, engine
        self._thread = ThreadPoolExecutor(1, "shadows")
        self._lock = threading.Lock()
        self._bytes = 0  # of what waits
        self._stopped = False

    def decided(self, decision: Reported) -> None:
        """Have the units in shadow called on what was decided; returns at once."""
        if not isinstance(decision, Decision) or not decision.shadows:
            return
        size = max(_LEAST_BYTES, conversion.size(decision))
        with self._lock:
            if self._bytes + size <= _MOST_BYTES and not self._stopped:
                self._bytes += size
                # Where no thread can be started, it waits in the queue for the next one's.
                with contextlib.suppress(RuntimeError):
                    self._thread.submit(self._run, decision, size)
                return
        why = _STOPS if self._stopped else "in shadow, and too many decisions wait for theirs"
        skipped = [ShadowCall(call, problem=why) for call in decision.shadows]
        self._history.add_shadows(decision, skipped)

    def stop(self) -> None:
        """Call no more units; records say so."""
        with self._lock:
            self._stopped = True

    def close(self) -> None:
        """Add what is still to be said to the records, when the executor is closed."""
        self.stop()
        with contextlib.suppress(RuntimeError):  # a thread for those that came when none started
            self._thread.submit(int)
        self._thread.shutdown()

    def _run(self, decision: Decision, size: int) -> None:
        """Call the units in shadow of a decision, one after another.

        Args:
            size: bytes that the decision counts for.
        """
        try:
            ended = [self._called(decision, call) for call in decision.shadows]
            self._history.add_shadows(decision, ended)
        except Exception:  # noqa: BLE001  nobody else would tell
            _log.exception("units in shadow could not be called, this is a bug")
        finally:
            with self._lock:
                self._bytes -= size

    def _called(self, decision: Decision, call: UnitCall) -> ShadowCall:
        problem, result = "in shadow, and no place was free", None
        try:
            if self._executor.is_free and not self._stopped:
                job, engine = (
                    _job(decision, call, time.monotonic() + _ENGINE_SECONDS),
                    self._engine(),
                )
                if engine is not None:
                    job, _ = with_engine(job, engine)
                if not self._stopped:  # meanwhile
                    deadline = time.monotonic() + call.unit.limits.timeout
                    execution = self._executor.run_shadow(job._replace(deadline=deadline))
                    result = next(iter(execution.results), None)
                    problem = "; ".join(execution.errors)
        except (RequestError, ExecutorUnavailable) as error:
            problem = str(error)
        if self._stopped and result is None:
            problem = _STOPS
        if result is not None:
            names = decision.execution.names
            call_log.log_call(decision.request.caller.request_id, call.unit.label, result, names)
        return ShadowCall(call, result, problem)


def _job(decision: Decision, call: UnitCall, deadline: float) -> Job:
    """The call of a unit in shadow: filters look at all hosts, others at those that are left."""
    entities, execution = decision.request.entities, decision.execution
    hosts = entities.hosts if call.unit.kind is Kind.FILTER else execution.remaining
    request = Request(decision.request.caller, Entities(hosts, vm=entities.vm))
    return Job(request, deadline, (call,), packs=execution.packs)
