"""What a simulation remembers from one look to the next."""

from __future__ import annotations

import functools

import pytest

from ovirt_scheduler.workbench.simulation import SimulationResult
from tests.support.snapshots import host, snapshot, vm

RESTLESS = """\
from ovirt_scheduler.plugin import LoadBalancer


class Restless(LoadBalancer):
    name = "restless"

    def load_balance(self, hosts, vms, properties):
        return {vm.id: [host.id for host in hosts if host.id != vm.host.id] for vm in vms}
"""


@pytest.fixture(scope="module")
def plugin_texts():
    return {"Restless": RESTLESS}


@pytest.fixture
def simulate(simulate):
    return functools.partial(simulate, most=1)


def minutes_of(outcome: SimulationResult, name: str) -> list[float]:
    return [move.hour * 60 for move in outcome.migrations if move.vm == name]


def test_a_vm_that_was_migrated_often_enough_stays_until_an_hour_is_over(simulate):
    """Each by itself; and none in the balancing after the one that moved it."""
    taken = snapshot([host("a"), host("b")], [vm("web", "a"), vm("mail", "b")])
    keys = {"load_balance_interval": "7.5", "hold": "0", "margin": "0", "migrations_per_vm": "2"}
    outcome = simulate(taken, "hours = 3\n", scheduler="restless", **keys)
    for name in ("web", "mail"):
        assert minutes_of(outcome, name) == [0, 15, 60, 75, 120, 135, 180]


def test_a_vm_does_not_go_back_within_the_hour(simulate):
    """And then the time begins anew for which the scheduler has to want it."""
    taken = snapshot([host("a"), host("b")], [vm("web", "a")])
    keys = {"load_balance_interval": "7.5", "hold": "7.5", "margin": "0"}
    outcome = simulate(taken, "hours = 3\n", scheduler="restless", **keys)
    assert minutes_of(outcome, "web") == [7.5, 75, 142.5]


def test_a_balancing_migrates_only_at_its_hours(simulate):
    """It begins at 0 o'clock; what it wants at the end is told, with the reason."""
    clusters = snapshot([host("a"), host("b")], [vm("web", "a"), vm("mail", "b")])
    keys = {"load_balance_interval": "15", "hold": "0", "margin": "0"}
    outcome = simulate(clusters, "hours = 26\n", scheduler="restless", hours="22:30-1:00", **keys)
    hours = sorted({move.hour for move in outcome.migrations})
    assert hours[:2] == [0, 0.5]
    assert all(hour % 24 >= 22.5 or hour % 24 < 1 for hour in hours)
    assert len(hours) >= 6
    assert set(outcome.waiting.values()) == {"balancing migrates at 22:30-01:00 only"}


@pytest.mark.parametrize(("average", "migrates"), [("0", True), ("240", False)])
def test_a_short_peak_migrates_nothing_where_averages_are_kept(simulate, average, migrates):
    """web is idle but for its peak; with the average it looks as it does most of the time."""
    clusters = snapshot(
        [host("a", used=8, busy=7, running=2), host("b", used=4, running=1)],
        [vm("web", "a", 4, 8, 6), vm("mail", "a", 4, 2, 1), vm("idle", "b", 4, 2, 0)],
    )
    happens = "hours = 24\n[load]\n[[web]]\nlowest = 0\nhighest = 200\npeak = 12\n"
    keys = {"hold": "0", "margin": "5", "load_balance_interval": "30"}
    outcome = simulate(
        clusters, happens, policy="evenly_distribute", average=average,
        properties="high_utilization=70;low_utilization=0", **keys,
    )  # fmt: skip
    assert bool(outcome.migrations) is migrates
