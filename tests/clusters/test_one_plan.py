"""What one look asks for is one plan: hooks, timer and balancing see the migrations before theirs."""

from __future__ import annotations

from collections import Counter

import pytest

from ovirt_scheduler.settings.value_types import Drive
from tests.support.rest_server import GIB, Host, Vm


@pytest.fixture
def failing(looks):
    """lynx and puma run 16 GiB each; lion has room for 20, and so has cat, which is liked less."""
    looks.engine.hosts = [
        Host(name, measured=True, max_scheduling_memory=20 * GIB)
        for name in ("lynx", "puma", "lion", "cat")
    ]
    looks.engine.vms = [Vm("web", "lynx", memory=16 * GIB), Vm("mail", "puma", memory=16 * GIB)]
    looks.engine.vms.append(Vm("small", "cat"))
    return looks


def fail(looks, *names):
    for host in looks.engine.hosts:
        if host.name in names:
            host.status = "error"
    looks.engine.happened(*(host for host in looks.engine.hosts if host.name in names))


def planned(looks):
    """VM to target, of all plans that are open."""
    plans = looks.plans.of_cluster("Default")
    return {step.vm_name: step.target_name for plan in plans if plan.is_open for step in plan.steps}


def test_two_hosts_that_fail_at_once_do_not_fill_a_third_twice(failing):
    """Each of their VMs fits there alone."""
    failing.begin(load_balance_interval=0.0)
    failing.look()
    fail(failing, "lynx", "puma")
    assert Counter(host for _, host in failing.look()) == {"lion": 1, "cat": 1}


@pytest.mark.parametrize("drive", [Drive.DRY_RUN, Drive.APPROVE])
def test_plans_that_are_not_made_count_as_well(failing, drive):
    failing.begin(drive, load_balance_interval=0.0)
    failing.look()
    fail(failing, "lynx", "puma")
    failing.look()
    assert set(planned(failing).values()) == {"lion", "cat"}


def test_the_timer_sees_what_hooks_want_in_the_same_look(failing):
    """mail could not leave before: there was no room."""
    lynx, puma, lion, cat = failing.engine.hosts
    cat.status, puma.status = "maintenance", "error"
    lynx.max_scheduling_memory = lion.max_scheduling_memory = 10 * GIB
    del failing.engine.vms[2]
    failing.begin(load_balance_interval=0.0, timer_interval=60.0)
    assert failing.look() == []
    lion.max_scheduling_memory = 20 * GIB
    fail(failing, "lynx")
    assert failing.look() == [("web", "lion")]


def test_what_waits_for_approval_is_not_planned_otherwise(failing):
    """And counts in the plans of later looks."""
    failing.begin(Drive.APPROVE, timer_interval=60.0, load_balance_interval=0.0)
    failing.look()
    fail(failing, "lynx")
    failing.look()
    first = planned(failing)
    assert set(first) == {"web"}
    fail(failing, "puma")
    failing.look()
    failing.look()
    assert planned(failing)["web"] == first["web"]
    assert len(set(planned(failing).values())) == 2


def test_what_is_under_way_counts_on_its_target(failing):
    """The engine still shows the VM on its former host."""
    failing.begin(load_balance_interval=0.0)
    failing.look()
    fail(failing, "lynx")
    ((_, first),) = failing.look()
    fail(failing, "puma")
    ((vm, second),) = failing.look()
    assert vm == "mail"
    assert {first, second} == {"lion", "cat"}
