"""Decides requests for policy units: which units run, and which answer their results make.

Knows nothing of sockets and XML: registry and executor are handed in, and a ``Decision`` comes
out that holds all that was found, for whoever shows it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Optional

from ovirt_scheduler.decisions import log
from ovirt_scheduler.decisions.service import Service, unit_errors
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.decisions import Decision, Execution
from ovirt_scheduler.model.drivers import Subjects
from ovirt_scheduler.model.requests import AnswerForm, Request
from ovirt_scheduler.model.results import Answer, CallResult
from ovirt_scheduler.model.tasks import EngineReplies
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.processes.executor import Job

_log = logging.getLogger(__name__)


class UnitService(Service):
    """Answers requests for policy units."""

    def discover(self) -> tuple[PolicyUnit, ...]:
        """All policy units, after a fresh look at the folders."""
        catalogue = self.registry.refresh()
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
        strict = request.caller.form is AnswerForm.DESIGN
        request_id = request.caller.request_id
        wanted, calls, left_out, rejected, shadows = self.registry.current().choose(
            request.kind, request.wanted, request.properties, strict
        )
        if wanted != request.wanted:
            request = request._replace(wanted=wanted)
        log.log_left_out(request_id, request.kind.words, left_out)
        came = Subjects(request.hosts, vm=request.vm)
        subjects = Subjects(vm=request.vm) if rejected else came
        job = Job(subjects, started + self.request_timeout, calls, strict=strict)
        job, execution, engine_errors = self._run(job, known)
        log.log_problems(request_id, execution.errors)
        answer, results, of_answer = _answer(request, calls, execution)
        decision = Decision(
            request=request,
            execution=execution,
            results=results,
            answer=answer,
            errors=(*engine_errors, *execution.errors, *of_answer),
            unit_errors=unit_errors(left_out, execution.results),
            calls=calls,
            time=asked_at,
            seconds=time.monotonic() - started,
            secret=job.engine.token,
        )
        self._keep(decision, job._replace(subjects=came), {}, shadows, request.hosts)
        log.log_decision(decision)
        log.log_problems(request_id, of_answer)
        return decision

    def _run(
        self, job: Job, known: Optional[EngineReplies]
    ) -> tuple[Job, Execution, tuple[str, ...]]:
        """The job with what the engine told, how it ended, and what is wrong with the engine."""
        hosts, vm = job.subjects.hosts, job.subjects.vm
        if isinstance(hosts, tuple) and not (hosts and job.calls):
            return job, Execution(hosts, vm=vm if isinstance(vm, str) else None), ()
        job, errors = self._with_engine(job, known)
        return job, self.executor.run(job), errors


def _answer(
    request: Request, calls: Sequence[UnitCall], execution: Execution
) -> tuple[Answer, tuple[CallResult, ...], tuple[str, ...]]:
    """The answer, the results as they count for it, and the errors of no single unit."""
    if request.kind is Kind.FILTER:
        kept, errors = aggregate.filtered(execution.hosts, execution.filters, calls)
        return kept, execution.filters, errors
    if request.kind is Kind.BALANCE:
        result = execution.result
        return None if result is None else result.value, execution.results, ()
    functions = len({each.name for each in request.wanted})
    return aggregate.summed(calls, execution.cost_functions, functions)
