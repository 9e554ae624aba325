"""What a simulation remembers from one look to the next, and of one host beside another."""

from __future__ import annotations

import pytest

from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.settings import config
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.workbench import scenario
from ovirt_scheduler.workbench.sections import changed_section
from ovirt_scheduler.workbench.simulation import Outcome, Simulation
from tests.support.snapshots import host, snapshot, vm

RESTLESS = """\
from ovirt_scheduler.plugin import LoadBalancer


class Restless(LoadBalancer):
    name = "restless"

    def load_balance(self, hosts, vms, properties):
        return {vm.id: [host.id for host in hosts if host.id != vm.host.id] for vm in vms}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    plugins = tmp_path_factory.mktemp("plugins")
    (plugins / "Restless.py").write_text(RESTLESS)
    conf = plugins / "scheduler.conf"
    conf.write_text(f"plugins_path = {plugins}\nplugins_conf_path = {plugins}")
    with runtime.started(config.load(conf, {})) as started:
        started.registry.refresh()
        yield started


@pytest.fixture
def simulate(running, tmp_path):
    def play(taken, happens: str, **keys: str) -> Outcome:
        file = tmp_path / "scenario.conf"
        file.write_text(happens)
        settings = changed_section(ClusterSettings("Default"), keys, "--set")
        return Simulation(running, taken, settings, scenario.read(file), most=1).run()

    return play


def told(outcome: Outcome) -> list[tuple[float, str, str]]:
    return [(round(move.hour, 6), move.what, move.vm) for move in outcome.moves]


def minutes_of(outcome: Outcome, name: str) -> list[float]:
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
