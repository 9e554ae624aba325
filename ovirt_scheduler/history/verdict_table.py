"""Hosts × units as a table: each verdict, each cost, total and rank. Pure, as ``explanation``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ovirt_scheduler.history import explanation
from ovirt_scheduler.history.ranking import Record
from ovirt_scheduler.history.record import NEVER_ASKED
from ovirt_scheduler.model.units import Kind

_NOTHING = "-"  # a filter that was never asked, a cost function that did not score the host


def grid(decisions: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows; decisions on the same hosts share a row for each host.

    A filter's cell has its verdict, a cost function's its cost before it is multiplied. The best
    hosts stand first, those that were removed last; there are ``MOST_HOSTS`` at most.

    Args:
        decisions: in the order of their times, ``explanation.cleaned``.
    """
    units = [(each, unit) for each in decisions for unit in columns(each)]
    names = explanation.host_names(decisions)
    cells = [_cells(*each) for each in units]
    out = {host for decision in decisions for host in explanation.removed(decision)}
    last = {host["id"]: host for decision in decisions for host in decision["hosts"]}
    scored = ("total", "rank") if any("rank" in host for host in last.values()) else ()
    rows = []
    in_order = sorted(last, key=lambda each: (each in out, last[each].get("rank", len(last))))
    for key in in_order[: explanation.MOST_HOSTS]:
        told = [*(of_unit.get(key) for of_unit in cells), *(last[key].get(part) for part in scored)]
        rows.append([names[key], *(_NOTHING if word is None else str(word) for word in told)])
    headings = ["HOST", *(_heading(unit) for _, unit in units), *map(str.upper, scored)]
    return headings, rows


def columns(decision: Record) -> list[Record]:
    """The units with a verdict or cost for each host: filters and cost functions."""
    kinds = (Kind.FILTER.words, Kind.COST_FUNCTION.words)
    return [unit for unit in decision.get("units", ()) if unit.get("kind") in kinds]


def _heading(unit: Record) -> str:
    factor = f" ×{unit['factor']}" if "factor" in unit else ""
    return f"{unit['name']}{factor}{' (shadow)' if unit.get('mode') == 'shadow' else ''}"


def said(unit: Record, host: Record) -> Optional[Record]:
    """A unit's verdict or cost for a host; None if it gave none."""
    part = "verdicts" if unit["kind"] == Kind.FILTER.words else "costs"
    return next((each for each in host.get(part, ()) if each["unit"] == unit["name"]), None)


def _cells(decision: Record, unit: Record) -> dict[str, object]:
    """Host to one unit's verdict or cost."""
    cells = {}
    for host in decision.get("hosts", ()):
        entry = said(unit, host) or {}
        word = entry.get("verdict", entry.get("cost", NEVER_ASKED))
        cells[host["id"]] = None if word == NEVER_ASKED else word
    return cells
