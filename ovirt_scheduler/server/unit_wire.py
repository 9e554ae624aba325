"""Turns XML-RPC parameters into a Request, and a Decision into the caller's answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from ovirt_scheduler.errors import BadParameters
from ovirt_scheduler.model import properties
from ovirt_scheduler.model.decisions import Decision
from ovirt_scheduler.model.requests import UUID, Caller, EngineScores, Request, WantedUnit
from ovirt_scheduler.model.results import Migration
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.server import values

# Structs of the engine's discover.
_ENGINE_GROUPS = {Kind.FILTER: "filters", Kind.COST_FUNCTION: "scores", Kind.BALANCE: "balance"}


def request(caller: Caller, kind: Kind, parameters: Sequence[object]) -> Request:
    """The call of an operation that runs policy units of a kind (contract 2.2 to 2.4).

    Args:
        parameters: which units, hosts, a VM but for a balance, and properties.

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
    return Request(caller, kind, tuple(wanted), values.hosts(hosts), vm, values.properties(custom))


def design_answer(decision: Decision) -> object:
    """The answer in the design form (contract 2.2 to 2.4)."""
    answer = decision.answer
    if answer is None:
        return {}
    if isinstance(answer, Migration):
        return {answer.vm: list(answer.hosts)}
    return list(answer) if isinstance(answer, tuple) else dict(answer)


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


def engine_answer(
    decision: Decision, scores: EngineScores, reasons: Sequence[str] = ()
) -> dict[str, object]:
    """The answer in the engine form: the envelope of contract 3.2 round a result of 3.3 to 3.5.

    Args:
        reasons: for the engine's audit log, besides the errors.
    """
    unit_errors = {name: list(messages) for name, messages in decision.unit_errors.items()}
    result: object
    if decision.request.kind is Kind.BALANCE:
        result = _engine_migration(decision, unit_errors)
    elif decision.request.kind is Kind.COST_FUNCTION and scores is EngineScores.PER_UNIT:
        result = [
            [host, cost, outcome.unit]
            for outcome in decision.results
            if outcome.ok
            for host, cost in outcome.value.items()
        ]
    elif decision.request.kind is Kind.COST_FUNCTION:
        costs = cast("Mapping[str, int]", decision.answer)
        result = [[host, cost] for host, cost in costs.items()]
    else:
        result = list(cast("tuple[str, ...]", decision.answer))
    return values.envelope(result, unit_errors, (*decision.errors, *reasons))


def _engine_migration(decision: Decision, unit_errors: dict[str, list[str]]) -> list[object]:
    """``[vm, hosts]``; nothing to do is never ``[]``, which stops the engine's balancing (3.5)."""
    nothing: list[object] = ["", []]
    migration = decision.answer
    if not isinstance(migration, Migration):
        return nothing
    if not UUID.fullmatch(migration.vm):
        (wanted,) = decision.request.wanted
        unit_errors.setdefault(wanted.name, []).append(
            f"answered with {migration.vm!r:.80}, which is not the id of a VM"
        )
        return nothing
    return [migration.vm, list(migration.hosts)]


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
