"""Which unit is to blame for a decision that comes out otherwise, and how it is told."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from ovirt_scheduler.history import ranking
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.model.values.hidden import HIDDEN
from ovirt_scheduler.workbench import reports
from ovirt_scheduler.workbench.comparison import Comparison, Side


def unit(name: str, kind: str = "filter", **more: Any) -> dict[str, Any]:
    made = {"name": name, "kind": kind, "checksum": f"sha256:{name}", "outcome": "ok"}
    return {**made, "mode": "live", **more}


def filtered(units: list[dict], verdicts: dict[str, list[str]], **more: Any) -> Record:
    """A call of filters: the verdicts of all on each host."""
    hosts = [
        {
            "id": host, "name": f"name of {host}",
            "verdicts": [
                {"unit": each["name"], "verdict": verdict} for each, verdict in zip(units, said)
            ],
        }
        for host, said in verdicts.items()
    ]  # fmt: skip
    answer = [host for host, said in verdicts.items() if "removed" not in said]
    made = {"id": "1", "time": "2026-01-31T12:00:00Z", "method": "runFilters", "units": units}
    return {**made, "hosts": hosts, "answer": answer, **more}  # type: ignore[return-value]


def scored(
    units: list[dict], costs: dict[str, list[int]], held: Optional[dict[str, int]] = None
) -> Record:
    made = filtered([], {host: [] for host in costs})
    for host in made["hosts"]:
        host["costs"] = [
            {"unit": each["name"], "cost": cost, "factor": 1, "weighted": (held or {}).get(host["id"], cost)}
            for each, cost in zip(units, costs[host["id"]])
        ]  # fmt: skip
    made.update(method="runCostFunctions", units=units)
    ranking.put_totals(made)
    return {**made, "answer": ranking.ranked(made)}


def compared(then: Record, *made: Record) -> Comparison:
    comparison = Comparison(len(made) > 1)
    comparison.add(then, made)
    return comparison


P, R, N, F = "passed", "removed", "never asked", "failed"


def test_what_a_scheduler_of_a_filters_name_said_is_not_the_filters():
    """The filter's verdict on a host comes first, and the scheduler's after it."""
    both = [unit("Both"), unit("Both", "scheduler")]
    then, now = (filtered(both, {"a": [P, said], "b": [R, P]}) for said in (P, R))
    for record in (then, now):
        side = Side(record)
        assert side.calls["filter", "Both"].answers == {"a": P, "b": R}
    assert Side(then).differing(Side({**now, "answer": then["answer"]})) == []


def test_a_filter_after_one_that_changed_was_asked_something_else():
    """As one that keeps the first host it gets: it is the same, and has nothing random."""
    then = filtered([unit("Edited"), unit("First")], {"a": [P, P], "b": [P, R]})
    today = filtered(
        [unit("Edited", checksum="sha256:other"), unit("First")], {"a": [R, N], "b": [P, P]}
    )
    told = compared(then, today)
    assert (told.unsteady, told.edited, told.same) == ({}, {"Edited": 1}, 0)
    assert told.differ[0].units == ["Edited"]
    assert compared(then, today, today).uncertain == []


def test_a_filter_after_one_of_chance_is_not_to_blame_either():
    units = [unit("Chance"), unit("First")]
    then = filtered(units, {"a": [P, P], "b": [P, R]})
    told = compared(then, filtered(units, {"a": [R, N], "b": [P, P]}))
    assert told.unsteady == {"Chance": 1}


@pytest.mark.parametrize("kind", ["balance", "scheduler"])
def test_what_gives_one_answer_is_to_blame_for_it_on_the_same_question_alone(kind):
    def made(*left: str, answer: str) -> Record:
        verdicts = {host: [P if host in left else R] for host in "abc"}
        units = [unit("Few"), unit("Last", kind)]
        return filtered(units, verdicts, method="selectHost", answer=[answer])

    assert compared(made("a", "b", answer="a"), made("a", "b", answer="b")).unsteady == {"Last": 1}
    of_another = compared(made("a", "b", answer="a"), made("b", "c", answer="b"))
    assert of_another.unsteady == {"Few": 1}


def test_a_property_that_was_not_recorded_is_told_and_no_unit_is_blamed():
    """A change cannot be told from it; where all comes out the same, nothing is said."""
    then = filtered([unit("Asks")], {"a": [P]}, properties={"api_key": HIDDEN, "size": "1"})
    today = filtered([unit("Asks")], {"a": [R]}, properties={"size": "1"})
    told = compared(then, today, today)
    assert (told.unsteady, told.masked, told.uncertain) == ({}, {"api_key": 1}, ["1"])
    line = "  the value of api_key was not recorded: its default held (decisions: 1)"
    assert line in [*reports.replay_lines(told, ())]
    assert told.fields()["masked"] == {"api_key": 1}
    same = compared(then, {**then, "properties": {"size": "1"}})
    assert (same.masked, same.same) == ({}, 1)


@pytest.mark.parametrize("before", [F, R])
def test_an_on_failure_that_changed_is_told(before):
    """The filter fails as it did; the setting is none of its checksum."""
    now = R if before == F else F
    units = [unit("Falls", outcome="raised", message="no"), unit("First")]
    then = filtered(units, {"a": [before, P if before == F else N]})
    today = filtered(units, {"a": [now, P if now == F else N]})
    told = compared(then, today)
    assert (told.unsteady, told.treated_otherwise) == ({}, {"Falls": 1})
    line = "  Falls failed then, too, and its on_failure is another now (decisions: 1)"
    assert line in [*reports.replay_lines(told, ())]
    assert told.fields()["on_failure"] == {"Falls": 1}
    assert compared(then, today, today).uncertain == []


def test_a_cost_that_is_clamped_because_of_another_functions_is_the_same_cost():
    units = [unit("Edited", "cost function"), unit("Even", "cost function")]
    then = scored(units, {"a": [1, 9 * 10**8]})
    edited = [{**units[0], "checksum": "sha256:other"}, units[1]]
    today = scored(edited, {"a": [2 * 10**8, 9 * 10**8]}, held={"a": 5 * 10**8})
    told = compared(then, today)
    assert (told.unsteady, told.edited) == ({}, {"Edited": 1})


def test_json_has_ids_and_names():
    """Two hosts may have one name, and a host none."""
    units = [unit("Even", "cost function")]
    then, today = scored(units, {"a": [1], "b": [2]}), scored(units, {"a": [2], "b": [1]})
    for each in (then, today):
        for host in each["hosts"]:
            host["name"] = "alike"
    told = compared({**then, "vm": {"id": "v", "name": "web"}}, today)
    fields = told.fields()
    assert fields["before"]["wins"] == [{"id": "a", "name": "alike", "count": 1}]
    assert fields["after"]["wins"] == [{"id": "b", "name": "alike", "count": 1}]
    (differ,) = fields["differ"]
    assert differ["vm"] == {"id": "v", "name": "web"}
    assert differ["winners"] == ({"id": "a", "name": "alike"}, {"id": "b", "name": "alike"})
    assert told.wins(told.after) == {"alike (b)": 1}
    refused = compared(
        filtered([unit("One")], {"a": [P], "b": [P]}),
        filtered([unit("One")], {"a": [P], "b": [R]}),
    )
    assert refused.fields()["differ"][0]["refused"] == [{"id": "b", "name": "name of b"}]


def test_a_host_that_no_function_scores_any_more_has_no_cost():
    """It was left by no filter: nobody asked one."""
    functions = [unit("Calm", "cost function", factor=1)]
    before, now = scored(functions, {"a": [0], "b": [1]}), scored([], {"a": [], "b": []})
    (difference,) = compared(before, before, now).differ
    assert "name of a: 0 = Calm 1 × 0; now no cost" in difference.why
