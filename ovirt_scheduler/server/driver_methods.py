"""The XML-RPC methods for schedulers and topics; ``unit_methods`` has those for policy units.

A failed scheduler answers that nothing is to be done, like a failed unit; ``schedule`` has no such
answer, so its failures are faults in the design form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.errors import BadParameters, DriverFailed, UnknownUnit
from ovirt_scheduler.model.decisions import Decision, DriverCall, Request
from ovirt_scheduler.model.drivers import COST_FUNCTIONS, FILTERS, INTERFACE_METHODS, DriverUnit
from ovirt_scheduler.model.requests import AnswerForm, Caller, Subjects, WantedUnit
from ovirt_scheduler.model.tasks import Returns
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.server import values
from ovirt_scheduler.server.method import (
    Method,
    Parameters,
    Run,
    answered,
    decided,
    in_both_forms,
)

_FACTOR = re.compile(r"-?[0-9]{1,10}")

_ANYTHING = (
    "string", "int", "boolean", "double", "array", "struct", "base64", "dateTime.iso8601"
)  # fmt: skip
# The results where there is no scheduler to ask, by their types.
_NOTHING: Mapping[str, object] = {"string": "", "boolean": False, "array": [], "struct": {}}


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


def methods(service: DecisionService, engine_reasons: bool = False) -> Iterator[Method]:
    """The methods of schedulers and topics in both answer forms (docs/api.md).

    Args:
        engine_reasons: whether ``selectHost`` says to an engine which filters removed the hosts, if
            it finds none (contract 8.5).
    """
    for name, method, result, text in _CALLS:
        parameters = ("scheduler", *INTERFACE_METHODS[method].parameters)
        with_reasons = engine_reasons and method == "select_host"
        call = partial(_call, service, method, _NOTHING[result], with_reasons)
        yield from in_both_forms(name, parameters, (result,), text, call)
    run: Run
    for name, parameters, results, text, run in (
        ("schedule", ("topic", "method", "arguments"), _ANYTHING,
         "Gives back what the method of the topic's driver returned.", partial(_schedule, service)),
        ("getSchedulers", (), ("array",),
         "All schedulers, each a struct: what it is, and what it takes.",
         lambda caller, _: answered(caller, _schedulers(service.schedulers()))),
        ("getTopics", (), ("array",),
         "All topics, each a struct: its driver, and the methods of that.",
         lambda caller, _: answered(caller, _topics(service.topics()))),
    ):  # fmt: skip
        yield from in_both_forms(name, parameters, results, text, run)


def _call(
    service: DecisionService,
    method: str,
    nothing: object,
    with_reasons: bool,
    caller: Caller,
    parameters: Parameters,
) -> object:
    name = values.string("scheduler", parameters[0])
    arguments = dict(zip(INTERFACE_METHODS[method].parameters, parameters[1:]))
    try:
        driver = service.scheduler(name, method)
    except UnknownUnit as error:
        return _unknown(caller, name, error, nothing)
    decision = service.decide(_request(caller, driver, method, arguments))
    return decided(_result(decision), decision, with_reasons)


def _schedule(service: DecisionService, caller: Caller, parameters: Parameters) -> object:
    topic, method = map(values.string, ("topic", "method"), parameters)
    arguments = parameters[2]
    if not isinstance(arguments, dict):
        raise values.expected("arguments", "a struct", arguments)
    try:
        driver = service.publisher(topic, method)
    except UnknownUnit as error:
        return _unknown(caller, topic, error, "")
    decision = service.decide(_request(caller, driver, method, arguments))
    if decision.failure is not None and caller.form is AnswerForm.DESIGN:
        raise DriverFailed(f"{driver.words} {driver.name}: {method}: {decision.failure}")
    return decided(_result(decision), decision)


def _unknown(caller: Caller, name: str, error: UnknownUnit, nothing: object) -> object:
    """Answer a call for an unknown name: with a fault, or in the envelope (contract 4.3)."""
    if caller.form is AnswerForm.DESIGN:
        raise error
    return answered(caller, nothing, {name: (str(error),)})


def _request(
    caller: Caller, driver: DriverUnit, method: str, arguments: Mapping[str, object]
) -> Request:
    """A call of a driver's method, its arguments by name.

    Methods of the interfaces get hosts and VMs like all calls (contract 1.4); a driver's own
    methods get plain values.

    Raises:
        BadParameters: an argument is missing, unknown or of a wrong type.
    """
    published = driver.method(method)
    if published is None:
        raise BadParameters(f"method: {driver.name} publishes no {method!r:.80}")
    whole = f"{method}{published.signature}"
    missing = [name for name in published.required if name not in arguments]
    if missing:
        raise BadParameters(f"arguments: {', '.join(missing)} missing; it is {whole}")
    known = {*published.required, *published.optional}
    unknown = [f"{name!r:.80}" for name in arguments if name not in known]
    if unknown:
        raise BadParameters(f"arguments: {', '.join(unknown)[:200]} unknown; it is {whole}")
    defined = driver.defines(method)
    if defined is None:
        return Request(caller, Subjects(), last=DriverCall(driver, method, arguments))
    properties = dict(values.properties(arguments.get("properties")))
    wanted: dict[Kind, tuple[WantedUnit, ...]] = {}
    if defined.interface == "HostSelector":
        filters = tuple(map(WantedUnit, _names(properties.pop(FILTERS, ""))))
        cost_functions = tuple(map(_factor, _names(properties.pop(COST_FUNCTIONS, ""))))
        values.check_units("properties", (*filters, *cost_functions))
        wanted = {Kind.FILTER: filters, Kind.COST_FUNCTION: cost_functions}
    subjects = _subjects(arguments)
    statuses = {
        name: values.string(name, arguments[name])
        for name in ("old_status", "new_status")
        if name in arguments
    }
    return Request(caller, subjects, properties, wanted, DriverCall(driver, method, statuses))


def _result(decision: Decision) -> object:
    """The result of a decision, in the design form or in the engine form's envelope."""
    returns, last = decision.request.returns, decision.request.last
    if returns in (Returns.TRUTH, Returns.VALUE):
        return decision.answer
    if returns is Returns.MIGRATIONS:
        return {vm: list(hosts) for vm, hosts in decision.answer.items()}
    if last is not None and last.method == "select_host":
        return decision.answer[0] if decision.answer else ""
    return list(decision.answer)


def _schedulers(drivers: Iterable[DriverUnit]) -> list[dict[str, object]]:
    """The answer of ``getSchedulers``."""
    return [
        {
            "id": driver.id, "name": driver.name, "version": driver.version,
            "checksum": driver.checksum, "description": driver.description,
            "topic": driver.topic or "", "policies": list(driver.policies),
            "inputs": [
                {"name": each.name, "validation": each.pattern, "default": each.default or ""}
                for each in driver.properties.properties
            ],
            "interfaces": list(driver.interfaces), "written_for": driver.written_for or "",
        }
        for driver in drivers
    ]  # fmt: skip


def _topics(drivers: Mapping[str, DriverUnit]) -> list[dict[str, object]]:
    """The answer of ``getTopics``."""
    return [
        {
            "topic": topic, "driver": driver.name, "description": driver.description,
            "methods": [
                {"name": each.name, "signature": each.signature, "help": each.help}
                for each in driver.methods
            ],
        }
        for topic, driver in drivers.items()
    ]  # fmt: skip


def _subjects(arguments: Mapping[str, object]) -> Subjects:
    return Subjects(
        hosts=values.hosts(arguments.get("hosts", [])),
        vms=values.hosts(arguments.get("vms", []), "vms"),
        vm=values.vm(arguments["vm"]) if "vm" in arguments else None,
        host=values.vm(arguments["host"], "host") if "host" in arguments else None,
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(";") if name.strip()]


def _factor(text: str) -> WantedUnit:
    name, equals, factor = text.rpartition("=")
    if not equals:
        return WantedUnit(text)
    if not _FACTOR.fullmatch(factor.strip()) or not -(2**31) <= int(factor) < 2**31:
        raise BadParameters(
            f"properties[{COST_FUNCTIONS!r}]: {text!r:.80}: expected name=factor with ; between, "
            "the factor an int"
        )
    return WantedUnit(name.strip(), int(factor))
