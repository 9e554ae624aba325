"""The default scheduler plans by affinity rules: units move together, soft rules come first."""

from __future__ import annotations

import pytest

from ovirt_scheduler.plugin import AffinityGroup, AffinityRules, PlacedVms, Rule
from tests.support.clusters import DefaultScheduler, host, properties, target_ids, vm

TOGETHER, APART = Rule(positive=True, enforcing=True), Rule(positive=False, enforcing=True)
NEAR, FAR = Rule(positive=True, enforcing=False), Rule(positive=False, enforcing=False)


def group(vms, vm_rule=None, hosts="", host_rule=None):
    members, there = frozenset(vms.split()), frozenset(hosts.split())
    return AffinityGroup(vms, members, there, vm_rule, host_rule)


def balanced(hosts, vms, groups, policy="evenly_distribute", **others):
    scheduler = DefaultScheduler()
    placement = {member.id: member.host.id for member in vms}
    scheduler.rules = PlacedVms(AffinityRules(groups), placement)
    return target_ids(scheduler.load_balance(hosts, vms, properties(policy, **others)))


def test_a_unit_goes_where_all_of_it_has_room():
    hosts = [host("a", used=0.9), host("b", used=0.72), host("c", used=0.1)]
    vms = [vm("x", "a", memory=4), vm("y", "a", memory=4)]
    assert balanced(hosts, vms, [group("x y", TOGETHER)]) == {"x": ["c"], "y": ["c"]}


@pytest.mark.parametrize(("most", "count"), [(1, 0), (2, 2)])
def test_each_vm_of_a_unit_counts(most, count):
    hosts = [host("a", used=0.9), host("c", used=0.1)]
    vms = [vm("x", "a", memory=4), vm("y", "a", memory=4)]
    moved = balanced(hosts, vms, [group("x y", TOGETHER)], most_migrations=most)
    assert len(moved) == count


def test_a_soft_rule_is_broken_to_relieve_a_host_only_if_nothing_else_does():
    hosts = [host("a", used=0.9), host("b", used=0.3), host("c", used=0.1)]
    vms = [vm("x", "a", memory=8), vm("y", "a", memory=8)]
    near = group("x", hosts="a", host_rule=NEAR)
    assert [*balanced(hosts, vms, [near])] == ["y"]
    assert [*balanced(hosts, vms[:1], [near])] == ["x"]


def test_evenness_alone_breaks_no_soft_rule():
    hosts = [host("a", used=0.6), host("c", used=0.05)]
    vms = [vm("x", "a", memory=8), vm("z", "c", memory=1)]
    assert [*balanced(hosts, vms, [])] == ["x"]
    assert balanced(hosts, vms, [group("x z", FAR)]) == {}


def test_a_host_is_emptied_by_units_or_not_at_all():
    hosts = [host("a", used=0.1), host("b", used=0.4), host("c", used=0.5)]
    vms = [
        vm("x", "a", memory=1),
        vm("y", "a", memory=1),
        vm("v", "b", memory=20),
        vm("w", "c", memory=20),
    ]
    together = group("x y", TOGETHER)
    moved = balanced(hosts, vms, [together], "power_saving")
    assert moved["x"] == moved["y"]
    assert moved.keys() == {"x", "y"}
    apart = [group("x v", APART), group("x w", APART)]
    assert not {"x", "y"} & balanced(hosts, vms, [together, *apart], "power_saving").keys()
