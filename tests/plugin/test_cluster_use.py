"""What is concluded about the use of hosts, where their documents tell more or less."""

from __future__ import annotations

import pytest
from ovirtsdk4 import types

from ovirt_scheduler.errors import UnreadableState
from ovirt_scheduler.plugin.cluster_use import HostUse, is_hosted_engine, uses
from ovirt_scheduler.processes.documents import packing, sdk_entities
from tests.support.clusters import GIB, host, vm

# What an engine tells of a host that it has not measured yet.
UNMEASURED = {f"cpu_current_{name}": 0 for name in ("user", "system", "idle")}
UNMEASURED.update(memory_used=0, memory_free=16 * GIB)


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
        ({"statistics": statistics(memory_used=float("nan"), memory_free=6 * GIB)}, 10 * GIB),
        ({"max_scheduling_memory": 12 * GIB}, 4 * GIB),
        ({"statistics": statistics(memory_used=0), "max_scheduling_memory": 12 * GIB}, 0),
        (
            {"statistics": statistics(**UNMEASURED), "max_scheduling_memory": 12 * GIB},
            4 * GIB,
        ),
        ({}, 3 * GIB),
    ],
    ids=["used", "free", "no number", "what may be scheduled", "none", "not measured", "the VMs"],
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
        ({"cpu_current_idle": 0, "cpu_current_user": 99, "cpu_current_system": 0}, 8.0),
        (UNMEASURED, 0.0),
        ({}, 0.0),
    ],
    ids=["idle", "user and system", "full", "not measured", "nothing"],
)
def test_busy_processors_come_from_the_statistics(told, busy):
    """Percents of all its processors, threads counted."""
    use = HostUse(types.Host(id="a", cpu=processors(2), statistics=statistics(**told)))
    assert (use.processors, use.used_processors) == (8, busy)


def lazily(entity):
    """The same as a plugin gets it: made of its state when it is read."""
    kind = type(entity).__name__
    pack = packing.pack(kind, [sdk_entities.state_of(entity)])
    (made,) = sdk_entities.unpack(kind, [pack], [entity.id])
    return made


def test_statistics_are_read_without_making_them():
    """Some twenty of each host would take most of a call."""
    told = [*statistics(cpu_current_idle=25, memory_free=GIB), types.Statistic(name="memory.used")]
    vm = lazily(types.Vm(id="1", statistics=statistics(cpu_current_total=150)))
    host = lazily(types.Host(id="a", memory=4 * GIB, cpu=processors(1), statistics=told))
    use = HostUse(host, [vm])
    assert (use.used_processors, use.used_memory, use.processors_of(vm)) == (3.0, 3 * GIB, 1.5)
    assert not {"_statistics"} & (vars(host).keys() | vars(vm).keys())


def test_statistics_that_a_plugin_has_set_count():
    """And those that it has read, and changed."""
    host = lazily(types.Host(id="a", memory=GIB, statistics=statistics(memory_used=5)))
    host.statistics[0].values[0].datum = 6
    assert HostUse(host).used_memory == 6
    host.statistics = statistics(memory_used=7)
    assert HostUse(host).used_memory == 7


def test_a_state_that_is_none_of_statistics_is_told():
    """With the host."""
    pack = packing.pack("Host", [{"": "Host", "_id": "a", "_statistics": ["list", None, 5]}])
    (host,) = sdk_entities.unpack("Host", [pack], ["a"])
    with pytest.raises(UnreadableState, match="Host 'a': not the state of an entity"):
        HostUse(host)


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
    assert not target.refusal(large)
    source.remove(large, 0.0)
    target.add(large, 0.0)
    assert (source.fraction, target.fraction) == (0.0, 0.75)
    assert target.refusal(types.Vm(id="2", memory=2 * GIB))


def test_vms_of_other_hosts_are_not_counted():
    """Neither those elsewhere nor those that do not run."""
    vms = [types.Vm(id="1", host=types.Host(id="b")), types.Vm(id="2")]
    (use,) = uses([types.Host(id="a")], vms)
    assert use.vms == []


@pytest.mark.parametrize(
    ("told", "known"),
    [
        ({"memory": 4 * GIB, "statistics": statistics(cpu_current_idle=25)}, {"CPU", "memory"}),
        ({"memory": 4 * GIB, "statistics": statistics(**UNMEASURED)}, {"memory"}),
        ({"memory": 4 * GIB}, {"memory"}),
        ({"memory": 0, "statistics": statistics(cpu_current_user=0)}, {"CPU"}),
        ({}, set()),
    ],
)
def test_a_fraction_is_known_where_the_host_tells_it(told, known):
    use = HostUse(types.Host(id="a", cpu=processors(1), **told))
    assert use.known_fractions.keys() == known


@pytest.mark.parametrize(
    ("origin", "runs_the_engine"),
    [("managed_hosted_engine", True), ("hosted_engine", True), ("ovirt", False), (None, False)],
)
def test_the_engines_own_vm_is_known_by_its_origin(origin, runs_the_engine):
    assert is_hosted_engine(types.Vm(id="1", origin=origin)) is runs_the_engine


def test_averages_count_instead_of_figures_but_not_for_room():
    """What is not known stays so; and a host that is full now takes no VM."""
    full, silent = host("lynx", used=1.0, busy=90.0), types.Host(id="puma", memory=64 * GIB)
    web = vm("web", "lynx")
    averages = {"lynx": (4.0, 16 * GIB), "puma": (8.0, 32 * GIB), "web": (1.5, 4 * GIB)}
    lynx, puma = uses([full, silent], [web], averages)
    assert lynx.known_fractions == {"CPU": 0.25, "memory": 0.25}
    assert lynx.processors_of(web) == 1.5
    assert lynx.refusal(vm("mail"))
    assert puma.known_fractions == {"memory": 0.0}
