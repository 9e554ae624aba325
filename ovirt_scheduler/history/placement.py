"""Explains how a VM was placed, in lines and as a table. Pure, like ``explanation``.

An engine places a VM by two calls, seconds apart: it asks filters, then cost functions on the
hosts that these filters and its own left. A balance that chose the VM may have come before. The
engine does not say which host it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Callable, Optional, Union

from ovirt_scheduler.history import explanation, query
from ovirt_scheduler.history.explanation import Line, Tone
from ovirt_scheduler.history.record import NEVER_ASKED, Cost, Host, Record, Unit, Verdict
from ovirt_scheduler.model.units import Kind

FILTERS, COSTS, BALANCE = (kind.method for kind in Kind)

_NOTHING = "-"  # a filter that was never asked, a cost function that did not score the host
_NOT_TOLD = "The engine does not say which host it took."
_SECONDS = 120  # for which an engine waits for an answer (contract 1.2): what is later, is another


def of_last(summaries: Sequence[Record], read: Callable[[str], Optional[Record]]) -> list[Record]:
    """The calls of the last placement, the oldest first.

    Args:
        summaries: of the decisions on one VM, the newest first.
        read: gives the decision of an id; None if it is gone.
    """
    found: list[Record] = []
    for each in summaries:
        if not found or _may_lead_to(each, found[0]):
            decision = read(each["id"])
            if decision is not None and (not found or _leads_to(decision, found[0])):
                found.insert(0, decision)
    return found


def lines(decisions: Sequence[Record], host: Optional[str] = None) -> Iterator[Line]:
    """All lines about calls that belong together.

    Args:
        decisions: from ``of_last``, ``explanation.cleaned``.
        host: the id of a host, for lines about only that host.
    """
    for before, decision in zip((None, *decisions), decisions):
        if before is not None:
            yield from _between(before, decision, host)
        if host is None or host in explanation.host_names([decision]):
            yield from explanation.lines(decision, host)
    last = decisions[-1]
    if host is None or host in (last.get("answer") or ()):
        yield from map(Line, _afterwards(last))


def _may_lead_to(summary: Record, later: Record) -> bool:
    """Whether it is the call before this one, by its method and its time."""
    seconds = query.moment(later["time"]) - query.moment(summary["time"])
    next_ones = {FILTERS: (COSTS,), BALANCE: (FILTERS, COSTS)}.get(summary["method"], ())
    return 0 <= seconds <= _SECONDS and later["method"] in next_ones


def _leads_to(decision: Record, later: Record) -> bool:
    """Whether the later call was about hosts, or the VM, that this one answered."""
    answer = decision.get("answer")
    if decision["method"] == FILTERS:
        return {host["id"] for host in later["hosts"]} <= set(answer or ())
    return isinstance(answer, dict) and "vm" in answer


def _between(before: Record, after: Record, host: Optional[str]) -> Iterator[Line]:
    """The hosts that the filters left, except which the engine asked no costs."""
    if before.get("method") != FILTERS:
        return
    asked = {each["id"] for each in after.get("hosts", ())}
    gone = [each for each in before.get("answer") or () if each not in asked]
    called = explanation.host_names([before])
    names = [called.get(each, each) for each in gone if host in (None, each)]
    if names:
        listed = explanation.listed(names, "and")
        yield Line(
            f"  {listed}: left by our filters, but the engine asked for no costs: its own "
            "filters removed it",
            Tone.BAD,
        )


def _afterwards(last: Record) -> Iterator[str]:
    """Lines about what the engine, or another caller, decided afterwards."""
    method, answer = last.get("method"), last.get("answer")
    if last.get("form") == "daemon":
        return
    if "fault" in last:
        if last.get("form") == "engine":
            yield "The engine got no answer, and goes on without our units."
        return
    if method == FILTERS and not answer:
        yield "The engine was told that no host is fit: it places the VM nowhere."
    elif method == FILTERS:
        yield (
            "The engine asked for no costs after that: it asks for none if one host is left to it, "
            "or if its policy names no external cost function."
        )
        yield _NOT_TOLD
    elif method == COSTS:
        yield "The engine adds its own weights to these costs, and then takes the best host."
        yield _NOT_TOLD
    elif method == BALANCE and answer:
        yield "Whether it migrates the VM, the engine decides."


def grid(decisions: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows; decisions on the same hosts share a row for each host.

    A filter's cell has its verdict, a cost function's its cost before it is multiplied. The best
    hosts stand first, those that were removed last; there are ``MOST_HOSTS`` at most.

    Args:
        decisions: in the order of their times, ``explanation.cleaned``.
    """
    given = [({host["id"]: host for host in each["hosts"]}, columns(each)) for each in decisions]
    names = explanation.host_names(decisions)
    out = {host for decision in decisions for host in explanation.removed(decision)}
    last = {key: host for hosts, _ in given for key, host in hosts.items()}
    scored = ("total", "rank") if any("rank" in host for host in last.values()) else ()
    rows = []
    in_order = sorted(last, key=lambda each: (each in out, last[each].get("rank", len(last))))
    for key in in_order[: explanation.MOST_HOSTS]:
        cells = [_cell(unit, hosts.get(key, {})) for hosts, units in given for unit in units]
        cells += [str(last[key].get(part, _NOTHING)) for part in scored]
        rows.append([names[key], *cells])
    headings = [_heading(unit) for _, units in given for unit in units]
    return ["HOST", *headings, *map(str.upper, scored)], rows


def columns(decision: Record) -> list[Unit]:
    """The units with a verdict or cost for each host: filters and cost functions."""
    kinds = (Kind.FILTER.label, Kind.COST_FUNCTION.label)
    return [unit for unit in decision.get("units", ()) if unit.get("kind") in kinds]


def _heading(unit: Unit) -> str:
    factor = f" ×{unit['factor']}" if "factor" in unit else ""
    return f"{unit['name']}{factor}{' (shadow)' if unit.get('mode') == 'shadow' else ''}"


def entry_of(unit: Unit, host: Host) -> Union[Verdict, Cost, None]:
    """A unit's verdict or cost for a host; None if it gave none."""
    is_filter = unit["kind"] == Kind.FILTER.label
    entries = host.get("verdicts", ()) if is_filter else host.get("costs", ())
    return next((each for each in entries if each["unit"] == unit["name"]), None)


def _cell(unit: Unit, host: Host) -> str:
    """What a unit said of a host."""
    entry = entry_of(unit, host) or {}
    word = entry.get("verdict", entry.get("cost", NEVER_ASKED))
    return _NOTHING if word == NEVER_ASKED else str(word)
