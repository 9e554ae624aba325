"""tests.support.rest_affinity: the fake engine's affinity groups act as an engine's do."""

from __future__ import annotations

import random

import pytest

from ovirt_scheduler.model.affinity import AffinityGroup, AffinityRules, PlacedVms, Rule
from tests.support import rest_affinity
from tests.support.rest_affinity import HARD, SOFT, Group, Label
from tests.support.rest_server import Host, RestServer, Vm

HOSTS = ("ant", "bee", "cat")


@pytest.fixture
def engine(tmp_path):
    with RestServer(tmp_path, [Host(name) for name in HOSTS], tls=False) as server:
        server.instant_migrations = True
        yield server


def place(engine: RestServer, where: str) -> None:
    engine.vms[:] = [Vm(*pair.split("@")) for pair in where.split()]


def where(engine: RestServer) -> str:
    return " ".join(f"{vm.name}@{vm.host}" for vm in engine.vms)


def test_it_mends_hard_rules_of_hosts_then_of_vms_then_soft_ones_one_vm_at_a_time(engine):
    place(engine, "a@ant b@ant c@ant d@ant")
    engine.groups = [
        Group("soft", ["d"], ["cat"], on=SOFT), Group("apart", ["b", "c"], apart=HARD),
        Group("on", ["a"], ["bee"], on=HARD),
    ]  # fmt: skip
    assert rest_affinity.broken(engine, HARD) == {"apart", "on"}
    moved = [rest_affinity.enforce(engine) for _ in range(4)]
    assert [vm and vm[0] for vm in moved] == ["a", "b", "d", None]
    assert moved[0] == ("a", "bee")
    assert not rest_affinity.broken(engine, HARD) | rest_affinity.broken(engine, SOFT)


def test_it_waits_while_a_vm_migrates(engine):
    engine.instant_migrations = False
    place(engine, "a@ant b@ant")
    engine.groups = [Group("apart", ["a", "b"], apart=HARD)]
    engine.begin_migration(engine.vms[1], engine.hosts[2], "")
    assert rest_affinity.enforce(engine) is None


def test_a_pair_moves_in_closure_alone_and_may_succeed_in_part(engine):
    place(engine, "a@ant b@ant")
    engine.groups = [Group("pair", ["a", "b"], together=HARD)]
    vm, host = engine.vms[0], engine.hosts[1]
    target = f"<host id='{host.id}'/>"
    assert engine.migrate(vm.id, f"<action>{target}</action>").status == 409
    closure = "<migrate_vms_in_affinity_closure>true</migrate_vms_in_affinity_closure>"
    assert engine.migrate(vm.id, f"<action>{target}{closure}</action>").status == 200
    assert where(engine) == "a@bee b@bee"
    engine.surprising = lambda vm, _: "no room" * (vm.name == "b")
    target = f"<host id='{engine.hosts[2].id}'/>"
    assert engine.migrate(vm.id, f"<action>{target}{closure}</action>").status == 200
    assert where(engine) == "a@cat b@bee"


def test_labels_are_groups_of_clusters_up_to_4_3(engine):
    place(engine, "a@ant")
    engine.labels = [Label("gpu", ["a"], ["bee"], is_implicit=True)]
    assert not rest_affinity.broken(engine, HARD)
    engine.version = 4, 3
    assert rest_affinity.broken(engine, HARD) == {"gpu"}
    document = rest_affinity.labels_document(engine)
    assert "<has_implicit_affinity_group>true<" in document


def _group(chance: random.Random, name: str) -> Group:
    vms = chance.sample("abcdefg", chance.randrange(1, 5))
    kinds = chance.sample(["together", "apart", "on", "off"], chance.randrange(1, 3))
    rules = {kind: chance.choice([HARD, SOFT]) for kind in kinds}
    if {"together", "apart"} <= rules.keys():
        del rules["apart"]
    if {"on", "off"} <= rules.keys():
        del rules["off"]
    return Group(name, vms, chance.sample(HOSTS, chance.randrange(1, 3)), **rules)


def _rules(groups: list[Group]) -> AffinityRules:
    def rule(positive, negative):
        if positive is None and negative is None:
            return None
        return Rule(positive is not None, bool(negative if positive is None else positive))

    return AffinityRules(
        AffinityGroup(
            group.name, frozenset(group.vms), frozenset(group.hosts),
            rule(group.together, group.apart), rule(group.on, group.off),
        )
        for group in groups
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(150))
def test_the_hosts_that_our_rules_accept_are_those_that_the_engine_accepts(engine, seed):
    """Where no groups contradict each other: with these ours keep VMs where they are."""
    chance = random.Random(seed)
    place(engine, " ".join(f"{name}@{chance.choice(HOSTS)}" for name in "abcdefg"))
    engine.groups = [_group(chance, f"g{number}") for number in range(chance.randrange(1, 5))]
    rules = _rules(engine.groups)
    placed = PlacedVms(rules, {vm.name: vm.host for vm in engine.vms})
    for vm in engine.vms:
        unit = [vm.name, *sorted(other.name for other in rest_affinity.closure(engine, vm)[1:])]
        ours = placed.unit_of(vm.name)
        assert {*unit} <= {*ours}
        if rules.contradiction_of(vm.name) or {*unit} != {*ours}:
            continue  # others on its host are tied to it by VMs elsewhere: the next look joins them
        accepted = [
            host.name
            for host in engine.hosts
            if not any(
                rest_affinity.refusal(engine, member, host, unit)
                for member in engine.vms
                if member.name in unit
            )
        ]
        assert placed.acceptable(unit, HOSTS) == accepted, (engine.groups, vm)
    hard = {rule.group.name for rule in placed.broken() if rule.enforcing}
    assert hard == rest_affinity.broken(engine, HARD)
    soft = {rule.group.name for rule in placed.broken() if not rule.enforcing}
    assert soft == rest_affinity.broken(engine, SOFT)
