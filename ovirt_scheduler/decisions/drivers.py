"""Decides requests for drivers and schedulers: which is called, with which units before it.

As ``units`` does for policy units. A ``DriverDecision`` holds all that was found, for whoever
shows it or acts on it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_scheduler.catalogue.snapshot import Catalogue, Chosen
from ovirt_scheduler.decisions import log
from ovirt_scheduler.decisions.selections import Selections
from ovirt_scheduler.decisions.service import Service, unit_errors
from ovirt_scheduler.errors import UnknownUnit
from ovirt_scheduler.history import recording
from ovirt_scheduler.model import aggregate, spelling
from ovirt_scheduler.model.decisions import Execution
from ovirt_scheduler.model.drivers import (
    INTERFACE_METHODS,
    DriverAnswer,
    DriverDecision,
    DriverRequest,
    DriverUnit,
)
from ovirt_scheduler.model.tasks import EngineReplies, Function, Returns
from ovirt_scheduler.model.units import Kind, UnitCall
from ovirt_scheduler.processes.calls import PluginCall
from ovirt_scheduler.processes.executor import Job

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
            raise UnknownUnit(
                f"there is no scheduler named {name!r:.160}; {_there_are(there, name)}"
            )
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
        drivers = self.registry.current().drivers
        if name not in drivers:
            known = _there_are(sorted(drivers), name)
            raise UnknownUnit(f"there is no driver named {name!r:.160}; {known}")
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
            raise UnknownUnit(f"there is no topic named {topic!r:.160}; {known}")
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
        request, filters, costs, shadows = _with_units(request, catalogue)
        job, engine_errors = self._with_engine(
            Job(
                request.subjects,
                started + self.request_timeout,
                (*filters.calls, *costs.calls),
                self._method_call(request),
                request.strict,
            ),
            known,
        )
        execution = self.executor.run(job)
        left, of_filters = aggregate.filtered(execution.hosts, execution.filters, filters.calls)
        scored = execution.cost_functions
        _, _, of_costs = aggregate.summed(costs.calls, scored, len(costs.calls))
        log.log_problems(request.caller.request_id, execution.errors)
        _log_calls(request, execution)
        log.log_problems(request.caller.request_id, (*of_filters, *of_costs))
        answer = None if execution.result is None else execution.result.value
        decision = DriverDecision(
            request=request,
            execution=execution,
            answer=_NOTHING[request.returns] if answer is None else answer,
            errors=(*engine_errors, *execution.errors, *of_filters, *of_costs),
            unit_errors=unit_errors({**filters.errors, **costs.errors}, execution.results),
            filters=filters.calls,
            cost_functions=costs.calls,
            time=asked_at,
            seconds=time.monotonic() - started,
            secret=job.engine.token,
        )
        self._keep(decision, job, _asked(request, job), shadows, left)
        selects = request.method in _SELECTIONS and request.defined
        if selects and decision.failure is None:  # one that found no host counts
            self.selections.keep(request.driver.name, decision.answer)
        return decision

    def _method_call(self, request: DriverRequest) -> PluginCall:
        """The call of a driver's method: one of an interface, or one that it publishes."""
        driver, defined = request.driver, request.defined
        function = Function(
            driver.name,
            driver.words,
            request.method,
            request.returns,
            driver.class_name,
            None if defined is None else defined.parameters,
            properties=driver.properties,
        )
        attributes: dict[str, object] = {}
        if driver.interfaces:
            selected = self.selections.last(driver.name)
            attributes = {
                "costs": {}, "selected": selected, "destinations": request.destinations,
            }  # fmt: skip
        return PluginCall(
            function, driver.plugin, driver.limits, request.properties, request.arguments,
            attributes,
        )  # fmt: skip


def _with_units(
    request: DriverRequest, catalogue: Catalogue
) -> tuple[DriverRequest, Chosen, Chosen, tuple[UnitCall, ...]]:
    """The request with the units that count, its filters and cost functions, and those in shadow.

    Raises:
        BadParameters, UnknownUnit: as ``Catalogue.choose``.
    """
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
    for kind, chosen in ((Kind.FILTER, filters), (Kind.COST_FUNCTION, costs)):
        log.log_left_out(request.caller.request_id, kind.words, chosen.errors)
    if filters.rejected:
        request = request._replace(subjects=request.subjects._replace(hosts=()))
    request = request._replace(filters=filters.wanted, cost_functions=costs.wanted)
    return request, filters, costs, shadows


def _asked(request: DriverRequest, job: Job) -> Optional[Mapping[str, object]]:
    """What a driver was asked, for the record; not the arguments of a topic's methods."""
    if request.defined is None or job.method is None:
        return None
    return recording.of_driver(request, job.method.attributes["selected"])


def _there_are(names: Sequence[str], wanted: str) -> str:
    return f"there are {', '.join(names) or 'none'}{spelling.hint(wanted, names)}"


def _log_calls(request: DriverRequest, execution: Execution) -> None:
    of_units = (
        (Kind.FILTER.words, execution.filters),
        (Kind.COST_FUNCTION.words, execution.cost_functions),
        (request.driver.words, () if execution.result is None else (execution.result,)),
    )
    for kind, results in of_units:
        for result in results:
            log.log_call(request.caller.request_id, kind, result)
