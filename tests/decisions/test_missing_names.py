"""Which names of callers are remembered, for how long, and how many."""

from __future__ import annotations

import pytest

from ovirt_scheduler.decisions import missing_names
from ovirt_scheduler.decisions.missing_names import MissingNames
from ovirt_scheduler.decisions.service import DecisionService
from tests.support.place import plugin


@pytest.fixture
def clock(monkeypatch):
    """The time, which the test moves on."""
    now = [1_800_000_000.0]
    monkeypatch.setattr(missing_names.time, "time", lambda: now[0])
    return now


def test_a_name_is_counted_since_it_was_first_named(clock):
    names = MissingNames()
    names.add("filter", "Night")
    clock[0] += 600
    names.add("filter", "Night")
    names.add("balance", "Night")
    recent = names.recent()
    assert recent["filter", "Night"] == (clock[0] - 600, clock[0], 2)
    assert recent["balance", "Night"].times == 1


def test_a_name_is_forgotten_an_hour_after_it_was_last_named(clock):
    names = MissingNames()
    names.add("filter", "Night")
    clock[0] += 3599
    names.add("filter", "Night")
    clock[0] += 3599
    assert names.recent()["filter", "Night"].times == 2
    clock[0] += 1
    assert names.recent() == {}
    names.add("filter", "Night")
    clock[0] += 4000
    names.add("filter", "Night")
    assert names.recent()["filter", "Night"].times == 1


def test_a_name_that_came_back_is_counted_anew_when_it_has_gone_again(clock):
    """Each by itself."""
    names = MissingNames()
    for _ in range(2):
        for _ in range(3):
            names.add("filter", "Night")
        names.add("filter", "Day")
        assert names.recent()["filter", "Night"] == (clock[0], clock[0], 3)
        names.forget("filter", "Night")
        names.forget("filter", "Never")
        clock[0] += 60
    assert {key: namings.times for key, namings in names.recent().items()} == {("filter", "Day"): 2}


def test_a_unit_that_is_there_again_is_missing_no_more(clock, place):
    """And from its next absence on, when it goes again."""
    service = DecisionService(place.registry, place.executor, 60.0)
    for turn in (1, 2):
        place.registry.refresh()
        for _ in range(turn):
            service.missing.add("cost function", "a")
        (unit,) = service.missing_units()
        assert (unit.name, unit.since, unit.times) == ("a", clock[0], turn)
        path = place.write("a", plugin(1))
        place.registry.refresh()
        assert service.missing_units() == ()
        path.unlink()
        clock[0] += 60


def test_names_that_callers_make_up_take_no_memory_without_end(clock):
    """At most a thousand, of 128 characters; those that were there first stay."""
    names = MissingNames()
    for number in range(5000):
        names.add("filter", f"{number:05}" + "x" * 1000)
    recent = names.recent()
    assert len(recent) == 1000
    assert all(len(name) == 128 for _, name in recent)
    assert ("filter", "00000" + "x" * 123) in recent
