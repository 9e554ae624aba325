"""Calls units in shadow after the answer, and keeps the decision with their answers.

They never delay a request (contract 10.4): one thread calls them one after another, only while a
place for calls is free, and takes none. Other calls are skipped, and recorded as such.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Callable, Optional

from ovirt_scheduler.decisions import call_log
from ovirt_scheduler.errors import ExecutorUnavailable, RequestError
from ovirt_scheduler.history import conversion
from ovirt_scheduler.history.recording import Inputs
from ovirt_scheduler.history.store import History
from ovirt_scheduler.model.decisions import Decision, ShadowCall
from ovirt_scheduler.processes.executor import Executor, Job

_log = logging.getLogger(__name__)

_MOST_BYTES = 128 << 20  # of memory that decisions keep whose shadows are not called yet, about
_LEAST_BYTES = 4 << 20  # for which each of them counts, so that no more than 32 wait
# Seconds; half of them are the engine's, as of a request's. With less, an engine that is only slow
# would count as away, and requests would fail at once.
_ENGINE_SECONDS = 20.0
_STOPS = "in shadow, and the daemon stops"

AddEngine = Callable[[Job], tuple[Job, tuple[str, ...]]]


class Shadows:
    """Calls units in shadow, and keeps decisions. Safe to use from many threads.

    Args:
        executor: runs the units.
        history: keeps the decisions.
    """

    def __init__(self, executor: Executor, history: History) -> None:
        self._executor, self._history = executor, history
        self._thread = ThreadPoolExecutor(1, "shadows")
        self._lock = threading.Lock()
        self._bytes = 0  # of what waits
        self._stopped = False

    def call(
        self,
        decision: Decision,
        inputs: Optional[Inputs],
        jobs: Sequence[Job],
        add_engine: AddEngine,
    ) -> None:
        """Call units in shadow once the answer is out, and keep the decision then.

        Args:
            inputs: what the decision was made on, if that is known.
            jobs: the units' calls, each as a job. Without any the decision is kept at once.
            add_engine: adds the engine's replies to a job.
        """
        put = partial(self._put, decision, inputs, jobs, add_engine)
        later = decision.request.caller.afterwards
        if not jobs:
            self._history.keep(decision, inputs)
        elif later is None:
            put()
        else:
            later.append(put)

    def stop(self) -> None:
        """Call no more units; decisions are kept without."""
        with self._lock:
            self._stopped = True

    def close(self) -> None:
        """Keep the decisions that wait, when the executor is closed."""
        self.stop()
        with contextlib.suppress(RuntimeError):  # a thread for those that came when none started
            self._thread.submit(int)
        self._thread.shutdown()

    def _put(
        self,
        decision: Decision,
        inputs: Optional[Inputs],
        jobs: Sequence[Job],
        add_engine: AddEngine,
    ) -> None:
        size = max(_LEAST_BYTES, conversion.size(decision))

        def run() -> None:
            made = decision
            try:
                made = self._called(decision, jobs, add_engine)
            except Exception:  # noqa: BLE001  nobody else would tell
                _log.exception("units in shadow could not be called, this is a bug")
            finally:
                with self._lock:
                    self._bytes -= size
            self._history.keep(made, inputs)

        with self._lock:
            if self._bytes + size <= _MOST_BYTES and not self._stopped:
                self._bytes += size
                # Where no thread can be started, it waits in the queue for the next one's.
                with contextlib.suppress(RuntimeError):
                    self._thread.submit(run)
                return
        why = _STOPS if self._stopped else "in shadow, and too many decisions wait for theirs"
        ended = tuple(ShadowCall(job.calls[0], problem=why) for job in jobs)
        self._history.keep(decision._replace(shadows=ended), inputs)

    def _called(self, decision: Decision, jobs: Sequence[Job], add_engine: AddEngine) -> Decision:
        ended: list[ShadowCall] = []
        for job in jobs:
            (call,) = job.calls
            problem, result = "in shadow, and no place was free", None
            try:
                if self._executor.is_free and not self._stopped:
                    patient = job._replace(deadline=time.monotonic() + _ENGINE_SECONDS)
                    one, _ = add_engine(patient)
                    if not self._stopped:  # meanwhile
                        deadline = time.monotonic() + call.unit.limits.timeout
                        execution = self._executor.run_shadow(one._replace(deadline=deadline))
                        result = next(iter(execution.results), None)
                        problem = "; ".join(execution.errors)
            except (RequestError, ExecutorUnavailable) as error:
                problem = str(error)
            if self._stopped and result is None:
                problem = _STOPS
            if result is not None:
                call_log.log_call(decision.request.caller.request_id, call.unit.label, result)
            ended.append(ShadowCall(call, result, problem))
        return decision._replace(shadows=tuple(ended))
