"""Counts decisions since the start: calls, failures and times, per unit and per method.

``/metrics``, ``/status`` and ``ovirt-scheduler status`` read it. The history's thread adds each
record to it, so that no call pays for the counting.
"""

from __future__ import annotations

import bisect
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Optional

from ovirt_scheduler.history import outcomes, ranking
from ovirt_scheduler.history.record import NOT_ASKED, OK, REMOVED, Record, UnitRecord
from ovirt_scheduler.model.results import RequestOutcome
from ovirt_scheduler.model.values.text import with_names

# Seconds: upper ends of the histograms' buckets.
BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0,
)  # fmt: skip

MINUTES = 60  # that a chart shows

SELECTING = ("runFilters", "selectHost", "hasAnyHosts")  # requests that look for a host

_HOUR = 3600.0
_MOST_HOMELESS = 1000
_RECENT = 500  # calls that median and p99 are taken of


class Exemplar(NamedTuple):
    """One call that fell into a bucket."""

    decision: str  # id
    seconds: float
    time: float  # since 1970


class Histogram:
    """How long calls took: a count for each bucket, and the last call that fell into it."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)  # the last: beyond all buckets
        self.exemplars: list[Optional[Exemplar]] = [None] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, exemplar: Exemplar) -> None:
        """Count a call."""
        place = bisect.bisect_left(BUCKETS, exemplar.seconds)
        self.counts[place] += 1
        self.exemplars[place] = exemplar
        self.sum += exemplar.seconds


@dataclass
class UnitTally:
    """The calls of one policy unit or driver since the start."""

    name: str
    kind: str
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)  # by outcome and mode
    times: Histogram = field(default_factory=Histogram)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))  # seconds
    minutes: dict[int, tuple[int, int]] = field(default_factory=dict)  # calls, failures
    failing_since: Optional[float] = None  # seconds since 1970; None: its last call was well
    corrected_since: Optional[float] = None  # likewise; None: its last answer was right
    last_note: str = ""  # what was put right
    last_error: str = ""
    last_error_at: Optional[float] = None
    last_error_decision: str = ""  # the id of the decision
    checksum: str = ""  # of the version that was called last
    hosts_removed: Counter[str] = field(default_factory=Counter)  # by mode
    decisive: Counter[str] = field(default_factory=Counter)  # by mode

    @property
    def calls(self) -> int:
        """How many calls there were, failed ones too; not those that were skipped."""
        return sum(n for (outcome, _), n in self.outcomes.items() if outcome != NOT_ASKED)

    @property
    def failures(self) -> int:
        """How many calls gave no answer that counts."""
        return self.calls - sum(n for (outcome, _), n in self.outcomes.items() if outcome == OK)

    def fails(self, checksum: str) -> bool:
        """Whether the last call of this version failed; of another one that says nothing."""
        return self.failing_since is not None and self.checksum == checksum

    def is_corrected(self, checksum: str) -> bool:
        """Whether the last answer of this version had to be put right."""
        return self.corrected_since is not None and self.checksum == checksum

    def quantile(self, share: float) -> Optional[float]:
        """Seconds that this share of the recent calls took at most; None without a call."""
        ordered = sorted(self.recent)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None

    def last_hour(self, now: float) -> list[tuple[int, int]]:
        """Calls and failures of each of the last 60 minutes, the oldest first."""
        latest = int(now // 60)
        return [
            self.minutes.get(minute, (0, 0)) for minute in range(latest - MINUTES + 1, latest + 1)
        ]


class Homeless(NamedTuple):
    """A VM that no host was left for. Times are in seconds since 1970."""

    name: str
    since: float
    latest: float
    times: int
    because: str  # of the latest request


class Tally:
    """Counts records. One thread adds, any number read.

    Attributes (readers have to copy them, because they go on changing):
        requests: by method, answer form and outcome.
        request_times: how long they took, by method.
        no_host_left: requests in which filters removed each host, by method.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._units: dict[tuple[str, str], UnitTally] = {}
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.request_times: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.no_host_left: Counter[str] = Counter()
        self._homeless: dict[str, Homeless] = {}  # by the VM's id, or its name

    def add(self, record: Record, time: float) -> None:
        """Count a decision, without its units in shadow.

        Args:
            record: as the history keeps it.
            time: when it was made, seconds since 1970.
        """
        removed = _removed_hosts(record)
        is_question = record.get("beforehand", False)
        with self._lock:
            outcome = outcomes.came_to(record)
            self.requests[record["method"], record["form"], outcome.value] += 1
            if not is_question:
                self._note_placement(record, outcome, time)
            self.no_host_left[record["method"]] += outcomes.leaves_none(record) and not is_question
            seconds = record["milliseconds"] / 1000
            self.request_times[record["method"]].add(Exemplar(record["id"], seconds, time))
            self._add_units(record, "live", removed, {*record.get("decisive", ())}, time)

    def _note_placement(self, record: Record, outcome: RequestOutcome, time: float) -> None:
        """Remember a VM that no host was left for; forget it when a host is."""
        vm = record.get("vm", {})
        key = vm.get("id") or vm.get("name", "")
        if record["form"] == "daemon" or record["method"] not in SELECTING or not key:
            return
        before = self._homeless.pop(key, None)
        if outcome is RequestOutcome.NO_HOST_LEFT and len(self._homeless) < _MOST_HOMELESS:
            since, times = (time, 0) if before is None else (before.since, before.times)
            because = outcomes.outcome(record)
            self._homeless[key] = Homeless(vm.get("name") or key, since, time, times + 1, because)

    def homeless(self, now: float) -> list[Homeless]:
        """The VMs that no host was left for within the last hour, when they were asked for last."""
        with self._lock:
            homeless = [vm for vm in self._homeless.values() if vm.latest > now - _HOUR]
        return sorted(homeless, key=lambda vm: vm.since)

    def add_shadows(self, record: Record, time: float) -> None:
        """Count the units in shadow of a decision that was counted without; ``time`` as above."""
        removed, would_be = _removed_hosts(record), ranking.with_shadows(record).items()
        decisive = {
            name for name, totals in would_be if ranking.instead(record, totals) is not None
        }
        with self._lock:
            self._add_units(record, "shadow", removed, decisive, time)

    def _add_units(
        self, record: Record, mode: str, removed: Counter[str], decisive: set[str], time: float
    ) -> None:
        """Count the units that are live, or those in shadow.

        Args:
            removed: how many hosts each unit removed.
            decisive: the units without which, or in shadow with which, another host had won.
        """
        for unit in record["units"]:
            if unit.get("mode", "live") != mode:
                continue
            was_called, key = unit["outcome"] != NOT_ASKED, (unit["name"], unit["kind"])
            if not was_called and mode == "live":
                continue
            if key not in self._units:
                self._units[key] = UnitTally(*key)
            tally = self._units[key]
            if was_called:
                _add_call(tally, unit, record, time)
                tally.hosts_removed[mode] += removed[unit["name"]]
                tally.decisive[mode] += unit["name"] in decisive
            else:  # it was skipped
                tally.outcomes[NOT_ASKED, mode] += 1

    def units(self) -> Sequence[UnitTally]:
        """Those that were called since the start, in the order of their names."""
        with self._lock:
            return [_copied(tally) for _, tally in sorted(self._units.items())]

    def unit(self, name: str, kind: str) -> UnitTally:
        """The calls of one; empty if there was none."""
        with self._lock:
            return _copied(self._units.get((name, kind)) or UnitTally(name, kind))


def _removed_hosts(record: Record) -> Counter[str]:
    """How many hosts each unit removed, or in shadow would have."""
    return Counter(
        verdict["unit"]
        for host in record["hosts"]
        for verdict in host.get("verdicts", ())
        if verdict.get("verdict") == REMOVED
    )


def _copied(tally: UnitTally) -> UnitTally:
    """A copy, because nobody can iterate a dict while another thread adds to it."""
    return replace(
        tally,
        outcomes=tally.outcomes.copy(),
        hosts_removed=tally.hosts_removed.copy(),
        decisive=tally.decisive.copy(),
    )


def _add_call(tally: UnitTally, unit: UnitRecord, record: Record, time: float) -> None:
    outcome, seconds = unit["outcome"], unit.get("milliseconds", 0.0) / 1000
    failed = outcome != OK
    tally.checksum = unit["checksum"]
    tally.outcomes[outcome, unit.get("mode", "live")] += 1
    tally.times.add(Exemplar(record["id"], seconds, time))
    tally.recent.append(seconds)
    minute = int(time // 60)
    if minute not in tally.minutes:
        for old in [each for each in tally.minutes if each <= minute - MINUTES]:
            del tally.minutes[old]
    calls, failures = tally.minutes.get(minute, (0, 0))
    tally.minutes[minute] = calls + 1, failures + failed
    if failed:
        message = with_names(unit.get("message", outcome), outcomes.names_by_id(record))
        tally.last_error, tally.last_error_at = message, time
        tally.last_error_decision = record["id"]
        if tally.failing_since is None:
            tally.failing_since = time
    else:
        tally.failing_since = None
    notes = unit["notes"] if unit.get("corrected") else []
    if ranking.has_no_effect(record, unit):
        notes = [*notes, f"{unit['name']} has no effect: each cost was cut to the same bound"]
    tally.corrected_since = (tally.corrected_since or time) if notes else None
    if notes:
        tally.last_note = with_names("; ".join(notes), outcomes.names_by_id(record))
