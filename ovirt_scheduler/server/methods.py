"""The methods that the daemon offers over XML-RPC: what each is called, takes and gives.

Here the three parts meet that know nothing of each other: ``wire`` reads the parameters,
``service`` decides, ``wire`` writes the answer.
"""

from __future__ import annotations

from typing import Callable, Iterator, NamedTuple, Tuple

from ovirt_scheduler.decisions import decision_log
from ovirt_scheduler.decisions.units import Service
from ovirt_scheduler.model.decisions import Decision
from ovirt_scheduler.model.requests import AnswerForm, Caller, EngineScores, Request
from ovirt_scheduler.model.units import PolicyUnit
from ovirt_scheduler.server import discovery, wire
from ovirt_scheduler.server.method import Method, Reply

Parameters = Tuple[object, ...]
Units = Tuple[PolicyUnit, ...]


class _Run(NamedTuple):
    """One of the operations that run policy units."""

    name: str
    read: Callable[[Caller, Parameters], Request]
    parameters: Tuple[Tuple[str, ...], ...]  # the ways to call it, in XML-RPC's words
    result: str  # its type in the design form
    help: str


_RUNS = (
    _Run(
        "runFilters",
        wire.filters_request,
        (("array", "string", "string", "struct"), ("array", "array", "string", "struct")),
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
        wire.cost_functions_request,
        tuple(
            (functions, hosts, "string", "struct")
            for functions in ("array", "struct")
            for hosts in ("string", "array")
        ),
        "struct",
        """runCostFunctions(functions, hosts, vm, properties)

functions: array of [name, factor], or a struct of factor by name.
hosts, vm, properties: as for runFilters.
Gives for each host the sum of factor times cost; lower is better.""",
    ),
    _Run(
        "runLoadBalancing",
        wire.balance_request,
        (("string", "string", "struct"), ("string", "array", "struct")),
        "struct",
        """runLoadBalancing(name, hosts, properties)

name: of one balance.
hosts, properties: as for runFilters.
Gives the VM to migrate and the hosts it may go to, or nothing.""",
    ),
)


def methods(service: Service, scores: EngineScores) -> Tuple[Method, ...]:
    """The four operations in both answer forms (contract 2, 3), discover in both spellings.

    Args:
        scores: what the engine form tells of the costs.
    """
    design = _in_form(
        AnswerForm.DESIGN, service, discovery.document, wire.design_answer,
        discovered=("string", "All policy units, as an XML document."),
        answered="",
    )  # fmt: skip
    engine = _in_form(
        AnswerForm.ENGINE,
        service,
        wire.engine_discovery,
        lambda decision: wire.engine_answer(decision, scores),
        discovered=("struct", "All policy units: a struct for filters, scores and balance each."),
        answered="\nThe answer is a struct: result_code, result, plugin_errors, errors.",
    )
    return (*design, *engine)


def _in_form(
    form: AnswerForm,
    service: Service,
    show_units: Callable[[Units], object],
    show_decision: Callable[[Decision], object],
    discovered: Tuple[str, str],
    answered: str,
) -> Iterator[Method]:
    """The methods as they answer in one form."""

    def discover(_caller: Caller, parameters: Parameters) -> object:
        wire.discover_request(parameters)
        return show_units(service.discover())

    def run(
        read: Callable[[Caller, Parameters], Request],
    ) -> Callable[[Caller, Parameters], object]:
        def answer(caller: Caller, parameters: Parameters) -> object:
            request = read(caller, parameters)
            decision = service.decide(request)
            told = decision_log.fields(decision)
            return Reply(show_decision(decision), told, decision.results)

        return answer

    only = frozenset((form,))
    returned, words = discovered
    for name in ("discover", "Discover"):
        yield Method(name, f"{name}()\n\n{words}", ((returned,),), discover, only)
    for method in _RUNS:
        result = method.result if form is AnswerForm.DESIGN else "struct"
        signatures = tuple((result, *parameters) for parameters in method.parameters)
        yield Method(method.name, method.help + answered, signatures, run(method.read), only)
