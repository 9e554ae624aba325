"""The default scheduler, on fake clusters: where VMs start, and where they are moved."""

from __future__ import annotations

import re
from itertools import permutations

import pytest
from ovirtsdk4 import types

from ovirt_scheduler.plugin import cluster_use, reasons
from tests.support.clusters import (
    GIB,
    DefaultScheduler,
    available,
    host,
    pinned,
    properties,
    statistic,
    vm,
)
from tests.support.paths import PROJECT


def ids(migrations):
    return {moved.id: [target.id for target in targets] for moved, targets in migrations.items()}


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


def balanced(policy, hosts, vms, **others):
    return ids(DefaultScheduler().load_balance(hosts, vms, properties(policy, **others)))


class TestBalancing:
    def test_none_moves_nothing(self):
        """However uneven it is."""
        assert balanced("none", [host("a", used=0.95), host("b")], [vm("web", "a")]) == {}

    def test_a_host_above_the_high_mark_is_relieved(self):
        """By as many VMs as it takes, and no more; each other host that has room comes second."""
        hosts = [host("a", used=0.9), host("b", used=0.1), host("c", used=0.3), host("d", used=0.8)]
        vms = [vm(f"vm{number}", "a", memory=4) for number in range(8)]
        assert balanced("evenly_distribute", hosts, vms) == {"vm0": ["b", "c"], "vm1": ["b", "c"]}

    def test_a_busy_processor_counts_as_memory_does(self):
        """A VM's share of it goes by its processors."""
        hosts = [host("a", busy=96), host("b")]
        vms = [vm("small", "a", processors=1), vm("large", "a", processors=3)]
        assert balanced("evenly_distribute", hosts, vms) == {"large": ["b"]}

    def test_the_most_used_host_is_relieved_first(self):
        """Where no more may be moved, or the room is for one alone."""
        hosts = [host("a", used=0.82), host("b", used=0.95), host("c", used=0.7)]
        vms = [vm(f"on-{name}", name) for name in "abc"]
        assert balanced("evenly_distribute", hosts, vms) == {"on-b": ["c"]}
        hosts[2] = host("c")
        assert balanced("evenly_distribute", hosts, vms, most_migrations="1") == {"on-b": ["c"]}

    def test_what_a_vm_keeps_busy_its_statistics_tell(self):
        """Before any share."""
        hosts = [host("a", busy=90), host("b")]
        idle = vm("idle", "a", processors=8, statistics=[statistic("cpu.current.total", 0)])
        busy = vm("busy", "a", processors=8, statistics=[statistic("cpu.current.total", 800)])
        moved = balanced("evenly_distribute", hosts, [idle, busy])
        assert "busy" in moved

    def test_the_least_important_vms_are_moved_first(self):
        """Not highly available ones, then those of low priority."""
        hosts = [host("a", used=0.85), host("b")]
        vms = [
            vm("available", "a", high_availability=available(1)),
            vm("second", "a", high_availability=types.HighAvailability(enabled=False, priority=50)),
            vm("first", "a", high_availability=types.HighAvailability(enabled=False, priority=1)),
        ]
        moved = balanced("evenly_distribute", hosts, vms, low_utilization="0")
        assert list(moved) == ["first"]

    @pytest.mark.parametrize(
        "fixed",
        [
            vm("web", "a", affinity="pinned"),
            vm("web", "a", affinity="user_migratable"),
            vm("web", "a", status="paused"),
            vm("web", "a", status="migrating"),
            vm("web", "a", memory=60),
            pinned("web", "a", "a", affinity="migratable"),
        ],
        ids=["pinned", "by hand alone", "paused", "on its way", "too large", "named hosts"],
    )
    @pytest.mark.parametrize("policy", ["evenly_distribute", "power_saving"])
    def test_a_vm_that_may_not_be_moved_stays(self, policy, fixed):
        """Even where its host is far above the high mark."""
        hosts = [host("a", used=0.95), host("b", used=0.2)]
        assert balanced(policy, hosts, [fixed, vm("other", "b")]) == {}

    def test_a_host_below_the_low_mark_takes_over_from_the_most_used(self):
        """Until it is not below, and while that evens out; never to above the high mark."""
        hosts = [host("a", used=0.7), host("b", used=0.5), host("c", used=0.1)]
        vms = [vm(f"vm{number}", "a", memory=4) for number in range(8)]
        assert balanced("evenly_distribute", hosts, vms) == {"vm0": ["c"], "vm1": ["c"]}
        hosts, vms = [host("a", used=0.95), host("c", used=0.1)], [vm("large", "a", memory=26)]
        assert balanced("evenly_distribute", hosts, vms, high_utilization="50") == {}

    @pytest.mark.parametrize("policy", ["evenly_distribute", "power_saving"])
    def test_the_hosted_engine_stays_where_it_is(self, policy):
        """Also where its host is full, or would be empty without it."""
        engine = vm("engine", "a", origin="managed_hosted_engine")
        hosts = [host("a", used=0.95), host("b", used=0.1)]
        assert balanced(policy, hosts, [engine]) == {}
        moved = balanced(policy, hosts, [engine, vm("web", "a", memory=16)])
        assert moved == {"web": ["b"]}
        hosts = [host("a", used=0.125), host("b", used=0.5)]
        others = [vm("web", "a"), vm("mail", "b", affinity="pinned")]
        assert balanced("power_saving", hosts, [engine, *others]) == {}

    @pytest.mark.parametrize("policy", ["evenly_distribute", "power_saving"])
    def test_a_host_that_the_engine_has_not_measured_counts_by_its_memory(self, policy):
        """It tells 0 of user, system and idle, which is not a full processor."""
        new = host("new", used=0.5, idle=0)
        vms = [vm(f"vm{number}", "new", memory=8) for number in range(4)]
        rest = [host("b", used=0.5, busy=40), host("c", used=0.5, busy=40)]
        pinned_ones = [vm(f"on-{name}", name, affinity="pinned") for name in "bc"]
        assert balanced("evenly_distribute", [new, *rest], [*vms, *pinned_ones]) == {}
        assert len(balanced(policy, [host("new", used=0.9, idle=0), *rest], vms)) == 1

    def test_nothing_is_moved_between_hosts_of_unknown_use(self):
        """Neither to the host that it is on, nor where it changes nothing that is known."""
        hosts = [host(name, memory=0, busy=busy) for name, busy in (("a", 0), ("b", 0), ("c", 15))]
        idle = [
            vm(f"vm{number}", name, statistics=[statistic("cpu.current.total", 0)])
            for number, name in enumerate("aabbcc")
        ]
        for policy in ("evenly_distribute", "power_saving"):
            unknown = [types.Host(id=each.id, status=each.status) for each in hosts]
            assert balanced(policy, unknown, idle) == {}
        assert balanced("evenly_distribute", hosts, idle) == {}

    def test_a_cluster_that_is_evenly_idle_is_left_alone(self):
        """All are below the low mark, and nothing is better elsewhere."""
        hosts = [host("a", used=0.0625), host("b", used=0.0625)]
        vms = [vm("one", "a"), vm("two", "b")]
        assert balanced("evenly_distribute", hosts, vms) == {}

    def test_power_saving_empties_the_least_used_host_into_the_fullest(self):
        """And never into one that runs nothing."""
        hosts = [host("a", used=0.125), host("b", used=0.5), host("c", used=0.25), host("d")]
        vms = [vm("one", "a", memory=8), vm("two", "b", memory=32), vm("three", "c", memory=16)]
        assert balanced("power_saving", hosts, vms) == {"one": ["b", "c"]}

    def test_power_saving_does_not_empty_a_host_in_part(self):
        """A host that keeps one VM saves nothing."""
        hosts = [host("a", used=0.125), host("b", used=0.5)]
        vms = [
            vm("one", "a"),
            vm("two", "a", affinity="pinned"),
            vm("three", "b", affinity="pinned"),
        ]
        assert balanced("power_saving", hosts, vms) == {}

    def test_power_saving_moves_no_more_vms_at_once_than_allowed(self):
        """The next host is emptied the next time; one host alone is emptied wholly."""
        hosts = [host(name, used=share) for name, share in zip("abcd", (0.1, 0.2, 0.3, 0.4))]
        vms = [vm(f"{name}{number}", name, memory=2) for name in "abcd" for number in "123"]
        for most, moved in (("2", 3), ("3", 3), ("5", 3), ("6", 6)):
            answer = balanced("power_saving", hosts, vms, most_migrations=most)
            assert len(answer) == moved
            assert {name[0] for name in answer} == set("ab"[: moved // 3])

    def test_power_saving_fills_hosts_that_must_stay_on_first(self):
        """What comes to a host that may be emptied next would be moved twice."""
        hosts = [host("a", used=0.0625), host("b", used=0.125), host("c", used=0.5)]
        vms = [vm("one", "a"), vm("two", "b", affinity="pinned"), vm("three", "c", memory=48)]
        assert balanced("power_saving", hosts, vms) == {"one": ["b"]}

    def test_power_saving_relieves_a_host_above_the_high_mark(self):
        """It goes to the most used that stays below, to an idle one only if it has to."""
        hosts = [host("a", used=0.9), host("b", used=0.5), host("c", used=0.25), host("d")]
        vms = [
            vm("one", "a", memory=8),
            vm("two", "a", memory=48, affinity="pinned"),
            vm("three", "b", memory=32, affinity="pinned"),
            vm("four", "c", memory=16, affinity="pinned"),
        ]
        assert balanced("power_saving", hosts, vms) == {"one": ["b", "c", "d"]}

    def test_the_order_does_not_settle_which_of_two_equals_is_relieved(self):
        """Nor where to."""
        hosts = [host("a", used=0.9), host("b", used=0.9), host("c"), host("d")]
        vms = [vm("on-a", "a", memory=16), vm("on-b", "b", memory=16)]
        found = [
            balanced("evenly_distribute", ordered, turned, most_migrations="1")
            for ordered in permutations(hosts)
            for turned in (vms, vms[::-1])
        ]
        assert len(found[0]) == 1
        assert all(each == found[0] for each in found)

    def test_no_more_vms_are_moved_at_once_than_allowed(self):
        """The rest waits for the next time."""
        hosts = [host("a", used=0.95), host("b")]
        vms = [vm(f"vm{number}", "a", memory=1) for number in range(40)]
        assert len(balanced("evenly_distribute", hosts, vms, most_migrations="3")) == 3


def changed(status, vms, hosts=None, before="up", **others):
    failed = host("a", used=0.5, status=status)
    scheduler = DefaultScheduler()
    return ids(
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
    return ids(scheduler.load_balance(hosts, vms, properties(policy, **others)))


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
        assert ids(scheduler.on_timer_invoked(hosts, [vm("web", "a")], told)) == {"web": ["b"]}


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


def test_a_plan_says_why_once_for_each_host_that_takes_vms_over():
    """How busy both were before the first VM went, however many went; of no plan that was undone."""
    reasons.of_call.begin(["lynx", "ocelot"])
    hosts = [host("lynx", busy=84), host("ocelot", busy=31)]
    vms = [vm(f"vm{number}", "lynx") for number in range(12)]
    assert balanced("evenly_distribute", hosts, vms, high_utilization="50")
    assert reasons.of_call.texts == {"ocelot": "CPU of lynx 84 %, of ocelot 31 %"}
    assert reasons.of_call.notes == ()


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (host("lynx", busy=10, used=0.9), host("ocelot", busy=60, used=0.125),
         "memory of lynx 90 %, of ocelot 12 %"),
        (host("lynx", busy=90, used=0.5), host("ocelot", busy=20, used=0.625),
         "CPU of lynx 90 %, of ocelot 20 %"),
        (host("lynx", used=0.9, busy=50), host("ocelot", used=0.25, idle=0),
         "memory of lynx 90 %, of ocelot 25 %"),
        (host("lynx", memory=0, busy=90), host("ocelot", used=0.25, idle=0), ""),
    ],
)  # fmt: skip
def test_the_reason_names_the_resource_that_counted(source, target, words):
    """That of which the host has less left, as far as both tell it."""
    reasons.of_call.begin(["lynx", "ocelot"])
    vms = [vm("web", "lynx"), vm("mail", "lynx", processors=3)]
    assert balanced("evenly_distribute", [source, target], vms)
    assert reasons.of_call.texts.get("ocelot", "") == words


def test_averages_count_instead_of_figures_but_not_for_room():
    """What is not known stays so; and a host that is full now takes no VM."""
    full, silent = host("lynx", used=1.0, busy=90.0), types.Host(id="puma", memory=64 * GIB)
    web = vm("web", "lynx")
    averages = {"lynx": (4.0, 16 * GIB), "puma": (8.0, 32 * GIB), "web": (1.5, 4 * GIB)}
    lynx, puma = cluster_use.uses([full, silent], [web], averages)
    assert lynx.known_fractions == {"CPU": 0.25, "memory": 0.25}
    assert lynx.processors_of(web) == 1.5
    assert lynx.refusal(vm("mail"))
    assert puma.known_fractions == {"memory": 0.0}


def test_a_balancing_goes_by_averages():
    """lynx is above the high mark only now."""
    hosts = [host("lynx", busy=95), host("puma", busy=10)]
    vms = [vm("web", "lynx", processors=4), vm("mail", "lynx", processors=4)]
    scheduler, wanted = DefaultScheduler(), properties("evenly_distribute", low_utilization="0")
    assert ids(scheduler.load_balance(hosts, vms, wanted)) == {"mail": ["puma"]}
    scheduler.averages = {"lynx": (8.0, 0), "puma": (2.0, 0), "web": (4.0, 0), "mail": (4.0, 0)}
    assert not scheduler.load_balance(hosts, vms, wanted)
