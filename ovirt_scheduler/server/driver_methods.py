"""The XML-RPC methods for schedulers and topics; ``unit_methods`` has those for policy units.

A failed scheduler answers that nothing is to be done, as a failed unit does; ``schedule`` has no
such answer, so its failures are faults in the design form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Callable

from ovirt_scheduler.decisions import log
from ovirt_scheduler.decisions.drivers import DriverService
from ovirt_scheduler.errors import DriverFailed, UnknownUnit
from ovirt_scheduler.model.drivers import INTERFACE_METHODS, DriverDecision
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.server import driver_wire, values
from ovirt_scheduler.server.method import Method, Parameters, Reply, decided, in_both_forms

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


def methods(service: DriverService, engine_reasons: bool = False) -> Iterator[Method]:
    """The methods of schedulers and topics in both answer forms (docs/api.md).

    Args:
        engine_reasons: whether ``selectHost`` tells an engine who removed the hosts, where it finds
            none (contract 8.5).
    """
    for name, method, result, text in _CALLS:
        parameters = ("scheduler", *INTERFACE_METHODS[method].parameters)
        reasons = engine_reasons and method == "select_host"
        run = partial(_call, service, method, _NOTHING[result], reasons)
        yield from in_both_forms(name, parameters, (result,), text, run)
    yield from in_both_forms(
        "schedule",
        ("topic", "method", "arguments"),
        _ANYTHING,
        "Gives back what the method of the topic's driver returned.",
        partial(_schedule, service),
    )
    for name, text, read in (
        ("getSchedulers", "All schedulers, each a struct: what it is, and what it takes.",
         lambda: driver_wire.schedulers(service.schedulers())),
        ("getTopics", "All topics, each a struct: its driver, and the methods of that.",
         lambda: driver_wire.topics(service.topics())),
    ):  # fmt: skip
        yield from in_both_forms(name, (), ("array",), text, partial(_list, read))


def _call(
    service: DriverService,
    method: str,
    nothing: object,
    reasons: bool,
    caller: Caller,
    parameters: Parameters,
) -> object:
    name = values.string("scheduler", parameters[0])
    arguments = dict(zip(INTERFACE_METHODS[method].parameters, parameters[1:]))
    try:
        driver = service.scheduler(name, method)
    except UnknownUnit as error:
        return _unknown(caller, name, error, nothing)
    return _reply(service.decide(driver_wire.request(caller, driver, method, arguments)), reasons)


def _schedule(service: DriverService, caller: Caller, parameters: Parameters) -> object:
    topic, method = map(values.string, ("topic", "method"), parameters)
    arguments = parameters[2]
    if not isinstance(arguments, dict):
        raise values.expected("arguments", "a struct", arguments)
    try:
        driver = service.publisher(topic, method)
    except UnknownUnit as error:
        return _unknown(caller, topic, error, "")
    decision = service.decide(driver_wire.request(caller, driver, method, arguments))
    if decision.failure is not None and caller.form is AnswerForm.DESIGN:
        raise DriverFailed(f"{driver.words} {driver.name}: {method}: {decision.failure}")
    return _reply(decision)


def _list(read: Callable[[], object], caller: Caller, _none: Parameters) -> object:
    result = read()
    return result if caller.form is AnswerForm.DESIGN else values.envelope(result, {}, ())


def _unknown(caller: Caller, name: str, error: UnknownUnit, nothing: object) -> object:
    """Answer a call for an unknown name: with a fault, or in the envelope (contract 4.3)."""
    if caller.form is AnswerForm.DESIGN:
        raise error
    return values.envelope(nothing, {name: (str(error),)}, ())


def _reply(decision: DriverDecision, reasons: bool = False) -> Reply:
    result = driver_wire.result(decision)
    if decision.request.caller.form is AnswerForm.ENGINE:
        filtered = reasons and not decision.answer and decision.execution.hosts
        why = (log.summary(decision),) if filtered else ()
        result = values.envelope(result, decision.unit_errors, (*decision.errors, *why))
    return decided(result, decision)
