"""Decides requests for drivers and schedulers: which is called, with which units before it.

As ``units`` does for policy units. A ``DriverDecision`` holds all that was found, for whoever
shows it or acts on it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Callable, Optional

from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.decisions import engine_data, log
from ovirt_scheduler.decisions.selections import Selections
from ovirt_scheduler.decisions.service import Service, unit_errors
from ovirt_scheduler.errors import UnknownUnit
from ovirt_scheduler.history import recording
from ovirt_scheduler.model import aggregate, spelling
from ovirt_scheduler.model.decisions import Job
from ovirt_scheduler.model.drivers import (
    INTERFACE_METHODS,
    DriverAnswer,
    DriverDecision,
    DriverExecution,
    DriverJob,
    DriverRequest,
    DriverUnit,
    Migrations,
    StatusChange,
)
from ovirt_scheduler.model.requests import Caller
from ovirt_scheduler.model.tasks import EngineReplies, Returns
from ovirt_scheduler.model.units import Kind, UnitCall

_NOTHING: Mapping[Returns, DriverAnswer] = {
    Returns.SELECTION: (),
    Returns.IDS: (),
    Returns.TRUTH: False,
    Returns.MIGRATIONS: {},
    Returns.VALUE: "",
}
_SELECTIONS = ("select_host", "candidates")


@dataclass(eq=False)
class DriverService(Service):
    """Answers requests for drivers.

    Attributes:
        selections: what each scheduler selected last.
    """

    selections: Selections = field(default_factory=Selections)

    def schedulers(self) -> tuple[DriverUnit, ...]:
        """All schedulers by name, after a fresh look at the folders."""
        drivers = self.registry.refresh().drivers
        return tuple(drivers[name] for name in sorted(drivers) if drivers[name].interfaces)

    def topics(self) -> Mapping[str, DriverUnit]:
        """All topics, sorted, each with its driver, after a fresh look at the folders."""
        return dict(sorted(self.registry.refresh().topics.items()))

    def catalogue(self) -> Catalogue:
        """All that can be called now."""
        return self.registry.current()

    def scheduler(self, name: str, method: str) -> DriverUnit:
        """The scheduler of that name.

        Args:
            method: of one of the interfaces (``drivers.INTERFACE_METHODS``).

        Raises:
            UnknownUnit: there is none, or it does not define the method's interface; the text
                tells what there is.
        """
        drivers = self.registry.current().drivers
        driver = drivers.get(name)
        if driver is None or not driver.interfaces:
            there = sorted(each for each in drivers if drivers[each].interfaces)
            no = "is no scheduler" if driver else "there is no scheduler of that name"
            raise UnknownUnit(f"{name!r:.160}: {no}; {_there_are(there, name)}")
        if driver.defines(method) is None:
            raise UnknownUnit(
                f"the scheduler {name} is no {INTERFACE_METHODS[method].interface}; "
                f"it is {', '.join(driver.interfaces)}"
            )
        return driver

    def driver(self, name: str) -> DriverUnit:
        """The driver or scheduler of that name.

        Raises:
            UnknownUnit: there is none; the text tells what there is.
        """
        drivers = self.catalogue().drivers
        if name not in drivers:
            known = _there_are(sorted(drivers), name)
            raise UnknownUnit(f"{name!r:.160}: there is no driver of that name; {known}")
        return drivers[name]

    def publisher(self, topic: str, method: str) -> DriverUnit:
        """The driver that publishes the method under the topic.

        Raises:
            UnknownUnit: there is no such topic, or no such method; the text tells what there is.
        """
        topics = self.registry.current().topics
        driver = topics.get(topic)
        if driver is None:
            known = _there_are(sorted(topics), topic)
            raise UnknownUnit(f"there is no topic {topic!r:.160}; {known}")
        if driver.method(method) is None:
            there = [each.name for each in driver.methods]
            raise UnknownUnit(
                f"the topic {topic} has no method {method!r:.160}; {driver.name} publishes "
                f"{', '.join(there)}{spelling.hint(method, there)}"
            )
        return driver

    def decide(
        self, request: DriverRequest, known: Optional[EngineReplies] = None
    ) -> DriverDecision:
        """Call a driver's method, and before it the policy units that the request asks for.

        A driver that fails is a decision with ``failure``, and with the answer that nothing is
        to be done.

        Args:
            known: what the engine told of the request's ids; None: it is asked.

        Raises:
            UnknownUnit: no such policy unit of that kind (design form).
            RefusedProperty: a value that the driver or a unit refuses (design form).
            UnreadableDocument: the hosts or the VMs cannot be read.
            BadParameters: the host whose status has changed is not among the hosts.
            Overloaded: no process became free in time, or too many requests wait.
            ExecutorUnavailable: no process can be started at all.
        """
        asked_at, started = time.time(), time.monotonic()
        catalogue = self.registry.current()
        self.selections.forget_others(catalogue.drivers)
        filters, costs = (
            catalogue.choose(kind, named, request.properties, request.strict)
            for kind, named in (
                (Kind.FILTER, request.filters),
                (Kind.COST_FUNCTION, request.cost_functions),
            )
        )
        # Where a request names none of a kind, it is no request of that kind.
        shadows = filters.shadows if request.filters else ()
        shadows += costs.shadows if request.cost_functions else ()
        request = request._replace(filters=filters.wanted, cost_functions=costs.wanted)
        log.log_left_out(request.caller.request_id, Kind.FILTER.words, filters.errors)
        log.log_left_out(request.caller.request_id, Kind.COST_FUNCTION.words, costs.errors)
        if filters.rejected:
            request = request._replace(subjects=request.subjects._replace(hosts=()))
        job = self._job(request, started, filters.calls, costs.calls)
        job, engine_errors = self._with_engine(job, known)
        execution = self.executor.run_driver(job)
        left, errors = _left(job, execution)
        log.log_problems(request.caller.request_id, execution.errors)
        _log_calls(request, execution)
        log.log_problems(request.caller.request_id, errors)
        failed = execution.result is None or not execution.result.ok
        decision = DriverDecision(
            request=request,
            execution=execution,
            answer=_NOTHING[request.returns] if failed else execution.answer,
            errors=(*engine_errors, *execution.errors, *errors),
            unit_errors=unit_errors({**filters.errors, **costs.errors}, execution.results),
            filters=job.filters,
            cost_functions=job.cost_functions,
            time=asked_at,
            seconds=time.monotonic() - started,
            secret=job.engine.token,
        )
        self._keep(decision, job, _looks(shadows, job, execution, left))
        selects = request.method in _SELECTIONS and request.defined
        if selects and decision.failure is None:  # one that found no host counts
            self.selections.keep(request.driver.name, decision.answer)
        return decision

    def tell_changes(
        self,
        request: DriverRequest,
        changes: Sequence[StatusChange],
        seconds: float,
        hear: Callable[[StatusChange, Optional[Migrations]], None],
        known: Optional[EngineReplies] = None,
    ) -> None:
        """Tell a hook of changes, one after another; the documents are read once for all.

        Args:
            request: without the arguments that a change brings.
            known: as for ``decide``.
            seconds: after which no call is begun; the changes that are left were not told.
            hear: called at once with each change that was told, and what the hook answered;
                None where it failed, which the log has then.

        Raises:
            UnreadableDocument, Overloaded, ExecutorUnavailable: as for ``decide``.
        """
        started = time.monotonic()

        def handle(change: StatusChange, execution: DriverExecution) -> None:
            one = request._replace(caller=Caller.of_cluster(request.caller.cluster))
            _log_calls(one, execution)
            ended = execution.result
            ok = ended is not None and ended.ok
            self._keep(
                DriverDecision(
                    request=one,
                    execution=execution,
                    answer=execution.answer if ok else {},
                    errors=(*engine_errors, *execution.errors),
                    time=time.time(),
                    seconds=0.0 if ended is None else ended.seconds,
                    secret=job.engine.token,
                ),
                job._replace(request=job.request.of(change)),
            )
            hear(change, execution.answer if ok else None)

        until = started + seconds
        # The last one has its whole time.
        job, engine_errors = self._with_engine(self._job(request, until), known)
        self.executor.tell_changes(job, changes, until, handle)

    def _job(
        self,
        request: DriverRequest,
        begun: float,
        filters: tuple[UnitCall, ...] = (),
        costs: tuple[UnitCall, ...] = (),
    ) -> DriverJob:
        """A request's job.

        Args:
            begun: when it begins, at the latest.
            filters, costs: the policy units before the driver.
        """
        return DriverJob(
            request,
            begun + self.request_timeout,
            selected=self.selections.last(request.driver.name),
            filters=filters,
            cost_functions=costs,
        )

    def _keep(self, decision: DriverDecision, job: DriverJob, looks: Sequence[Job] = ()) -> None:
        if self.shadows is not None:
            inputs = None
            if job.request.defined:  # arguments of a topic's methods are not kept
                asked = recording.of_driver(job)
                inputs = recording.inputs(job.request.subjects, job.replies, asked)
            add_engine = partial(engine_data.add_for_units, inventory=self.inventory)
            self.shadows.call(decision, inputs, looks, add_engine)

    def _with_engine(
        self, job: DriverJob, known: Optional[EngineReplies]
    ) -> tuple[DriverJob, tuple[str, ...]]:
        subjects = job.request.subjects
        hosts = subjects.hosts if isinstance(subjects.hosts, tuple) else ()
        vms = subjects.vms if isinstance(subjects.vms, tuple) else ()
        vm = subjects.vm if isinstance(subjects.vm, str) and subjects.vm not in vms else None
        units = (*job.filters, *job.cost_functions)
        plugins = (job.request.driver.plugin, *(call.unit.plugin for call in units))
        return engine_data.add(job, self.inventory, plugins, hosts, vm, vms, known)


def _there_are(names: Sequence[str], wanted: str) -> str:
    return f"there are {', '.join(names) or 'none'}{spelling.hint(wanted, names)}"


def _log_calls(request: DriverRequest, execution: DriverExecution) -> None:
    of_units = (
        (Kind.FILTER.words, execution.filters),
        (Kind.COST_FUNCTION.words, execution.cost_functions),
        (request.driver.words, () if execution.result is None else (execution.result,)),
    )
    for kind, results in of_units:
        for result in results:
            log.log_call(request.caller.request_id, kind, result)


def _looks(
    shadows: Sequence[UnitCall], job: DriverJob, execution: DriverExecution, left: tuple[str, ...]
) -> list[Job]:
    """The calls of units in shadow.

    Args:
        left: the hosts that the filters left, which alone cost functions are asked about.
    """
    return [
        Job(
            call.unit.kind,
            (call,),
            job.request.subjects.hosts if call.unit.kind is Kind.FILTER else left,
            job.request.subjects.vm,
            job.deadline,
            strict=False,
            packs=execution.packs,
        )
        for call in shadows
    ]


def _left(job: DriverJob, execution: DriverExecution) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The hosts that the filters left, and the errors that belong to no single policy unit."""
    left, of_filters = aggregate.filtered(execution.hosts, execution.filters, job.filters)
    costs = job.cost_functions
    _, _, of_costs = aggregate.summed(costs, execution.cost_functions, len(costs))
    return left, (*of_filters, *of_costs)
