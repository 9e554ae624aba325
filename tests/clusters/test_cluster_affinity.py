"""ovirt_scheduler.clusters.affinity: a cluster's affinity groups, look by look."""

from __future__ import annotations

import pytest

from tests.support import rest_affinity
from tests.support.rest_affinity import HARD, Group
from tests.support.rest_server import GIB, Host, Vm

HIGH = {"low_utilization": "0", "high_utilization": "50"}
OFF = {"low_utilization": "0", "high_utilization": "100"}


@pytest.fixture
def grouped(looks):
    """Three hosts of 64 GiB; ``place`` puts VMs on them."""
    looks.engine.instant_migrations = True
    looks.engine.hosts[:] = [
        Host(name, memory=64 * GIB, max_scheduling_memory=None, measured=True)
        for name in ("ant", "bee", "cat")
    ]
    return looks


def place(looks, where: str) -> None:
    """``a@ant:8`` is a VM of 8 GiB on the host ant."""
    looks.engine.vms[:] = []
    for word in where.split():
        name, _, rest = word.partition("@")
        host, _, size = rest.partition(":")
        looks.engine.vms.append(Vm(name, host, memory=int(size or 1) * GIB))


def where(looks) -> dict[str, str]:
    return {vm.name: vm.host for vm in looks.engine.vms}


@pytest.mark.parametrize("may_ask", [True, False])
def test_a_balancing_breaks_no_hard_rule(grouped, may_ask):
    """Nor does it ask for what the engine would refuse, though the engine does not say before."""
    grouped.engine.denying = set() if may_ask else {"migration_target_of"}
    place(grouped, "big@ant:30 a@ant:8 b@bee:8 c@ant:7")
    grouped.engine.groups = [
        Group("fw", ["a", "b"], apart=HARD), Group("lic", ["c"], ["ant", "bee"], on=HARD),
    ]  # fmt: skip
    grouped.begin(properties=HIGH)
    for _ in range(5):
        grouped.look()
        assert not rest_affinity.broken(grouped.engine, HARD)
    assert len(grouped.engine.requested) == len(grouped.engine.migrations) > 0


def test_a_pair_moves_as_one(grouped, caplog):
    caplog.set_level("INFO")
    place(grouped, "big@ant:30 db1@ant:8 db2@ant:8")
    grouped.engine.groups = [Group("pair", ["db1", "db2"], together=HARD)]
    grouped.begin(properties={**HIGH, "high_utilization": "60"})
    grouped.look()
    moved = where(grouped)
    assert moved["db1"] == moved["db2"] != moved["big"] or moved["big"] != "ant"
