"""What the default scheduler moves to balance a fake cluster, and why."""

from __future__ import annotations

from itertools import permutations

import pytest
from ovirtsdk4 import types

from ovirt_scheduler.plugin import reasons
from tests.support.clusters import (
    DefaultScheduler,
    available,
    host,
    pinned,
    properties,
    statistic,
    target_ids,
    vm,
)


def balanced(policy, hosts, vms, **others):
    return target_ids(DefaultScheduler().load_balance(hosts, vms, properties(policy, **others)))


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


def test_a_balancing_goes_by_averages():
    """lynx is above the high mark only now."""
    hosts = [host("lynx", busy=95), host("puma", busy=10)]
    vms = [vm("web", "lynx", processors=4), vm("mail", "lynx", processors=4)]
    scheduler, wanted = DefaultScheduler(), properties("evenly_distribute", low_utilization="0")
    assert target_ids(scheduler.load_balance(hosts, vms, wanted)) == {"mail": ["puma"]}
    scheduler.averages = {"lynx": (8.0, 0), "puma": (2.0, 0), "web": (4.0, 0), "mail": (4.0, 0)}
    assert not scheduler.load_balance(hosts, vms, wanted)
