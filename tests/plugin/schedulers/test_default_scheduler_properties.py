"""What holds of the default scheduler whatever the cluster."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ovirtsdk4 import types

from ovirt_scheduler.plugin.cluster_use import uses
from tests.support.clusters import (
    DefaultScheduler,
    available,
    host,
    is_free,
    pinned,
    properties,
    vm,
)

POLICIES = ("none", "evenly_distribute", "power_saving")
NAMES = [f"h{number}" for number in range(6)]

hosts_of_a_cluster = st.lists(
    st.fixed_dictionaries(
        {
            "memory": st.sampled_from([32, 64]),
            "used": st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]),  # few, so that there are ties
            "busy": st.sampled_from([0, 0, 50, 95]),
            "processors": st.sampled_from([2, 16]),
            "status": st.sampled_from(
                ["up", "up", "up", "maintenance", "non_operational", "non_responsive"]
            ),
        }
    ),
    min_size=1,
    max_size=len(NAMES),
).map(lambda drawn: [host(name, **fields) for name, fields in zip(NAMES, drawn)])

a_vm = st.fixed_dictionaries(
    {
        "on": st.sampled_from(NAMES),
        "memory": st.integers(1, 24),
        "processors": st.sampled_from([1, 2, 4]),
        "status": st.sampled_from(["up", "up", "up", "down", "paused", "migrating"]),
        "high_availability": st.sampled_from([None, available(1), available(50)]),
        "shut_in": st.one_of(st.none(), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)),
        "affinity": st.sampled_from(["migratable", "migratable", "pinned", "user_migratable"]),
    }
)


def made(name, shut_in, affinity, on, **fields):
    if shut_in is None:
        return vm(name, on, affinity=affinity, **fields)
    return pinned(name, on, *shut_in, affinity=affinity, **fields)


vms_of_a_cluster = st.lists(a_vm, max_size=30).map(
    lambda drawn: [made(f"v{number:02}", **fields) for number, fields in enumerate(drawn)]
)
marks = st.tuples(
    st.sampled_from([40, 60, 80]), st.integers(0, 39), st.sampled_from([1, 2, 40])
).map(
    lambda drawn: dict(
        zip(("high_utilization", "low_utilization", "most_migrations"), map(str, drawn))
    )
)
whatever = settings(
    deadline=None, max_examples=60, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def balanced(policy, hosts, vms, told):
    migrations = DefaultScheduler().load_balance(hosts, vms, properties(policy, **told))
    return {moved.id: target.id for moved, (target, *_) in migrations.items()}


def allowed(found):
    named = found.placement_policy.hosts
    return None if named is None else {each.id for each in named}


@pytest.mark.parametrize("policy", POLICIES)
@whatever
@given(hosts=hosts_of_a_cluster, vms=vms_of_a_cluster, told=marks, seed=st.integers())
def test_the_order_of_hosts_and_vms_changes_no_balancing(policy, hosts, vms, told, seed):
    """The same cluster is answered the same."""
    first = balanced(policy, hosts, vms, told)
    chance = random.Random(seed)
    chance.shuffle(hosts)
    chance.shuffle(vms)
    assert balanced(policy, hosts, vms, told) == first


@pytest.mark.parametrize("policy", POLICIES)
@whatever
@given(hosts=hosts_of_a_cluster, fields=a_vm, costs=st.data(), seed=st.integers())
def test_no_order_changes_the_choice_and_no_unfit_host_is_chosen(
    policy, hosts, fields, costs, seed
):
    """Up, not shut out by the VM, and of the lowest cost among those that are."""
    starting = made("v", **{**fields, "status": "down"})
    scheduler = DefaultScheduler()
    scheduler.costs = {
        each.id: costs.draw(st.integers(-5, 5)) for each in hosts if costs.draw(st.booleans())
    }
    first = [each.id for each in scheduler.candidates(hosts, starting, properties(policy))]
    random.Random(seed).shuffle(hosts)
    assert [each.id for each in scheduler.candidates(hosts, starting, properties(policy))] == first
    up = {each.id for each in hosts if each.status is types.HostStatus.UP}
    assert set(first) <= up
    assert allowed(starting) is None or set(first) <= allowed(starting)
    ranks = [scheduler.costs.get(each, 0) for each in first]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("policy", POLICIES)
@whatever
@given(hosts=hosts_of_a_cluster, vms=vms_of_a_cluster, told=marks)
def test_only_vms_that_may_move_are_moved_and_only_where_they_may_run(policy, hosts, vms, told):
    """To another host that is up and stays below the high mark, and no more than allowed."""
    by_id = {each.id: each for each in vms}
    up = {each.id for each in hosts if each.status is types.HostStatus.UP}
    used = {use.id: use for use in uses(hosts, vms)}
    migrations = balanced(policy, hosts, vms, told)
    moved_from = {by_id[moved].host.id for moved in migrations}
    assert len(migrations) <= int(told["most_migrations"]) or (
        policy == "power_saving" and len(moved_from) == 1
    )
    for moved, target in migrations.items():
        found = by_id[moved]
        assert is_free(found)
        assert found.status is types.VmStatus.UP
        assert target in up - {found.host.id}
        assert allowed(found) is None or target in allowed(found)
    for moved, target in migrations.items():
        processors = used[by_id[moved].host.id].processors_of(by_id[moved])
        used[target].add(by_id[moved], processors)
    # A host that gave VMs away too is lower still than what is counted here.
    for target in set(migrations.values()) - moved_from:
        assert used[target].fraction <= int(told["high_utilization"]) / 100 + 1e-9


@pytest.mark.parametrize("status", ["maintenance", "error", "non_operational"])
@whatever
@given(
    hosts=hosts_of_a_cluster,
    vms=vms_of_a_cluster,
    on_error=st.sampled_from(["yes", "no", "ha_only"]),
)
def test_a_host_that_leaves_is_left_by_those_who_may(status, hosts, vms, on_error):
    """As migrate_on_error says, and to hosts that are up."""
    leaving = hosts[0]
    leaving.status = types.HostStatus(status)
    told = properties("none", migrate_on_error=on_error)
    migrations = DefaultScheduler().on_host_status_changed(leaving, "up", status, hosts, vms, told)
    for moved, targets in migrations.items():
        assert on_error != "no"
        assert on_error == "yes" or moved.high_availability.enabled
        assert is_free(moved)
        assert moved.host.id == leaving.id
        assert all(target.status is types.HostStatus.UP for target in targets)
        assert allowed(moved) is None or {target.id for target in targets} <= allowed(moved)


@pytest.mark.parametrize("policy", ["evenly_distribute", "power_saving"])
@settings(whatever, max_examples=40)
@given(
    sizes=st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 16)), min_size=1, max_size=24),
    marks=st.tuples(st.integers(30, 100), st.integers(0, 29)),
)
def test_balancing_comes_to_rest(policy, sizes, marks):
    """Again and again on the cluster that the last one left: no VM goes to and fro."""
    high, low = map(str, marks)
    where = {f"v{number:02}": name for number, (name, _) in enumerate(sizes)}
    for _ in range(40):
        vms = [vm(name, where[name], memory=size) for name, (_, size) in zip(sorted(where), sizes)]
        on = {
            name: sum(each.memory for each in vms if each.host.id == name) >> 30 for name in NAMES
        }
        hosts = [host(name, memory=64, used=on[name] / 64) for name in NAMES if on[name] <= 64]
        migrations = balanced(
            policy, hosts, vms, {"high_utilization": high, "low_utilization": low}
        )
        if not migrations:
            break
        where.update(migrations)
    assert not migrations
