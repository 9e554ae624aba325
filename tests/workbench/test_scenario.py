"""The files of scenarios."""

from __future__ import annotations

import math

import pytest

from ovirt_scheduler.errors import ScenarioError
from ovirt_scheduler.workbench import scenario
from ovirt_scheduler.workbench.scenario import Arrival, HostEvent

GIB = 2**30


@pytest.fixture
def read(tmp_path):
    """Reads a text."""

    def of(text):
        (tmp_path / "scenario.conf").write_text(text)
        return scenario.read(tmp_path / "scenario.conf")

    return of


def test_what_happens_is_in_the_order_of_time(read):
    """VMs by their numbers, hosts by their names."""
    found = read(
        "hours = 24\n[vms]\n[[late]]\nat = 2\nlasts = 1.5\n[[web]]\ncount = 2\nmemory = 1 GiB\n"
        "processors = 4\nload = 25\n[hosts]\n[[lynx]]\nfails = 3\nreturns = 4\n[[puma]]\n"
        "maintenance = 1\n"
    )
    assert found.hours == 24
    assert found.arrivals == (
        Arrival("web-1", GIB, 4, 0.25, 0, math.inf), Arrival("web-2", GIB, 4, 0.25, 0, math.inf),
        Arrival("late", 4 * GIB, 1, 0, 2, 3.5),
    )  # fmt: skip
    assert found.host_events == (
        HostEvent(1, "puma", "maintenance"), HostEvent(3, "lynx", "fails"),
        HostEvent(4, "lynx", "returns"),
    )  # fmt: skip


def test_load_rises_and_falls_over_the_day(read):
    """Of the VMs whose name fits first; by chance only as much as is said."""
    found = read(
        "[load]\n[[web-*]]\nlowest = 20\nhighest = 180\npeak = 14\n[[batch]]\njitter = 10\n"
    )
    hours = {14: 1.8, 2: 0.2, 8: 1.0, 38: 1.8}
    assert {hour: found.load("web-1", hour, 0) for hour in hours} == pytest.approx(hours)
    assert found.load("mail", 2, 0) == 1
    some = {found.load("batch", hour / 4, 5) for hour in range(100)}
    assert len(some) > 90
    assert 0.9 <= min(some) < max(some) <= 1.1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hour = 3", "1: hour: there is no such key; did you mean hours?"),
        ("[vm]\n[[web]]", "1: [vm]: there is no such section"),
        ("[vms]\n[[web]]\nmemory = 4 GB", "3: [vms] [[web]] memory: expected bytes, such as 65536"),
        ("[vms]\n[[web]]\nload = 120", "3: [vms] [[web]] load: expected percent, such as 5 or 0.5, from 0 to"),
        ("hours = 9\n[hosts]\n[[lynx]]\nfails = 3\nreturns = 2", "5: [hosts] [[lynx]] returns: is not after the host fails"),
        ("[vms]\n[[web]]\nat = 5", "3: [vms] [[web]] at: is after the end, which is at hours = 0"),
        ("hours = 2\n[hosts]\n[[lynx]]\nfails = 3", "4: [hosts] [[lynx]] fails: is after the end, which is"),
        ("[vms]\n[[a]]\ncount = 2\n[[a-2]]", "4: [vms] [[a-2]] count: makes a second VM of the name a-2"),
        ("[vms]\n[[a]]\ncount = 99999\n[[b]]\ncount = 2", "5: [vms] [[b]] count: makes more than 100000 VMs"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(read, tmp_path, text, problem):
    """And with what is allowed, or the nearest key."""
    with pytest.raises(ScenarioError) as refused:
        read(text)
    assert str(refused.value).startswith(f"{tmp_path}/scenario.conf:{problem}")


def test_a_host_that_is_not_there_is_told(read):
    """With the nearest name."""
    found = read("hours = 1\n[hosts]\n[[lyx]]\nfails = 1\n")
    with pytest.raises(
        ScenarioError, match=r"\[hosts\] \[\[lyx\]\]: no such host; did you mean lynx"
    ):
        found.check(["lynx", "puma"])
