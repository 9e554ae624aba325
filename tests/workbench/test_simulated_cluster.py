"""What the hosts and VMs of a simulated cluster use, and what their documents say."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from ovirt_scheduler.model.tasks import Sought
from ovirt_scheduler.workbench.simulated_cluster import SimulatedCluster
from tests.support.rest_server import GIB, id_of
from tests.support.snapshots import filled, host, snapshot, vm


def test_what_a_vm_does_not_tell_is_its_share(tmp_path):
    """By processors, of what its host uses beside the VMs that tell it."""
    silent = vm("small", "lynx", processors=1), vm("large", "lynx", processors=3)
    quiet = [each.replace("cpu.current.total", "other") for each in silent]
    cluster = SimulatedCluster(
        snapshot(
            [host("lynx", busy=8, used=20), host("puma")], [vm("told", "lynx", busy=2), *quiet]
        )
    )
    load = {each.name: each.load for each in cluster.vms.values()}
    assert load == pytest.approx({"told": 2, "small": 1.5, "large": 4.5})
    lynx, puma = cluster.hosts.values()
    assert (lynx.busy, lynx.used_memory) == pytest.approx((8, 20 * GIB))
    cluster.place(cluster.vms[id_of("large")], puma)
    assert (lynx.busy, puma.busy) == pytest.approx((3.5, 4.5))
    # Of lynx's 20 GiB its three VMs had 12.
    assert (lynx.used_memory, puma.used_memory) == pytest.approx((16 * GIB, 4 * GIB))


def test_a_vm_that_is_on_a_host_uses_it_whatever_it_does_there():
    """It may be rebooting, not responding, or about to start; only one that is off uses nothing."""
    statuses = ("up", "reboot_in_progress", "not_responding", "wait_for_launch", "down")
    vms = [vm(name, "lynx").replace("<status>up", f"<status>{name}") for name in statuses]
    cluster = SimulatedCluster(snapshot([host("lynx")], vms))
    (lynx,) = cluster.hosts.values()
    assert [each.name for each in lynx.vms.values()] == [*statuses[:-1]]
    assert [vm.is_up for vm in lynx.vms.values()] == [True, False, False, False]


def test_documents_that_did_not_change_are_not_made_anew():
    """One for every four hosts or VMs; of a move those that it changes."""
    cluster = SimulatedCluster(filled(**{f"host{n}": [(1, 0.1)] for n in range(10)}))
    hosts, vms = tuple(cluster.hosts), tuple(cluster.vms)
    before = cluster.look_up(Sought(hosts, vms=vms), 0)
    assert [len(each.ids) for each in before.hosts] == [4, 4, 2]
    assert cluster.look_up(Sought(hosts, vms=vms), 0) == before
    cluster.place(cluster.vms[vms[0]], cluster.hosts[hosts[9]])
    after = cluster.look_up(Sought(hosts, vms=vms), 0)
    same = [one is other for one, other in zip(before.hosts + before.vms, after.hosts + after.vms)]
    assert same == [False, True, False, False, True, True]


def test_the_documents_of_a_large_cluster_are_no_more():
    """Each takes a descriptor, and most machines give a process 1,024."""
    cluster = SimulatedCluster(snapshot([host("lynx")], [vm(f"vm{n}") for n in range(4097)]))
    vms = cluster.look_up(Sought(vms=tuple(cluster.vms)), 0).vms
    assert [len(each.ids) for each in vms] == [17] * 241


def steps(call):
    """How many functions and generators a call enters: its size, whatever the machine does."""
    entered = Counter()
    sys.setprofile(lambda _, event, __: entered.update([event]))
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered["call"]


def test_a_vm_that_waits_costs_the_same_however_many_run():
    """Else many VMs that find no host are asked about far too long."""

    def asked(vms):
        cluster = SimulatedCluster(filled(lynx=[(0, 0)] * vms))
        new = cluster.add("new", 65 * GIB, 1, 0.0)
        return steps(lambda: cluster.hosts[id_of("lynx")].refusal(new))

    assert asked(300) == asked(3)


def test_the_loads_of_a_host_change_together():
    """It is told anew once, and not for each of its VMs."""

    def changed(vms):
        cluster = SimulatedCluster(filled(lynx=[(0, 0.01)] * vms))
        return steps(lambda: cluster.load(lambda _: 1.5))

    assert changed(200) < 3 * changed(100)
    cluster = SimulatedCluster(filled(lynx=[(1, 2), (1, 4)]))
    cluster.load(lambda name: 0.5 if name == "lynx-1" else 1.0)
    assert cluster.hosts[id_of("lynx")].busy == 5
    assert cluster.vms[id_of("lynx-1")].values["statistics/cpu.current.total"] == "100.0"


def test_a_vm_that_comes_tells_its_load_of_that_hour():
    """As the host does that it runs on."""
    new = SimulatedCluster(filled(lynx=[])).add("new", GIB, 2, 1.0)
    assert new.vary(0.5)
    assert new.values["statistics/cpu.current.total"] == "50.0"
    assert not new.vary(0.5)
