"""What refusals close, and for how long: at times of the test's."""

from __future__ import annotations

import pytest

from ovirt_scheduler.clusters.refusals import ANY_HOST, NOT_OFFERED, Refusals
from ovirt_scheduler.model.plans import Obstacle, Step

PAUSE = 600.0
TO_PUMA = Step("w", "l", "p", "web", "lynx", "puma")
TO_LION = Step("w", "l", "c", "web", "lynx", "lion")
MAIL = Step("m", "l", "p", "mail", "lynx", "puma")


@pytest.fixture
def refusals():
    return Refusals(PAUSE, [])


def test_a_refusal_closes_the_host_to_the_vm_for_the_pause(refusals):
    refusals.add(TO_PUMA, Obstacle.REFUSED, "no network", 1000)
    assert refusals.closed(1599) == {"w": {"p": "the engine refused it: no network"}}
    assert refusals.closed(1600) == {}


@pytest.mark.parametrize("second", [Obstacle.REFUSED, Obstacle.FAILED])
def test_two_hosts_close_the_vm_as_long_as_both_are_closed(refusals, second):
    refusals.add(TO_PUMA, Obstacle.REFUSED, "locked", 0)
    refusals.add(TO_LION, second, "locked", 300)
    refusals.add(MAIL, Obstacle.REFUSED, "locked", 300)
    assert ANY_HOST in refusals.closed(500)["w"]
    assert set(refusals.closed(500)["m"]) == {"p"}
    assert set(refusals.closed(700)["w"]) == {"c"}


def test_what_is_refused_to_any_host_closes_the_vm(refusals):
    refusals.add(TO_PUMA.to_any(), Obstacle.REFUSED, "pinned", 0)
    assert refusals.closed(1) == {"w": {ANY_HOST: "the engine refused it: pinned"}}


def test_a_vm_that_others_took_back_is_closed_for_an_hour(refusals):
    refusals.add(TO_PUMA.to_any(), Obstacle.TAKEN_BACK, "others took it", 0)
    assert ANY_HOST in refusals.closed(3599)["w"]
    assert refusals.closed(3600) == {}


def test_what_is_not_offered_is_closed_and_no_refusal(refusals):
    """However many hosts that are."""
    refusals.note_offer("w", ["p", "c", "d"], 0)
    assert refusals.closed(599) == {"w": dict.fromkeys("pcd", NOT_OFFERED)}
    assert refusals.current(599) == []
    assert refusals.closed(600) == {}
    refusals.note_offer("m", [], 700)
    assert refusals.closed(701) == {"m": {}}


def test_a_host_that_has_refused_is_doubtful_for_an_hour(refusals):
    refusals.add(TO_PUMA, Obstacle.REFUSED, "no network", 0)
    refusals.add(MAIL.to_any(), Obstacle.TAKEN_BACK, "others took it", 0)
    assert refusals.doubtful(3599) == {"w": {"p"}}
    assert refusals.doubtful(3600) == {}


def test_what_is_refused_again_is_known_since_the_first_time(refusals):
    """It is news only in other words, or after an hour."""
    assert refusals.add(TO_PUMA, Obstacle.REFUSED, "locked", 0)
    assert not refusals.add(TO_PUMA, Obstacle.REFUSED, "locked", 900)
    assert refusals.add(TO_PUMA, Obstacle.REFUSED, "in backup", 1800)
    (refusal,) = refusals.current(1801)
    assert (refusal.since, refusal.latest) == (0, 1800)
    assert refusals.add(TO_PUMA, Obstacle.REFUSED, "in backup", 6000)
    assert [each.since for each in refusals.current(6001)] == [6000]


def test_without_a_pause_nothing_is_closed():
    """The next look asks again."""
    refusals = Refusals(0.0, [])
    refusals.add(TO_PUMA, Obstacle.REFUSED, "locked", 0)
    assert refusals.closed(0) == {}


def test_what_is_old_is_forgotten():
    """As it is kept on disk."""
    kept = []
    refusals = Refusals(PAUSE, kept)
    for number in range(100):
        step = Step(f"v{number}", "l", "p", "web", "lynx", "puma")
        refusals.add(step, Obstacle.REFUSED, "locked", 60.0 * number)
    assert len(kept) == 60
