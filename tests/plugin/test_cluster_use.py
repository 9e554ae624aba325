"""What is concluded about the use of hosts, where their documents tell more or less."""

from __future__ import annotations

import pytest
from ovirtsdk4 import types

from ovirt_scheduler.plugin.cluster_use import HostUse, uses

GIB = 2**30


def statistics(**data):
    return [
        types.Statistic(name=name.replace("_", "."), values=[types.Value(datum=datum)])
        for name, datum in data.items()
    ]


def processors(cores):
    return types.Cpu(topology=types.CpuTopology(sockets=2, cores=cores, threads=2))


@pytest.mark.parametrize(
    ("told", "used"),
    [
        ({"statistics": statistics(memory_used=5 * GIB, memory_free=GIB)}, 5 * GIB),
        ({"statistics": statistics(memory_free=6 * GIB)}, 10 * GIB),
        ({"max_scheduling_memory": 12 * GIB}, 4 * GIB),
        ({}, 3 * GIB),
    ],
    ids=["used", "free", "what may be scheduled", "the VMs"],
)
def test_used_memory_comes_from_the_best_that_is_told(told, used):
    """Statistics before what the engine would still schedule, and that before the VMs' sizes."""
    vms = [types.Vm(id="1", memory=GIB), types.Vm(id="2", memory=2 * GIB)]
    assert HostUse(types.Host(id="a", memory=16 * GIB, **told), vms).used_memory == used


@pytest.mark.parametrize(
    ("told", "busy"),
    [
        ({"cpu_current_idle": 75, "cpu_current_user": 99}, 2.0),
        ({"cpu_current_user": 30, "cpu_current_system": 20}, 4.0),
        ({}, 0.0),
    ],
    ids=["idle", "user and system", "nothing"],
)
def test_busy_processors_come_from_the_statistics(told, busy):
    """Percents of all its processors, threads counted."""
    use = HostUse(types.Host(id="a", cpu=processors(2), statistics=statistics(**told)))
    assert (use.processors, use.used_processors) == (8, busy)


def test_a_statistic_without_a_value_is_none():
    """The engine has none for a host that has just come up."""
    empty = [types.Statistic(name="memory.used"), types.Statistic(name="memory.free", values=[])]
    use = HostUse(types.Host(id="a", memory=GIB, max_scheduling_memory=GIB, statistics=empty))
    assert use.used_memory == 0


def test_a_planned_migration_changes_both_hosts():
    """And so what fits on them."""
    one, two = (types.Host(id=name, memory=4 * GIB, max_scheduling_memory=4 * GIB) for name in "ab")
    large = types.Vm(id="1", memory=3 * GIB, host=types.Host(id="a"))
    source, target = uses([one, two], [large])
    assert target.takes(large)
    source.remove(large, 0.0)
    target.add(large, 0.0)
    assert (source.fraction, target.fraction) == (0.0, 0.75)
    assert not target.takes(types.Vm(id="2", memory=2 * GIB))


def test_vms_of_other_hosts_are_not_counted():
    """Neither those elsewhere nor those that do not run."""
    vms = [types.Vm(id="1", host=types.Host(id="b")), types.Vm(id="2")]
    (use,) = uses([types.Host(id="a")], vms)
    assert use.vms == []
