"""What the templates of decisions are filled with. A decision is as in contract 8.1."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Iterable, List, Mapping, Sequence, cast

from ovirt_scheduler.history import explanation, ranking
from ovirt_scheduler.history.ranking import Decision
from ovirt_scheduler.model.units import Kind

View = Dict[str, Any]

_WHAT = {
    "runFilters": "Filters",
    "runCostFunctions": "Cost functions",
    "runLoadBalancing": "Balance",
    "selectHost": "Selection of a host",
    "hasAnyHosts": "Whether any host fits",
    "loadBalance": "Load balancing",
    "onTimerInvoked": "Timer",
    "onVmStatusChanged": "Status of a VM changed",
    "onHostStatusChanged": "Status of a host changed",
}
_VERDICTS = {
    "passed": ("passed", "good"),
    "removed": ("removed", "bad"),
    "failed": ("the unit failed", "doubt"),
    "never asked": ("not asked", "quiet"),
}
_NOTHING = ("-", "quiet")
_MOST_HOSTS = 1000  # of a decision, and lines on it, on its page


def summaries(decisions: Iterable[Decision]) -> List[View]:
    """A row of a list of decisions for each."""
    return [explanation.cleaned(_summary(decision)) for decision in decisions]


def decision(of: Decision) -> View:
    """All that the page of one decision shows."""
    found = ranking.ranking(of)
    columns = [unit for unit in of.get("units", ()) if unit.get("kind") in _COLUMNS]
    hosts = explanation.in_order(of)
    view = {
        **{name: value for name, value in of.items() if name not in ("hosts", "answer")},
        **_summary(of),
        "ranked": bool(found.totals),
        "columns": columns,
        "rows": [_row(host, columns, found) for host in hosts[:_MOST_HOSTS]] if columns else (),
        "left_out": max(0, len(hosts) - _MOST_HOSTS),
        "sentences": [
            line.text.strip() for line in itertools.islice(explanation.lines(of), 2, _MOST_HOSTS)
        ],
    }
    return cast("View", explanation.cleaned(view))


_COLUMNS = (Kind.FILTER.words, Kind.COST_FUNCTION.words)


def _summary(of: Decision) -> View:
    failed = explanation.failed_units(of)
    came_to = explanation.outcome(of)
    if failed and "failed" not in came_to:
        came_to += f"; {', '.join(failed)} failed"
    bad = failed or of.get("errors") or (of.get("hosts") and of.get("answer") == [])
    return {
        "id": of["id"],
        "time": of.get("time", ""),
        "moment": explanation.when(of),
        "what": _WHAT.get(of.get("method", ""), of.get("method", "A call")),
        "vm": explanation.vm_name(of) if of.get("vm") else "",
        "came_to": came_to,
        "state": "bad" if bad else "good",
        "milliseconds": of.get("milliseconds"),
    }


def _row(
    host: Mapping[str, Any], columns: Sequence[Mapping[str, Any]], found: ranking.Ranking
) -> View:
    """What was said of a host, in a table whose columns are units."""
    verdicts = {each["unit"]: each for each in host.get("verdicts", ())}
    costs = {each["unit"]: each for each in host.get("costs", ())}
    return {
        "host": host.get("name") or host["id"],
        "rank": found.places.get(host["id"], "-"),
        "total": found.totals.get(host["id"], "-"),
        "chosen": host["id"] == found.best,
        "cells": [_cell(unit, verdicts, costs) for unit in columns],
    }


def _cell(
    unit: Mapping[str, Any], verdicts: Mapping[str, Decision], costs: Mapping[str, Decision]
) -> View:
    name = unit["name"]
    if unit["kind"] == Kind.FILTER.words:
        verdict = verdicts.get(name, {})
        text, mood = _VERDICTS.get(verdict.get("verdict", ""), _NOTHING)
        return {"text": text, "mood": mood, "reason": verdict.get("reason", "")}
    cost = costs.get(name)
    if cost is None:
        mood = "doubt" if explanation.has_failed(unit) else "quiet"
        return {"text": "-", "mood": mood, "reason": ""}
    counted = cost.get("held", cost["cost"])
    held = f", held; the unit said {cost['cost']}" if counted != cost["cost"] else ""
    text = f"{cost['weighted']} = {cost['factor']} × {counted}{held}"
    return {"text": text, "mood": "plain", "reason": cost.get("reason", "")}


def failures(decisions: Iterable[Decision], name: str) -> List[View]:
    """The calls of a unit that failed, as its page and its JSON show them."""
    found = [
        {
            "decision": of["id"],
            "time": of["time"],
            "moment": explanation.when(of),
            "message": unit.get("message", unit["outcome"]),
        }
        for of in decisions
        for unit in of.get("units", ())
        if unit["name"] == name and explanation.has_failed(unit)
    ]
    return cast("List[View]", explanation.cleaned(found))
