"""Decisions to the two answer forms."""

from __future__ import annotations

from typing import Any

import pytest

from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.analysis import Analysis
from ovirt_scheduler.model.jobs import Decision, Execution, Request
from ovirt_scheduler.model.plugins import Limits, PluginCode
from ovirt_scheduler.model.requests import (
    AnswerForm,
    Caller,
    EngineScores,
    Entities,
    RequestedUnit,
)
from ovirt_scheduler.model.results import CallOutcome, CallResult, Migration
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.server import methods

CALLER = Caller("r1", AnswerForm.DESIGN, "127.0.0.1:1")
ENGINE = Caller("r1", AnswerForm.ENGINE, "127.0.0.1:1")
UUID = "0f7a9c6e-3b0d-4f6a-9a3e-5f0d6c1b2a79"
SUMMED, PER_UNIT = EngineScores.SUMMED, EngineScores.PER_UNIT


def answer_to(decision: Decision, scores: EngineScores) -> Any:
    return methods.DecisionMethods(None, scores).answer(decision)


def decision(caller: Caller, kind: Kind, answer: object, **changes: object) -> Decision:
    request = Request(caller, Entities(("h1", "h2"), vm="vm"), {}, {kind: (RequestedUnit("u"),)})
    return Decision(request, Execution(("h1", "h2"), vm="vm"), answer)._replace(**changes)


@pytest.mark.parametrize(
    ("kind", "answer", "shown"),
    [
        (Kind.FILTER, ("h2",), ["h2"]),
        (Kind.FILTER, (), []),
        (Kind.COST_FUNCTION, {"h1": 3}, {"h1": 3}),
        (Kind.COST_FUNCTION, {}, {}),
        (Kind.BALANCE, Migration("vm", ("h1",)), {"vm": ["h1"]}),
        (Kind.BALANCE, Migration("vm", ()), {"vm": []}),
        (Kind.BALANCE, None, {}),
    ],
)
def test_the_design_form_is_the_bare_answer(kind, answer, shown):
    """Array, struct of ints, struct of arrays (contract 2.2 to 2.4)."""
    made = decision(CALLER, kind, answer, errors=("not shown",))
    assert answer_to(made, SUMMED) == shown


@pytest.mark.parametrize(
    ("kind", "answer", "result"),
    [
        (Kind.FILTER, ("h2",), ["h2"]),
        (Kind.FILTER, (), []),
        (Kind.COST_FUNCTION, {"h1": 3}, [["h1", 3]]),
        (Kind.COST_FUNCTION, {}, []),
        (Kind.BALANCE, Migration(UUID, ("h1",)), [UUID, ["h1"]]),
        (Kind.BALANCE, Migration(UUID, ()), [UUID, []]),
        (Kind.BALANCE, None, ["", []]),
    ],
)
def test_the_engine_form_is_an_envelope_without_empty_parts(kind, answer, result):
    """Errors are not there when there are none (contract 3.2 to 3.5)."""
    answered = answer_to(decision(ENGINE, kind, answer), SUMMED)
    assert answered == {"result_code": 0, "result": result}


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"errors": ("all failed",)}, {"errors": ["all failed"]}),
        ({"unit_errors": {"u": ("a", "b")}}, {"plugin_errors": {"u": ["a", "b"]}}),
    ],
)
def test_the_engine_form_tells_errors_with_the_code_that_has_them_read(changes, shown):
    """The engine looks at them only where the code is not 0 (contract 3.2)."""
    made = decision(ENGINE, Kind.FILTER, ("h1",), **changes)
    answered = answer_to(made, SUMMED)
    assert answered == {"result_code": 1, "result": ["h1"], **shown}


def test_scores_per_unit_lead_the_engine_to_the_same_sums():
    """Each function's own cost, not multiplied; a failed one is not there (contract 3.4)."""
    results = (
        CallResult("a", CallOutcome.OK, {"h1": 5, "h2": -1}),
        CallResult("b", CallOutcome.RAISED, message="no"),
        CallResult("c", CallOutcome.OK, {"h2": 4}),
    )
    factors = {"a": 3, "b": 7, "c": -2}
    calls = tuple(
        UnitCall(unit(name, Kind.COST_FUNCTION), {}, factor, len(factors))
        for name, factor in factors.items()
    )
    execution = Execution(("h1", "h2"), cost_functions=results)
    answer, _ = aggregate.summed(calls, results)
    made = decision(ENGINE, Kind.COST_FUNCTION, answer, execution=execution, calls=calls)
    summed = answer_to(made, SUMMED)["result"]
    per_unit = answer_to(made, PER_UNIT)["result"]
    assert per_unit == [["h1", 5, "a"], ["h2", -1, "a"], ["h2", 4, "c"]]
    by_engine: dict = {}
    for host, cost, name in per_unit:
        by_engine[host] = by_engine.get(host, 0) + factors[name] * cost
    assert by_engine == dict(summed)


def unit(name: str, kind: Kind) -> PolicyUnit:
    code = PluginCode(name, "/p", Analysis().modules)
    return PolicyUnit(name, kind, f"about {name}", code, "sha256:", Limits(1, 1, 1, 1))
