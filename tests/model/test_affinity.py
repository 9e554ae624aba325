"""ovirt_scheduler.model.affinity: the engine's rules, example by example."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterable

import pytest

from ovirt_scheduler.model.affinity import AffinityGroup, AffinityRules, PlacedVms, Rule

HOSTS = ("h1", "h2", "h3")
TOGETHER, APART = Rule(positive=True, enforcing=True), Rule(positive=False, enforcing=True)
NEAR, FAR = Rule(positive=True, enforcing=False), Rule(positive=False, enforcing=False)


def vms(text: str, rule: Rule, name: str = "vms", priority: float = 1.0) -> AffinityGroup:
    return AffinityGroup(name, frozenset(text.split()), vm_rule=rule, priority=priority)


def hosts(text: str, at: str, rule: Rule, name: str = "hosts") -> AffinityGroup:
    return AffinityGroup(name, frozenset(text.split()), frozenset(at.split()), host_rule=rule)


def placed(groups: Iterable[AffinityGroup], where: str) -> PlacedVms:
    placement = dict(pair.split("@") for pair in where.split())
    return PlacedVms(AffinityRules(groups), placement)


# Groups, where VMs run, the VMs that are to move, and the hosts that the engine accepts for them.
ACCEPTED = [
    ([], "a@h1", "a", "h1 h2 h3"),
    ([hosts("a", "h2 h3", TOGETHER)], "a@h1", "a", "h2 h3"),
    ([hosts("a", "h2", APART)], "a@h1", "a", "h1 h3"),
    ([hosts("a", "h1 h2", TOGETHER), hosts("a", "h2 h3", TOGETHER)], "a@h1", "a", "h2"),
    ([hosts("a", "h2", NEAR)], "a@h1", "a", "h1 h2 h3"),
    ([hosts("b", "h2", TOGETHER)], "a@h1", "a", "h1 h2 h3"),
    # No other member runs: any host.
    ([vms("a b", TOGETHER)], "a@h1", "a", "h1 h2 h3"),
    # The partner runs beside it: it can go nowhere by itself, but both can.
    ([vms("a b", TOGETHER)], "a@h1 b@h1", "a", "h1"),
    ([vms("a b", TOGETHER)], "a@h1 b@h1", "a b", "h1 h2 h3"),
    # Members that are apart: the hosts of the others, as a union.
    ([vms("a b c", TOGETHER)], "a@h1 b@h2 c@h3", "a", "h2 h3"),
    ([vms("a b", TOGETHER, "x"), vms("a c", TOGETHER, "y")], "a@h1 b@h2 c@h3", "a", "h2 h3"),
    ([vms("a b", APART)], "a@h1 b@h2", "a", "h1 h3"),
    ([vms("a b c", APART)], "a@h1 b@h2 c@h3", "a", "h1"),
    ([vms("a b", APART)], "a@h1", "b", "h2 h3"),
    # A host that is required and refused is refused.
    ([vms("a b", TOGETHER), vms("a c", APART)], "a@h1 b@h2 c@h2", "a", ""),
    # What moves together is not kept apart by what stays, unless that is on the host.
    ([vms("a b", TOGETHER), vms("b c", APART)], "a@h1 b@h1 c@h3", "a b", "h1 h2"),
    # Two that are to be apart move nowhere together.
    ([vms("a b", APART)], "a@h1 b@h1", "a b", ""),
    # Groups that contradict each other: the VM stays.
    ([hosts("a", "h1", TOGETHER), hosts("a", "h2", TOGETHER)], "a@h1", "a", ""),
    ([vms("a b", TOGETHER), vms("a b", APART)], "a@h1 b@h1", "a", ""),
]


@pytest.mark.parametrize(("groups", "where", "unit", "accepted"), ACCEPTED)
def test_the_hosts_that_hard_rules_accept(groups, where, unit, accepted):
    assert placed(groups, where).acceptable(unit.split(), HOSTS) == accepted.split()


@pytest.mark.parametrize(
    ("groups", "where", "unit", "penalties"),
    [
        ([], "a@h1", "a", [(0, ()), (0, ()), (0, ())]),
        ([hosts("a", "h2", NEAR)], "a@h1", "a", [(1, ()), (0, ()), (1, ())]),
        ([hosts("a", "h2", FAR)], "a@h1", "a", [(0, ()), (1, ()), (0, ())]),
        ([hosts("a", "h2", TOGETHER)], "a@h1", "a", [(0, ()), (0, ()), (0, ())]),
        ([vms("a b", NEAR)], "a@h1", "a", [(0, ()), (0, ()), (0, ())]),
        ([vms("a b", NEAR)], "a@h1 b@h2", "a", [(0, (1.0,)), (0, ()), (0, (1.0,))]),
        ([vms("a b", FAR)], "a@h1 b@h2", "a", [(0, ()), (0, (1.0,)), (0, ())]),
        (
            [vms("a b", FAR, "x", 2.0), vms("a c", FAR, "y", 5.0)], "a@h1 b@h2 c@h2", "a",
            [(0, ()), (0, (5.0, 2.0)), (0, ())],
        ),
    ],
)  # fmt: skip
def test_what_soft_rules_cost_on_each_host(groups, where, unit, penalties):
    here = placed(groups, where)
    assert [here.penalty(unit.split(), host) for host in HOSTS] == penalties


def test_a_rule_of_hosts_costs_more_than_any_of_vms_and_priorities_count_from_the_highest():
    """One host is worse than another by the first of these that differs."""
    assert (1, ()) > (0, (9.0, 9.0))
    assert (0, (5.0,)) > (0, (2.0, 2.0, 2.0))
    assert (0, (2.0, 2.0)) > (0, (2.0,))


@pytest.mark.parametrize(
    ("groups", "where", "broken"),
    [
        ([vms("a b", TOGETHER)], "a@h1 b@h1", []),
        ([vms("a b c", TOGETHER)], "a@h1 b@h1 c@h2", [("vms", False, True, (("c",),))]),
        ([vms("a b c", TOGETHER)], "a@h2", []),
        # Of two parts that are alike, the one on the host with the lower id moves, as one.
        ([vms("a b c d", TOGETHER)], "a@h1 b@h1 c@h2 d@h2", [("vms", False, True, (("a", "b"),))]),
        ([vms("a b", APART)], "a@h1 b@h1", [("vms", False, True, (("a",), ("b",)))]),
        ([vms("a b", FAR)], "a@h1 b@h1", [("vms", False, False, (("a",), ("b",)))]),
        ([hosts("a b", "h1", TOGETHER)], "a@h1 b@h2", [("hosts", True, True, (("b",),))]),
        ([hosts("a b", "h2", APART)], "a@h1 b@h2", [("hosts", True, True, (("b",),))]),
        ([hosts("a b", "h2", NEAR)], "a@h2 b@h2", []),
        ([AffinityGroup("off", frozenset("ab"), frozenset(("h2",)))], "a@h1 b@h2", []),
        # In the order of the engine's enforcer.
        (
            [vms("a b", FAR, "soft"), vms("a b", APART, "hard"), hosts("a", "h2", NEAR, "near"),
             hosts("a", "h2", TOGETHER, "on")],
            "a@h1 b@h1",
            [("on", True, True, (("a",),)), ("hard", False, True, (("a",), ("b",))),
             ("near", True, False, (("a",),)), ("soft", False, False, (("a",), ("b",)))],
        ),
    ],
)  # fmt: skip
def test_rules_that_are_broken_and_what_would_mend_them(groups, where, broken):
    rules = placed(groups, where).broken()
    assert [(r.group.name, r.is_of_hosts, r.enforcing, r.units) for r in rules] == broken


@pytest.mark.parametrize(
    ("groups", "conflicts"),
    [
        ([vms("a b", TOGETHER, "x"), vms("a b", APART, "y")], [("y", "x")]),
        # By way of a third VM.
        ([vms("a b", TOGETHER, "x"), vms("b c", TOGETHER, "y"), vms("a c", APART, "z")], [("z", "y")]),
        ([hosts("a", "h1", TOGETHER, "x"), hosts("a", "h2", TOGETHER, "y")], [("x", "y")]),
        ([hosts("a", "h1", TOGETHER, "x"), hosts("a", "h1", APART, "y")], [("x", "y")]),
        # Those that belong together, on hosts that exclude each other.
        (
            [vms("a b", TOGETHER), hosts("a", "h1", TOGETHER, "x"), hosts("b", "h2", TOGETHER, "y")],
            [("x", "y")],
        ),
        ([hosts("a", "h1", APART, "x"), hosts("a", "h2", APART, "y")], []),
        ([vms("a b", NEAR, "x"), vms("a b", FAR, "y")], []),
        ([vms("a", TOGETHER, "x"), vms("a", APART, "y")], []),
    ],
)  # fmt: skip
def test_hard_groups_that_contradict_each_other_are_named(groups, conflicts):
    assert [*AffinityRules(groups).conflicts] == conflicts


def test_a_vm_moves_with_those_on_its_host_that_belong_to_it_in_closure():
    here = placed(
        [vms("a b", TOGETHER, "x"), vms("b c d", TOGETHER, "y")], "a@h1 b@h1 c@h1 d@h2 e@h1"
    )
    assert here.unit_of("b") == ("b", "a", "c")
    assert here.unit_of("d") == ("d",)
    assert here.unit_of("e") == ("e",)


def test_it_survives_json_whole():
    groups = [vms("a b", APART, priority=2.5), hosts("a c", "h1 h2", NEAR), vms("d", TOGETHER)]
    here = placed(groups, "a@h1 b@h2 c@h3")
    again = PlacedVms.of_plain(json.loads(json.dumps(here.plain())))
    assert again.rules.groups == here.rules.groups
    assert again.plain() == here.plain()


@pytest.mark.parametrize(
    ("groups", "where", "refusals"),
    [
        ([vms("a b", APART, "fw")], "b@h1", ["{} apart from a VM there", "", ""]),
        ([vms("a b", TOGETHER, "fw")], "b@h1", ["", *["{} with VMs on another host"] * 2]),
        ([hosts("a", "h1", APART, "fw")], "", ["{} off this host", "", ""]),
        ([hosts("a", "h1", TOGETHER, "fw")], "", ["", *["{} on other hosts"] * 2]),
    ],
)
def test_a_refusal_names_the_group(groups, where, refusals):
    words = [text.format("the affinity group fw keeps it") for text in refusals]
    assert [*placed(groups, where).refusals(("a",), HOSTS).values()] == words


def test_a_contradiction_is_refused_everywhere_with_both_names():
    groups = [hosts("a", "h1", TOGETHER, "x"), hosts("a", "h2", TOGETHER, "y")]
    refusals = placed(groups, "a@h1").refusals(("a",), HOSTS)
    assert {*refusals.values()} == {"its affinity groups x and y contradict each other"}


def test_what_moves_together_is_named_once():
    groups = [vms("a b c", TOGETHER), hosts("a b c d", "h2", TOGETHER)]
    (broken,) = placed(groups, "a@h1 b@h1 c@h1 d@h1").broken()
    assert broken.units == (("a", "b", "c"), ("d",))


def test_a_plan_sees_the_moves_before_it():
    here = placed([vms("a b", APART), hosts("a", "h1", NEAR)], "a@h1 b@h2")
    here.move("b", "h3")
    assert here.acceptable(["a"], HOSTS) == ["h1", "h2"]
    here.move("b", None)
    assert here.acceptable(["a"], HOSTS) == ["h1", "h2", "h3"]
    here.move("b", "h1")
    assert [rule.group.name for rule in here.broken()] == ["vms"]


def _breaks(groups: Iterable[AffinityGroup], where: dict[str, str]) -> set[str]:
    """The names of hard groups that a placement breaks, by their definition alone."""
    broken = set()
    for group in groups:
        at = [where[vm] for vm in group.vms if vm in where]
        rule, of_hosts = group.vm_rule, group.host_rule
        if rule and rule.enforcing and len(at) > 1:
            apart = len({*at}) == len(at)
            if (len({*at}) > 1) if rule.positive else not apart:
                broken.add(group.name)
        if of_hosts and of_hosts.enforcing:
            wrong = [host for host in at if (host in group.hosts) != of_hosts.positive]
            broken.update([group.name] if wrong else ())
    return broken


@pytest.mark.parametrize("seed", range(40))
def test_a_move_that_is_accepted_breaks_no_rule_that_was_not_broken(seed):
    """Against the definitions, with random groups and placements."""
    chance = random.Random(seed)
    names = [f"v{number}" for number in range(7)]
    groups = []
    for number in range(5):
        members = frozenset(chance.sample(names, chance.randrange(1, 4)))
        at = frozenset(chance.sample(HOSTS, chance.randrange(1, 3)))
        rules = [None, TOGETHER, APART, NEAR, FAR]
        groups.append(
            AffinityGroup(f"g{number}", members, at, chance.choice(rules), chance.choice(rules))
        )
    where = {name: chance.choice(HOSTS) for name in names}
    here = PlacedVms(AffinityRules(groups), where)
    assert {rule.group.name for rule in here.broken() if rule.enforcing} == _breaks(groups, where)
    for vm, host in itertools.product(names, HOSTS):
        unit = here.unit_of(vm)
        if host == where[vm] or host not in here.acceptable(unit, HOSTS):
            continue
        after = {**where, **dict.fromkeys(unit, host)}
        assert _breaks(groups, after) <= _breaks(groups, where), (unit, host)


def _planning_seconds(count: int) -> float:
    """The time of a plan: each VM is asked about, and moved, once."""
    names = [f"v{number}" for number in range(count)]
    groups = [
        AffinityGroup(f"g{number}", frozenset(names[number : number + 50]), vm_rule=APART)
        for number in range(0, count, 50)
    ]
    groups.append(AffinityGroup("all", frozenset(names), frozenset(("h1",)), NEAR, NEAR))
    rules = AffinityRules(groups)
    hosts_there = [f"h{number}" for number in range(60)]
    begun = time.process_time()
    here = PlacedVms(rules, {name: hosts_there[n % 50] for n, name in enumerate(names)})
    for name in names:
        unit = here.unit_of(name)
        for host in here.acceptable(unit, hosts_there)[:1]:
            here.move(name, host)
    here.broken()
    return time.process_time() - begun


@pytest.mark.long
def test_planning_grows_with_the_number_of_vms_and_not_with_its_square():
    assert _planning_seconds(20_000) < 40 * max(_planning_seconds(2_000), 0.01)
