"""How the values of a conf file are written (contract 6).

Each type has a reader. It takes a text without quotes, and returns the value or raises
ValueError. A ``Key`` is one line of the table of settings.
"""

from __future__ import annotations

import ipaddress
import re
from enum import Enum
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Union
from urllib.parse import urlsplit

from ovirt_scheduler.model.requests import RequestedUnit
from ovirt_scheduler.model.units import MOST_UNITS
from ovirt_scheduler.security.addresses import is_loopback

PYTHON_PATH = "$PYTHONPATH"  # stands for each entry of the variable in plugins_path


class EngineEvents(Enum):
    """What the daemon writes into the engine's events."""

    NONE = "none"
    FAILURES = "failures"
    ALL = "all"


class Drive(Enum):
    """What the daemon does for the clusters of the section ``[clusters]``."""

    OFF = "off"
    DRY_RUN = "dry-run"  # logs the migrations that it would make
    APPROVE = "approve"  # makes those that somebody approves
    ON = "on"


_DAY_MINUTES = 24 * 60


class DayHours(NamedTuple):
    """Hours of each day, over midnight if they end before they begin; minutes since midnight."""

    begin: int
    end: int

    def contain(self, minute: int) -> bool:
        """Whether a minute of the day is among them. A begin that is the end means all day."""
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def __str__(self) -> str:
        begin, end = (divmod(minutes, 60) for minutes in self)
        return f"{begin[0]:02}:{begin[1]:02}-{end[0]:02}:{end[1]:02}"


class ValueType(NamedTuple):
    """A type of value: its name in a sentence, and the reader that makes a value of a text."""

    label: str
    read: Callable[[str], Any]


def _matched(make: Callable[[str], Any], pattern: str) -> Callable[[str], Any]:
    """A reader of texts that match a pattern; ``make`` gets the pattern's groups."""
    return lambda text: make(_match(pattern, text)[1])


_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _size(text: str) -> int:
    match = _match(r"([0-9]{1,15}) ?(B|KiB|MiB|GiB|)", text)
    return int(match[1]) * _UNITS[match[2]]


_TRUTH = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError(text)
    return _TRUTH[text.lower()]


def _path(text: str) -> Path:
    if not text.startswith("/"):
        raise ValueError(text)
    return Path(text)


def _folders(text: str) -> tuple[str, ...]:
    folders = tuple(text.split(":"))
    for folder in folders:
        if not folder.startswith("/") and folder.split("/")[0] != PYTHON_PATH:
            raise ValueError(folder)
    return folders


def _subjects(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(";"))
    for name in names:
        # A distinguished name holds commas; between plain names one was meant as a separator.
        if not name or ("," in name and "=" not in name):
            raise ValueError(name)
    return names


def _assignments(text: str) -> dict[str, str]:
    """``key=value;key2=value2``; a value holds no ``;``."""
    pairs = [item.strip().partition("=") for item in text.split(";")]
    assignments = {key.strip(): value.strip() for key, _, value in pairs}
    if len(assignments) < len(pairs) or not all(key and equals for key, equals, _ in pairs):
        raise ValueError(text)
    return assignments


def _units(pattern: str) -> Callable[[str], tuple[RequestedUnit, ...]]:
    """A reader of names with factors: the pattern's groups are a name, and a factor (default 1)."""

    def read(text: str) -> tuple[RequestedUnit, ...]:
        pairs = [_match(pattern, item.strip()).groups() for item in text.split(";")]
        units = tuple(RequestedUnit(name, int(factor or 1)) for name, factor in pairs)
        in_range = all(-(2**31) <= unit.factor < 2**31 for unit in units)
        if not len({unit.name for unit in units}) == len(units) <= MOST_UNITS or not in_range:
            raise ValueError(text)
        return units

    return read


def _day_hours(text: str) -> DayHours:
    match = _match(r"([0-9]{1,2}):([0-5][0-9])\s*-\s*([0-9]{1,2}):([0-5][0-9])", text)
    hour, minute, last_hour, last_minute = map(int, match.groups())
    begin, end = 60 * hour + minute, 60 * last_hour + last_minute
    if begin >= _DAY_MINUTES or end > _DAY_MINUTES:
        raise ValueError(text)
    return DayHours(begin, end % _DAY_MINUTES)


def _choices(text: str) -> tuple[str, ...]:
    return tuple(choice.strip() for choice in text.split(","))


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # A last label of digits would be a broken IPv4 address.
        label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        _match(rf"(?:{label}\.){{0,30}}(?![0-9]+$){label}", text)
    return text


def _url(text: str) -> str:
    parts = urlsplit(text)
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not safe or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(text)
    parts.port  # noqa: B018 -- raises ValueError where it is no port
    return text.rstrip("/")


def _proxy(text: str) -> str:
    parts = urlsplit(text)
    rest = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme != "http" or not parts.hostname or not parts.port or rest:
        raise ValueError(text)
    return text.rstrip("/")


def _match(pattern: str, text: str) -> re.Match[str]:
    match = re.fullmatch(pattern, text)
    if not match:
        raise ValueError(text)
    return match


TYPES: dict[str, ValueType] = {
    "whole": ValueType("a whole number", _matched(int, "([0-9]{1,15})")),
    "seconds": ValueType("seconds, such as 30 or 0.5", _matched(float, f"{_NUMBER} ?s?")),
    "whole_seconds": ValueType("whole seconds", _matched(int, "([0-9]{1,9}) ?s?")),
    "size": ValueType("bytes, such as 65536 or 64 KiB, MiB, GiB", _size),
    "truth": ValueType("true or false", _truth),
    "choice": ValueType("one of", str),
    "text": ValueType("text", _matched(str, r"(.+)")),
    "unit": ValueType("the name of a unit", _matched(RequestedUnit, r"(.+)")),
    "user": ValueType("the name of a user", _matched(str, r"(.+)")),
    "path": ValueType("a path that begins with /", _path),
    "folders": ValueType("paths that begin with / or $PYTHONPATH, with : between", _folders),
    "subjects": ValueType("names with ; between", _subjects),
    "minutes": ValueType("minutes, such as 5 or 0.5", _matched(lambda n: float(n) * 60, _NUMBER)),
    "hours": ValueType("hours, such as 8 or 0.5", _matched(float, _NUMBER)),
    "day_hours": ValueType("hours of the day, such as 20:00-06:00", _day_hours),
    "percent": ValueType("percent, such as 5 or 0.5", _matched(float, f"{_NUMBER} ?%?")),
    "assignments": ValueType("key=value, with ; between", _assignments),
    "names": ValueType("names, each once, with ; between", _units("(.+)()")),
    "factors": ValueType(
        "names, each once and with an int as =factor, with ; between",
        _units(r"([^=]+?)(?:\s*=\s*(-?[0-9]{1,10}))?"),
    ),
    "choices": ValueType("one or more, with commas between, of", _choices),
    "version": ValueType(
        "a version, such as 4.5", _matched(str, r"([0-9]{1,4}(?:\.[0-9]{1,4}){0,3})")
    ),
    "address": ValueType(
        "a host name or an IP address (0.0.0.0 or :: for every interface)", _address
    ),
    "url": ValueType("an https:// URL without user name or query", _url),
    "proxy": ValueType("an http:// URL with a port and without user name", _proxy),
}


class Key(NamedTuple):
    """One line of the table of settings. Default and bounds are written as in a file."""

    name: str
    value_type: str  # of its values, in ``TYPES``
    default: Optional[str]
    help: str
    bounds: Optional[tuple[str, str]] = None  # the least and the greatest value
    choices: Union[tuple[str, ...], type[Enum]] = ()  # an Enum's are its values
    unset: str = "none"  # in words, what holds without a default
    section: str = ""
    other_names: tuple[str, ...] = ()
    absent: Any = None  # the value without a default

    @property
    def default_value(self) -> Any:
        """The typed value of a key that a file does not set."""
        return self.absent if self.default is None else self.cast(self.default)

    @property
    def allowed(self) -> str:
        """What a value may be, as part of a sentence."""
        label = TYPES[self.value_type].label
        if self.choices:
            choices = (each.value if isinstance(each, Enum) else each for each in self.choices)
            return f"{label} {', '.join(choices)}"
        return f"{label}, from {self.bounds[0]} to {self.bounds[1]}" if self.bounds else label

    def cast(self, text: str) -> Any:
        """The typed value that a text stands for.

        Raises:
            ValueError: it is of another type, not among the choices, or out of bounds.
        """
        read = TYPES[self.value_type].read
        value = read(text)
        if isinstance(self.choices, type):
            many = isinstance(value, tuple)
            return frozenset(map(self.choices, value)) if many else self.choices(value)
        if self.choices and value not in self.choices:
            raise ValueError(text)
        if self.bounds and not read(self.bounds[0]) <= value <= read(self.bounds[1]):
            raise ValueError(text)
        return value
