"""The goals, each a ratio within one run, and whether they are met."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Callable, Optional, Sequence

from bench.measurement import Row, quotient

_MIB = 1 << 20
_NOISE = 0.95  # of a throughput: less is a fall
_LINEAR = 1.25  # times as much as in proportion


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
    return [*_of_ids(rows), *_of_clients(rows), *_of_documents(rows), *_of_the_whole(rows)]


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


def _of_ids(rows: Sequence[Row]) -> list[Goal]:
    goals = []
    for name in (
        "1 filter, 10 ids",
        "1 filter that prints its answer, 10 ids",
        "1 function filter, 10 ids",
    ):
        row = _row(rows, name)
        goals.append(_goal(f"{name}: median above a no-op call", _above_floor(row), 1.0, " ms"))
        if row is not None:
            spread = quotient(row.daemon.p99, row.daemon.median)
            goals.append(_goal(f"{name}: p99 over median", spread, 4, " ×"))
    for name, bound in (("1 filter, 10 ids", 40), ("5 filters, 10 ids", 50)):
        row = _row(rows, name)
        gain = row.gain if row else None
        goals.append(_goal(f"{name}: faster than a fresh process", gain, bound, " ×", operator.ge))
    goals.append(_growth(rows, "1 filter, {:,} ids", 10, 1000, 10000))
    return goals


def _of_clients(rows: Sequence[Row]) -> list[Goal]:
    by_clients = {row.clients: row for row in rows if row.group == "clients"}
    fresh = {count: row.fresh for count, row in by_clients.items() if row.fresh}
    goals = []
    for count in (8, 32, 128):
        row = by_clients.get(count)
        gain = None
        what = f"{count} clients: throughput over a fresh process"
        if row is not None and fresh:
            nearest = min(fresh, key=lambda measured: abs(measured - count))
            what += "" if nearest == count else f" (at {nearest})"
            gain = quotient(row.daemon.throughput, fresh[nearest].throughput)
        goals.append(_goal(what, gain, 25, " ×", operator.ge))
    eight, most = by_clients.get(8), by_clients.get(128)
    kept = eight and most and quotient(most.daemon.throughput, eight.daemon.throughput)
    goals.append(_goal("throughput at 128 clients over that at 8", kept, _NOISE, " ×", operator.ge))
    failed = [row.daemon.failed for row in rows if row.daemon.calls]
    goals.append(_goal("failed calls, all scenarios", sum(failed) if failed else None, 0, ""))
    return goals


def _of_documents(rows: Sequence[Row]) -> list[Goal]:
    thousand = _row(rows, "5 filters, 1,000 hosts as XML")
    largest = _row(rows, "5 filters, 5,000 hosts as XML")
    rest = _row(rows, "at rest, just started")
    factor = None
    if largest and rest and largest.daemon.memory and rest.daemon.memory:
        factor = (largest.daemon.memory - rest.daemon.memory) / largest.document
    return [
        _goal(
            "5 filters, 1,000 hosts as XML: over decoding and one reading",
            thousand.ratio if thousand else None,
            1.5,
            " ×",
        ),
        _growth(rows, "5 filters, {:,} hosts as XML", 10, 1000, 5000),
        _goal("5,000 hosts: peak memory above rest, in documents", factor, 12, " ×"),
    ]


def _of_the_whole(rows: Sequence[Row]) -> list[Goal]:
    goals = []
    for name in ("first start, the certificate is made", "start, sample plugins"):
        row = _row(rows, name)
        goals.append(_goal(name, row.daemon.median if row else None, 1.0, " s"))
    for name in ("at rest, just started", "at rest, after all of this"):
        row = _row(rows, name)
        memory = row.daemon.memory / _MIB if row and row.daemon.memory else None
        goals.append(_goal(f"{name}: memory", memory, 100, " MiB"))
    return goals


def _row(rows: Sequence[Row], name: str) -> Optional[Row]:
    return next((row for row in rows if row.name == name), None)


def _above_floor(row: Optional[Row]) -> Optional[float]:
    """Milliseconds."""
    if row is None or row.daemon.median is None or row.floor is None or row.floor.median is None:
        return None
    return (row.daemon.median - row.floor.median) * 1000


def _growth(rows: Sequence[Row], name: str, least: int, middle: int, most: int) -> Goal:
    """The cost of each further one, from the middle to the most, over that below the middle."""
    small, medium, large = (
        found.daemon.median if found else None
        for found in (_row(rows, name.format(count)) for count in (least, middle, most))
    )
    value = None
    if small is not None and medium is not None and large is not None and medium > small:
        value = (large - medium) / (most - middle) / ((medium - small) / (middle - least))
    what = f"{name.format(most)}: cost of each further one, over that up to {middle:,}"
    return _goal(what, value, _LINEAR, " ×")
