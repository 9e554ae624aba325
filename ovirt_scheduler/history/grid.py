"""Hosts × units as a table: each verdict, each cost, total and rank. Pure, as ``explanation``."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ovirt_scheduler.history import explanation, ranking
from ovirt_scheduler.history.ranking import Decision
from ovirt_scheduler.model.units import Kind

_NOTHING = "-"  # a filter that was never asked, a cost function that did not score the host


def grid(decisions: Sequence[Decision]) -> Tuple[List[str], List[List[str]]]:
    """Headings and rows; decisions on the same hosts share a row for each host.

    A filter's cell has its verdict, a cost function's its cost before it is multiplied. The best
    hosts stand first, those that were removed last.

    Args:
        decisions: in the order of their times, ``explanation.cleaned``.
    """
    columns = [(each, unit) for each in decisions for unit in _columns(each)]
    scored = [found for found in map(ranking.ranking, decisions) if found.totals][-1:]
    names = explanation.host_names(decisions)
    cells = [_cells(*column) for column in columns]
    out = {host for decision in decisions for host in explanation.removed(decision)}
    places = scored[0].places if scored else {}
    rows = []
    for host in sorted(names, key=lambda each: (each in out, places.get(each, len(names)))):
        row = [names[host], *(of_unit.get(host, _NOTHING) for of_unit in cells)]
        for found in scored:
            row += [str(found.totals.get(host, _NOTHING)), str(places.get(host, _NOTHING))]
        rows.append(row)
    headings = ["HOST", *(_heading(unit) for _, unit in columns)]
    return headings + (["TOTAL", "RANK"] if scored else []), rows


def _columns(decision: Decision) -> List[Mapping[str, Any]]:
    kinds = (Kind.FILTER.words, Kind.COST_FUNCTION.words)
    return [unit for unit in decision.get("units", ()) if unit.get("kind") in kinds]


def _heading(unit: Mapping[str, Any]) -> str:
    factor = f" ×{unit['factor']}" if "factor" in unit else ""
    return f"{unit['name']}{factor}{' (shadow)' if unit.get('mode') == 'shadow' else ''}"


def _cells(decision: Decision, unit: Mapping[str, Any]) -> Dict[str, str]:
    """Host to what one unit said of it."""
    part, key = ("verdicts", "verdict") if unit["kind"] == Kind.FILTER.words else ("costs", "cost")
    found = {
        host["id"]: str(entry.get(key, _NOTHING))
        for host in decision.get("hosts", ())
        for entry in host.get(part, ())
        if entry["unit"] == unit["name"]
    }
    return {host: _NOTHING if word == "never asked" else word for host, word in found.items()}
