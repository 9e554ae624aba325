"""The XML-RPC methods for policy units: the name, parameters and result of each.

``unit_wire`` reads the parameters, a ``UnitService`` decides, and ``unit_wire`` writes the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ovirt_scheduler.decisions import log
from ovirt_scheduler.decisions.units import UnitService
from ovirt_scheduler.model.requests import AnswerForm, Caller, EngineScores
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.server import discovery, unit_wire
from ovirt_scheduler.server.method import Method, Parameters, Reply, decided, in_both_forms

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


def methods(
    service: UnitService, scores: EngineScores, engine_reasons: bool = False
) -> Iterator[Method]:
    """The four operations in both answer forms (contract 2, 3), discover in both spellings.

    Args:
        scores: what the engine form tells of the costs.
        engine_reasons: whether it tells who removed the hosts, where none is left (contract 8.5).
    """
    discover = partial(_discover, service)
    for name in ("discover", "Discover"):
        text = "All policy units, as an XML document."
        yield Method(name, (), ("string",), text, discover, forms=(AnswerForm.DESIGN,))
        text = "All policy units: a struct for filters, scores and balance each."
        yield Method(name, (), ("struct",), text, discover, forms=(AnswerForm.ENGINE,))
    for name, kind, parameters, result, text in _RUNS:
        decide = partial(_decide, service, scores, engine_reasons, kind)
        yield from in_both_forms(name, parameters, (result,), text, decide)


def _discover(service: UnitService, caller: Caller, _none: Parameters) -> object:
    units = service.discover()
    is_design = caller.form is AnswerForm.DESIGN
    return discovery.document(units) if is_design else unit_wire.engine_discovery(units)


def _decide(
    service: UnitService,
    scores: EngineScores,
    engine_reasons: bool,
    kind: Kind,
    caller: Caller,
    parameters: Parameters,
) -> Reply:
    decision = service.decide(unit_wire.request(caller, kind, parameters))
    if caller.form is AnswerForm.DESIGN:
        answer = unit_wire.design_answer(decision)
    else:
        hosts = decision.execution.hosts
        none_left = kind is Kind.FILTER and hosts and not decision.answer
        reasons = (log.summary(decision),) if engine_reasons and none_left else ()
        answer = unit_wire.engine_answer(decision, scores, reasons)
    return decided(answer, decision)
