"""Decides requests: which units and which driver are called, and what follows from their results.

Knows nothing of sockets and XML: it gets the registry and the executor, and returns a ``Decision``
with all results, for callers that show it or act on it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Protocol

from ovirt_scheduler.catalogue.snapshot import Catalogue, CatalogueSource, Chosen
from ovirt_scheduler.decisions import call_log
from ovirt_scheduler.decisions.missing import MissingNames, MissingUnit
from ovirt_scheduler.decisions.recent import RecentSelections
from ovirt_scheduler.decisions.shadows import Shadows
from ovirt_scheduler.errors import EngineUnavailable, UnknownUnit
from ovirt_scheduler.history import recording
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.decisions import Decision, DriverCall, Execution, Request
from ovirt_scheduler.model.drivers import INTERFACE_METHODS, DriverUnit
from ovirt_scheduler.model.plugins import NOT_NAMED, EngineAccess, NoEngine
from ovirt_scheduler.model.requests import Subjects
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.tasks import EngineReplies, Function, Returns, Role, Sought
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.processes.calls import PluginCall
from ovirt_scheduler.processes.executor import Executor, Job

_log = logging.getLogger(__name__)

_MOST_SELECTED = 1000  # hosts of one selection that are kept
_MOST_HINTS = 20  # missing names for which the nearest is looked for
_KINDS = {kind.label: kind for kind in Kind}
_SCHEDULER, _TOPIC = "scheduler", "topic"

# Answers of balances and drivers that nothing is to be done.
_NOTHING: Mapping[Returns, object] = {
    Returns.MIGRATION: None,
    Returns.SELECTION: (),
    Returns.IDS: (),
    Returns.TRUTH: False,
    Returns.MIGRATIONS: {},
    Returns.VALUE: "",
}


class EngineData(Protocol):
    """The queries to an engine; ``engine.inventory.Inventory`` describes them."""

    def look_up(self, sought: Sought, deadline: float) -> EngineReplies:
        """The documents of hosts and VMs."""

    def access(self, deadline: float) -> EngineAccess:
        """The access that plugins may have to it."""


@dataclass(eq=False)
class DecisionService:
    """Answers requests. Safe to use from many threads.

    Attributes:
        registry: the policy units and the drivers.
        executor: runs them.
        request_timeout: seconds that one request may take, waiting included.
        inventory: asks the engine about ids; None if no engine is configured.
        shadows: keeps decisions, after calls of the units in shadow; None: nothing is kept.
        selections: the hosts that each scheduler selected last, the best first, because a
            scheduler itself keeps nothing. The latest decision counts.
        missing: the names that callers use, and that are not there.
        recent: VMs that will run soon, for the next selection; None: each stands for itself.
    """

    registry: CatalogueSource
    executor: Executor
    request_timeout: float
    inventory: Optional[EngineData] = None
    shadows: Optional[Shadows] = None
    selections: dict[str, tuple[str, ...]] = field(default_factory=dict)
    missing: MissingNames = field(default_factory=MissingNames)
    recent: Optional[RecentSelections] = None

    def discover(self) -> tuple[PolicyUnit, ...]:
        """All policy units, after a fresh look at the folders."""
        catalogue = self.registry.refresh()
        _log.info(
            "discover: policy units: %(count)d, problems with files: %(faults)d",
            {"count": len(catalogue.units), "faults": len(catalogue.faults)},
        )
        return tuple(catalogue.units.values())

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
        driver = self._named(_SCHEDULER, name)
        if driver.defines(method) is None:
            raise UnknownUnit(
                f"the scheduler {name} is no {INTERFACE_METHODS[method].interface}; "
                f"it is {', '.join(driver.interfaces)}"
            )
        return driver

    def publisher(self, topic: str, method: str) -> DriverUnit:
        """The driver that publishes the method under the topic.

        Raises:
            UnknownUnit: there is no such topic, or no such method; the text tells what there is.
        """
        driver = self._named(_TOPIC, topic)
        if driver.method(method) is None:
            there = [each.name for each in driver.methods]
            raise UnknownUnit(
                f"the topic {topic} has no method {method!r:.160}; {driver.name} publishes "
                f"{', '.join(there)}{spelling.hint(method, there)}"
            )
        return driver

    def _named(self, what: str, name: str) -> DriverUnit:
        """The scheduler of a name, or the driver of a topic.

        Raises:
            UnknownUnit: there is none, which is remembered.
        """
        try:
            return _driver_named(self.registry.current(), what, name)
        except UnknownUnit:
            self.missing.add(what, name)
            raise

    def missing_units(self) -> tuple[MissingUnit, ...]:
        """What callers named within the last hour and is not there, the most often named first."""
        catalogue = self.registry.current()
        recent = sorted(self.missing.recent().items(), key=lambda entry: -entry[1].times)
        units = []
        for place, ((what, name), namings) in enumerate(recent):
            because = _why_missing(catalogue, what, name, place < _MOST_HINTS)
            if because is None:
                self.missing.forget(what, name)
            else:
                units.append(MissingUnit(what, name, namings.first, namings.times, because))
        return tuple(units)

    def note_running(self, state: ClusterState) -> None:
        """Note which VMs run: what was selected for them is no more to come."""
        if self.recent is not None:
            self.recent.forget(vm for vm, each in state.vms.items() if each.host is not None)

    def decide(self, request: Request, known: Optional[EngineReplies] = None) -> Decision:
        """Run the units that a request names, and then the driver's method.

        A unit or driver that fails is no error: the decision says so.

        Args:
            known: the engine's replies about the request's ids; None: it is asked.

        Raises:
            UnknownUnit: no such policy unit of that kind (design form).
            RefusedProperty: a value that the driver or a unit refuses (design form).
            UnreadableDocument: the hosts or the VMs cannot be read.
            BadParameters: a unit is named twice (design form), or the host whose status has
                changed is not among the hosts.
            Overloaded: no process became free in time, or too many requests wait.
            ExecutorUnavailable: no process can be started at all.
        """
        asked_at, started = time.time(), time.monotonic()
        catalogue, last = self.registry.current(), request.last
        for kind, named in request.wanted.items():
            for unit in named:
                if not catalogue.has(kind, unit.name):
                    self.missing.add(kind.label, unit.name)
        chosen = {
            kind: catalogue.choose(kind, named, request.properties, request.strict)
            for kind, named in request.wanted.items()
            if named or last is None  # before a driver none need be named
        }
        if self.recent is not None and last is not None and last.selects:
            last = last._replace(coming=self.recent.coming())
            request = request._replace(last=last)
        selected = () if last is None else self.selections.get(last.driver.name, ())
        request, job = _planned(request, chosen, selected, started + self.request_timeout)
        job, execution, engine_errors = self._run(job, known)
        answer, of_answer = _answer(request, chosen, execution)
        decision = Decision(
            request=request,
            execution=execution,
            answer=answer,
            errors=(*engine_errors, *execution.errors, *of_answer),
            unit_errors=_unit_errors(chosen, execution.results),
            calls=job.calls,
            time=asked_at,
            seconds=time.monotonic() - started,
        )
        if self.shadows is not None:
            shadow_jobs = _shadow_jobs(request.subjects, job, chosen, execution)
            inputs = recording.inputs(request, job.replies, selected)
            self.shadows.call(decision, inputs, shadow_jobs, self._with_engine)
        call_log.log_calls(decision, (*execution.errors, *of_answer))
        if last is not None and last.returns is Returns.SELECTION and decision.failure is None:
            self.selections[last.driver.name] = answer[:_MOST_SELECTED]  # none, too
            if self.recent is not None and execution.vm_states:
                self.recent.add(execution.vm_states, answer)
        return decision

    def _run(
        self, job: Job, known: Optional[EngineReplies]
    ) -> tuple[Job, Execution, tuple[str, ...]]:
        """The job with the engine's replies, how it ended, and what is wrong with the engine."""
        hosts, vm = job.subjects.hosts, job.subjects.vm
        if job.method is None and isinstance(hosts, tuple) and not (hosts and job.calls):
            vm = vm if isinstance(vm, str) else None
            return job, Execution(hosts, vm=vm, left=hosts), ()
        job, errors = self._with_engine(job, known)
        return job, self.executor.run(job), errors

    def _with_engine(
        self, job: Job, known: Optional[EngineReplies] = None
    ) -> tuple[Job, tuple[str, ...]]:
        """Add the engine's replies about its ids to a job, and the access that plugins need.

        Args:
            known: replies of a moment ago; the engine is not asked again.

        Returns:
            The job, and what is wrong. If the engine gives no answer within the job's deadline,
            the log says so once and the job goes on without one.
        """
        if self.inventory is None:
            return job, ()
        units = [call.unit for call in job.calls]
        plugins = [each.plugin for each in (*units, job.method) if each is not None]
        # Units that are classes get ids, and no more.
        by_ids = job.method is None and all(unit.class_name is not None for unit in units)
        job = job._replace(engine=NOT_NAMED)
        try:
            if not by_ids:
                statistics = any(plugin.wants_statistics for plugin in plugins)
                sought = _sought(job)._replace(statistics=statistics)
                replies = known or self.inventory.look_up(sought, job.deadline)
                job = job._replace(replies=replies)
            if any(plugin.wants_engine for plugin in plugins):
                job = job._replace(engine=self.inventory.access(job.deadline))
        except EngineUnavailable as error:
            _log.warning(
                "the engine's REST API gives no answer: %(reason)s", {"reason": str(error)}
            )
            message = f"the engine's REST API gives no answer: {error}"
            return job._replace(engine=NoEngine(message)), (message,)
        return job, ()


def _planned(
    request: Request, chosen: Mapping[Kind, Chosen], selected: Sequence[str], deadline: float
) -> tuple[Request, Job]:
    """The request without the units that are in shadow, and its job.

    Args:
        selected: ids of the hosts that a scheduler selected last.
        deadline: seconds on the monotonic clock.
    """
    subjects, last = request.subjects, request.last
    calls: tuple[UnitCall, ...] = ()
    for kind, units in chosen.items():
        calls += units.calls
        call_log.log_left_out(request.caller.request_id, kind.label, units.errors)
        if units.rejected:
            subjects = subjects._replace(hosts=())
    method = None if last is None else _method_call(last, request.properties, selected)
    job = Job(subjects, deadline, calls, method, request.strict)
    wanted = {kind: units.wanted for kind, units in chosen.items()}
    return request._replace(wanted=wanted), job


def _shadow_jobs(
    subjects: Subjects, job: Job, chosen: Mapping[Kind, Chosen], execution: Execution
) -> list[Job]:
    """A job for each unit in shadow: filters look at all hosts, others at those that are left."""
    hosts = {Kind.FILTER: subjects.hosts}
    return [
        Job(
            Subjects(hosts.get(kind, execution.left), vm=subjects.vm),
            job.deadline, (call,), strict=False, packs=execution.packs,
        )
        for kind, units in chosen.items() for call in units.shadows
    ]  # fmt: skip


def _method_call(
    last: DriverCall, properties: Mapping[str, str], selected: Sequence[str]
) -> PluginCall:
    """The call of a driver's method: one of an interface, or one that it publishes.

    Args:
        selected: ids of the hosts that a scheduler selected last.
    """
    driver, defined = last.driver, last.defined
    parameters = None if defined is None else defined.parameters
    function = Function(
        driver.name, driver.label, last.method, last.returns, driver.class_name, parameters,
        properties=driver.properties,
    )  # fmt: skip
    kept = {
        "costs": {}, "selected": selected, "destinations": last.destinations,
        "planned": last.planned, "coming": last.coming,
    }  # fmt: skip
    attributes = kept if driver.interfaces else {}
    return PluginCall(
        function, driver.plugin, driver.limits, properties, last.arguments, attributes
    )


def _answer(
    request: Request, chosen: Mapping[Kind, Chosen], execution: Execution
) -> tuple[Any, tuple[str, ...]]:
    """The answer, and the errors of no single unit."""
    errors: tuple[str, ...] = ()
    total: Mapping[str, int] = {}
    filters = chosen[Kind.FILTER].calls if Kind.FILTER in chosen else ()
    if aggregate.have_all_failed(execution.filters, filters):
        errors = (aggregate.ALL_FILTERS_FAILED,)
    if Kind.COST_FUNCTION in chosen:
        calls = chosen[Kind.COST_FUNCTION].calls
        total, of_costs = aggregate.summed(calls, execution.cost_functions)
        errors += of_costs
    if request.returns is Returns.HOSTS:
        return execution.left, errors
    if request.returns is Returns.COSTS:
        return total, errors
    answer = None if execution.result is None else execution.result.value
    return _NOTHING[request.returns] if answer is None else answer, errors


def _sought(job: Job) -> Sought:
    """The ids that the engine is asked about: what came as a document is known."""
    hosts, vms, vm = job.subjects.hosts, job.subjects.vms, job.subjects.vm
    vms = vms if isinstance(vms, tuple) else ()
    return Sought(
        hosts if isinstance(hosts, tuple) and Role.HOSTS not in job.packs else (),
        vm if isinstance(vm, str) and vm not in vms else None,
        vms,
    )


def _unit_errors(
    chosen: Mapping[Kind, Chosen], results: Sequence[CallResult]
) -> dict[str, tuple[str, ...]]:
    """What is wrong with each unit, by its name: why it was left out, how its call ended."""
    left_out = (each for units in chosen.values() for each in units.errors.items())
    errors: dict[str, tuple[str, ...]] = {}
    for name, problems in (*left_out, *((each.unit, each.problems) for each in results)):
        if problems:
            errors[name] = errors.get(name, ()) + problems
    return errors


def _driver_named(catalogue: Catalogue, what: str, name: str) -> DriverUnit:
    """The scheduler of a name, or the driver of a topic."""
    there = catalogue.topics
    if what == _SCHEDULER:
        drivers = catalogue.drivers.items()
        there = {each: driver for each, driver in drivers if driver.interfaces}
    return _found(what, name, there)


def _why_missing(catalogue: Catalogue, what: str, name: str, hint: bool) -> Optional[str]:
    """Why a policy unit, a scheduler or a topic is not there; None if it is."""
    try:
        if what not in _KINDS:
            _driver_named(catalogue, what, name)
        elif not catalogue.has(_KINDS[what], name):
            catalogue.wanted(_KINDS[what], name, hint)
    except UnknownUnit as error:
        return str(error)
    return None


def _found(what: str, name: str, there: Mapping[str, DriverUnit]) -> DriverUnit:
    if name not in there:
        names = sorted(there)
        more = spelling.hint(name, names) or "; ovirt-scheduler check tells what is not loaded"
        there_are = f"there are {', '.join(names) or 'none'}{more}"
        raise UnknownUnit(f"there is no {what} named {name!r:.160}; {there_are}")
    return there[name]
