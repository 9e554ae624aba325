"""Averages of the use of hosts and VMs, at times of the test's; and what a balancing makes of them."""

from __future__ import annotations

import pytest

from ovirt_scheduler.clusters.averages import UseAverages
from ovirt_scheduler.model.cluster_state import ClusterState, HostState, VmState
from tests.support.rest_server import GIB, Host, Vm

MINUTE = 60.0


def state(web="lynx", busy=1.0, **hosts):
    """lynx and puma of ten processors and 100 bytes; web has 40 of these."""
    figures = {"lynx": (2.0, 50), "puma": (1.0, 10), **hosts}
    return ClusterState(
        {name: HostState(name, "up", 10, cpu, 100, used) for name, (cpu, used) in figures.items()},
        {"web": VmState("web", "up", web, 1, 40, busy)},
    )


def test_without_a_time_the_figures_are_those_of_now():
    averages = UseAverages(0)
    assert averages.averaged(state(), 0) is not None
    changed = state(lynx=(9.0, 90))
    assert averages.averaged(changed, 1) is changed


@pytest.mark.parametrize("looks", [1, 10])
def test_a_change_counts_for_63_percent_after_the_time_however_many_looks_there_were(looks):
    averages = UseAverages(10 * MINUTE)
    averages.averaged(state(), 0)
    for number in range(1, looks + 1):
        latest = averages.averaged(state(lynx=(8.0, 100)), 10 * MINUTE * number / looks)
    assert latest.hosts["lynx"].busy_processors == pytest.approx(2 + 6 * 0.632, abs=0.01)
    assert latest.hosts["lynx"].used_memory == pytest.approx(50 + 50 * 0.632, abs=1)
    assert latest.hosts["puma"] == state().hosts["puma"]


def test_a_short_peak_of_a_vm_hardly_counts():
    averages = UseAverages(30 * MINUTE)
    averages.averaged(state(), 0)
    peak = averages.averaged(state(busy=8.0, lynx=(9.0, 50)), MINUTE)
    assert peak.vms["web"].busy_processors < 1.3
    assert peak.hosts["lynx"].busy_processors < 2.3


def test_a_vm_takes_its_average_along():
    """So the host that it left is seen without it at once, and the other with it."""
    averages = UseAverages(60 * MINUTE)
    averages.averaged(state(busy=6.0, lynx=(7.0, 50)), 0)
    moved = averages.averaged(state("puma", busy=6.0, lynx=(1.0, 10), puma=(7.0, 50)), MINUTE)
    assert moved.hosts["lynx"].busy_processors == pytest.approx(1.0)
    assert moved.hosts["puma"].busy_processors == pytest.approx(7.0)
    assert (moved.hosts["lynx"].used_memory, moved.hosts["puma"].used_memory) == (10, 50)


def test_a_vm_without_figures_has_its_share_of_its_host():
    averages = UseAverages(60 * MINUTE)
    averages.averaged(state(busy=None), 0)
    moved = averages.averaged(state("puma", busy=None, lynx=(0.0, 10), puma=(3.0, 50)), MINUTE)
    assert moved.hosts["lynx"].busy_processors == pytest.approx(0.0, abs=0.1)


def test_what_is_not_known_is_not_averaged_and_a_host_that_comes_up_begins_anew():
    averages = UseAverages(60 * MINUTE)
    first = state()
    silent = first.hosts["puma"]._replace(processors=0, memory=0, busy_processors=0.0)
    averages.averaged(ClusterState({**first.hosts, "puma": silent}, first.vms), 0)
    latest = averages.averaged(state(puma=(9.0, 90)), MINUTE)
    assert latest.hosts["puma"] == state(puma=(9.0, 90)).hosts["puma"]
    away = latest.hosts["lynx"]._replace(status="maintenance", busy_processors=0.0)
    averages.averaged(ClusterState({**latest.hosts, "lynx": away}, {}), 2 * MINUTE)
    returned = averages.averaged(state(lynx=(5.0, 50)), 3 * MINUTE)
    assert returned.hosts["lynx"].busy_processors == pytest.approx(5.0)


@pytest.fixture
def half_full(looks):
    """lynx is used by half; puma by less."""
    looks.engine.hosts = [
        Host("lynx", free_memory=60 * GIB, busy=50),
        Host("puma", free_memory=60 * GIB, busy=10),
    ]
    looks.engine.vms = [Vm("web", "lynx", busy=80), Vm("mail", "lynx", busy=80)]
    return looks


@pytest.mark.parametrize(("average", "migrates"), [(0.0, True), (3600.0, False)])
def test_a_peak_migrates_nothing_where_averages_are_kept(half_full, average, migrates):
    """The host is used by half, and then by 95 % in one look."""
    half_full.begin(average=average, margin=1.0)
    assert half_full.look() == []
    half_full.engine.hosts[0].busy = 95
    assert bool(half_full.look()) is migrates


def test_what_lasts_migrates_in_the_end(half_full):
    half_full.begin(average=600.0, margin=1.0)
    half_full.look()
    half_full.engine.hosts[0].busy = 95
    migrated = [bool(half_full.look()) for _ in range(20)]
    assert not migrated[0]
    assert any(migrated)
