"""Decisions in sentences, and what would have been without a unit; records are written by hand."""

from __future__ import annotations

import itertools
import random

import pytest

from ovirt_scheduler.history import explanation, outcomes, ranking
from ovirt_scheduler.history.placement_explanation import grid
from tests.support.written_decisions import (
    FILTERED,
    NOT_ASKED,
    PASSED,
    SCORED,
    WEB,
    by_hand,
    decision,
    function,
    host,
    scored,
    text,
    unit,
)


def test_who_removed_a_host_and_why():
    """With the unit that failed, and the hosts that passed."""
    assert text(explanation.lines(FILTERED))[1:] == [
        "  decision 1f2e3d4c5b6a7988, 3.2 ms, asked by 127.0.0.1:40312; properties maximum_vm_count=10",
        "  puma, ocelot: passed MaxVms and Memory",
        "  lynx: removed by MaxVms: runs 12 VMs, maximum_vm_count is 10",
        "  serval: removed by Memory",
        "  bobcat: removed by MaxVms: runs 11 VMs, maximum_vm_count is 10",
        "  Broken raised an error, and was left out: ZeroDivisionError: division by zero",
    ]  # fmt: skip
    first = text(explanation.lines(FILTERED))[0]
    assert first.endswith(
        "  runFilters for VM web: 5 hosts: 2 left, 2 removed by MaxVms, 1 by Memory"
    )


def test_a_table_has_no_reason_of_a_unit_in_shadow():
    """It did not count; ``why`` shows it apart."""
    decision = {
        "units": [
            {"name": "Live", "kind": "filter"},
            {"name": "Trial", "kind": "filter", "mode": "shadow"},
        ],
        "hosts": [
            {"id": "a", "verdicts": [
                {"unit": "Live", "verdict": "passed", "reason": "fits"},
                {"unit": "Trial", "verdict": "removed", "reason": "is too far"},
            ]},
        ],
    }  # fmt: skip
    assert explanation.why(decision) == {"a": "Live: fits"}


def test_what_made_a_host_the_best():
    """Its sum, its place, its place without each unit, and which units were decisive."""
    assert text(explanation.lines(SCORED))[2:] == [


        "  lynx: 1st of 3, cost 13 = EvenVms 2 × 3 + Memory 1 × 7; without EvenVms it would be 3rd",
        "  puma: 2nd of 3, cost 14 = EvenVms 2 × 4 + Memory 1 × 6",
        "  ocelot: 3rd of 3, cost 19 = EvenVms 2 × 9 + Memory 1 × 1; without EvenVms it would be 1st",
        "  EvenVms was decisive: without it ocelot would be best",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_counterfactuals_are_what_a_call_without_the_unit_comes_to(seed):
    """As the daemon's own arithmetic has it, with clamped costs and hosts that were not scored."""
    chance = random.Random(seed)
    names = ["a", "b", "c", "d"][: chance.randint(1, 4)]
    factors = {name: chance.choice([-1, 0, 1, 2, 1000]) for name in names}
    wide = chance.choice([5, 10**6, 10**9])  # of the second most calls are near the bound
    costs = {
        f"h{n}": [chance.choice([None, chance.randint(-wide, wide)]) for _ in names]
        for n in range(6)
    }
    made = scored(factors, costs)
    every = [one["id"] for one in made["hosts"]]
    of_hosts = dict(zip(every, costs.values()))

    def ranked(counted):
        shares = by_hand(factors, of_hosts, counted)
        totals = {key: sum(each.values()) for key, each in shares.items() if each}
        return sorted(totals, key=totals.get)

    assert ranking.ranked(made) == ranked(names)
    for name, without in ranking.without_each(made).items():
        others = [each for each in names if each != name]
        assert list(ranking.places_by(made, without)) == (ranked(others) or every)


def test_equal_totals_rank_in_the_order_given():
    """With and without a unit."""
    made = scored({"a": 1, "b": 1}, {"lynx": (2, 1), "puma": (1, 2), "serval": (1, 3)})
    assert ranking.ranked(made) == ["id-of-lynx", "id-of-puma", "id-of-serval"]
    assert ranking.decisive(made) == {}  # puma is one of the best with b, too


def outcome_and_lines(made):
    heading, _, *told = text(explanation.lines(made))
    return [heading.partition(": ")[2], *map(str.strip, told)]


def test_hosts_that_all_cost_the_same_share_the_first_place():
    assert outcome_and_lines(scored({"a": 2}, {"lynx": (1,), "puma": (1,), "serval": (1,)})) == [
        "3 hosts: all cost the same",
        "lynx, puma, serval: 1st of 3, with 2 others, cost 2 = a 2 × 1",
    ]


def test_some_hosts_that_cost_the_same_share_a_place():
    made = scored({"a": 1}, {"lynx": (1,), "puma": (2,), "serval": (1,), "ocelot": (2,)})
    assert outcome_and_lines(made) == [
        "4 hosts: lynx and serval are best",
        "lynx, serval: 1st of 4, with 1 other, cost 1 = a 1 × 1",
        "puma, ocelot: 3rd of 4, with 1 other, cost 2 = a 1 × 2",
    ]


def test_a_unit_without_which_the_best_host_would_be_one_of_several_is_not_called_decisive():
    made = scored({"a": 1, "b": 1}, {"lynx": (0, 1), "puma": (0, 0), "serval": (0, 2)})
    assert ranking.decisive(made) == {}
    assert outcome_and_lines(made) == [
        "3 hosts: puma is best",
        "puma: 1st of 3, cost 0 = a 1 × 0 + b 1 × 0",
        "lynx: 2nd of 3, cost 1 = a 1 × 0 + b 1 × 1; without b it would be 1st",
        "serval: 3rd of 3, cost 2 = a 1 × 0 + b 1 × 2; without b it would be 1st",
    ]


def test_all_that_would_be_best_without_a_unit_are_named():
    made = scored({"a": 1, "b": 1}, {"lynx": (0, 9), "puma": (5, 1), "serval": (0, 9)})
    assert ranking.decisive(made) == {"b": ["id-of-lynx", "id-of-serval"]}
    assert outcome_and_lines(made)[-1] == (
        "b was decisive: without it lynx and serval would be best"
    )


def test_the_only_function_is_not_called_decisive():
    """Without it all hosts are equal, the best too."""
    for cost in (1, 2):
        made = scored({"a": 1}, {"lynx": (cost,), "puma": (1,)})
        assert ranking.decisive(made) == {}
        assert not any("decisive" in line for line in outcome_and_lines(made))


def test_a_host_that_nobody_scored_and_a_cost_that_was_clamped():
    """Are told where they count."""
    made = scored({"a": -2, "b": 1}, {"lynx": (10**9, None), "puma": (None, None)})
    made["hosts"][0]["costs"][0]["held"] = 250_000_000
    ranking.put_totals(made)
    assert text(explanation.lines(made))[2:] == [
        "  lynx: 1st of 1, cost -500000000 = a (-2) × 250000000 (clamped; the unit said 1000000000)",
        "  puma: no cost function scored it: it is not in the answer",
    ]


def test_a_host_that_one_function_leaves_out_costs_nothing_there():
    """Another one may have said why it does so."""
    made = scored({"a": 2, "b": 1}, {"lynx": (1, None), "puma": (2, 3)})
    made["hosts"][0]["costs"].append({"unit": "c", "reason": "is new"})
    made["units"].append(function("c"))
    ranking.put_totals(made)
    assert text(explanation.lines(made))[2:] == [
        "  lynx: 1st of 2, cost 2 = a 2 × 1; without a it would have no cost",
        "  lynx: b leaves it out, which counts as a cost of 0",
        "  lynx: c leaves it out: is new",
        "  puma: 2nd of 2, cost 7 = a 2 × 2 + b 1 × 3; without a it would be 1st",
        "  a was decisive: without it puma would be best",
    ]


def test_a_host_that_the_scheduler_refused_is_best_without_no_unit():
    """It has costs, and no rank."""
    units = [function("a"), function("b"), unit("default", "scheduler")]
    hosts = [
        host("lynx", {"default": ("removed", "is full")}, [("a", 1, 9), ("b", 1, 0)]),
        host("puma", costs=[("a", 1, 1), ("b", 1, 2)]),
        host("ocelot", costs=[("a", 1, 2), ("b", 1, 3)]),
    ]
    made = decision("selectHost", units, hosts, answer=["id-of-puma", "id-of-ocelot"])
    ranking.put_totals(made)
    assert ranking.decisive(made) == {}
    assert text(explanation.lines(made))[2:] == [
        "  puma: 1st of 2, cost 3 = a 1 × 1 + b 1 × 2",
        "  ocelot: 2nd of 2, cost 5 = a 1 × 2 + b 1 × 3",
        "  lynx: default: is full",
        "  lynx: cost 9 = a 1 × 9 + b 1 × 0; it is not in the answer",
    ]


def test_a_filter_that_rejects_when_it_fails():
    """Is told as such."""
    made = decision(
        "runFilters",
        [unit("Strict", outcome="timed out", message="took longer than 30 s"), unit("Memory", outcome="not asked")],
        [host("lynx", {"Strict": ("removed", "took longer than 30 s"), "Memory": NOT_ASKED})],
        [],
    )  # fmt: skip
    assert text(explanation.lines(made))[0].endswith(
        "  runFilters: 1 host: none left, 1 removed by Strict"
    )
    assert text(explanation.lines(made))[2:] == [
        "  lynx: removed by Strict: took longer than 30 s",
        "  Strict timed out, and accepted no host (on_failure = reject): took longer than 30 s",
        "  Memory was not asked: no host was left for it",
    ]


def test_a_shadow_may_have_the_name_of_a_unit_of_another_kind():
    """The filter removes the host, and the cost function looks on."""
    units = [unit("Memory"), function("Even"), function("Memory", mode="shadow")]
    lynx = host("lynx", {"Memory": ("removed", "full")}, [("Memory", 1, 3)])
    puma = host("puma", {"Memory": PASSED}, [("Even", 2, 4), ("Memory", 1, 1)])
    made = decision("selectHost", [*units, unit("default", "scheduler")], [lynx, puma])
    told = text(explanation.lines(made))
    assert "  lynx: removed by Memory: full" in told
    assert "  puma: 1st of 1, cost 8 = Even 2 × 4" in told
    assert "  puma: Memory 1 × 1 would count, but looks on (shadow)" in told


def test_a_call_that_names_no_cost_function_is_no_trouble():
    """A list marks it only where a host was to be left."""
    assert not outcomes.summary(decision("runCostFunctions", [], [host("lynx")], []))["is_bad"]
    assert outcomes.summary(decision("runFilters", [], [host("lynx")], []))["is_bad"]


def test_a_list_names_the_units_that_failed_and_would_have_counted():
    """In one row for each decision."""
    units = [unit("Old", outcome="raised"), unit("New", outcome="raised", mode="shadow")]
    told = outcomes.summary(decision("runFilters", units, [host("lynx")], ["id-of-lynx"]))
    assert told["summary"] == "1 host: 1 left; Old failed"


def test_a_list_names_a_cost_function_whose_costs_were_all_cut():
    made = scored({"Bytes": 1, "b": 1}, {"lynx": (2**34, 1), "puma": (2**36, 2)})
    assert "effect" not in outcomes.summary(made)["summary"]
    made["hosts"][0]["costs"][0]["held"] = 10**9
    assert "effect" not in outcomes.summary(made)["summary"]  # it tells the other host apart
    made["hosts"][1]["costs"][0]["held"] = 10**9
    assert outcomes.summary(made)["summary"].endswith("; Bytes has no effect")
    del made["hosts"][0]["costs"][0]  # a host that is left out is told from the others
    assert "effect" not in outcomes.summary(made)["summary"]


def test_what_a_question_of_ours_removed_is_marked_as_nothing_bad():
    made = decision("runFilters", [unit("MaxVms")], [host("lynx")], [])
    assert outcomes.summary(made)["is_bad"]
    told = outcomes.summary({**made, "beforehand": True})
    assert not told["is_bad"]
    assert told["summary"].endswith("; asked beforehand")


@pytest.mark.parametrize(("costs", "best"), [((1, 9), "lynx would be best, too"),
                                             ((9, 1), "puma would be best")])  # fmt: skip
def test_of_a_unit_that_looks_on_it_is_told_whether_the_best_would_stay(costs, best):
    units = [function("Even"), function("New", mode="shadow")]
    hosts = [
        host(name, costs=[("Even", 1, even), ("New", 1, cost)])
        for name, even, cost in zip(("lynx", "puma"), (1, 2), costs)
    ]
    told = text(explanation.lines(decision("runCostFunctions", units, hosts, [])))
    assert told[-1] == f"  with New, which looks on (shadow), {best}"


def test_a_list_marks_a_call_that_names_a_unit_that_is_not_there():
    units = [unit("Gone", outcome="not asked", message="there is no filter named 'Gone'")]
    told = outcomes.summary(decision("runFilters", units, [host("lynx")], ["id-of-lynx"]))
    assert told["summary"] == "1 host: 1 left; not there: Gone"
    assert told["is_bad"]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (decision("runLoadBalancing", [unit("Memory", "balance")], [host("lynx"), host("puma")], {"vm": WEB["id"], "hosts": ["id-of-lynx", "id-of-puma"]}, vm=WEB),
         "runLoadBalancing: migrate VM web to lynx or puma"),
        (decision("runLoadBalancing", [unit("Memory", "balance")], [host("lynx")], {"vm": WEB["id"], "hosts": []}, vm=WEB),
         "runLoadBalancing: migrate VM web to any host"),
        (decision("runLoadBalancing", [unit("Memory", "balance")], [host("lynx")]),
         "runLoadBalancing: nothing to do"),
        (decision("runFilters", [], [host("lynx"), host("puma")], ["id-of-lynx", "id-of-puma"]),
         "runFilters: 2 hosts: 2 left"),
        (decision("runCostFunctions", [], [host("lynx"), host("puma")], []),
         "runCostFunctions: 2 hosts: no costs"),
        (decision("runLoadBalancing", [unit("Memory", "balance", "killed")], [host("lynx")]),
         "runLoadBalancing: Memory failed"),
        (decision("onTimerInvoked", [unit("Spread", "scheduler")], [host("lynx"), host("puma")], {"vm-1": ["id-of-puma"], "vm-2": ["id-of-puma", "id-of-lynx"]}, cluster="Default", form="daemon"),
         "onTimerInvoked of Spread of cluster Default: migrate VM vm-1 to puma; VM vm-2 to puma or lynx"),
        (decision("onHostStatusChanged", [unit("Spread", "scheduler")], [host("lynx")], {}),
         "onHostStatusChanged of Spread: nothing to do"),
        (decision("selectHost", [unit("MaxVms"), unit("default", "scheduler")], [host("lynx", {"MaxVms": ("removed", "")})], [], vm=WEB),
         "selectHost of default for VM web: 1 host: no host: none left, 1 removed by MaxVms"),
        (decision("candidates", [unit("default", "scheduler")], [host("lynx"), host("puma")], ["id-of-puma", "id-of-lynx"], vm=WEB),
         "candidates of default for VM web: 2 hosts: puma, then lynx"),
        (decision("hasAnyHosts", [unit("default", "scheduler")], [host("lynx")], True),
         "hasAnyHosts of default: yes"),
        (decision("schedule", [unit("night", "driver")]), "schedule of night: answered, which is not kept"),
        (decision("runCostFunctions", [function("a", outcome="raised")], [host("lynx")], []),
         "runCostFunctions: 1 host: no costs"),
    ],
)  # fmt: skip
def test_every_kind_of_call_has_its_heading(made, told):
    """Balances, selections, hooks and topics, too."""
    assert explanation.heading(made) == told


def test_reasons_of_balances_are_told():
    """And are no verdict: a balance removes no host."""
    why = "CPU of lynx 84 %, of ocelot 31 %"
    made = decision(
        "runLoadBalancing",
        [unit("Even", "balance")],
        [host("lynx", {"Even": ("removed", why)})],
        [],
    )
    assert text(explanation.lines(made))[-1] == "  lynx: Even: CPU of lynx 84 %, of ocelot 31 %"


def test_nothing_that_comes_from_outside_steers_a_terminal():
    """Names, reasons, messages: escaped, and on their line."""
    bad = "\x1b[2J\u202egone\nlynx: 1st\x9b"
    made = decision(
        "runFilters",
        [unit(bad, outcome="raised", message=bad, notes=[bad])],
        [host(bad, {bad: ("removed", bad)})],
        [],
        vm={"id": bad, "name": bad},
        properties={bad: bad},
        errors=[bad],
    )
    told = [*explanation.lines(explanation.cleaned(made))]
    assert all(line.text.isprintable() for line in told)
    assert "\\x1b[2J\\u202egone\\nlynx: 1st\\x9b" in told[0].text
    headings, rows = grid([explanation.cleaned(made)])
    assert all(cell.isprintable() for cell in itertools.chain(headings, *rows))
