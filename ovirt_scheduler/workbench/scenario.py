"""What happens to a simulated cluster: a small file in the form of scheduler.conf.

``TABLES`` has its keys, and docs/simulate.md what they mean. Times are hours since the beginning;
the day begins then, at 0 o'clock.
"""

from __future__ import annotations

import fnmatch
import math
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Optional

from ovirt_scheduler.errors import BadInput, ScenarioError
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.settings.conf_file import ConfFile, Section, content
from ovirt_scheduler.settings.value_types import Key

_DAY = 24.0
_MOST_VMS = 100_000


def _key(name: str, value_type: str, default: Optional[str], *bounds: str) -> Key:
    """A key of the file; the bounds are the least and the greatest value."""
    least_and_most = (bounds[0], bounds[1]) if bounds else None
    return Key(name, value_type, default, "", least_and_most)


TOP = (_key("hours", "hours", "0", "0", "8760"),)
TABLES: Mapping[str, tuple[Key, ...]] = {
    "vms": (
        _key("count", "whole", "1", "1", str(_MOST_VMS)),
        _key("memory", "size", "4 GiB", "1 MiB", "65536 GiB"),
        _key("processors", "whole", "1", "1", "1024"),
        _key("load", "percent", "0", "0", "100"),
        _key("at", "hours", "0", "0", "8760"),
        _key("lasts", "hours", None),
    ),
    "hosts": (
        _key("fails", "hours", None),
        _key("maintenance", "hours", None),
        _key("returns", "hours", None),
    ),
    "load": (
        _key("lowest", "percent", "100", "0", "999"),
        _key("highest", "percent", "100", "0", "999"),
        _key("peak", "hours", "14", "0", "24"),
        _key("jitter", "percent", "0", "0", "100"),
    ),
}

_PERCENTS = ("lowest", "highest", "jitter")
# What becomes of a host, by the key.
FAILS, MAINTENANCE, RETURNS = "fails", "maintenance", "returns"


class Arrival(NamedTuple):
    """A VM that comes: hours, bytes, and the part of its processors that it keeps busy."""

    name: str
    memory: int
    processors: int
    load: float
    at: float
    until: float


class HostEvent(NamedTuple):
    """A change of a host, by its name, at an hour."""

    at: float
    host: str
    what: str


@dataclass(frozen=True)
class Scenario:
    """All that happens, in the order of time.

    Attributes:
        file: that says it.
        curves: sections of ``[load]``, by the patterns of VMs' names.
        expect: what is expected of figures, by their names; None where it may have none.
    """

    file: str = ""
    hours: float = 0.0
    arrivals: tuple[Arrival, ...] = ()
    host_events: tuple[HostEvent, ...] = ()
    curves: Mapping[str, Section] = field(default_factory=dict)
    expect: Optional[Section] = None

    def load(self, vm: str, hour: float, seed: int) -> float:
        """The factor of the load that a VM has at an hour.

        Args:
            vm: its name.
            seed: the same for the same chances.
        """
        for pattern, curve in self.curves.items():
            if fnmatch.fnmatchcase(vm, pattern):
                lowest, highest, jitter = (curve[key] / 100 for key in _PERCENTS)
                turn = (1 + math.cos(2 * math.pi * (hour - curve["peak"]) / _DAY)) / 2
                chance = random.Random(f"{seed} {vm} {hour:.4f}").uniform(-1, 1)  # noqa: S311
                share: float = (lowest + (highest - lowest) * turn) * (1 + jitter * chance)
                return round(max(0.0, share), 4)
        return 1.0

    def check(self, hosts: Collection[str]) -> None:
        """Check that the hosts that it names exist.

        Raises:
            ScenarioError: there is no such host.
        """
        for event in self.host_events:
            if event.host not in hosts:
                hint = spelling.hint(event.host, hosts)
                raise ScenarioError(f"[hosts] [[{event.host}]]: no such host{hint}", self.file)


def read(path: Path, figures: Collection[str] = ()) -> Scenario:
    """Read a scenario.

    Args:
        figures: names that its section ``[expect]`` may have.

    Raises:
        BadInput: there is no such file.
        ScenarioError: each mistake with the file and the line.
    """
    try:
        data = content(path, ScenarioError)
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file") from None
    expect = (Key(name, "text", None, "", section="expect") for name in figures)
    conf = ConfFile(data, path, ScenarioError, (*TOP, *expect), TABLES)
    sections, hours = conf.subsections, conf["hours"]
    for section in (*sections["vms"].values(), *sections["hosts"].values()):
        for key in ("at", FAILS, MAINTENANCE, RETURNS):
            if (section.values.get(key) or 0.0) > hours:
                section.refuse(key, f"is after the end, which is at hours = {hours:g}")
    arrivals: dict[str, Arrival] = {}
    for name, section in sections["vms"].items():
        if len(arrivals) + section["count"] > _MOST_VMS:
            section.refuse("count", f"makes more than {_MOST_VMS} VMs together")
        for arrival in _arrivals(name, section):
            if arrival.name in arrivals:
                section.refuse("count", f"makes a second VM of the name {arrival.name}")
            arrivals[arrival.name] = arrival
    events = [each for item in sections["hosts"].items() for each in _host_events(*item)]
    conf.mistakes.check()
    return Scenario(
        str(path),
        hours,
        tuple(sorted(arrivals.values(), key=lambda arrival: arrival.at)),
        tuple(sorted(events, key=lambda event: event.at)),
        sections["load"],
        conf.sections.get("expect"),
    )


def _arrivals(name: str, section: Section) -> Iterator[Arrival]:
    at, count = section["at"], section["count"]
    until = math.inf if section["lasts"] is None else at + section["lasts"]
    for number in range(1, count + 1):
        yield Arrival(
            f"{name}-{number}" if count > 1 else name,
            section["memory"], section["processors"], section["load"] / 100, at, until,
        )  # fmt: skip


def _host_events(name: str, section: Section) -> list[HostEvent]:
    events = [HostEvent(at, name, what) for what, at in section.values.items() if at is not None]
    leaves_at = [event.at for event in events if event.what != RETURNS]
    returns = section[RETURNS]
    if returns is not None and (not leaves_at or returns <= min(leaves_at)):
        section.refuse(RETURNS, "is not after the host fails or goes into maintenance")
    return events
