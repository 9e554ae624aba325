"""The goals, each measured within one run, and whether they are met."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from bench.measurement import Row, quotient
from bench.scenarios import (
    AFTER_ALL,
    EACH_PLUGIN,
    EACH_PLUGIN_AFTER,
    HEAVY,
    LARGEST_PLUGIN,
    MANY_START,
    SAMPLES_START,
    SINGLE,
    TOLD,
)

_MB = 10**6
_NOISE = 0.9  # of a throughput: less is a fall
_LINEAR = 1.25  # times as much as in proportion
_CLIENTS = (8, 32, 128)

# Filters, hosts, and how many times decoding and one reading they may take.
_DOCUMENTS = ((1, 10, 2.5), (5, 10, 3.5), (5, 100, 1.8), (5, 1000, 1.4), (5, 5000, 1.25))

# Milliseconds of the median above a call that does nothing.
_ABOVE_NOOP = (
    ("1 filter, 10 ids", 0.7),
    ("1 filter that prints its answer, 10 ids", 0.7),
    ("1 function filter, 10 ids", 0.7),
    ("5 filters, 10 ids", 3.0),
    ("20 filters, 10 ids", 10.0),
    (TOLD, 2.5),
    (SINGLE, 3.0),
)


@dataclass(frozen=True)
class Goal:
    """``met`` is None where the run did not measure it."""

    what: str
    wanted: str
    measured: str
    met: Optional[bool]

    @property
    def verdict(self) -> str:
        return {True: "pass", False: "short", None: "not measured"}[self.met]


def judge(rows: Sequence[Row]) -> list[Goal]:
    named = {row.name: row for row in rows}
    return [
        *_of_calls(named),
        *_of_clients(rows),
        *_of_ids(named),
        *_of_documents(named),
        _slower_than_before(rows),
        *_of_the_whole(named),
        _failed(rows),
    ]


def _goal(
    what: str,
    value: Optional[float],
    bound: float,
    unit: str,
    holds: Callable[[float, float], bool] = operator.le,
) -> Goal:
    words = "at most" if holds is operator.le else "at least"
    measured = "" if value is None else f"{value:.3g}{unit}"
    met = None if value is None else bool(holds(value, bound))
    return Goal(what, f"{words} {bound:g}{unit}", measured, met)


def _of_calls(named: dict[str, Row]) -> list[Goal]:
    goals = []
    for name, bound in _ABOVE_NOOP:
        above = named[name].above_noop if name in named else None
        milliseconds = None if above is None else above * 1000
        goals.append(_goal(f"{name}: median above a no-op call", milliseconds, bound, " ms"))
    for name, bound in (("1 filter, 10 ids", 90), ("5 filters, 10 ids", 100)):
        gain = named[name].gain if name in named else None
        goals.append(_goal(f"{name}: faster than a fresh process", gain, bound, " ×", operator.ge))
    row = named.get(HEAVY)
    heavier = row and quotient(row.daemon.median, row.light and row.light.median)
    goals.append(_goal(f"{HEAVY}: over one that imports the SDK", heavier, 1.2, " ×"))
    row = named.get("1 filter, 10 ids")
    used = row.daemon.processor if row else None
    goals.append(
        _goal(
            "1 filter, 10 ids: processor time, daemon and all below it",
            None if used is None else used * 1000,
            1.2,
            " ms",
        )
    )
    spread = row and quotient(row.daemon.p99, row.daemon.median)
    goals.append(_goal("1 filter, 10 ids: p99 over median", spread, 3, " ×"))
    return goals


def _of_clients(rows: Sequence[Row]) -> list[Goal]:
    by_clients = {row.clients: row for row in rows if row.group == "clients"}
    fresh = {count: row.fresh for count, row in by_clients.items() if row.fresh}
    goals = []
    for count in _CLIENTS:
        row = by_clients.get(count)
        gain = None
        what = f"{count} clients: throughput over a fresh process"
        if row is not None and fresh:
            nearest = min(fresh, key=lambda measured: abs(measured - count))
            what += "" if nearest == count else f" (at {nearest})"
            gain = quotient(row.daemon.throughput, fresh[nearest].throughput)
        goals.append(_goal(what, gain, 80, " ×", operator.ge))
    eight, most = by_clients.get(8), by_clients.get(128)
    kept = eight and most and quotient(most.daemon.throughput, eight.daemon.throughput)
    goals.append(_goal("throughput at 128 clients over that at 8", kept, _NOISE, " ×", operator.ge))
    return goals


def _of_ids(named: dict[str, Row]) -> list[Goal]:
    name = "1 filter, {:,} ids"
    row = named.get(name.format(10000))
    return [
        _goal(
            f"{name.format(10000)}: over its limit, a call that only decodes and encodes them",
            row and row.ratio,
            2,
            " ×",
        ),
        _growth(named, name, 10, 1000, 10000),
    ]


def _of_documents(named: dict[str, Row]) -> list[Goal]:
    goals = []
    for units, hosts, bound in _DOCUMENTS:
        name = f"{units} filter{'s' if units > 1 else ''}, {hosts:,} hosts as XML"
        row = named.get(name)
        goals.append(
            _goal(f"{name}: over decoding and one reading", row and row.ratio, bound, " ×")
        )
    return goals


def _slower_than_before(rows: Sequence[Row]) -> Goal:
    """Of the documents, the size that gained least."""
    gains = {
        row.name: row.gain_over_before
        for row in rows
        if row.group in ("filter", "cost function") and row.gain_over_before is not None
    }
    what = "hosts as XML, the size that gained least: faster than the version before"
    if not gains:
        return _goal(what, None, 1, " ×", operator.ge)
    least = min(gains, key=lambda name: gains[name])
    return _goal(f"{what} ({least})", gains[least], 1, " ×", operator.ge)


def _of_the_whole(named: dict[str, Row]) -> list[Goal]:
    goals = []
    for name in (SAMPLES_START, MANY_START):
        row = named.get(name)
        goals.append(_goal(name, row.daemon.median if row else None, 1.0, " s"))
    for name, bound in (
        (AFTER_ALL, 110),
        (EACH_PLUGIN, 8),
        (EACH_PLUGIN_AFTER, 8),
        (LARGEST_PLUGIN, 8),
    ):
        row = named.get(name)
        memory = row.daemon.memory / _MB if row and row.daemon.memory is not None else None
        goals.append(_goal(f"{name}: memory", memory, bound, " MB"))
    return goals


def _failed(rows: Sequence[Row]) -> Goal:
    failed = [
        row.daemon.failed + bool(row.daemon.problem)
        for row in rows
        if row.daemon.calls or row.daemon.failed or row.daemon.problem
    ]
    return _goal("failed calls, all scenarios", sum(failed) if failed else None, 0, "")


def _growth(named: dict[str, Row], name: str, least: int, middle: int, most: int) -> Goal:
    """The cost of each further one, from the middle to the most, over that below the middle."""
    small, medium, large = (
        found.daemon.median if found else None
        for found in (named.get(name.format(count)) for count in (least, middle, most))
    )
    value = None
    if small is not None and medium is not None and large is not None and medium > small:
        value = (large - medium) / (most - middle) / ((medium - small) / (middle - least))
    what = f"{name.format(most)}: cost of each further one, over that up to {middle:,}"
    return _goal(what, value, _LINEAR, " ×")
