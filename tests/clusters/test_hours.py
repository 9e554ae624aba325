"""The hours in which a balancing may migrate; at other times its plans are told."""

from __future__ import annotations

import pytest

from ovirt_scheduler.model.plans import LEFT_BEHIND, MADE, TOLD, WAITING
from ovirt_scheduler.settings.value_types import DayHours, Drive
from tests.support.rest_server import GIB, Host, Vm

NIGHT = DayHours(20 * 60, 6 * 60)


@pytest.fixture
def unequal(looks):
    looks.engine.hosts = [
        Host("lynx", free_memory=60 * GIB, busy=95),
        Host("puma", free_memory=60 * GIB, busy=10),
    ]
    looks.engine.vms = [Vm("web", "lynx", busy=80), Vm("mail", "lynx", busy=80)]
    return looks


def states(looks):
    return [plan.state for plan in looks.plans.of_cluster("Default")]


def test_outside_of_its_hours_a_balancing_only_tells_its_plan_and_why(unequal):
    unequal.begin(hours=NIGHT)
    unequal.clock = (19, 59)
    assert unequal.look() == []
    plan = unequal.plan()
    assert (plan.state, plan.because) == (TOLD, "balancing migrates at 20:00-06:00 only")
    assert unequal.look() == []
    assert states(unequal) == [TOLD]


def test_when_its_hours_begin_the_same_plan_is_made(unequal):
    unequal.begin(hours=NIGHT)
    unequal.clock = (19, 59)
    unequal.look()
    unequal.clock = (20, 0)
    assert unequal.look()
    assert states(unequal) == [LEFT_BEHIND, MADE]


def test_nothing_waits_for_approval_outside_of_the_hours(unequal):
    """Nor any longer, if it waited when they ended; and it waits as soon as they begin."""
    unequal.begin(Drive.APPROVE, hours=NIGHT)
    unequal.clock = (5, 59)
    unequal.look()
    assert unequal.plan().state == WAITING
    unequal.clock = (6, 0)
    unequal.look()
    assert states(unequal) == [LEFT_BEHIND, TOLD]
    unequal.clock = (20, 0)
    unequal.look()
    assert states(unequal) == [LEFT_BEHIND, LEFT_BEHIND, WAITING]


def test_an_approved_plan_is_not_made_after_the_hours(unequal):
    unequal.begin(Drive.APPROVE, hours=NIGHT)
    unequal.clock = (5, 59)
    unequal.look()
    waiting = unequal.plan()
    unequal.plans._decide(waiting.id, "approved", "root")
    unequal.clock = (6, 0)
    assert unequal.look() == []
    (ended, _) = unequal.plans.of_cluster("Default")
    assert (ended.state, ended.because) == (LEFT_BEHIND, "balancing migrates at 20:00-06:00 only")


def test_hooks_are_not_bound_by_the_hours(unequal):
    unequal.begin(hours=NIGHT)
    unequal.clock = (12, 0)
    assert unequal.look() == []
    lynx = unequal.engine.hosts[0]
    lynx.status = "error"
    unequal.engine.happened(lynx)
    assert set(unequal.look()) == {("web", "puma"), ("mail", "puma")}
