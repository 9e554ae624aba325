"""How a VM was placed, in lines and as a table; records are written by hand."""

from __future__ import annotations

import pytest

from ovirt_scheduler.history import placement_explanation
from ovirt_scheduler.history.placement_explanation import grid
from tests.support.written_decisions import (
    FILTERED,
    WEB,
    decision,
    function,
    host,
    scored,
    text,
    unit,
)


def test_there_is_no_grid_of_a_scheduler_alone():
    """Its lines say which host comes first; a table could only say so again."""
    chosen = {**FILTERED, "method": "selectHost", "units": [], "hosts": [{"id": "h1", "rank": 1}]}
    assert grid([chosen]) == ([], [])


def test_the_grid_has_hosts_and_units_of_both_calls():
    """The best first, the removed last, a dash where nothing was said."""
    costs = scored({"Even": 2, "Dear": 1}, {"puma": (4, 6), "ocelot": (3, None)})
    assert grid([FILTERED, costs]) == (
        ["HOST", "MaxVms", "Broken", "Memory", "Even ×2", "Dear ×1", "TOTAL", "RANK"],
        [
            ["ocelot", "passed", "failed", "passed", "3", "-", "6", "1"],
            ["puma", "passed", "failed", "passed", "4", "6", "14", "2"],
            ["lynx", "removed", "-", "-", "-", "-", "-", "-"],
            ["serval", "passed", "failed", "removed", "-", "-", "-", "-"],
            ["bobcat", "removed", "-", "-", "-", "-", "-", "-"],
        ],
    )


def test_a_cost_that_was_cut_stands_in_the_grid_as_it_counts():
    costs = scored({"Even": 2}, {"puma": (10**9,)})
    costs["hosts"][0]["costs"][0]["held"] = 500_000_000
    assert grid([costs])[1] == [["puma", "500000000", "1000000000", "1"]]


def test_hosts_that_cost_the_same_share_a_rank_in_the_grid():
    _, rows = grid([scored({"Even": 1}, {"puma": (4,), "lynx": (4,), "ocelot": (5,)})])
    assert rows == [["puma", "4", "4", "1"], ["lynx", "4", "4", "1"], ["ocelot", "5", "5", "3"]]


def last_of(*decisions):
    """The calls of the last placement, of these decisions, the newest first."""
    kept = {str(number): each for number, each in enumerate(decisions)}
    return placement_explanation.of_last(
        [{**each, "id": key} for key, each in kept.items()], kept.get
    )


def test_two_calls_of_an_engine_are_one_story():
    """With the host that the engine's own filters removed in between."""
    costs = {**scored({"Even": 1}, {"puma": (4,)}), "time": "2026-01-31T12:00:02Z"}
    told = text(placement_explanation.lines(last_of(costs, FILTERED)))
    assert "runFilters" in told[0]
    assert (
        "  ocelot: left by our filters, but the engine asked for no costs: its own filters removed it"
        in told
    )
    assert told[-2:] == [
        "The engine adds its own weights to these costs, and then takes the best host.",
        "The engine does not say which host it took.",
    ]


@pytest.mark.parametrize(
    ("method", "later", "hosts", "belong"),
    [
        ("runCostFunctions", "2026-01-31T12:02:00Z", ("puma",), True),
        ("runCostFunctions", "2026-01-31T12:03:00Z", ("puma",), False),
        ("runCostFunctions", "2026-01-31T11:59:59Z", ("puma",), False),
        ("runCostFunctions", "2026-01-31T12:00:01Z", ("puma", "lynx"), False),
        ("runFilters", "2026-01-31T12:00:01Z", ("puma",), False),
    ],
)
def test_which_calls_belong_together(method, later, hosts, belong):
    """Costs within two minutes, on hosts that the filters left."""
    after = decision(method, [function("Even")], map(host, hosts), [], time=later)
    after = {**after, "time": later}
    assert last_of(after, FILTERED) == ([FILTERED, after] if belong else [after])


def test_another_call_on_the_vm_in_between_parts_two_placements():
    """Nor do calls of two callers join; what the engine asked because the daemon did, parts none."""
    costs = {**scored({"Even": 1}, {"puma": (4,)}), "time": "2026-01-31T12:00:02Z"}
    between = {**FILTERED, "time": "2026-01-31T12:00:01Z"}
    assert last_of(costs, {**between, "answer": []}, FILTERED) == [costs]
    assert last_of(costs, {**costs, "time": between["time"]}, FILTERED) == [costs]
    assert last_of(costs, {**FILTERED, "form": "design"}) == [costs]
    assert last_of(costs, {**between, "beforehand": True}, FILTERED) == [FILTERED, costs]


def test_the_grid_has_no_column_of_a_unit_that_was_not_asked():
    """As one that is not there; unless it removed hosts by that."""
    units = [unit("MaxVms"), unit("Gone", outcome="not asked"), unit("Strict", outcome="not asked")]
    verdicts = {"MaxVms": ("passed", ""), "Strict": ("removed", "")}
    made = decision("runFilters", units, [host("puma", verdicts)], [])
    assert grid([made]) == (["HOST", "MaxVms", "Strict"], [["puma", "passed", "removed"]])


def test_a_balance_before_them_belongs_to_the_story():
    """It chose the VM; an older placement does not."""
    moved = decision(
        "runLoadBalancing", [unit("Memory", "balance")], [host("lynx")], {"vm": WEB["id"], "hosts": []}
    )  # fmt: skip
    moved["time"] = "2026-01-31T11:59:59Z"
    assert last_of(FILTERED, moved) == [moved, FILTERED]
    older = {**FILTERED, "time": "2026-01-31T11:58:59Z"}
    assert last_of(FILTERED, moved, older) == [moved, FILTERED]


def of_cluster(method, answer, seconds, units=(), hosts=("puma",), **more):
    """A call of the daemon's own, so many seconds after noon."""
    time = f"2026-01-31T12:00:{seconds:02}Z"
    made = decision(method, units, map(host, hosts), answer, cluster="Default", **more)
    return {**made, "form": "daemon", "time": time}


def test_a_migration_of_the_daemon_is_one_story_with_its_units():
    """Whether the scheduler was asked once more or not; another cluster's is another story."""
    moves = {WEB["id"]: ["id-of-puma"], "other": ["id-of-puma"]}
    asked = of_cluster("loadBalance", moves, 1)
    filters = of_cluster("runFilters", ["id-of-puma"], 2, [unit("MaxVms")], vm=WEB)
    costs = of_cluster("runCostFunctions", ["id-of-puma"], 3, [function("Even")], vm=WEB)
    again = of_cluster("loadBalance", {WEB["id"]: ["id-of-puma"]}, 4)
    older = of_cluster("loadBalance", moves, 0)
    assert last_of(costs, filters, asked, older) == [asked, filters, costs]
    assert last_of(again, costs, filters, asked, older) == [asked, filters, costs, again]
    assert last_of(again, filters, asked) == [asked, filters, again]
    assert last_of(costs, filters, {**asked, "cluster": "Other"}) == [filters, costs]
    assert last_of(costs, {**asked, "answer": {"other": []}}) == [costs]


def test_a_hook_that_moved_nothing_hides_no_placement():
    """It is told where there is nothing else."""
    hook = of_cluster("onVmStatusChanged", {}, 9, vm=WEB)
    costs = {**scored({"Even": 1}, {"puma": (4,)}), "time": "2026-01-31T12:00:02Z"}
    assert last_of(hook, hook, costs, FILTERED) == [FILTERED, costs]
    assert last_of(hook) == [hook]


def test_the_grid_has_the_totals_of_the_units_beside_a_scheduler_that_was_asked_again():
    costs = {**scored({"Even": 2}, {"puma": (4,), "ocelot": (3,)}), "cluster": "Default"}
    again = of_cluster("loadBalance", {WEB["id"]: []}, 4, hosts=("puma", "ocelot", "serval"))
    headings, rows = grid([costs, again])
    assert headings == ["HOST", "Even ×2", "TOTAL", "RANK"]
    assert rows == [["ocelot", "3", "6", "1"], ["puma", "4", "8", "2"], ["serval", "-", "-", "-"]]


def test_a_host_that_is_out_is_told_up_to_there():
    """Neither the costs of others, nor what the engine did with them; a host that is in, to the end."""
    costs = {**scored({"Even": 1}, {"puma": (4,)}), "time": "2026-01-31T12:00:02Z"}
    told = text(placement_explanation.lines([FILTERED, costs], "id-of-serval"))
    assert told[-2:] == [
        "  serval: removed by Memory",
        "  Broken raised an error, and was left out: ZeroDivisionError: division by zero",
    ]
    told = text(placement_explanation.lines([FILTERED, costs], "id-of-ocelot"))
    assert told[-1].startswith("  ocelot: left by our filters, but the engine asked for no costs")
    told = text(placement_explanation.lines([FILTERED, costs], "id-of-puma"))
    assert told[-1] == "  puma: 1st of 1, cost 4 = Even 1 × 4"
    told = text(
        placement_explanation.lines([FILTERED, {**costs, "answer": ["id-of-puma"]}], "id-of-puma")
    )
    assert told[-1] == "The engine does not say which host it took."


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ({**FILTERED, "answer": []}, "The caller was told that no host is fit: an engine places the VM nowhere."),
        (FILTERED, "The engine does not say which host it took."),
        ({**FILTERED, "form": "daemon"}, None),
        ({**FILTERED, "beforehand": True}, "The engine asked because this daemon had asked it where it would migrate the VM."),
    ],
)  # fmt: skip
def test_what_the_engine_decides_is_said(last, told):
    """And nothing where no engine asked."""
    lines = text(placement_explanation.lines([last]))
    assert lines[-1] == told if told else lines[-1].startswith("  ")


@pytest.mark.parametrize(
    ("last", "fate"),
    [
        (scored({"Even": 1}, {"puma": (4,), "lynx": (None,)}), ", which no cost function had scored"),
        (decision("runFilters", [unit("MaxVms")], [host("lynx")], ["id-of-lynx"]), ", which the filters had left"),
        ({**FILTERED, "hosts": [host("lynx")], "fault": "busy"}, ""),
    ],
)  # fmt: skip
def test_what_a_placement_came_to_on_a_host_is_told_of_unscored_ones_too(last, fate):
    told = placement_explanation.place_now([last], WEB["id"], "id-of-lynx", "lynx")
    assert told == f"It runs on lynx now{fate}."


@pytest.mark.parametrize(("target", "fate"), [("lynx", "to be"), ("puma", "not to be")])
def test_of_a_migration_it_is_told_whether_it_was_to_this_host(target, fate):
    moves = {"vm": WEB["id"], "hosts": [f"id-of-{target}"]}
    moved = decision("runLoadBalancing", [unit("Memory", "balance")], [host("lynx")], moves)
    told = placement_explanation.place_now([moved], WEB["id"], "id-of-lynx", "lynx")
    assert told == f"It runs on lynx now, to which it was {fate} migrated."


def test_whoever_asked_is_called_the_caller():
    """It may be a command."""
    told = text(placement_explanation.lines([FILTERED]))
    assert told[-2].startswith("The caller asked for no costs after that: an engine asks for none")
    told = text(placement_explanation.lines([{**FILTERED, "fault": "busy"}]))
    assert told[-1] == "The caller got no answer: an engine goes on without our units."
