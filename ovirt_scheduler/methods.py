"""The methods that the daemon offers over XML-RPC: what each is called, takes and gives.

Here the three parts meet that know nothing of each other: ``wire`` reads the parameters,
``service`` decides, ``wire`` writes the answer.
"""

from __future__ import annotations

from typing import Callable, Tuple, TypeVar

from ovirt_scheduler import policy_units, wire
from ovirt_scheduler.config import EngineScores
from ovirt_scheduler.errors import ExecutorUnavailable, InternalError
from ovirt_scheduler.model import AnswerForm, Caller, Method, Request
from ovirt_scheduler.service import Service

_DISCOVER_HELP = """discover() -> string

All policy units, as an XML document: PolicyUnits with Filters, CostFunctions and Balances."""

_FILTERS_HELP = """runFilters(names, hosts, vm, properties) -> array of host ids

names: array of the filters' names, run in this order.
hosts: an XML document as a string, or an array of ids.
vm: an XML document, or an id.
properties: struct of strings, for all filters.
The answer is the hosts that every filter accepted, in the order given."""

_COST_FUNCTIONS_HELP = """runCostFunctions(functions, hosts, vm, properties) -> struct, id to int

functions: array of [name, factor], or a struct of factor by name.
hosts, vm, properties: as for runFilters.
The answer is the sum of factor times cost for each host; lower is better."""

_BALANCE_HELP = """runLoadBalancing(name, hosts, properties) -> struct, VM id to array of host ids

name: of one balance. hosts, properties: as for runFilters.
The answer is the VM to migrate and the hosts it may go to; empty when there is nothing to do."""

T = TypeVar("T")
Read = Callable[[Caller, Tuple[object, ...]], Request]


def methods(service: Service, scores: EngineScores) -> Tuple[Method, ...]:
    """The four operations in both answer forms (contract 2, 3), discover in both spellings.

    Args:
        scores: what the engine form tells of the costs.
    """

    def discover(caller: Caller, parameters: Tuple[object, ...]) -> object:
        wire.discover_request(parameters)
        units = _available(service.discover, caller)
        if caller.form is AnswerForm.ENGINE:
            return wire.engine_discovery(units)
        return policy_units.document(units)

    def run(read: Read) -> Callable[[Caller, Tuple[object, ...]], object]:
        def answer(caller: Caller, parameters: Tuple[object, ...]) -> object:
            request = read(caller, parameters)
            decision = _available(lambda: service.decide(request), caller)
            if caller.form is AnswerForm.ENGINE:
                return wire.engine_answer(decision, scores)
            return wire.design_answer(decision)

        return answer

    filters = (
        ("array", "array", "string", "string", "struct"),
        ("array", "array", "array", "string", "struct"),
    )
    cost_functions = tuple(
        ("struct", functions, hosts, "string", "struct")
        for functions in ("array", "struct")
        for hosts in ("string", "array")
    )
    balance = (
        ("struct", "string", "string", "struct"),
        ("struct", "string", "array", "struct"),
    )
    return (
        Method("discover", _DISCOVER_HELP, (("string",),), discover),
        Method("Discover", _DISCOVER_HELP, (("string",),), discover),
        Method("runFilters", _FILTERS_HELP, filters, run(wire.filters_request)),
        Method(
            "runCostFunctions",
            _COST_FUNCTIONS_HELP,
            cost_functions,
            run(wire.cost_functions_request),
        ),
        Method("runLoadBalancing", _BALANCE_HELP, balance, run(wire.balance_request)),
    )


def _available(operation: Callable[[], T], caller: Caller) -> T:
    try:
        return operation()
    except ExecutorUnavailable as error:
        raise InternalError(f"{error} (request {caller.request_id})") from None
