"""What the engine itself does with a cluster: balancing beside ours, and upgrades."""

from __future__ import annotations

import json

import pytest

from ovirt_scheduler.model.requests import RequestedUnit
from ovirt_scheduler.settings.value_types import Drive
from tests.support.command import run
from tests.support.rest_server import GIB, Host, Reply, RestServer, Vm


@pytest.fixture
def crowded(looks):
    looks.engine.hosts = [Host("lynx", measured=True), Host("puma", measured=True)]
    looks.engine.vms = [Vm(f"vm{each}", "lynx", memory=4 * GIB - each) for each in range(13)]
    looks.engine.instant_migrations = True
    return looks


@pytest.mark.parametrize(
    ("policy", "balances"),
    [
        ("evenly_distributed", True),
        ("power_saving", True),
        ("vm_evenly_distributed", True),
        ("our balance", True),
        ("our filters", False),
        ("none", False),
    ],
)
def test_a_policy_of_the_engine_that_balances_is_warned_of_once(crowded, caplog, policy, balances):
    """Our own balancing goes on."""
    crowded.engine.policy = policy
    crowded.begin()
    assert crowded.look() == [("vm0", "puma")]
    crowded.look()
    words = f"the engine balances it, too, by its policy {policy}: each moves what the other has"
    assert caplog.text.count(words) == balances
    assert (words in crowded.cluster.state().conflict) == balances


@pytest.mark.parametrize(
    ("keys", "asks"),
    [
        ({"policy": "none"}, True),
        ({"load_balance_interval": 0.0, "affinity": False}, False),
    ],
)
def test_a_section_that_balances_nothing_has_no_conflict(crowded, keys, asks):
    crowded.engine.policy = "power_saving"
    crowded.begin(**{"timer_interval": 60.0, **keys})
    crowded.look()
    assert crowded.cluster.state().conflict == ""
    assert bool(crowded.engine.asked("clusters")) is asks


def test_a_balance_unit_balances_whatever_the_policy(crowded, place):
    place.write("Still", "def do_balance(hosts, properties):\n    return None\n")
    crowded.registry.refresh()
    crowded.engine.policy = "power_saving"
    crowded.begin(policy="none", balance=RequestedUnit("Still"))
    crowded.look()
    assert "power_saving" in crowded.cluster.state().conflict


def test_the_cluster_is_read_before_each_balancing_and_its_policy_each_ten_minutes(crowded):
    crowded.begin()
    for _ in range(12):
        crowded.look()
    searches = [query for query in crowded.engine.asked("clusters") if query.search]
    assert len(searches) == 11  # once a migration was under way
    assert len(crowded.engine.asked("schedulingpolicies")) == 2
    crowded.engine.policy = "power_saving"
    crowded.look()
    assert crowded.cluster.state().conflict


@pytest.mark.parametrize("by", ["mark", "policy"])
def test_while_the_cluster_is_upgraded_it_is_not_balanced(crowded, caplog, by):
    """Hooks are called for all that; it is told once, and once more when it is over."""
    caplog.set_level("INFO")
    crowded.engine.upgrading = by == "mark"
    crowded.engine.policy = "cluster_maintenance" if by == "policy" else "none"
    crowded.begin()
    assert crowded.look() == []
    assert crowded.look() == []
    assert crowded.cluster.state().upgraded
    crowded.engine.hosts[0].status = "preparing_for_maintenance"
    assert len(crowded.look()) > 1
    crowded.engine.hosts[0].status = "up"
    crowded.engine.upgrading, crowded.engine.policy = False, "none"
    crowded.look()  # the migrations end
    crowded.look()
    assert not crowded.cluster.state().upgraded
    assert caplog.text.count("cluster Default: is being upgraded") == 1
    assert caplog.text.count("cluster Default: is upgraded") == 1


def test_an_engine_that_tells_neither_stops_no_look(crowded):
    """One of an older version, or one with less rights."""
    get = crowded.engine.get
    crowded.engine.get = lambda path, parameters: (
        Reply(403, "text/html", "") if path.startswith("clusters") else get(path, parameters)
    )
    crowded.begin()
    assert crowded.look() == [("vm0", "puma")]


@pytest.mark.parametrize(("policy", "words"), [("power_saving", 1), ("none", 0)])
def test_check_says_it_too(tmp_path, policy, words):
    """As a note: the daemon runs with it."""
    with RestServer(tmp_path, [Host("lynx")]) as engine:
        engine.policy = policy
        conf = tmp_path / "scheduler.conf"
        conf.write_text(
            f"listening_port = 0\nssl = false\ndrive = {Drive.ON.value}\n{engine.conf()}\n"
            "[clusters]\n[[Default]]\npolicy = power_saving\n"
        )
        status, out, err = run(tmp_path, "check", "--config", str(conf))
        assert (status, err) == (0, "")
        note = "note: cluster Default: the engine balances it, too, by its policy power_saving"
        assert out.count(note) == words
        _, out, _ = run(tmp_path, "check", "--config", str(conf), "-o", "json")
        assert len(json.loads(out)["conflicts"]) == words
