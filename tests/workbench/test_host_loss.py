"""ovirt_scheduler.workbench.host_loss: orders of hosts, compared with all that there are."""

from __future__ import annotations

import itertools
import random

import pytest

from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.workbench.host_loss import Questions
from tests.support.snapshots import host, snapshot, vm

HOSTS = ("ant", "bee", "cat")


def ends_of_emptying(rooms, sizes, running, emptied) -> list[dict]:
    """Where the VMs can be when a host was emptied, by memory alone."""
    vms = [name for name, at in running.items() if at == emptied]
    ends = []
    for hosts in itertools.product([name for name in HOSTS if name != emptied], repeat=len(vms)):
        now = {**running, **dict(zip(vms, hosts))}
        used = {name: sum(sizes[each] for each in now if now[each] == name) for name in HOSTS}
        if all(used[name] <= rooms[name] for name in {*hosts}):
            ends.append(now)
    return ends


def longest_order(rooms, sizes, running, hosts) -> int:
    """How many of the hosts can be emptied one after another, in the best order."""
    return max(
        (
            1 + longest_order(rooms, sizes, now, hosts - {emptied})
            for emptied in hosts
            for now in ends_of_emptying(rooms, sizes, running, emptied)
        ),
        default=0,
    )


@pytest.mark.parametrize("seed", range(60))
def test_a_host_that_is_said_to_be_in_no_order_is_in_none(running, seed):
    """Also where hosts have more VMs than they would take; and the order is as long as can be."""
    chance = random.Random(seed)
    rooms = {name: chance.choice((4, 8, 12)) for name in HOSTS}
    sizes = {f"vm-{number}": chance.choice((1, 3, 5, 7)) for number in range(chance.randint(2, 5))}
    where = {name: chance.choice(HOSTS) for name in sizes}
    saved = snapshot(
        [host(name, rooms[name], bounded=False) for name in HOSTS],
        [vm(name, at, sizes[name]) for name, at in where.items()],
    )
    questions = Questions(running, saved, ClusterSettings("Default"))
    order = questions.order()
    never = {questions.cluster.hosts[key].name for key in order.never}
    for name in never:
        for before in itertools.permutations({*HOSTS} - {name}):
            for number in range(3):
                states = [where]
                for emptied in (*before[:number], name):
                    states = [
                        now
                        for state in states
                        for now in ends_of_emptying(rooms, sizes, state, emptied)
                    ]
                assert not states
    assert order.is_best
    assert len(order.hosts) == longest_order(rooms, sizes, where, frozenset(HOSTS) - never)
