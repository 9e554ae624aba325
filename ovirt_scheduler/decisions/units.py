"""Decides requests for policy units: which units run, and which answer their results make.

Knows nothing of sockets and XML: registry and executor are handed in, and a ``Decision`` comes
out that holds all that was found, for whoever shows it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from typing import Optional, Tuple

from ovirt_scheduler.catalogue.snapshot import CatalogueSource, UnitCalls
from ovirt_scheduler.decisions import engine_data, log
from ovirt_scheduler.decisions.shadows import Shadows
from ovirt_scheduler.history import record, recording
from ovirt_scheduler.history.store import History
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.decisions import Decision, Execution, Job
from ovirt_scheduler.model.drivers import Subjects
from ovirt_scheduler.model.requests import AnswerForm, Request
from ovirt_scheduler.model.results import Answer, CallResult
from ovirt_scheduler.model.tasks import EngineReplies
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.processes.executor import Executor

_log = logging.getLogger(__name__)


class UnitService:
    """Answers requests. Safe to use from many threads.

    Args:
        registry: the policy units.
        executor: runs them.
        request_timeout: seconds that one request may take, waiting included.
        inventory: tells what the engine knows of ids; None where no engine is configured.
        history: keeps what is decided; None where nothing is kept.
        shadows: calls units in shadow after the answer; None where there is no history.
    """

    def __init__(
        self,
        registry: CatalogueSource,
        executor: Executor,
        request_timeout: float,
        inventory: Optional[engine_data.EngineData] = None,
        history: Optional[History] = None,
        shadows: Optional[Shadows] = None,
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._inventory = inventory
        self._request_timeout = request_timeout
        self._history = history
        self._shadows = shadows

    def discover(self) -> Tuple[PolicyUnit, ...]:
        """All policy units, after a fresh look at the folders."""
        catalogue = self._registry.refresh()
        _log.info(
            "discover: %(count)d policy units, %(faults)d problems with files",
            {"count": len(catalogue.units), "faults": len(catalogue.faults)},
        )
        return tuple(catalogue.units.values())

    def decide(self, request: Request, known: Optional[EngineReplies] = None) -> Decision:
        """Run the units that a request asks for.

        Args:
            known: what the engine told of the request's ids; None: it is asked.

        Raises:
            UnknownUnit: no such unit of that kind (design form).
            RefusedProperty: a value that the unit's custom properties refuse (design form).
            UnreadableDocument: the hosts or the VM cannot be read.
            Overloaded: no process became free in time, or too many requests wait.
            ExecutorUnavailable: no process can be started at all.
        """
        asked_at, started = time.time(), time.monotonic()
        secret = ""
        strict = request.caller.form is AnswerForm.DESIGN
        catalogue = self._registry.current()
        live, shadows = catalogue.apart(request.kind, request.wanted, request.properties)
        request = replace(request, wanted=live)
        calls, unit_errors, rejected = catalogue.calls(
            request.kind, live, request.properties, strict
        )
        request_id = request.caller.request_id
        log.log_left_out(request_id, request.kind.words, unit_errors)
        engine_errors: Tuple[str, ...] = ()
        hosts = () if rejected else request.hosts
        replies = EngineReplies()
        job = Job(
            kind=request.kind,
            calls=tuple(call for _, call in calls),
            hosts=hosts,
            vm=request.vm,
            strict=strict,
            deadline=started + self._request_timeout,
        )
        if hosts == () or (not calls and isinstance(hosts, tuple)):
            execution = Execution(hosts, None, ())
        else:
            job, engine_errors = self._with_engine(job, known)
            secret, replies = job.engine.token, job.replies
            execution = self._executor.run(job)
            log.log_problems(request_id, execution.errors)
        for result in execution.results:
            if result.problems:
                unit_errors[result.unit] = unit_errors.get(result.unit, ()) + result.problems
        answer, results, of_answer = _answer(request, calls, execution)
        decision = Decision(
            request=request,
            hosts=execution.hosts,
            results=results,
            answer=answer,
            errors=(*engine_errors, *execution.errors, *of_answer),
            unit_errors=unit_errors,
            calls=tuple(calls),
            called=execution.results,
            vm=execution.vm,
            names=execution.names,
            time=asked_at,
            seconds=time.monotonic() - started,
            secret=secret,
        )
        if self._history is not None:
            inputs = recording.inputs(Subjects(request.hosts, vm=request.vm), replies, {})
            keep = partial(self._keep, inputs=inputs)
            if self._shadows is None:
                keep(decision)
            else:
                looked_at = replace(job, hosts=request.hosts, strict=False, packs=execution.packs)
                looks = [(wanted, replace(looked_at, calls=(call,))) for wanted, call in shadows]
                self._shadows.call(decision, looks, self._with_engine, keep)
        log.log_decision(decision)
        log.log_problems(request_id, of_answer)
        return decision

    def _keep(self, decision: Decision, inputs: Optional[recording.Inputs]) -> None:
        if self._history is not None:
            light = record.light(decision)
            self._history.put(partial(record.of_units, light), record.size(decision), inputs)

    def _with_engine(
        self, job: Job, known: Optional[EngineReplies] = None
    ) -> Tuple[Job, Tuple[str, ...]]:
        return engine_data.add_for_units(job, self._inventory, known)


def _answer(
    request: Request, calls: UnitCalls, execution: Execution
) -> Tuple[Answer, Tuple[CallResult, ...], Tuple[str, ...]]:
    """The answer, the results as they count for it, and the errors of no single unit."""
    results = execution.results
    if request.kind is Kind.FILTER:
        policies = [call.unit.on_failure for _, call in calls]
        kept, errors = aggregate.filtered(execution.hosts, results, policies)
        return kept, results, errors
    if request.kind is Kind.BALANCE:
        return next((result.value for result in results), None), results, ()
    wanted = [wanted for wanted, _ in calls]
    return aggregate.summed(wanted, results, len({each.name for each in request.wanted}))
