"""The XML-RPC methods for policy units: the name, parameters and result of each.

``unit_wire`` reads the parameters, a ``UnitService`` decides, and ``unit_wire`` writes the answer.
"""

from __future__ import annotations

from functools import partial
from typing import Callable, Iterator, NamedTuple, Tuple

from ovirt_scheduler.decisions import log
from ovirt_scheduler.decisions.units import UnitService
from ovirt_scheduler.history import record
from ovirt_scheduler.model.requests import AnswerForm, Caller, EngineScores, Request
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.server import discovery, unit_wire, values
from ovirt_scheduler.server.method import Method, Parameters, Reply, in_both_forms, signatures

Units = Tuple[PolicyUnit, ...]


class _Run(NamedTuple):
    """One of the operations that run policy units."""

    name: str
    read: Callable[[Caller, Parameters], Request]
    parameters: Tuple[str, ...]
    result: str  # its type in the design form
    help: str


_RUNS = (
    _Run("runFilters", unit_wire.filters_request,
         ("names", "hosts", "vm", "properties"), "array",
         """names: array of the filters' names, run in this order.
hosts: an XML document as a string, or an array of ids.
vm: an XML document, or an id.
properties: struct of strings, for all filters.
Gives the ids of the hosts that every filter accepted, in the order given."""),
    _Run("runCostFunctions", unit_wire.cost_functions_request,
         ("functions", "hosts", "vm", "properties"), "struct",
         """functions: array of [name, factor], or a struct of factor by name.
hosts, vm, properties: as for runFilters.
Gives for each host the sum of factor times cost; lower is better."""),
    _Run("runLoadBalancing", unit_wire.balance_request,
         ("name", "hosts", "properties"), "struct",
         """name: of one balance.
hosts, properties: as for runFilters.
Gives the VM to migrate and the hosts it may go to, or nothing."""),
)  # fmt: skip

# What discover answers in each form: how it is made, its type, and its help.
_DISCOVERED = (
    (AnswerForm.DESIGN, discovery.document, "string", "All policy units, as an XML document."),
    (AnswerForm.ENGINE, unit_wire.engine_discovery, "struct",
     "All policy units: a struct for filters, scores and balance each."),
)  # fmt: skip


def methods(
    service: UnitService, scores: EngineScores, engine_reasons: bool = False
) -> Iterator[Method]:
    """The four operations in both answer forms (contract 2, 3), discover in both spellings.

    Args:
        scores: what the engine form tells of the costs.
        engine_reasons: whether it tells who removed the hosts, where none is left (contract 8.5).
    """
    for form, show, result, text in _DISCOVERED:
        for name in ("discover", "Discover"):
            discover = partial(_discover, service, show)
            yield Method(name, f"{name}()\n\n{text}", ((result,),), discover, frozenset((form,)))
    for run in _RUNS:
        yield from in_both_forms(
            run.name,
            f"{run.name}({', '.join(run.parameters)})\n\n{run.help}",
            signatures(run.result, run.parameters),
            partial(_decide, service, scores, engine_reasons, run),
        )


def _discover(
    service: UnitService, show: Callable[[Units], object], _caller: Caller, parameters: Parameters
) -> object:
    values.counted("discover", (), parameters)
    return show(service.discover())


def _decide(
    service: UnitService,
    scores: EngineScores,
    engine_reasons: bool,
    run: _Run,
    caller: Caller,
    parameters: Parameters,
) -> Reply:
    decision = service.decide(run.read(caller, parameters))
    if caller.form is AnswerForm.DESIGN:
        answer = unit_wire.design_answer(decision)
    else:
        filtered = decision.request.kind is Kind.FILTER and decision.hosts and not decision.answer
        reasons = (log.summary(decision),) if engine_reasons and filtered else ()
        answer = unit_wire.engine_answer(decision, scores, reasons)
    made = partial(record.of, decision)
    return Reply(answer, log.fields(decision), decision.results, made)
