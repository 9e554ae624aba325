"""Logs the calls of a decision: how each failed, what was corrected in its answer, its output.

No line has a property's value, because it may be a password.
"""

from __future__ import annotations

import datetime
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Optional

from ovirt_scheduler.log.fields import Block, Name
from ovirt_scheduler.log.marked_for_engine import for_engine
from ovirt_scheduler.model.jobs import Decision
from ovirt_scheduler.model.results import CallOutcome, CallResult
from ovirt_scheduler.model.units import LONGEST_NAME, Kind
from ovirt_scheduler.model.values.text import shortened, with_names

_log = logging.getLogger(__name__)

_SHOWN_OUTPUT = 2000  # characters of what a plugin printed
_TOLD_AT = (1, 10, 100)
_AND_EACH = 1000
_HOUR = 3600.0
_MOST_TEXTS = 1000  # that are remembered
_MOST_WAYS = 16  # ways to fail that are remembered of one unit
# What differs in messages of equal failures: addresses, ids and other hexadecimal digits, numbers.
_VARYING = re.compile(r"0[xX][0-9a-fA-F]+|\b[0-9a-fA-F]+(?:-[0-9a-fA-F]+)*\b|\d+")
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_DIGIT = re.compile(r"\d")


class Failing(NamedTuple):
    """Equal failures of one unit, or all of them."""

    times: int
    since: float  # seconds since 1970; when the unit began to fail, or was told last


class _Course:
    """The failures of one unit since it last worked."""

    def __init__(self) -> None:
        self.since = time.time()
        self.times = 0
        self.ways: Counter[str] = Counter()  # of equal failures


class Failures:
    """Counts equal failures since each unit last worked. Safe to use from many threads.

    So the log need not have each of them (contract 8.6). Two are equal if their messages differ
    only in numbers and ids, such as times and hosts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._units: dict[tuple[str, str], _Course] = {}  # by kind and name

    def add(self, kind: str, result: CallResult) -> Optional[Failing]:
        """Count a failure; how often there was an equal one, if it has to be logged."""
        way = f"{result.outcome.value} {_VARYING.sub(_alike, result.message)}"
        with self._lock:
            course = self._units.setdefault((kind, result.unit), _Course())
            if len(course.ways) >= _MOST_WAYS and way not in course.ways:
                course.ways.clear()
            course.times += 1
            course.ways[way] += 1
            times = course.ways[way]
        is_logged = times in _TOLD_AT or times % _AND_EACH == 0
        return Failing(times, course.since) if is_logged else None

    def over(self, kind: str, unit: str) -> Optional[Failing]:
        """After a successful call: how often the calls before it failed, if they did."""
        with self._lock:
            course = self._units.pop((kind, unit), None)
        return None if course is None else Failing(course.times, course.since)


def _alike(varying: re.Match[str]) -> str:
    """The same for all ids and numbers; a word such as "added" is neither."""
    return "0" if _DIGIT.search(varying[0]) else varying[0]


class HourlyTexts:
    """What is told of a unit once an hour, with how often it came since. Safe to use from many
    threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By kind, name and text: how often it came since it was told, and when that was.
        self._texts: dict[tuple[str, str, str], Failing] = {}

    def add(self, kind: str, unit: str, text: str) -> Optional[Failing]:
        """Count a text; how often there was one alike since the last that was told, if this is to
        be told.
        """
        now, key = time.time(), (kind, unit[:LONGEST_NAME], _VARYING.sub(_alike, text))
        with self._lock:
            before = self._texts.get(key, Failing(0, 0.0))
            if before.since + _HOUR > now:
                self._texts[key] = before._replace(times=before.times + 1)
                return None
            if len(self._texts) >= _MOST_TEXTS:  # callers may make names up
                self._texts.clear()
            self._texts[key] = Failing(0, now)
        return before


_failures = Failures()
_hourly = HourlyTexts()


def log_calls(decision: Decision, problems: Sequence[str]) -> None:
    """Log the calls of a decision, in the order in which they ran.

    Args:
        problems: those that belong to no single unit, such as that all filters failed.
    """
    request, names = decision.request, decision.execution.names
    for kind in Kind:
        for result in decision.execution.of(kind):
            log_call(request.caller.request_id, kind.label, result, names)
    if request.driver_call is not None and decision.execution.driver_call is not None:
        label = request.driver_call.driver.label
        log_call(request.caller.request_id, label, decision.execution.driver_call, names)
    for problem in problems:
        named = {"request": request.caller.request_id, "reason": problem}
        _log.warning("%(request)s: %(reason)s", named)


def log_call(
    request_id: str, kind: str, result: CallResult, names: Mapping[str, str] = _NO_NAMES
) -> None:
    """Log how a call failed, what was corrected in its answer, and what it printed.

    Args:
        kind: of what was called, in words: ``filter in shadow``.
        names: of hosts and VMs, by their ids.
    """
    if result.outcome is CallOutcome.REFUSED:  # its message may have the value
        result = result._replace(message="a property's value is not allowed; the answer names it")
    over = _failures.over(kind, result.unit) if result.ok else None
    if result.ok and not (over or result.notes or result.remarks or result.stdout or result.stderr):
        return
    call = _call_fields(request_id, kind, result)
    failing = None if result.ok else _failures.add(kind, result)
    if failing is not None:
        message = with_names(result.message, names)  # counted without: the same of another host
        _log_failure(call, result._replace(message=message), failing)
    if over is not None:
        _log.info(
            "%(request)s %(kind)s %(unit)s works again; calls that failed since %(since)s: "
            "%(count)d",
            {**call, "count": over.times, "since": _written(over.since)},
            extra=for_engine(),
        )
    for note in (*result.notes, *result.remarks):
        _log_hourly(call, result.unit, note, names)
    for stream, printed in (("stdout", result.stdout), ("stderr", result.stderr)):
        if printed.strip():
            output = {"stream": stream, "output": Block(shortened(printed.strip(), _SHOWN_OUTPUT))}
            _log.info("%(request)s %(kind)s %(unit)s printed to %(stream)s:", {**call, **output})


def log_left_out(request_id: str, kind: str, units: Mapping[str, Sequence[str]]) -> None:
    """Log which units were not called as the request asked, and why.

    Args:
        kind: of the units, in words.
        units: the problems of each, by its name.
    """
    for name, problems in units.items():
        unit = {"request": request_id, "kind": kind, "unit": Name(name)}
        for problem in problems:
            _log_hourly(unit, name, problem)


def _log_hourly(
    fields: Mapping[str, object], unit: str, text: str, names: Mapping[str, str] = _NO_NAMES
) -> None:
    """Log what is to be said of a unit, unless it was said within the last hour."""
    before = _hourly.add(str(fields["kind"]), unit, text)
    if before is None:
        return
    fields = {**fields, "reason": with_names(text, names)}
    if before.times == 0:
        _log.warning("%(request)s %(kind)s %(unit)s: %(reason)s", fields)
        return
    _log.warning(
        "%(request)s %(kind)s %(unit)s: %(reason)s; the same since %(since)s: %(count)d times",
        {**fields, "count": before.times, "since": _written(before.since)},
    )


def _call_fields(request_id: str, kind: str, result: CallResult) -> dict[str, object]:
    """The fields of every line on a call."""
    return {
        "request": request_id,
        "kind": kind,
        "unit": Name(result.unit),
        "outcome": result.outcome.value,
        "milliseconds": round(result.seconds * 1000, 1),
    }


def _log_failure(call: Mapping[str, object], result: CallResult, failing: Failing) -> None:
    if failing.times > 1:
        _log.warning(
            "%(request)s %(kind)s %(unit)s %(outcome)s again, %(count)d times since %(since)s: "
            "%(reason)s",
            {
                **call, "count": failing.times, "since": _written(failing.since),
                "reason": result.message,
            },
        )  # fmt: skip
        return
    trace = Block(result.traceback.rstrip()) if result.traceback else None
    _log.warning(
        "%(request)s %(kind)s %(unit)s %(outcome)s after %(milliseconds).0f ms: %(reason)s",
        {**call, "reason": result.message, "traceback": trace},
        extra=for_engine(),
    )


def _written(moment: float) -> str:
    """In local time with its offset, as the log's lines have it."""
    return datetime.datetime.fromtimestamp(moment).astimezone().isoformat(" ", "seconds")
