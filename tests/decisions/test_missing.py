"""Which names of callers are remembered, for how long, and how many."""

from __future__ import annotations

import pytest

from ovirt_scheduler.decisions import missing
from ovirt_scheduler.decisions.missing import MissingNames


@pytest.fixture
def clock(monkeypatch):
    """The time, which the test moves on."""
    now = [1_800_000_000.0]
    monkeypatch.setattr(missing.time, "time", lambda: now[0])
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


def test_names_that_callers_make_up_take_no_memory_without_end(clock):
    """At most a thousand, of 128 characters; those that were there first stay."""
    names = MissingNames()
    for number in range(5000):
        names.add("filter", f"{number:05}" + "x" * 1000)
    recent = names.recent()
    assert len(recent) == 1000
    assert all(len(name) == 128 for _, name in recent)
    assert ("filter", "00000" + "x" * 123) in recent
