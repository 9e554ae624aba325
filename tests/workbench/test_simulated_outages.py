"""Hosts of a simulated cluster that fail, leave and return, and what becomes of their VMs."""

from __future__ import annotations

from ovirt_scheduler.workbench.simulation import SimulationResult
from tests.support.snapshots import host, snapshot, vm, vm_counts


def told(outcome: SimulationResult) -> list[tuple[float, str, str]]:
    return [(round(move.hour, 6), move.what, move.vm) for move in outcome.moves]


def test_a_host_that_fails_or_leaves_loses_its_vms(simulate):
    """To others at once where they are highly available, or are migrated; else on its return."""
    taken = snapshot(
        [host("lynx", used=12, running=3), host("puma", used=4, running=1), host("ape")],
        [vm("a", "lynx", available=True), vm("b", "lynx"), vm("c", "lynx"), vm("d", "puma")],
    )
    happens = "hours = 5\n[hosts]\n[[lynx]]\nfails = 1\nreturns = 3\n[[puma]]\nmaintenance = 2\n"
    outcome = simulate(taken, happens, load_balance_interval="30")
    told = [(move.hour, move.what, move.vm) for move in outcome.moves]
    # Where a went by lot, it may have to leave once more.
    assert [each for each in told if each != (2.0, "evacuated", "a")] == [
        (1.0, "restarted", "a"), (2.0, "evacuated", "d"),
        (3.0, "restarted", "b"), (3.0, "restarted", "c"),
    ]  # fmt: skip
    assert outcome.closed == {"puma": "is in maintenance"}
    assert sum(vm_counts(outcome.views[-1]).values()) == 4
    between = outcome.views[1]
    assert (between.hour, between.hosts[0]) == (2.5, ("lynx", "non_responsive", 0, 0, 0))


def test_a_host_that_tells_no_status_can_fail(simulate):
    """It counts as up until then."""
    silent = host("lynx").replace("<status>up</status>", "")
    outcome = simulate(snapshot([silent]), "[hosts]\n[[lynx]]\nfails = 0\n")
    assert outcome.closed == {"lynx": "does not respond"}


def test_of_two_hosts_that_failed_only_that_which_returns_starts_its_vms(simulate):
    """And again, when it fails and returns once more."""
    taken = snapshot(
        [host("lynx", used=4, running=1), host("puma", used=4, running=1)],
        [vm("a", "lynx"), vm("b", "puma")],
    )
    happens = (
        "hours = 8\n[hosts]\n[[lynx]]\nfails = 1\nreturns = 3\n[[puma]]\nfails = 2\nreturns = 5\n"
    )
    outcome = simulate(taken, happens, load_balance_interval="30")
    assert told(outcome) == [(3.0, "restarted", "a"), (5.0, "restarted", "b")]


def test_a_host_that_leaves_twice_is_emptied_twice(simulate):
    taken = snapshot([host("lynx", used=4, running=1), host("puma")], [vm("a", "lynx")])
    happens = (
        "hours = 8\n[hosts]\n[[lynx]]\nmaintenance = 1\nreturns = 2\n"
        "[[puma]]\nmaintenance = 3\nreturns = 4\n"
    )
    outcome = simulate(taken, happens, load_balance_interval="30")
    assert told(outcome) == [(1.0, "evacuated", "a"), (3.0, "evacuated", "a")]
    assert outcome.closed == {}


def test_a_vm_that_ended_meanwhile_is_not_started_again(simulate):
    """Neither with the host that took it down, nor is one told that found none until it ended."""
    happens = (
        "hours = 5\n[vms]\n[[web]]\nlasts = 2\n[[large]]\nmemory = 1000 GiB\nlasts = 2\n"
        "[hosts]\n[[lynx]]\nfails = 1\nreturns = 3\n"
    )
    outcome = simulate(snapshot([host("lynx")]), happens)
    assert [move.what for move in outcome.moves] == ["placed"]
    assert vm_counts(outcome.views[-1]) == {"lynx": 0}
    assert outcome.unplaced == {}


def test_a_vm_that_stayed_through_a_maintenance_is_not_told(simulate):
    """It had no other host, and runs where it ran."""
    happens = "hours = 3\n[hosts]\n[[lynx]]\nmaintenance = 1\nreturns = 2\n"
    outcome = simulate(snapshot([host("lynx")], [vm("web", "lynx")]), happens)
    assert vm_counts(outcome.views[-1]) == {"lynx": 1}
    assert outcome.unplaced == {}


def test_a_vm_that_stays_in_a_maintenance_without_end_has_a_host(simulate):
    """It found no other one, and runs where it ran."""
    happens = "hours = 3\n[hosts]\n[[lynx]]\nmaintenance = 1\n"
    outcome = simulate(snapshot([host("lynx")], [vm("web", "lynx")]), happens)
    assert vm_counts(outcome.views[-1]) == {"lynx": 1}
    assert outcome.unplaced == {}
