"""Affinity groups of saved clusters: how they are read, and what a simulated engine does by them."""

from __future__ import annotations

import dataclasses
import functools
import json
import re

import pytest

from ovirt_scheduler.errors import BadInput
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.workbench import reports, scenario
from ovirt_scheduler.workbench import snapshot as snapshots
from ovirt_scheduler.workbench.sections import changed_section
from ovirt_scheduler.workbench.simulated_rules import read_rules
from ovirt_scheduler.workbench.simulation import ENFORCED, MIGRATED, Simulation
from ovirt_scheduler.workbench.snapshot import Snapshot
from tests.support.command import run
from tests.support.paths import PROJECT
from tests.support.rest_affinity import HARD, SOFT, Group, groups_document
from tests.support.rest_server import Host, RestServer, Vm, id_of
from tests.support.snapshots import host, snapshot, vm

CLUSTER = id_of("cluster Default")
LYNX = id_of("lynx")
EAGER = f"""\
from ovirt_scheduler.plugin import Scheduler


class Eager(Scheduler):
    name, topic = "eager", None

    def load_balance(self, hosts, vms, properties):
        names = {{host.id: host.name for host in hosts}}
        return {{vm.id: ["{LYNX}"] for vm in vms if names[vm.host.id] != "lynx"}}


class Obedient(Scheduler):
    name, topic = "obedient", None

    def load_balance(self, hosts, vms, properties):
        for broken in self.rules.broken():
            for unit in broken.units:
                fit = self.rules.acceptable(unit, [host.id for host in hosts])
                return {{unit[0]: [key for key in fit if key != self.rules.host_of(unit[0])]}}
        return {{}}
"""


@pytest.fixture(scope="module")
def plugin_texts():
    manual = (PROJECT / "docs" / "schedulers.md").read_text("utf-8")
    (mender,) = re.findall(
        r"^```python\n(# Mender\.py\n.*?)^```$", manual, re.MULTILINE | re.DOTALL
    )
    return {"Eager": EAGER, "Mender": mender}


class _Engine:
    def __init__(self, groups):
        self.groups = groups


def with_groups(saved: Snapshot, *groups: Group, more: str = "") -> Snapshot:
    """The same cluster with affinity groups, as an engine writes them."""
    element = f'<cluster id="{CLUSTER}"><name>Default</name>{more}{{}}</cluster>'
    return dataclasses.replace(
        saved, clusters={CLUSTER: element.format(groups_document(_Engine(groups))).encode()}
    )


def three_hosts(*vms: str) -> Snapshot:
    return snapshot([host(name, used=8, running=2) for name in ("lynx", "puma", "lion")], vms)


@pytest.fixture
def simulate(simulate):
    return functools.partial(simulate, most=40)


def where(outcome):
    """The host that each VM that moved came to last."""
    return {move.vm: move.target for move in outcome.moves}


def test_groups_and_the_members_of_labels_are_taken_from_the_engine_and_read(tmp_path, running):
    """Also after the file was written and read."""
    hosts, vms = [Host("lynx"), Host("puma")], [Vm("a", "lynx"), Vm("b", "puma"), Vm("c", "puma")]
    with RestServer(tmp_path, hosts, vms) as engine:
        engine.groups = [Group("web", ["a", "b"], ["lynx"], together=HARD, off=SOFT)]
        saved = snapshots.take(engine.settings(), "Default")
    saved.write(tmp_path / "cluster.xml")
    (group,) = read_rules(running.executor, Snapshot.read(tmp_path / "cluster.xml")).groups
    assert (group.name, group.vms, group.hosts) == (
        "web",
        {id_of("a"), id_of("b")},
        {id_of("lynx")},
    )
    assert (group.vm_rule, group.host_rule) == ((True, True), (False, False))


@pytest.mark.parametrize(("version", "names"), [("4.3", ["fast"]), ("4.7", [])])
def test_labels_of_hosts_and_vms_are_groups_of_their_own_up_to_version_4_3(running, version, names):
    major, minor = version.split(".")
    label = (
        f'<affinity_labels><affinity_label id="{id_of("label fast")}"><name>fast</name>'
        "<has_implicit_affinity_group>true</has_implicit_affinity_group></affinity_label>"
        "</affinity_labels>"
    )
    hosts = [host("lynx", more=label), host("puma")]
    saved = snapshot(hosts, [vm("web", "puma").replace("</vm>", f"{label}</vm>")])
    version = f"<version><major>{major}</major><minor>{minor}</minor></version>"
    rules = read_rules(running.executor, with_groups(saved, more=version))
    assert [group.name for group in rules.groups] == names
    for group in rules.groups:
        assert (group.vms, group.hosts) == ({id_of("web")}, {id_of("lynx")})


def test_a_file_without_groups_has_no_rules_and_bad_members_do_no_harm(running, simulate):
    """Unknown ones, a group of one, one without any; a VM in 20 groups."""
    saved = three_hosts(vm("a", "lynx"), vm("b", "puma"))
    assert not read_rules(running.executor, saved).groups
    groups = [Group(f"g{number}", ["a", "gone"], ["nowhere"], apart=HARD) for number in range(20)]
    groups += [Group("alone", ["b"], together=HARD), Group("empty", together=HARD)]
    outcome = simulate(with_groups(saved, *groups))
    assert not outcome.moves
    assert not outcome.views[-1].broken


def test_groups_that_are_none_are_told_with_the_cluster(running):
    broken = with_groups(three_hosts(), more="<affinity_groups><vm id='x'/></affinity_groups>")
    with pytest.raises(BadInput, match="the affinity groups of Default"):
        read_rules(running.executor, broken)


def test_the_enforcer_mends_hard_rules_before_soft_ones_and_one_vm_a_minute(simulate):
    saved = with_groups(
        three_hosts(vm("a", "lynx"), vm("b", "lynx"), vm("c", "puma"), vm("d", "puma")),
        Group("away", ["d"], ["puma"], off=SOFT),
        Group("apart", ["a", "b"], apart=HARD),
        Group("pinned", ["c"], ["lion"], on=HARD),
    )  # fmt: skip
    outcome = simulate(saved, affinity="false")
    moved = [(round(move.hour * 60), move.what, move.vm) for move in outcome.moves]
    assert moved[0] == (1, ENFORCED, "c")
    assert moved[1][:2] == (2, ENFORCED)
    assert moved[1][2] in ("a", "b")
    assert moved[2] == (3, ENFORCED, "d")
    assert len(moved) == 3
    assert outcome.views[0].broken == ("pinned (hard)", "apart (hard)", "away (soft)")
    assert outcome.views[-1].broken == ()


def test_an_engine_refuses_what_breaks_a_hard_rule(simulate):
    """Of a scheduler that does not look at rules, and is not told of them."""
    saved = with_groups(
        three_hosts(vm("a", "lynx"), vm("b", "puma")), Group("apart", ["a", "b"], apart=HARD)
    )
    outcome = simulate(saved, scheduler="eager", affinity="false", hold="0", margin="0")
    assert not outcome.moves
    ((refusal, _),) = outcome.refused.items()
    assert refusal == "b: lynx the affinity group apart keeps it apart from a VM there"


def test_an_engine_splits_no_pair_for_a_scheduler_that_does_not_know_of_it(simulate):
    saved = with_groups(
        three_hosts(vm("a", "puma"), vm("b", "puma")), Group("pair", ["a", "b"], together=HARD)
    )
    outcome = simulate(saved, scheduler="eager", affinity="false", hold="0", margin="0")
    assert not outcome.moves
    assert outcome.refused


def test_what_rules_keep_is_told_and_a_unit_moves_together(simulate):
    """By a scheduler that names one VM of two."""
    apart = with_groups(
        three_hosts(vm("a", "lynx"), vm("b", "puma")), Group("apart", ["a", "b"], apart=HARD)
    )
    outcome = simulate(apart, scheduler="eager", hold="0", margin="0")
    assert outcome.waiting == {
        "b to lynx": "the affinity group apart keeps it apart from a VM there"
    }
    together = with_groups(
        three_hosts(vm("a", "puma"), vm("b", "puma")), Group("pair", ["a", "b"], together=HARD)
    )
    outcome = simulate(together, scheduler="eager", hold="0", margin="0")
    assert where(outcome) == {"a": "lynx", "b": "lynx"}
    assert {move.hour for move in outcome.moves} == {0}


def test_a_scheduler_of_a_user_gets_the_rules(simulate):
    """And mends one before the engine's enforcer looks."""
    saved = with_groups(
        three_hosts(vm("a", "lynx"), vm("b", "lynx")), Group("apart", ["a", "b"], apart=SOFT)
    )
    outcome = simulate(saved, scheduler="obedient", hold="0", margin="0")
    assert [(move.hour, move.what) for move in outcome.moves] == [(0, MIGRATED)]


def test_what_the_enforcer_cannot_move_alone_is_mended_in_two_looks(simulate):
    """A pair on a host that it must not be on: no VM of it may leave by itself."""
    saved = with_groups(
        three_hosts(vm("a", "lynx"), vm("b", "lynx")),
        Group("pair", ["a", "b"], ["lynx"], together=HARD, off=HARD),
    )
    outcome = simulate(saved, policy="evenly_distribute")
    assert [move.what for move in outcome.moves] == [MIGRATED, MIGRATED]
    assert len({move.target for move in outcome.moves}) == 1
    assert {move.reason for move in outcome.moves} == {"the affinity group pair is broken"}
    assert outcome.views[-1].broken == ()


def test_a_host_that_leaves_takes_a_pair_along_to_one_host(running):
    saved = with_groups(
        three_hosts(vm("a", "lynx"), vm("b", "lynx"), vm("c", "puma")),
        Group("pair", ["a", "b"], together=HARD), Group("apart", ["b", "c"], apart=HARD),
    )  # fmt: skip
    events = (scenario.HostEvent(0.0, "lynx", scenario.MAINTENANCE),)
    happens = scenario.Scenario(host_events=events)
    settings = changed_section(ClusterSettings("Default"), {}, "--set")
    outcome = Simulation(running, saved, settings, happens, most=5).run()
    assert where(outcome) == {"a": "lion", "b": "lion"}


def test_the_table_and_json_tell_the_broken_rules(simulate):
    saved = with_groups(
        three_hosts(vm("a", "lynx"), vm("b", "lynx")), Group("apart", ["a", "b"], apart=HARD)
    )
    outcome = simulate(saved)
    assert ("rules broken", "1 before: apart (hard), 0 after") in reports.notes(outcome)
    (policy,) = reports.simulation_fields({"A": outcome}, {})["policies"]
    assert policy["broken_rules"] == 0
    assert policy["before"]["broken"] == ("apart (hard)",)
    assert json.dumps(policy["after"])
    assert not [what for what, _ in reports.notes(simulate(three_hosts())) if "rules" in what]


def test_try_gives_a_scheduler_the_rules_of_a_saved_cluster(tmp_path):
    (tmp_path / "Eager.py").write_text(EAGER)
    saved = with_groups(
        three_hosts(vm("a", "lynx"), vm("b", "lynx")), Group("apart", ["a", "b"], apart=HARD)
    )
    saved.write(tmp_path / "cluster.xml")
    status, out, err = run(
        tmp_path, "try", str(tmp_path / "Eager.py"), "--cluster", str(tmp_path / "cluster.xml"),
        "--call", "load_balance", "-o", "json",
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert id_of("a") in out


def test_the_scheduler_of_the_manual_mends_all_soft_rules_at_once(simulate):
    """A pair off its host, VMs apart, and what soft rules want; a rule that holds is left alone."""
    saved = with_groups(
        three_hosts(*(vm(name, "lynx") for name in "abcd"), vm("e", "puma")),
        Group("pair", ["a", "b"], ["lynx"], together=HARD, off=SOFT),
        Group("apart", ["c", "d"], apart=SOFT),
        Group("well", ["e"], ["puma"], on=HARD),
    )
    outcome = simulate(saved, scheduler="mender", hold="0", margin="0")
    assert {move.what for move in outcome.moves} == {MIGRATED}
    assert {move.hour for move in outcome.moves} == {0}
    moved = {move.vm for move in outcome.moves}
    assert len(moved) == 3
    assert {"a", "b"} < moved
    assert outcome.views[-1].broken == ()
