"""The XML-RPC methods for policy units: parameters to a Request, and a Decision to the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Callable

from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.errors import BadParameters
from ovirt_scheduler.model import aggregate, properties
from ovirt_scheduler.model.decisions import Decision, Request
from ovirt_scheduler.model.requests import (
    UUID,
    AnswerForm,
    Caller,
    EngineScores,
    Subjects,
    WantedUnit,
)
from ovirt_scheduler.model.results import Migration
from ovirt_scheduler.model.tasks import Returns
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.server import discovery, values
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

# Structs of the engine's discover.
_ENGINE_GROUPS = {Kind.FILTER: "filters", Kind.COST_FUNCTION: "scores", Kind.BALANCE: "balance"}


def methods(
    service: DecisionService, scores: EngineScores, engine_reasons: bool = False
) -> Iterator[Method]:
    """The four operations in both answer forms (contract 2, 3), discover in both spellings.

    Args:
        scores: which costs the engine form has.
        engine_reasons: whether it says which filters removed the hosts, if none is left
            (contract 8.5).
    """
    for form, result, text, tell in (
        (AnswerForm.DESIGN, "string", "All policy units, as an XML document.",
         discovery.document),
        (AnswerForm.ENGINE, "struct",
         "All policy units: a struct for filters, scores and balance each.", engine_discovery),
    ):  # fmt: skip
        discover = partial(_discover, service, tell)
        for name in ("discover", "Discover"):
            yield Method(name, (), (result,), text, discover, forms=(form,))
    for name, kind, parameters, result, text in _RUNS:
        with_reasons = engine_reasons and kind is Kind.FILTER
        decide = partial(_decide, service, scores, with_reasons, kind)
        yield from in_both_forms(name, parameters, (result,), text, decide)


def _discover(
    service: DecisionService,
    tell: Callable[[Sequence[PolicyUnit]], object],
    _caller: Caller,
    _none: Parameters,
) -> object:
    return tell(service.discover())


def engine_discovery(units: Iterable[PolicyUnit]) -> dict[str, object]:
    """What ``discover`` answers in the engine form (contract 3.1).

    Exactly three keys, each a struct of name to [description, properties]; anything else makes
    the engine drop all units.
    """
    groups: dict[str, dict[str, list[str]]] = {name: {} for name in _ENGINE_GROUPS.values()}
    for unit in units:
        syntax = "" if unit.properties is None else properties.engine_syntax(unit.properties)
        groups[_ENGINE_GROUPS[unit.kind]][unit.name] = [unit.description, syntax]
    return dict(groups)


def _decide(
    service: DecisionService,
    scores: EngineScores,
    with_reasons: bool,
    kind: Kind,
    caller: Caller,
    parameters: Parameters,
) -> Reply:
    return reply(service.decide(request(caller, kind, parameters)), scores, with_reasons)


def request(caller: Caller, kind: Kind, parameters: Sequence[object]) -> Request:
    """The call of an operation that runs policy units of a kind (contract 2.2 to 2.4).

    Args:
        parameters: units, hosts, a VM (except for a balance), and properties.

    Raises:
        BadParameters: which parameter, and what was expected.
    """
    named, hosts, *vms, custom = parameters
    if kind is Kind.FILTER:
        place = "filters"
        wanted = [WantedUnit(name) for name in values.strings(place, named)]
    elif kind is Kind.COST_FUNCTION:
        place = "cost_functions"
        wanted = _factors(place, named)
    else:
        place = "balance"
        wanted = [WantedUnit(values.string(place, named))]
    values.check_units(place, wanted)
    vm = values.vm(vms[0]) if vms else None
    subjects = Subjects(values.hosts(hosts), vm=vm)
    return Request(caller, subjects, values.properties(custom), {kind: tuple(wanted)})


def _factors(place: str, value: object) -> list[WantedUnit]:
    if isinstance(value, dict):
        value = [list(item) for item in value.items()]
    if not isinstance(value, list):
        raise values.expected(place, "an array of [name, factor]", value)
    wanted = []
    for position, pair in enumerate(value):
        here = f"{place}[{position}]"
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadParameters(f"{here}: expected [name, factor]")
        name = values.string(f"{here}[0]", pair[0])
        factor = pair[1]
        if type(factor) is not int:
            raise values.expected(f"{here}[1], the factor of {name:.80}", "an int", factor)
        if not -(2**31) <= factor < 2**31:
            raise BadParameters(f"{here}[1], the factor of {name:.80}: {factor} is beyond 32 bits")
        wanted.append(WantedUnit(name, factor))
    return wanted


def reply(decision: Decision, scores: EngineScores, with_reasons: bool = False) -> Reply:
    """The reply to a decision, in its caller's form.

    Args:
        scores, with_reasons: in the engine form, as ``methods`` has them.
    """
    if decision.request.caller.form is AnswerForm.DESIGN:
        return decided(_design_result(decision), decision)
    decision = _for_engine(decision)
    return decided(_engine_result(decision, scores), decision, with_reasons)


def _design_result(decision: Decision) -> object:
    """The result in the design form (contract 2.2 to 2.4)."""
    answer = decision.answer
    if answer is None:
        return {}
    if isinstance(answer, Migration):
        return {answer.vm: list(answer.hosts)}
    return list(answer) if isinstance(answer, tuple) else dict(answer)


def _for_engine(decision: Decision) -> Decision:
    """The same without a migration whose VM's id is no UUID, which no engine has (contract 3.6)."""
    migration = decision.answer
    if not isinstance(migration, Migration) or UUID.fullmatch(migration.vm):
        return decision
    (wanted,) = decision.request.wanted[Kind.BALANCE]
    error = f"answered with {migration.vm!r:.80}, which is not the id of a VM"
    told = (*decision.unit_errors.get(wanted.name, ()), error)
    return decision._replace(answer=None, unit_errors={**decision.unit_errors, wanted.name: told})


def _engine_result(decision: Decision, scores: EngineScores) -> object:
    """The result in the engine form's envelope (contract 3.3 to 3.5)."""
    returns, answer = decision.request.returns, decision.answer
    if returns is Returns.MIGRATION:
        # Nothing to do is never [], which stops the engine's balancing.
        return [answer.vm, list(answer.hosts)] if isinstance(answer, Migration) else ["", []]
    if returns is Returns.HOSTS:
        return list(answer)
    if scores is EngineScores.PER_UNIT:
        _, counted, _ = aggregate.summed(decision.calls, decision.execution.cost_functions)
        return [
            [host, cost, outcome.unit]
            for outcome in counted
            if outcome.ok
            for host, cost in outcome.value.items()
        ]
    return [[host, cost] for host, cost in answer.items()]
