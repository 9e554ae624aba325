"""The XML-RPC methods for policy units: the name, parameters and result of each.

``unit_wire`` reads the parameters, a ``Service`` decides, and ``unit_wire`` writes the answer.
"""

from __future__ import annotations

from functools import partial
from typing import Callable, Iterator, NamedTuple, Tuple

from ovirt_scheduler.decisions import log
from ovirt_scheduler.decisions.units import Service
from ovirt_scheduler.history import record
from ovirt_scheduler.model.decisions import Decision
from ovirt_scheduler.model.requests import AnswerForm, Caller, EngineScores, Request
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.server import discovery, unit_wire, values
from ovirt_scheduler.server.method import ENVELOPE, Method, Parameters, Reply, signatures

Units = Tuple[PolicyUnit, ...]
_Read = Callable[[Caller, Parameters], Request]


class _Run(NamedTuple):
    """One of the operations that run policy units."""

    name: str
    read: _Read
    parameters: Tuple[str, ...]
    result: str  # its type in the design form
    help: str


_RUNS = (
    _Run(
        "runFilters",
        unit_wire.filters_request,
        ("names", "hosts", "vm", "properties"),
        "array",
        """runFilters(names, hosts, vm, properties)

names: array of the filters' names, run in this order.
hosts: an XML document as a string, or an array of ids.
vm: an XML document, or an id.
properties: struct of strings, for all filters.
Gives the ids of the hosts that every filter accepted, in the order given.""",
    ),
    _Run(
        "runCostFunctions",
        unit_wire.cost_functions_request,
        ("functions", "hosts", "vm", "properties"),
        "struct",
        """runCostFunctions(functions, hosts, vm, properties)

functions: array of [name, factor], or a struct of factor by name.
hosts, vm, properties: as for runFilters.
Gives for each host the sum of factor times cost; lower is better.""",
    ),
    _Run(
        "runLoadBalancing",
        unit_wire.balance_request,
        ("name", "hosts", "properties"),
        "struct",
        """runLoadBalancing(name, hosts, properties)

name: of one balance.
hosts, properties: as for runFilters.
Gives the VM to migrate and the hosts it may go to, or nothing.""",
    ),
)


def methods(
    service: Service, scores: EngineScores, engine_reasons: bool = False
) -> Iterator[Method]:
    """The four operations in both answer forms (contract 2, 3), discover in both spellings.

    Args:
        scores: what the engine form tells of the costs.
        engine_reasons: whether it tells who removed the hosts, where none is left (contract 8.5).
    """
    yield from _in_form(
        AnswerForm.DESIGN,
        partial(_discover, service, discovery.document),
        partial(_decide, service, unit_wire.design_answer),
        "string",
        "All policy units, as an XML document.",
    )
    yield from _in_form(
        AnswerForm.ENGINE,
        partial(_discover, service, unit_wire.engine_discovery),
        partial(_decide, service, partial(_engine_answer, scores, engine_reasons)),
        "struct",
        "All policy units: a struct for filters, scores and balance each.",
        ENVELOPE,
    )


def _engine_answer(scores: EngineScores, engine_reasons: bool, decision: Decision) -> object:
    filtered = decision.request.kind is Kind.FILTER and decision.hosts and not decision.answer
    reasons = (log.summary(decision),) if engine_reasons and filtered else ()
    return unit_wire.engine_answer(decision, scores, reasons)


def _in_form(
    form: AnswerForm,
    discover: Callable[[Caller, Parameters], object],
    decide: Callable[[_Read, Caller, Parameters], object],
    discovered: str,
    discover_help: str,
    more_help: str = "",
) -> Iterator[Method]:
    """The methods as they answer in one form.

    Args:
        discovered: the type of what ``discover`` answers, in XML-RPC's words.
        more_help: follows the help of the methods that run units.
    """
    only = frozenset((form,))
    for name in ("discover", "Discover"):
        yield Method(name, f"{name}()\n\n{discover_help}", ((discovered,),), discover, only)
    for method in _RUNS:
        result = method.result if form is AnswerForm.DESIGN else "struct"
        ways = signatures(result, method.parameters)
        run = partial(decide, method.read)
        yield Method(method.name, method.help + more_help, ways, run, only)


def _discover(
    service: Service, show: Callable[[Units], object], _caller: Caller, parameters: Parameters
) -> object:
    values.counted("discover", (), parameters)
    return show(service.discover())


def _decide(
    service: Service,
    show: Callable[[Decision], object],
    read: _Read,
    caller: Caller,
    parameters: Parameters,
) -> Reply:
    decision = service.decide(read(caller, parameters))
    made = partial(record.of_units, decision)
    return Reply(show(decision), log.fields(decision), decision.results, made)
