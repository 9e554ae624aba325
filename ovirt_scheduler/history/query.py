"""A query for decisions: its conditions, checked."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Optional

from ovirt_scheduler.errors import BadParameters

MOST_ROWS = 1000

FAILURES = ("raised", "timed out", "killed", "bad answer", "refused")
OUTCOMES = ("ok", *FAILURES, "not asked")

_LONGEST = 1024  # characters of a name or an id


@dataclass(frozen=True)
class Query:
    """Decisions that fit all that is set; None fits every one.

    Attributes:
        vm, host: an id, or a name.
        unit: name of a policy unit or a driver that was asked for.
        cluster: that the daemon looked after by itself: its name.
        method: of XML-RPC, such as runFilters.
        outcomes: some of ``OUTCOMES``: a unit ended in one of these; with ``unit``, that one did.
        since, until: seconds since 1970; the second is not included.
        limit: the newest of them, at most ``MOST_ROWS``.
        brief: of each what a list shows, as of ``explanation.summary``, in place of its record.
    """

    vm: Optional[str] = None
    host: Optional[str] = None
    unit: Optional[str] = None
    cluster: Optional[str] = None
    method: Optional[str] = None
    outcomes: tuple[str, ...] = ()
    since: Optional[float] = None
    until: Optional[float] = None
    limit: int = 100
    brief: bool = False


def read(members: Mapping[str, object]) -> Query:
    """A query as a caller writes it: times are texts of RFC 3339.

    Raises:
        BadParameters: which member, and what was expected.
    """
    unknown = next((name for name in members if name not in _MEMBERS), None)
    if unknown is not None:
        there = ", ".join(_MEMBERS)
        raise BadParameters(f"query: there is no {unknown!r:.60}; there are {there}")
    values = {name: _MEMBERS[name](name, value) for name, value in members.items()}
    if "outcome" in values:
        values["outcomes"] = (values.pop("outcome"),)
    return Query(**values)


def moment(text: str) -> float:
    """Seconds since 1970 of a time in RFC 3339; one without a zone is local.

    Raises:
        ValueError: it is none.
    """
    if text.endswith(("Z", "z")):  # which fromisoformat knows from Python 3.11 on
        text = f"{text[:-1]}+00:00"
    return datetime.datetime.fromisoformat(text).timestamp()


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > _LONGEST:
        raise BadParameters(
            f"query: {name}: expected a text that is not empty, of at most {_LONGEST} characters"
        )
    return value


def _time(name: str, value: object) -> float:
    with contextlib.suppress(ValueError, OverflowError):
        if isinstance(value, str):
            return moment(value)
    raise BadParameters(
        f"query: {name}: {value!r:.60} is no time; write it like 2026-01-31T12:00:00Z"
    )


def _outcome(name: str, value: object) -> str:
    if value not in OUTCOMES:
        raise BadParameters(
            f"query: {name}: {value!r:.60} is none; there are {', '.join(OUTCOMES)}"
        )
    return str(value)


def _limit(name: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= MOST_ROWS:
        raise BadParameters(f"query: {name}: expected an int from 1 to {MOST_ROWS}")
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadParameters(f"query: {name}: expected a boolean")
    return value


# What each member has to be.
_MEMBERS: dict[str, Callable[[str, object], Any]] = {
    **dict.fromkeys(("vm", "host", "unit", "cluster", "method"), _text),
    "outcome": _outcome,
    **dict.fromkeys(("since", "until"), _time),
    "limit": _limit,
    "brief": _flag,
}
