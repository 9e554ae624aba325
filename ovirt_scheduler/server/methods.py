"""The XML-RPC methods: what each decides, and how a decision becomes the answer.

A unit or a scheduler that fails is left out, or answers that nothing is to be done; ``schedule``
has no such answer, so its failures are faults in the design form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from ovirt_scheduler.decisions import summary
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.errors import DriverFailed, UnknownUnit
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.drivers import INTERFACE_METHODS
from ovirt_scheduler.model.jobs import Decision, Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, EngineScores
from ovirt_scheduler.model.tasks import Returns
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.server import discovery, parameter_values
from ovirt_scheduler.server.call_parameters import driver_request, unit_request
from ovirt_scheduler.server.dispatch import Method, Parameters, Reply, in_both_forms, in_form

_DISCOVERS = (
    (AnswerForm.DESIGN, "string", "All policy units, as an XML document."),
    (AnswerForm.ENGINE, "struct",
     "All policy units: a struct for filters, scores and balance each."),
)  # fmt: skip

# Name, kind, parameters, type of the result in the design form, and help.
_RUNS = (
    ("runFilters", Kind.FILTER, ("filters", "hosts", "vm", "properties"), "array",
         "Gives the ids of the hosts that every filter accepted, in the order given."),
    ("runCostFunctions", Kind.COST_FUNCTION,
         ("cost_functions", "hosts", "vm", "properties"), "struct",
         "Gives for each host the sum of factor times cost; lower is better."),
    ("runLoadBalancing", Kind.BALANCE, ("balance", "hosts", "properties"), "struct",
         "Gives the VM to migrate and the hosts it may go to, or nothing."),
)  # fmt: skip

_SELECTS = """Of the properties, filters (names with ; between) and cost_functions
(name=factor;name2=factor2) name policy units that run before; the others are its inputs."""
_MIGRATES = "Gives for each VM to migrate the hosts that it may go to, the best first."

# Name, method of the interfaces, type of the result in the design form, and help.
_CALLS = (
    ("selectHost", "select_host", "string",
          f"Gives the id of the host to start a VM on, or an empty string.\n{_SELECTS}"),
    ("hasAnyHosts", "has_any_hosts", "boolean", f"Whether a host fits a VM.\n{_SELECTS}"),
    ("getSelectedHosts", "get_selected_hosts", "array",
          "The ids of the hosts that the scheduler selected last, the best first."),
    ("loadBalance", "load_balance", "struct", f"What to migrate now.\n{_MIGRATES}"),
    ("onTimerInvoked", "on_timer_invoked", "struct",
          f"A cluster's timer has come round.\n{_MIGRATES}"),
    ("onVmStatusChanged", "on_vm_status_changed", "struct",
          f"The status of a VM has changed.\n{_MIGRATES}"),
    ("onHostStatusChanged", "on_host_status_changed", "struct",
          f"The status of a host has changed.\n{_MIGRATES}"),
)  # fmt: skip
# The results where there is no scheduler to ask, by their types.
_NOTHING: Mapping[str, object] = {"string": "", "boolean": False, "array": [], "struct": {}}

_ANYTHING = (
    "string", "int", "boolean", "double", "array", "struct", "base64", "dateTime.iso8601"
)  # fmt: skip


@dataclass(frozen=True)
class DecisionMethods:
    """The methods for policy units, schedulers and topics, in both answer forms (docs/api.md).

    Attributes:
        scores: which costs the engine form has.
        engine_reasons: whether it says which filters removed the hosts, if none is left
            (contract 8.5).
    """

    service: DecisionService
    scores: EngineScores
    engine_reasons: bool = False

    def methods(self) -> Iterator[Method]:
        """All of them; discover in both spellings."""
        for form, result, text in _DISCOVERS:
            for name in ("discover", "Discover"):
                yield Method(name, (), (result,), text, self._discover, forms=(form,))
        for name, kind, parameters, result, text in _RUNS:
            run = partial(self._run, kind)
            yield from in_both_forms(Method(name, parameters, (result,), text, run, decides=True))
        for name, method, result, text in _CALLS:
            named = ("scheduler", *INTERFACE_METHODS[method].parameters)
            call = partial(self._call, method, _NOTHING[result])
            yield from in_both_forms(Method(name, named, (result,), text, call, decides=True))
        text = "Gives back what the method of the topic's driver returned."
        named = ("topic", "method", "arguments")
        schedule = Method("schedule", named, _ANYTHING, text, self._schedule, decides=True)
        yield from in_both_forms(schedule)
        text = "All schedulers, each a struct: what it is, and what it takes."
        yield from in_both_forms(Method("getSchedulers", (), ("array",), text, self._schedulers))
        text = "All topics, each a struct: its driver, and the methods of that."
        yield from in_both_forms(Method("getTopics", (), ("array",), text, self._topics))

    def answer(self, decision: Decision) -> object:
        """The answer to a decision, in its caller's form."""
        caller = decision.request.caller
        in_design_form = caller.form is AnswerForm.DESIGN
        result = _result(decision) if in_design_form else self._engine_result(decision)
        return in_form(caller, result, decision.unit_errors, decision.errors)

    def _reply(self, request: Request) -> Reply:
        decision = self.service.decide_unreported(request)
        if self.engine_reasons and self._leaves_engine_no_host(decision):
            errors = (*decision.errors, summary.text(decision))
            decision = decision._replace(errors=errors)
        return Reply(partial(self.answer, decision), decision)

    @staticmethod
    def _leaves_engine_no_host(decision: Decision) -> bool:
        """Whether a request in the engine form selects hosts, and none of them is left."""
        request = decision.request
        selects = request.returns in (Returns.HOSTS, Returns.SELECTION) and decision.failure is None
        in_engine_form = request.caller.form is AnswerForm.ENGINE
        return bool(in_engine_form and selects and decision.execution.hosts and not decision.answer)

    def _discover(self, caller: Caller, _none: Parameters) -> object:
        units = self.service.discover()
        is_design = caller.form is AnswerForm.DESIGN
        return discovery.document(units) if is_design else discovery.structs(units)

    def _run(self, kind: Kind, caller: Caller, parameters: Parameters) -> Reply:
        return self._reply(unit_request(caller, kind, parameters))

    def _call(self, method: str, nothing: object, caller: Caller, parameters: Parameters) -> object:
        name = parameter_values.string("scheduler", parameters[0])
        arguments = dict(zip(INTERFACE_METHODS[method].parameters, parameters[1:]))
        try:
            driver = self.service.scheduler(name, method)
        except UnknownUnit as error:
            return _unknown(caller, name, error, nothing)
        return self._reply(driver_request(caller, driver, method, arguments))

    def _schedule(self, caller: Caller, parameters: Parameters) -> object:
        topic, method = map(parameter_values.string, ("topic", "method"), parameters)
        arguments = parameter_values.struct("arguments", "a struct", parameters[2])
        try:
            driver = self.service.publisher(topic, method)
        except UnknownUnit as error:
            return _unknown(caller, topic, error, "")
        request = driver_request(caller, driver, method, arguments)
        decision = self.service.decide_unreported(request)
        return Reply(partial(self._scheduled, decision), decision)

    def _scheduled(self, decision: Decision) -> object:
        """The answer of ``schedule``.

        Raises:
            DriverFailed: the driver did (design form).
        """
        call, failure = decision.request.driver_call, decision.failure
        if call is not None and failure is not None and decision.request.strict:
            driver = call.driver
            raise DriverFailed(f"{driver.label} {driver.name}: {call.method}: {failure}")
        return self.answer(decision)

    def _schedulers(self, caller: Caller, _none: Parameters) -> object:
        schedulers = [
            {
                "id": driver.id, "name": driver.name, "version": driver.version,
                "checksum": driver.checksum, "description": driver.description,
                "topic": driver.topic or "", "policies": list(driver.policies),
                "inputs": [
                    {"name": rule.name, "validation": rule.pattern, "default": rule.default or ""}
                    for rule in driver.properties.properties
                ],
                "interfaces": list(driver.interfaces), "written_for": driver.written_for or "",
            }
            for driver in self.service.schedulers()
        ]  # fmt: skip
        return in_form(caller, schedulers)

    def _topics(self, caller: Caller, _none: Parameters) -> object:
        topics = [
            {
                "topic": topic, "driver": driver.name, "description": driver.description,
                "methods": [
                    {"name": method.name, "signature": method.signature, "help": method.help}
                    for method in driver.methods
                ],
            }
            for topic, driver in self.service.topics().items()
        ]  # fmt: skip
        return in_form(caller, topics)

    def _engine_result(self, decision: Decision) -> object:
        """The result in the engine form's envelope (contract 3.3 to 3.5)."""
        answer, returns = decision.answer, decision.request.returns
        if returns is Returns.MIGRATION:
            # Nothing to do is never [], which stops the engine's balancing.
            return ["", []] if answer is None else [answer.vm, list(answer.hosts)]
        if returns is not Returns.COSTS:
            return _result(decision)
        if self.scores is EngineScores.SUMMED:
            return [[host, cost] for host, cost in answer.items()]
        functions = [*zip(decision.calls, decision.execution.cost_functions)]
        return [
            [host, cost, call.unit.name]
            for (call, _), costs in zip(functions, aggregate.clamped_costs(functions))
            for host, cost in costs.items()
        ]


def _result(decision: Decision) -> object:
    """The result of a decision in the design form."""
    answer, call, returns = decision.answer, decision.request.driver_call, decision.request.returns
    if returns in (Returns.TRUTH, Returns.VALUE):
        return answer
    if returns is Returns.COSTS:
        return dict(answer)
    if returns is Returns.MIGRATION:
        return {} if answer is None else {answer.vm: list(answer.hosts)}
    if returns is Returns.MIGRATIONS:
        return {vm: list(hosts) for vm, hosts in answer.items()}
    if call is not None and call.method == "select_host":
        return answer[0] if answer else ""
    return list(answer)


def _unknown(caller: Caller, name: str, error: UnknownUnit, nothing: object) -> Reply:
    """Answer a call for an unknown name: with a fault, or in the envelope (contract 4.3)."""
    if caller.form is AnswerForm.DESIGN:
        raise error
    answer = in_form(caller, nothing, {name: (str(error),)})
    return Reply(lambda: answer, fault=(error.fault_code, str(error)))
