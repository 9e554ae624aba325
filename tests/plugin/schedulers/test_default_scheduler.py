"""The default scheduler, on fake clusters: where VMs start, may go, and go when a host fails."""

from __future__ import annotations

import re

import pytest
from ovirtsdk4 import types

from tests.support.clusters import (
    DefaultScheduler,
    available,
    host,
    pinned,
    properties,
    target_ids,
    vm,
)
from tests.support.paths import PROJECT


def chosen(hosts, wanted, policy="none", costs=None, **others):
    scheduler = DefaultScheduler()
    scheduler.costs = costs or {}
    return [found.id for found in scheduler.candidates(hosts, wanted, properties(policy, **others))]


class TestTheChoiceOfAHost:
    def test_the_lowest_cost_wins(self):
        """Whatever the policy would like better."""
        hosts = [host("idle"), host("busy", used=0.5)]
        costs = {"idle": 2, "busy": 1}
        assert chosen(hosts, vm("web"), "evenly_distribute", costs) == ["busy", "idle"]

    def test_a_host_without_a_cost_costs_nothing(self):
        """As an engine counts it."""
        hosts = [host("unknown"), host("dear"), host("cheap")]
        costs = {"dear": 100, "cheap": -100}
        assert chosen(hosts, vm("web"), costs=costs) == ["cheap", "unknown", "dear"]

    def test_evenly_distribute_takes_the_least_used(self):
        """By processors or by memory, whichever is more."""
        hosts = [host("a", used=0.5), host("b", busy=40), host("c", used=0.3, busy=20)]
        assert chosen(hosts, vm("web"), "evenly_distribute") == ["c", "b", "a"]

    def test_power_saving_takes_the_most_used_that_has_room(self):
        """Hosts that would be above the high mark come last, the least of them first."""
        hosts = [
            host("full", used=0.85),
            host("idle"),
            host("half", used=0.5),
            host("top", used=0.78),
        ]
        assert chosen(hosts, vm("web"), "power_saving") == ["half", "idle", "top", "full"]

    def test_a_tie_is_not_always_won_by_the_same_host(self):
        """Else the policy none would start every VM on one host."""
        hosts = [host(name) for name in "abcd"]
        assert {chosen(hosts, vm(f"vm{number}"))[0] for number in range(60)} == set("abcd")

    @pytest.mark.parametrize(
        ("unfit", "wanted"),
        [
            (host("a", status="maintenance"), vm("web")),
            (host("a", memory=64, used=0.95), vm("web", memory=8)),
            (host("a", processors=4), vm("web", processors=5)),
            (host("a"), pinned("web", None, "b")),
            (host("a"), pinned("web", None, "b", affinity="user_migratable")),
            (host("a", cluster=types.Cluster(id="1")), vm("web", cluster=types.Cluster(id="2"))),
        ],
        ids=["not up", "memory", "processors", "pinned", "named hosts", "another cluster"],
    )
    def test_a_host_that_cannot_take_it_is_no_candidate(self, unfit, wanted):
        """Not even where it is the only one."""
        assert chosen([unfit], wanted) == []
        assert chosen([unfit, host("b", cluster=wanted.cluster)], wanted) == ["b"]

    def test_entities_that_hold_only_ids_are_taken(self):
        """What is not known shuts nobody out."""
        assert chosen([types.Host(id="a")], types.Vm(id="web")) == ["a"]

    def test_select_host_and_has_any_hosts_share_the_choice(self):
        """The first candidate, and whether there is one."""
        scheduler, hosts = DefaultScheduler(), [host("a", used=0.5), host("b")]
        told = properties("evenly_distribute")
        assert scheduler.select_host(hosts, vm("web"), told).id == "b"
        assert scheduler.has_any_hosts(hosts, vm("web"), told)
        assert scheduler.select_host(hosts, vm("web", memory=1000), told) is None
        assert not scheduler.has_any_hosts(hosts, vm("web", memory=1000), told)


def changed(status, vms, hosts=None, before="up", **others):
    failed = host("a", used=0.5, status=status)
    scheduler = DefaultScheduler()
    return target_ids(
        scheduler.on_host_status_changed(
            failed,
            before,
            status,
            [failed, *(hosts or [host("b")])],
            vms,
            properties("evenly_distribute", **others),
        )
    )


def kept_to(destinations, policy, hosts, vms, **others):
    scheduler = DefaultScheduler()
    scheduler.destinations = destinations
    return target_ids(scheduler.load_balance(hosts, vms, properties(policy, **others)))


class TestWhereVmsMayGo:
    """What is known of the cluster's filters, costs and VMs that have to stay."""

    def test_a_vm_goes_only_where_it_may(self):
        """To relieve a host, and to fill one."""
        hosts = [host("a", used=0.9), host("b", used=0.1), host("c", used=0.3)]
        vms = [vm("web", "a"), vm("mail", "a")]
        told = {"web": {"a": 0, "c": 0}, "mail": {"c": 0}}
        moved = kept_to(told, "evenly_distribute", hosts, vms)
        assert moved == {"mail": ["c"], "web": ["c"]}

    def test_of_those_the_cheapest_comes_first(self):
        """Before what the policy prefers."""
        hosts = [host("a", used=0.85), host("b"), host("c", used=0.3)]
        told = {"web": {"b": 2, "c": -1}}
        moved = kept_to(told, "evenly_distribute", hosts, [vm("web", "a")], low_utilization="0")
        assert moved == {"web": ["c", "b"]}

    def test_of_hosts_below_the_low_mark_the_cheapest_is_filled_first(self):
        """And no other host is offered, however cheap it is."""
        hosts = [host("a", used=0.7), host("b"), host("c", used=0.1), host("d", used=0.3)]
        vms = [vm("web", "a", memory=8)]
        free = kept_to({}, "evenly_distribute", hosts, vms)
        told = {"web": {"b": 2, "c": 1, "d": 0}}
        assert free == {"web": ["b", "c"]}
        assert kept_to(told, "evenly_distribute", hosts, vms) == {"web": ["c", "b"]}

    @pytest.mark.parametrize("policy", ["evenly_distribute", "power_saving"])
    def test_a_vm_that_has_to_stay_is_in_no_plan(self, policy):
        """Nor is a host emptied that it would stay on."""
        hosts = [host("a", used=0.125), host("b", used=0.5)]
        vms = [vm("one", "a"), vm("two", "a"), vm("three", "b")]
        assert kept_to({"two": {}, "three": {}}, policy, hosts, vms) == {}

    def test_power_saving_moves_no_vm_twice_where_the_hosts_tell_nothing_new(self):
        """What a host uses is told late: the VMs moved last keep the host on that they came to."""
        hosts = [host(name, used=0.3) for name in "abc"]
        on = {"one": "a", "two": "a", "three": "b", "four": "b", "five": "c", "six": "c"}
        moved = [{}]
        while len(moved) < 6:
            vms = [vm(name, where) for name, where in on.items()]
            staying = {name: {} for name in moved[-1]}
            answer = kept_to(staying, "power_saving", hosts, vms, most_migrations="2")
            moved.append({name: target for name, (target, *_) in answer.items()})
            on.update(moved[-1])
        assert sum(map(len, moved)) == 4
        assert len(set(on.values())) == 1

    def test_a_host_that_fails_is_left_for_any_that_can_take_the_vm(self):
        """The best first: the cluster's filters may refuse it."""
        hosts = [host("b", used=0.5), host("c")]
        assert changed("maintenance", [vm("web", "a")], hosts) == {"web": ["c", "b"]}


class TestAHostThatFails:
    @pytest.mark.parametrize(
        "status", ["maintenance", "preparing_for_maintenance", "non_operational", "error"]
    )
    def test_its_vms_go_elsewhere(self, status):
        """While it can still be migrated from."""
        assert changed(status, [vm("web", "a"), vm("mail", "b")]) == {"web": ["b"]}

    @pytest.mark.parametrize("status", ["up", "non_responsive", "reboot"])
    def test_no_other_status_moves_anything(self, status):
        """A host that does not respond cannot be migrated from."""
        assert changed(status, [vm("web", "a")]) == {}

    @pytest.mark.parametrize(
        ("resilience", "moved"), [("yes", ["mail", "web"]), ("ha_only", ["mail"]), ("no", [])]
    )
    def test_the_resilience_policy_says_which(self, resilience, moved):
        """All, the highly available ones, or none."""
        vms = [vm("web", "a"), vm("mail", "a", high_availability=available())]
        assert list(changed("non_operational", vms, migrate_on_error=resilience)) == moved

    def test_the_most_important_vms_get_the_room_there_is(self):
        """Highly available ones first, then by priority."""
        vms = [
            vm("low", "a", memory=30, high_availability=available(1)),
            vm("high", "a", memory=30, high_availability=available(100)),
            vm("plain", "a", memory=30),
        ]
        assert list(changed("non_operational", vms)) == ["high", "low"]

    def test_pinned_vms_stay(self):
        """They may run nowhere else."""
        assert changed("non_operational", [vm("web", "a", affinity="pinned")]) == {}

    def test_the_timer_tries_again(self):
        """Once there is room, what could not be moved is."""
        hosts = [host("a", used=0.5, status="non_operational"), host("b", used=0.99)]
        told = properties("none")
        scheduler = DefaultScheduler()
        assert scheduler.on_timer_invoked(hosts, [vm("web", "a")], told) == {}
        hosts[1] = host("b")
        assert target_ids(scheduler.on_timer_invoked(hosts, [vm("web", "a")], told)) == {
            "web": ["b"]
        }


def test_the_manual_has_its_policies_and_properties():
    """With the defaults, and with what each may be."""
    page = (PROJECT / "docs" / "clusters.md").read_text("utf-8")
    _, _, section = page.partition("## The default scheduler\n")
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", section.partition("\n## ")[0], re.MULTILINE)
    told = {name: re.findall("`([^`]+)`", cells.rpartition("|")[0]) for name, cells in rows}
    patterns = dict(
        each.split("=", 1) for each in DefaultScheduler.properties_validation.split(";")
    )
    defaults = DefaultScheduler.default_values.split(";")
    assert set(told) - {"policy"} == {*DefaultScheduler.policies, *patterns}
    for (name, pattern), default in zip(patterns.items(), defaults):
        assert told[name] == [default, *pattern.split("|")], name
