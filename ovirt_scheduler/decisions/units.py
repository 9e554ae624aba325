"""Decides requests for policy units: which units run, and which answer their results make.

Knows nothing of sockets and XML: registry and executor are handed in, and a ``Decision`` comes
out that holds all that was found, for whoever shows it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Optional

from ovirt_scheduler.decisions import engine_data, log
from ovirt_scheduler.decisions.service import Service, unit_errors
from ovirt_scheduler.history import recording
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.decisions import Decision, Execution, Job
from ovirt_scheduler.model.drivers import Subjects
from ovirt_scheduler.model.requests import AnswerForm, Request
from ovirt_scheduler.model.results import Answer, CallResult
from ovirt_scheduler.model.tasks import EngineReplies
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall

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
        job = Job(
            kind=request.kind,
            calls=calls,
            hosts=() if rejected else request.hosts,
            vm=request.vm,
            strict=strict,
            deadline=started + self.request_timeout,
        )
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
        if self.shadows is not None:
            inputs = recording.inputs(Subjects(request.hosts, vm=request.vm), job.replies, {})
            given, packs = request.hosts, execution.packs
            looks = [
                job._replace(calls=(call,), hosts=given, strict=False, packs=packs)
                for call in shadows
            ]
            add_engine = partial(engine_data.add_for_units, inventory=self.inventory)
            self.shadows.call(decision, inputs, looks, add_engine)
        log.log_decision(decision)
        log.log_problems(request_id, of_answer)
        return decision

    def _run(
        self, job: Job, known: Optional[EngineReplies]
    ) -> tuple[Job, Execution, tuple[str, ...]]:
        """The job with what the engine told, how it ended, and what is wrong with the engine."""
        if isinstance(job.hosts, tuple) and not (job.hosts and job.calls):
            return job, Execution(job.hosts, None, ()), ()
        job, errors = engine_data.add_for_units(job, self.inventory, known)
        return job, self.executor.run(job), errors


def _answer(
    request: Request, calls: Sequence[UnitCall], execution: Execution
) -> tuple[Answer, tuple[CallResult, ...], tuple[str, ...]]:
    """The answer, the results as they count for it, and the errors of no single unit."""
    results = execution.results
    if request.kind is Kind.FILTER:
        kept, errors = aggregate.filtered(execution.hosts, results, calls)
        return kept, results, errors
    if request.kind is Kind.BALANCE:
        return next((result.value for result in results), None), results, ()
    return aggregate.summed(calls, results, len({each.name for each in request.wanted}))
