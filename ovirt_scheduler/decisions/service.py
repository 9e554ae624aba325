"""Decides requests: which units and which driver are called, and what follows from their results.

Knows nothing of sockets and XML: it gets the registry and the executor, and returns a ``Decision``
with all results, for callers that show it or act on it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from ovirt_scheduler.catalogue.catalogue import Catalogue, CatalogueSource
from ovirt_scheduler.decisions import call_log
from ovirt_scheduler.decisions.engine_replies import EngineData, with_engine
from ovirt_scheduler.decisions.missing_names import MissingNames, MissingUnit
from ovirt_scheduler.decisions.recent_selections import RecentSelections
from ovirt_scheduler.errors import UnknownUnit
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.affinity import NO_RULES, AffinityRules, PlacedVms
from ovirt_scheduler.model.drivers import INTERFACE_METHODS, Coming, DriverUnit
from ovirt_scheduler.model.jobs import Decision, DriverCall, Execution, Job, Reported, Request
from ovirt_scheduler.model.requests import UUID, AnswerForm, Document, IdOrDocument
from ovirt_scheduler.model.results import CallOutcome, CallResult, Migration
from ovirt_scheduler.model.tasks import EngineReplies, Returns
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.model.values.text import with_names
from ovirt_scheduler.processes.executor import Executor

_log = logging.getLogger(__name__)

# The id of the first VM of a document, which a reader reads later.
_VM_ID = re.compile(rb"""<vm\b[^<>]{0,400}?\bid=["'](%s)["']""" % UUID.pattern.encode())
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


@dataclass(eq=False)
class DecisionService:
    """Answers requests. Safe to use from many threads.

    Attributes:
        registry: the policy units and the drivers.
        executor: runs them.
        request_timeout: seconds that one request may take, waiting included.
        inventory: asks the engine about ids; None if no engine is configured.
        decided: those who listen: each is called with every decision, once its answer is out, and
            with every call that was refused.
        selections: the hosts that each scheduler selected last, the best first, because a
            scheduler itself keeps nothing. The latest decision counts.
        missing: the names that callers use, and that are not there.
        recent: VMs that will run soon, for the next selection; None: each stands for itself.
    """

    registry: CatalogueSource
    executor: Executor
    request_timeout: float
    inventory: Optional[EngineData] = None
    decided: Sequence[Callable[[Reported], None]] = ()
    selections: dict[str, tuple[str, ...]] = field(default_factory=dict)
    missing: MissingNames = field(default_factory=MissingNames)
    recent: Optional[RecentSelections] = None
    _placed: dict[str, PlacedVms] = field(default_factory=dict, init=False)  # by cluster

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
                unit = MissingUnit(what, name, namings.first, namings.times, because)
                if what in _KINDS:
                    kinds = tuple(kind.label for kind in catalogue.kinds_of(name))
                    unloaded = catalogue.not_loaded.get(name, "")
                    unit = unit._replace(kinds=kinds, unloaded=unloaded)
                units.append(unit)
        return tuple(units)

    def note_cluster(self, name: str, running: Mapping[str, str], rules: AffinityRules) -> None:
        """Note where the VMs of a cluster run: what was selected for them is no more to come.

        Args:
            running: VM to host, by their ids.
            rules: of the cluster; its selections keep to them.
        """
        if self.recent is not None:
            self.recent.forget(running)
        self._placed[name] = PlacedVms(rules, running)

    def _rules_about(self, vm: Optional[IdOrDocument], coming: Coming) -> PlacedVms:
        """The affinity rules of a VM in a cluster that is looked after, whose VMs are placed."""
        if isinstance(vm, Document):
            match = _VM_ID.search(vm.data)
            vm = match[1].decode() if match else None
        for placed in [*self._placed.values()]:
            if vm is not None and vm in placed.rules.vms:
                placed = placed.about(vm)  # noqa: PLW2901
                for host, vms in coming.items():
                    for other in vms:
                        placed.move(other, host)
                return placed
        return NO_RULES

    def _informed(self, call: DriverCall, vm: Optional[IdOrDocument]) -> DriverCall:
        """The call with what is known of the latest selections, and of affinity rules."""
        call = call._replace(selected=self.selections.get(call.driver.name, ()))
        if self.recent is not None and call.selects:
            call = call._replace(coming=self.recent.coming())
        if call.rules is NO_RULES and call.driver.interfaces:  # the caller has none
            rules = self._rules_about(vm, call.coming) if call.selects else self._all_rules()
            call = call._replace(rules=rules)
        return call

    def _all_rules(self) -> PlacedVms:
        """The affinity rules of all clusters that are looked after, whose VMs are placed."""
        every = [placed for placed in [*self._placed.values()] if placed.rules.groups]
        if len(every) < 2:
            return every[0] if every else NO_RULES
        hosts = {vm: placed.host_of(vm) for placed in every for vm in placed.rules.vms}
        rules = AffinityRules(group for placed in every for group in placed.rules.groups)
        return PlacedVms(rules, {vm: host for vm, host in hosts.items() if host is not None})

    def decide(self, request: Request, replies: Optional[EngineReplies] = None) -> Decision:
        """Decide like ``decide_unreported``, and report it: for callers who are the daemon itself.

        Raises:
            RequestError, ExecutorUnavailable: as for ``decide_unreported``.
        """
        decision = self.decide_unreported(request, replies)
        self.report(decision)
        return decision

    def report(self, what: Reported) -> None:
        """Tell those who listen of a decision whose answer is out, or of a call that was refused.

        What they raise is logged.
        """
        for listener in self.decided:
            try:
                listener(what)
            except Exception:  # noqa: BLE001  nobody else would tell
                _log.exception(
                    "request %(request)s is not kept whole, this is a bug",
                    {"request": what.caller.request_id},
                )

    def decide_unreported(
        self, request: Request, replies: Optional[EngineReplies] = None
    ) -> Decision:
        """Run the units that a request names, and then the driver's method.

        A unit or driver that fails is no error: the decision says so. Whoever calls this calls
        ``report`` when the answer is out.

        Args:
            replies: the engine's replies about the request's ids; None: it is asked.

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
        catalogue, call = self.registry.current(), request.driver_call
        for kind, units in request.units.items():
            for unit in units:
                if not catalogue.has(kind, unit.name):
                    self.missing.add(kind.label, unit.name)
        job = catalogue.job(request, started + self.request_timeout)
        for kind, problems in job.errors.items():
            if problems:
                call_log.log_left_out(request.caller.request_id, kind.label, problems)
        if call is not None:
            call = self._informed(call, request.entities.vm)
            job = job._replace(request=job.request._replace(driver_call=call))
        job, execution, engine_errors = self._run(job, replies)
        if execution.balance is not None:
            execution = _for_engine(job.request, execution, execution.balance)
        answer, of_answer = _answer(job, execution)
        decision = Decision(
            request=job.request,
            execution=execution,
            answer=answer,
            errors=(*engine_errors, *execution.errors, *of_answer),
            unit_errors=_unit_errors(job, execution),
            calls=job.calls,
            time=asked_at,
            seconds=time.monotonic() - started,
            replies=job.replies,
            selected=() if call is None else call.selected,
            shadows=job.shadows,
        )
        call_log.log_calls(decision, (*execution.errors, *of_answer))
        if call is not None and call.returns is Returns.SELECTION and decision.failure is None:
            self.selections[call.driver.name] = answer[:_MOST_SELECTED]  # none, too
            if self.recent is not None and execution.vm_sizes:
                self.recent.add(execution.vm_sizes, answer)
        return decision

    def _run(
        self, job: Job, replies: Optional[EngineReplies]
    ) -> tuple[Job, Execution, tuple[str, ...]]:
        """The job with the engine's replies, how it ended, and what is wrong with the engine."""
        hosts, vm = job.request.entities.hosts, job.request.entities.vm
        is_idle = job.request.driver_call is None and not job.rejected
        if is_idle and isinstance(hosts, tuple) and not (hosts and job.calls):
            vm = vm if isinstance(vm, str) else None
            return job, Execution(hosts, vm=vm, remaining=hosts), ()
        errors: tuple[str, ...] = ()
        if self.inventory is not None and not job.rejected:
            job, errors = with_engine(job, self.inventory, replies)
        return job, self.executor.run(job), errors


def _answer(job: Job, execution: Execution) -> tuple[Any, tuple[str, ...]]:
    """The answer, and the errors of no single unit."""
    errors: tuple[str, ...] = ()
    total: Mapping[str, int] = {}
    returns, final = job.request.returns, execution.final
    if aggregate.have_all_failed(execution.filters, job.of(Kind.FILTER)):
        errors = (aggregate.ALL_FILTERS_FAILED,)
    if execution.cost_functions:
        total, of_costs = aggregate.summed(
            job.of(Kind.COST_FUNCTION), execution.cost_functions, execution.remaining
        )
        errors += of_costs
    if returns is Returns.HOSTS:
        return execution.remaining, errors
    if returns is Returns.COSTS:
        return total, errors
    answer = None if final is None else final.value
    return _NOTHING[returns] if answer is None else answer, errors


def _for_engine(request: Request, execution: Execution, result: CallResult) -> Execution:
    """Make a failure of a balance whose VM no engine has, as its id is no UUID (contract 3.6)."""
    if request.caller.form is AnswerForm.DESIGN or request.caller.cluster:
        return execution
    if not isinstance(result.value, Migration) or UUID.fullmatch(result.value.vm):
        return execution
    message = f"answered with {result.value.vm!r:.80}, which is not the id of a VM"
    failed = result._replace(outcome=CallOutcome.BAD_ANSWER, value=None, message=message)
    return execution._replace(balance=failed)


def _unit_errors(job: Job, execution: Execution) -> dict[str, tuple[str, ...]]:
    """What is wrong with each unit, by its name: why it was left out, how its call ended."""
    errors: dict[str, tuple[str, ...]] = {}
    for left_out in job.errors.values():
        for name, problems in left_out.items():
            errors[name] = errors.get(name, ()) + problems
    for result in execution.results:
        messages = tuple(with_names(each, execution.names) for each in result.problems)
        if messages:
            errors[result.unit] = errors.get(result.unit, ()) + messages
    return errors


def _driver_named(catalogue: Catalogue, what: str, name: str) -> DriverUnit:
    """The scheduler of a name, or the driver of a topic."""
    there = catalogue.topics
    if what == _SCHEDULER:
        drivers = catalogue.drivers.items()
        there = {each: driver for each, driver in drivers if driver.interfaces}
    if name not in there:
        names = sorted(there)
        more = spelling.hint(name, names) or "; ovirt-scheduler check tells what is not loaded"
        there_are = f"there are {', '.join(names) or 'none'}{more}"
        raise UnknownUnit(f"there is no {what} named {name!r:.160}; {there_are}")
    return there[name]


def _why_missing(catalogue: Catalogue, what: str, name: str, hint: bool) -> Optional[str]:
    """Why a policy unit, a scheduler or a topic is not there; None if it is."""
    try:
        if what not in _KINDS:
            _driver_named(catalogue, what, name)
        elif not catalogue.has(_KINDS[what], name):
            catalogue.unit(_KINDS[what], name, hint)
    except UnknownUnit as error:
        return str(error)
    return None
