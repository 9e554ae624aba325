"""A daemon with a filter that keeps some of its hosts: what it is asked, and whether it is well."""

from __future__ import annotations

from typing import Callable

from tests.support.daemon import Daemon
from tests.support.processes import SPARE_BELOW, offspring
from tests.support.waiting import wait_until

IDS = ["host-1", "host-2", "host-3"]
AT_REST = 2 + SPARE_BELOW  # processes: the zygote, one for the default scheduler, spare ones
KEEPS = "def do_filter(hosts, vm, properties):\n    return hosts[:{}]\n"
HOSTS = "<hosts>" + "".join(f"<host id='{host}'/>" for host in IDS) + "</hosts>"


def until(condition: Callable[[], object], daemon: Daemon) -> None:
    """Wait; where it never holds, the failure shows the daemon's log."""
    wait_until(condition, lambda: daemon.log)


def at_rest(daemon: Daemon, plugins: int = 1) -> list[int]:
    """The processes below the daemon when none of them is about to end: one for each plugin."""
    seen: list[list[int]] = []

    def nothing_changes() -> bool:
        seen.append(sorted(offspring(daemon.pid)))
        return len(seen[-1]) == AT_REST + plugins and seen[-10:].count(seen[-1]) == 10

    until(nothing_changes, daemon)
    return seen[-1]


def kept(daemon: Daemon, name: str = "Keeps") -> int:
    """How many hosts the filter keeps, asked over a new connection."""
    return len(daemon.design.runFilters([name], IDS, "vm-1", {}))


def assert_well(daemon: Daemon) -> None:
    """It answers rightly, ends as it should, and nothing unforeseen stands in its log."""
    assert kept(daemon) == 1
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.log, daemon.log
