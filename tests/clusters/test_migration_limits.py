"""Which migrations are made: in clusters whose hosts have ten processors, at times of the test's."""

from __future__ import annotations

import pytest

from ovirt_scheduler.clusters.migration_limits import MigrationLimits, after, cluster_imbalance
from ovirt_scheduler.model.cluster_state import ClusterState, HostState, VmState
from ovirt_scheduler.settings.table import ClusterSettings


def state(vms=(), status="up", **busy):
    """Hosts with so many of ten processors busy; VMs of name, host, and processors that are busy."""
    return ClusterState(
        {name: HostState(name, status, 10, part) for name, part in busy.items()},
        {name: VmState(name, "up", host, 1, 0, part) for name, host, part in vms},
    )


LARGE = state([("proxy", "lynx", 2), ("mail", "lynx", 1)], lynx=8.4, puma=3.1)


def new(hold, margin, migrated=None):
    settings = ClusterSettings("Default", hold=hold, margin=margin)
    return MigrationLimits(settings, [] if migrated is None else migrated)


def made(judged):
    return [each.vm for each in judged if not each.problem]


def test_what_betters_the_imbalance_for_long_enough_is_made_with_a_reason():
    """Not before; a moment without it begins the time anew."""
    limits = new(120, 5)
    wanted = {"proxy": "puma"}
    (judged,) = limits.judge(wanted, LARGE, 1000)
    assert judged.problem == "the imbalance has lasted 0 s, and has to last 120 s"
    assert judged.reason == "CPU 84 % to 31 %"
    assert made(limits.judge(wanted, LARGE, 1119)) == []
    assert made(limits.judge(wanted, LARGE, 1120)) == ["proxy"]
    assert made(limits.judge({}, LARGE, 1130)) == []
    assert made(limits.judge(wanted, LARGE, 1140)) == []
    assert made(limits.judge(wanted, LARGE, 1260)) == ["proxy"]


def test_what_betters_it_by_less_than_the_margin_is_not_made():
    """84 % and 31 % are 54 % imbalance; 64 % and 51 % are 13 %: it is 40.5 points better."""
    assert made(new(0, 40).judge({"proxy": "puma"}, LARGE, 0)) == ["proxy"]
    (judged,) = new(0, 41).judge({"proxy": "puma"}, LARGE, 0)
    assert judged.problem == (
        "it changes the imbalance of the hosts from 53.6 % to 13.1 %, and has to improve it by 41 "
        "points"
    )


def test_migrations_off_one_host_are_judged_together():
    """Though none of these VMs alone would be worth it."""
    small = [(f"vm{number}", "lynx", 0.1) for number in range(20)]
    crowded = state([*small, ("web", "puma", 0.1)], lynx=9, puma=5)
    assert made(new(0, 10).judge({"vm0": "puma"}, crowded, 0)) == []
    wanted = {f"vm{number}": "puma" for number in range(15)}
    assert made(new(0, 10).judge(wanted, crowded, 0)) == list(wanted)


def test_each_host_is_judged_with_the_migrations_before_it():
    """The second would have puma be used more than its own."""
    crowded = state([("a", "lynx", 2), ("b", "lion", 2)], lynx=9, lion=7, puma=4)
    assert made(new(0, 5).judge({"b": "puma"}, crowded, 0)) == ["b"]
    assert made(new(0, 5).judge({"a": "puma", "b": "puma"}, crowded, 0)) == ["a"]


def test_the_size_of_the_cluster_does_not_matter():
    """Nor do hosts that have nothing to do with it."""
    many = state(
        [("proxy", "lynx", 2), ("mail", "lynx", 1)],
        lynx=8.4,
        puma=3.1,
        **{f"host{number}": 5 for number in range(400)},
    )
    assert made(new(0, 40).judge({"proxy": "puma"}, many, 0)) == ["proxy"]


def test_short_peaks_of_one_host_after_another_are_no_lasting_imbalance():
    """The host that takes the VMs is the same each time, and is not the cause."""
    limits = new(120, 5)
    names = [f"host{number}" for number in range(10)]
    for minute in range(10):
        busy = dict.fromkeys(names, 5.0)
        peak = names[minute]
        crowded = state([("a", peak, 2), ("b", peak, 2)], **{**busy, peak: 9.5}, puma=4)
        assert made(limits.judge({"a": "puma"}, crowded, 60 * minute)) == []


def test_hosts_that_are_not_up_do_not_count_for_the_mean():
    """Here it is near that of the full hosts, so that the empty one is the cause."""
    limits = new(60, 5)
    up = {"lynx": HostState("lynx", "up", 10, 6), "lion": HostState("lion", "up", 10, 6)}
    off = {str(number): HostState("off", "maintenance", 10, 0) for number in range(9)}
    vms = [("a", "lynx", 2), ("b", "lion", 2)]
    cluster = ClusterState(
        {**up, **off, "puma": HostState("puma", "up", 10, 0)},
        {name: VmState(name, "up", host, 1, 0, part) for name, host, part in vms},
    )
    assert made(limits.judge({"a": "puma"}, cluster, 0)) == []
    assert made(limits.judge({"b": "puma"}, cluster, 60)) == ["b"]


def test_a_host_that_takes_vms_all_the_time_is_the_cause():
    """From whichever host they come: here an empty one is to be filled."""
    limits = new(120, 5)
    fuller = state([("a", "lynx", 2), ("b", "lion", 2)], lynx=6, lion=6, puma=0)
    assert made(limits.judge({"a": "puma"}, fuller, 0)) == []
    assert made(limits.judge({"b": "puma"}, fuller, 60)) == []
    assert made(limits.judge({"a": "puma"}, fuller, 120)) == ["a"]


def test_after_a_migration_the_time_begins_anew_for_its_hosts_alone():
    """The others have waited, too."""
    limits = new(60, 5)
    crowded = state([("a", "lynx", 2), ("b", "lion", 2)], lynx=9, lion=9, puma=1, cat=1)
    wanted = {"a": "puma", "b": "cat"}
    limits.judge(wanted, crowded, 0)
    first, _ = limits.judge(wanted, crowded, 60)
    limits.note_begun(first, 60)
    assert made(limits.judge(wanted, crowded, 100)) == ["b"]
    assert made(limits.judge(wanted, crowded, 160)) == ["a", "b"]


def test_a_host_that_is_emptied_is_packed_whatever_the_margin():
    """If its VMs go where others are: a lone VM that changes places has saved nothing."""
    vms = [("a", "lynx", 1), ("b", "puma", 4)]
    assert made(new(0, 5).judge({"a": "puma"}, state(vms, lynx=1, puma=4), 0)) == ["a"]
    assert made(new(0, 5).judge({"a": "cat"}, state(vms, lynx=1, puma=4, cat=0), 0)) == []
    vms.append(("c", "lynx", 1))
    assert made(new(0, 5).judge({"a": "puma"}, state(vms, lynx=1, puma=4), 0)) == []


@pytest.mark.parametrize("target", ["puma", ""])
def test_what_cannot_be_weighed_is_the_schedulers_choice(target):
    """No margin counts where a host does not tell its use, or any host will do; hold does."""
    hosts = {"lynx": HostState("lynx", "up", 10, 8.4), "puma": HostState("puma", "up")}
    unknown = ClusterState(hosts, {each: VmState(each, "up", "lynx") for each in "ab"})
    limits = new(60, 5)
    (judged,) = limits.judge({"a": target}, unknown, 0)
    assert "has lasted" in judged.problem
    assert judged.reason == ""
    assert made(limits.judge({"a": target}, unknown, 60)) == ["a"]


def test_memory_counts_where_it_is_more():
    """And how busy a VM is, where it does not tell, is its share of its host's."""
    hosts = {
        "lynx": HostState("lynx", "up", 10, 4, 100, 90),
        "puma": HostState("puma", "up", 10, 4, 100, 30),
    }
    vms = {"a": VmState("a", "up", "lynx", 1, 20), "b": VmState("b", "up", "lynx", 3, 0)}
    cluster = ClusterState(hosts, vms)
    (judged,) = new(0, 30).judge({"a": "puma"}, cluster, 0)
    assert (judged.problem, judged.reason) == ("", "memory 90 % to 30 %")


def test_a_vm_does_not_go_back_within_the_hour():
    """To any host that a balancing took it from; what is older is forgotten."""
    migrated = []
    limits = new(60, 0, migrated)
    limits.note_begun(*limits.judge({"proxy": "puma"}, LARGE, 0), 0)
    back = state([("proxy", "puma", 2)], lynx=6, puma=5)
    limits.note_begun(*limits.judge({"proxy": "lion"}, back, 1800), 1800)
    limits.note_begun(
        *limits.judge({"proxy": "puma"}, state([("proxy", "lion", 2)]), 1800), 1800, False
    )
    assert set(limits.former_hosts(1801)["proxy"]) == {"lynx", "puma"}
    assert set(new(60, 0, migrated).former_hosts(3600)["proxy"]) == {"puma"}
    assert new(0, 0, migrated).former_hosts(3600) == {}
    assert limits.former_hosts(5400) == {}
    assert migrated == []


def test_a_vm_that_was_migrated_too_often_stays():
    """For whatever reason; until the hour is over."""
    limits = new(0, 0)
    (step,) = limits.judge({"proxy": "puma"}, LARGE, 0)
    for second in range(4):
        assert limits.exhausted(second) == {}
        limits.note_begun(step, second, balances=second % 2 == 0)
    assert limits.exhausted(3600 - 1) == {"proxy": 4}
    assert limits.exhausted(3600) == {}


def test_the_imbalance_of_a_cluster_is_that_of_its_hosts_that_are_up():
    """It is not known where one of them does not tell what is used."""
    hosts = {"a": HostState("a", "up", 4, 3), "b": HostState("b", "up", 4, 1)}
    hosts["c"] = HostState("c", "maintenance")
    assert cluster_imbalance(ClusterState(hosts, {})) == pytest.approx(50)
    hosts["d"] = HostState("d", "up")
    assert cluster_imbalance(ClusterState(hosts, {})) is None


def migrated(target="puma"):
    """The proxy came from lynx to a host at 100."""
    limits = new(0, 0)
    (step,) = limits.judge({"proxy": target}, LARGE, 0)
    limits.note_begun(step, 0)
    limits.note_done("proxy", target, 100)
    return limits


def on(host, status="up"):
    hosts = {"lynx": "up", "puma": status, "lion": "up"}
    return ClusterState(
        {name: HostState(name, word) for name, word in hosts.items()},
        {"proxy": VmState("proxy", "up", host)},
    )


def test_a_vm_that_is_elsewhere_after_its_migration_was_taken_by_others():
    """Which is told once."""
    limits = migrated()
    assert limits.taken_back(on("puma"), (), 101, 600) == []
    (step,) = limits.taken_back(on("lion"), (), 699, 600)
    assert (step.vm, step.source, step.target) == ("proxy", "puma", "lion")
    assert limits.taken_back(on("lion"), (), 699, 600) == []


@pytest.mark.parametrize(
    ("state", "busy", "now"),
    [
        (on("lion"), ["proxy"], 101),  # it is our own migration
        (on("lion", "preparing_for_maintenance"), (), 101),
        (on("lion"), (), 700),
        (on(None), (), 101),
        (ClusterState({}, {}), (), 101),
    ],
    ids=["migrated", "maintenance", "late", "off", "gone"],
)  # fmt: skip
def test_a_vm_was_not_taken_by_others(state, busy, now):
    assert migrated().taken_back(state, busy, now, 600) == []


def test_what_stopped_and_began_elsewhere_was_not_taken():
    limits = migrated()
    limits.taken_back(on(None), (), 101, 600)
    assert limits.taken_back(on("lion"), (), 102, 600) == []


def test_the_next_migration_of_a_vm_is_compared_alone():
    limits = migrated()
    limits.note_begun(*limits.judge({"proxy": "lion"}, on("puma"), 200), 200)
    assert limits.taken_back(on("lion"), (), 300, 600) == []
    limits.note_done("proxy", "lion", 300)
    assert limits.taken_back(on("lion"), (), 301, 600) == []


def test_a_target_that_comes_in_for_another_need_not_have_been_wanted_for_long():
    """In the same balancing; the one that it came in for stays wanted."""
    crowded = state([("a", "lynx", 1)], lynx=6, puma=0, lion=0, cat=4)
    limits = new(60, 0)
    limits.judge({"a": "puma"}, crowded, 0)
    (waits,) = limits.judge({"a": "puma"}, crowded, 30)
    assert waits.problem
    assert made(limits.judge({"a": "puma"}, crowded, 60)) == ["a"]
    assert made(limits.judge({"a": "lion"}, crowded, 60, again=True)) == ["a"]
    assert made(limits.judge({"a": "puma"}, crowded, 61)) == ["a"]
    assert new(60, 0).judge({"a": "lion"}, crowded, 60, again=True)[0].problem


def test_a_cluster_after_migrations_has_their_use_elsewhere():
    """What is not planned, and what does not run, stays as it is."""
    before = state([("a", "lynx", 2), ("b", "lynx", 1)], lynx=6, puma=1)
    later = after(before, {"a": "puma", "b": "lynx", "gone": "puma"})
    assert [later.vms[vm].host for vm in "ab"] == ["puma", "lynx"]
    assert [later.hosts[host].busy_processors for host in ("lynx", "puma")] == [4, 3]
    assert before.vms["a"].host == "lynx"
    assert after(before, {}) is before
