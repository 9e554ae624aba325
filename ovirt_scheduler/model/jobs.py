"""A request, its execution, and the decision that follows.

::

    policy units ──► a driver's method     one of the two may be missing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from ovirt_scheduler.model.affinity import NO_RULES, PlacedVms
from ovirt_scheduler.model.drivers import Coming, Destinations, DriverUnit, InterfaceMethod
from ovirt_scheduler.model.plugins import NO_ENGINE, Engine
from ovirt_scheduler.model.requests import AnswerForm, Caller, Document, Entities, RequestedUnit
from ovirt_scheduler.model.results import CallResult, RequestOutcome
from ovirt_scheduler.model.tasks import EngineReplies, Pack, Returns, Role
from ovirt_scheduler.model.units import Kind, UnitCall


class DriverCall(NamedTuple):
    """A method of a driver or scheduler.

    Attributes:
        arguments: by their names, without the entities and the properties.
        destinations: the known ones, if the method migrates VMs.
        planned: VM to host, of migrations that are planned already.
        coming: by host what VMs will use that were selected just now, and do not run yet: by their
            ids, processors and bytes of memory.
        rules: of affinity, with where their VMs run.
        selected: ids of the hosts that the scheduler selected last.
        costs: of each host that the filters accepted: what the cost functions before it add up to.
        averages: of hosts and VMs by id, the busy processors and used bytes that a balancing goes
            by; empty: the figures of their documents.
    """

    driver: DriverUnit
    method: str
    arguments: Mapping[str, object] = {}
    destinations: Destinations = {}  # noqa: RUF012  nobody changes it
    planned: Mapping[str, str] = {}
    coming: Coming = {}  # noqa: RUF012  nobody changes it
    rules: PlacedVms = NO_RULES
    selected: Sequence[str] = ()
    costs: Mapping[str, int] = {}
    averages: Mapping[str, tuple[float, int]] = {}

    @property
    def attributes(self) -> Mapping[str, object]:
        """What a scheduler finds as ``self.costs`` and so on."""
        names = ["costs", "selected", "destinations", "planned", "coming", "averages"]
        names += ["rules"] if self.rules.rules.groups else []
        return {name: getattr(self, name) for name in names} if self.driver.interfaces else {}

    @property
    def defined(self) -> Optional[InterfaceMethod]:
        """The method of an interface that is called; None for a method of the driver's own."""
        return self.driver.defines(self.method)

    @property
    def selects(self) -> bool:
        """Whether the method looks for a host that is to run a VM."""
        return self.defined is not None and self.defined.interface == "HostSelector"

    @property
    def returns(self) -> Returns:
        """What the method returns."""
        return Returns.VALUE if self.defined is None else self.defined.returns


class Request(NamedTuple):
    """A call, decoded: of policy units of one kind, or of a driver and the units before it.

    Attributes:
        units: that are named, by their kind; a request for a driver may have none.
        driver_call: after the filters and cost functions; None: only units are asked.
    """

    caller: Caller
    entities: Entities
    properties: Mapping[str, str] = {}
    units: Mapping[Kind, tuple[RequestedUnit, ...]] = {}
    driver_call: Optional[DriverCall] = None

    @property
    def returns(self) -> Returns:
        """What the answer is."""
        call = self.driver_call
        return next(iter(self.units)).returns if call is None else call.returns

    def came_as_document(self, role: Role) -> bool:
        """Whether the caller gave these entities as a document, and not as ids."""
        return isinstance(getattr(self.entities, role.value), Document)

    @property
    def strict(self) -> bool:
        """Whether a refused value of a property fails the whole request (contract 1.5)."""
        return self.caller.form is AnswerForm.DESIGN


class Job(NamedTuple):
    """A request, and what is to be called for it.

    Attributes:
        deadline: seconds on the monotonic clock, for all calls together.
        calls: of the policy units that are loaded, filters first.
        errors: by kind what is wrong with other units, by name.
        rejected: a filter that is missing accepts no host, so nothing is called (contract 4.2).
        shadows: a call of each unit in shadow (contract 10.4). One that the request names has its
            factor and the properties of the request, any other one the factor 1 and its defaults.
        packs: of documents that were read already.
    """

    request: Request
    deadline: float
    calls: tuple[UnitCall, ...] = ()
    errors: Mapping[Kind, Mapping[str, tuple[str, ...]]] = {}
    rejected: bool = False
    shadows: tuple[UnitCall, ...] = ()
    replies: EngineReplies = EngineReplies()
    engine: Engine = NO_ENGINE
    packs: Mapping[Role, Pack] = {}

    def of(self, kind: Kind) -> list[UnitCall]:
        """The calls of units of one kind."""
        return [call for call in self.calls if call.unit.kind is kind]


class Execution(NamedTuple):
    """What the executor returns for one job."""

    hosts: tuple[str, ...] = ()  # ids in the order given
    filters: tuple[CallResult, ...] = ()  # of those that ran, in the order asked for
    cost_functions: tuple[CallResult, ...] = ()
    balance: Optional[CallResult] = None
    driver_call: Optional[CallResult] = None
    errors: tuple[str, ...] = ()  # that belong to no plugin
    vm: Optional[str] = None  # its id
    names: Mapping[str, str] = {}  # by id, as far as they are known
    packs: Mapping[Role, Pack] = {}  # of hosts and VM, where they came
    vm_sizes: object = None  # what the VM will use, unchecked, if its document was read
    remaining: tuple[str, ...] = ()  # the hosts that no filter removed
    rejected: bool = False  # a filter that is missing accepted no host, so nothing was called

    def of(self, kind: Kind) -> tuple[CallResult, ...]:
        """The results of the units of one kind."""
        if kind is Kind.BALANCE:
            return () if self.balance is None else (self.balance,)
        return self.filters if kind is Kind.FILTER else self.cost_functions

    @property
    def final(self) -> Optional[CallResult]:
        """The result of the balance or of the driver's method; None if none was called."""
        return self.balance or self.driver_call

    @property
    def results(self) -> tuple[CallResult, ...]:
        """The results of all calls, in the order in which the calls began."""
        final = self.final
        return (*self.filters, *self.cost_functions, *(() if final is None else (final,)))


class Decision(NamedTuple):
    """The whole record of one answered request, and what it was made on.

    The server picks from it what a form shows. Those who listen get it once its answer is out.

    Attributes:
        execution: with costs as the functions told them.
        answer: as ``request.returns`` says; of a call that failed: that nothing is to be done.
        calls: of the units that were to be called, filters first.
        time: when it was asked for, in seconds since 1970.
        seconds: that it took.
        replies: the engine's, about the request's ids.
        selected: ids of the hosts that the request's scheduler had selected last.
        shadows: the calls of the units in shadow, of the kinds that the request asks; they are yet
            to be made (contract 10.4).
    """

    request: Request
    execution: Execution
    answer: Any
    errors: tuple[str, ...] = ()
    unit_errors: Mapping[str, tuple[str, ...]] = {}
    calls: tuple[UnitCall, ...] = ()
    time: float = 0.0
    seconds: float = 0.0
    replies: EngineReplies = EngineReplies()
    selected: Sequence[str] = ()
    shadows: tuple[UnitCall, ...] = ()

    @property
    def caller(self) -> Caller:
        """Who asked."""
        return self.request.caller

    @property
    def failure(self) -> Optional[str]:
        """Why a balance or a driver gave no answer; None if it gave one, or was not called."""
        result = self.execution.final
        return None if result is None or result.ok else result.message

    @property
    def outcome(self) -> RequestOutcome:
        """What it came to."""
        results, hosts = self.execution.results, self.execution.hosts
        if self.unit_errors and self._lacks_unit():
            return RequestOutcome.UNIT_MISSING
        if any(not result.ok for result in results):
            return RequestOutcome.UNIT_FAILED
        no_answer = self.answer == () and self.request.returns is not Returns.COSTS
        if hosts and (no_answer or not self.execution.remaining):
            return RequestOutcome.NO_HOST_LEFT
        if self.errors:
            return RequestOutcome.DEGRADED
        is_corrected = any(result.notes for result in results)
        return RequestOutcome.CORRECTED if is_corrected else RequestOutcome.OK

    def _lacks_unit(self) -> bool:
        """Whether a unit that has a problem was not to be called."""
        called = {(call.unit.kind, call.unit.name) for call in self.calls}
        return any(
            unit.name in self.unit_errors and (kind, unit.name) not in called
            for kind, units in self.request.units.items()
            for unit in units
        )


class RefusedCall(NamedTuple):
    """A call that was refused before anything was decided.

    Attributes:
        method: as XML-RPC has it.
        arguments: by name, of whatever type the caller gave.
        fault: the code that the design form has for it.
        seconds: that the call took.
    """

    caller: Caller
    method: str
    arguments: Mapping[str, object]
    fault: int
    message: str
    seconds: float


Reported = Union[Decision, RefusedCall]


class ShadowCall(NamedTuple):
    """How the call of a unit in shadow ended."""

    call: UnitCall
    result: Optional[CallResult] = None  # None: it was not called
    problem: str = ""  # why it was not
