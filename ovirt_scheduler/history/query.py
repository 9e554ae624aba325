"""A query for decisions: its conditions, checked."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Optional

from ovirt_scheduler.errors import BadParameters
from ovirt_scheduler.history.record import NOT_ASKED, OK
from ovirt_scheduler.model.results import CallOutcome

MOST_ROWS = 1000

OUTCOMES = tuple(outcome.value for outcome in CallOutcome)
FAILURES = tuple(each for each in OUTCOMES if each not in (OK, NOT_ASKED))

_LONGEST = 1024  # characters of a name or an id


@dataclass(frozen=True)
class Query:
    """Decisions that fit all that is set; None fits every one.

    Attributes:
        vm, host: an id, or a name.
        unit: name of a policy unit or a driver that was asked for.
        cluster: name of a cluster that the daemon looked after by itself.
        method: of XML-RPC, such as runFilters.
        outcomes: some of ``OUTCOMES``: a unit (with ``unit``, that one) ended in one of these.
        since, until: seconds since 1970; the second is not included.
        limit: how many of the newest, at most ``MOST_ROWS``.
        brief: only what a list shows, instead of whole records.
        before: id of a decision: those that come after it in a list, which has the newest first.
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
    before: Optional[str] = None


def read(members: Mapping[str, object]) -> Query:
    """A query as a caller writes it: times are texts of RFC 3339.

    Raises:
        BadParameters: which member, and what was expected.
    """
    values: dict[str, Any] = dict(members)
    for name, value in members.items():
        if name not in _MEMBERS:
            raise BadParameters(f"query: there is no {name!r:.60}; there are {', '.join(_MEMBERS)}")
        fits, expected = _MEMBERS[name]
        if not fits(value):
            raise BadParameters(f"query: {name}: expected {expected}, not {value!r:.60}")
        if fits is _is_time:
            values[name] = moment(values[name])
    if "outcome" in values:
        values["outcomes"] = (values.pop("outcome"),)
    return Query(**values)


def moment(text: str) -> float:
    """Seconds since 1970 of a time in RFC 3339; one without a zone is local.

    Raises:
        ValueError: it is no such time.
    """
    if text.endswith(("Z", "z")):  # which fromisoformat knows from Python 3.11 on
        text = f"{text[:-1]}+00:00"
    return datetime.datetime.fromisoformat(text).timestamp()


def written(moment: float) -> str:
    """Seconds since 1970 as RFC 3339, in UTC; it raises ValueError beyond the year 9999."""
    at = datetime.datetime.fromtimestamp(round(moment * 1000) / 1000, datetime.timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_time(value: object) -> bool:
    with contextlib.suppress(ValueError, OverflowError):
        return isinstance(value, str) and moment(value) is not None
    return False


_TEXT = (
    lambda value: isinstance(value, str) and 0 < len(value) <= _LONGEST,
    f"a text that is not empty, of at most {_LONGEST} characters",
)
_TIME = (_is_time, "a time like 2026-01-31T12:00:00Z")

# What each member has to be, and the words for that.
_MEMBERS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("vm", "host", "unit", "cluster", "method", "before"), _TEXT),
    "outcome": (lambda value: value in OUTCOMES, f"one of {', '.join(OUTCOMES)}"),
    **dict.fromkeys(("since", "until"), _TIME),
    "limit": (
        lambda value: type(value) is int and 1 <= value <= MOST_ROWS,
        f"an int from 1 to {MOST_ROWS}",
    ),
    "brief": (lambda value: isinstance(value, bool), "a boolean"),
}
