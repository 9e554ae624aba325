"""Explains how a VM was placed, in lines and as a table. Pure, like ``explanation``.

An engine places a VM by two calls, seconds apart: it asks filters, then cost functions on the
hosts that these filters and its own left. A balance that chose the VM may have come before. The
engine does not say which host it takes; who wants to know asks it later where the VM runs.

The daemon asks its scheduler what to migrate, then filters and cost functions about each VM of the
answer, and then maybe the scheduler once more.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable, Optional, Union

from ovirt_scheduler.history import explanation, outcomes, query, ranking
from ovirt_scheduler.history.explanation import Line, Tone
from ovirt_scheduler.history.record import (
    NEVER_ASKED,
    NOT_ASKED,
    Cost,
    Host,
    Record,
    UnitRecord,
    Verdict,
)
from ovirt_scheduler.model.units import Kind

FILTERS, COSTS, BALANCE = (kind.method for kind in Kind)
_MIGRATES = (
    BALANCE, "loadBalance", "onTimerInvoked", "onVmStatusChanged", "onHostStatusChanged"
)  # fmt: skip

_NOTHING = "-"  # a filter that was never asked, a cost function that did not score the host
_NOT_TOLD = "The engine does not say which host it took."
_NEAR = 10  # decisions on a VM, among which those of one placement are looked for
_SECONDS = 120  # for which an engine waits for an answer (contract 1.2): what is later, is another


def of_last(summaries: Sequence[Record], read: Callable[[str], Optional[Record]]) -> list[Record]:
    """The calls of the last placement, the oldest first.

    A hook or a timer that moved nothing is none, nor what the engine asked because this daemon
    asked it where it would migrate the VM; unless nothing else is there. Any other call on the VM
    in between parts two placements.

    Args:
        summaries: of the decisions on one VM, the newest first.
        read: gives the decision of an id; None if it is gone.
    """
    placement: list[Record] = []
    idle: Optional[Record] = None
    for summary in summaries:
        if len(placement) > 1 and placement[0]["method"] in _MIGRATES:
            break  # with this it began
        if placement and not _are_near(summary, placement[0]):
            break
        decision = read(summary["id"])
        if decision is None:
            continue
        moved_nothing = decision["method"] in _MIGRATES and not decision.get("answer")
        if moved_nothing or decision.get("beforehand"):
            idle = idle or decision
            continue
        if placement and not _leads_to(decision, placement[0]):
            break
        placement.insert(0, decision)
    return placement or ([] if idle is None else [idle])


def around(
    decision: Record,
    search: Callable[[query.Query], Sequence[Record]],
    read: Callable[[str], Optional[Record]],
) -> list[Record]:
    """The calls of the placement that a decision belongs to, the oldest first.

    Args:
        search: finds summaries, the newest first.
        read: as for ``of_last``.
    """
    vm = decision.get("vm", {})
    identity, at = vm.get("id") or vm.get("name"), query.moment(decision["time"])
    if not identity:
        return [decision]
    near = search(
        query.Query(
            vm=identity, since=at - _SECONDS, until=at + _SECONDS, limit=_NEAR, brief=True
        )
    )  # fmt: skip
    reads = functools.lru_cache(None)(read)
    for start in range(len(near)):
        calls = of_last(near[start:], reads)
        if decision["id"] in [call["id"] for call in calls]:
            return calls
    return [decision]


def lines(decisions: Sequence[Record], host: Optional[str] = None, now: str = "") -> Iterator[Line]:
    """All lines about calls that belong together.

    Args:
        decisions: from ``of_last``, ``explanation.cleaned``.
        host: the id of a host, for lines about only that host.
        now: a sentence on where the VM runs now.
    """
    for before, decision in zip((None, *decisions), decisions):
        if before is not None:
            yield from _between(before, decision, host)
        if host is None or host in outcomes.host_names([decision]):
            yield from explanation.lines(decision, host)
    last = decisions[-1]
    if host is None or host in (last.get("answer") or ()):
        yield from (Line(text) for text in _afterwards(last) if not (now and text == _NOT_TOLD))
    if now:
        yield Line(now)


def place_now(decisions: Sequence[Record], vm: str, host: str, name: str) -> str:
    """A sentence on the host that a VM runs on now: what its last placement came to there.

    Args:
        decisions: as for ``lines``.
        vm, host: their ids.
        name: the host's; empty if it is not known.
    """
    fate = _fate(decisions, vm, host)
    return f"It runs on {name or host} now{f', {fate}' if fate else ''}."


def _fate(decisions: Sequence[Record], vm: str, host: str) -> str:
    """What a placement came to on a host: the best of it, which one, or who removed it."""
    removals = [outcomes.removed(decision).get(host) for decision in decisions]
    if removal := next(filter(None, reversed(removals)), None):
        return f"which {removal['unit']} had removed"
    last = next((each for each in reversed(decisions) if ranking.ranked(each)), decisions[-1])
    if "fault" in last:
        return ""
    if host not in outcomes.host_names([last]):
        return "which was not among the hosts that were asked about"
    return _place(last, host) if ranking.ranked(last) else _place_without_rank(last, vm, host)


def _place(decision: Record, host: str) -> str:
    """A host's place in a decision that ranks hosts."""
    order, best = ranking.ranked(decision), ranking.bests(decision)
    if host in best:
        return f"one of the {len(best)} best hosts" if best[1:] else "the best host of the decision"
    if host not in order:
        return "which no cost function had scored"
    place = explanation.ordinal(ranking.places(decision)[host])
    best_names = outcomes.listed(outcomes.named(decision, best), "or")
    return f"the {place} of {len(order)} hosts; the best was {best_names}"


def _place_without_rank(decision: Record, vm: str, host: str) -> str:
    """What a decision that ranks no host says of one; empty if nothing."""
    answer = decision.get("answer") or ()
    if not isinstance(answer, Mapping):
        return "which the filters had left" if host in answer else ""
    targets = answer.get("hosts" if "vm" in answer else vm)
    if not targets:  # it may go anywhere, or stays
        return ""
    return f"to which it was {'' if host in targets else 'not '}to be migrated"


def _are_near(summary: Record, later: Record) -> bool:
    """Whether it may be a call before this one, by its time."""
    return 0 <= query.moment(later["time"]) - query.moment(summary["time"]) <= _SECONDS


def _leads_to(decision: Record, later: Record) -> bool:
    """Whether the later call was about hosts, or the VM, that this one answered.

    The daemon also calls a scheduler after units, which then learns what they said.
    """
    if decision.get("form") != later.get("form"):  # another caller's
        return False
    if decision["method"] == FILTERS and later["method"] == COSTS:
        return {host["id"] for host in later["hosts"]} <= set(decision.get("answer") or ())
    migrates, units = (decision, later) if decision["method"] in _MIGRATES else (later, decision)
    if migrates["method"] not in _MIGRATES or units["method"] not in (FILTERS, COSTS):
        return False
    moves = migrates.get("answer")
    if not isinstance(moves, dict) or decision.get("cluster") != later.get("cluster"):
        return False
    if "cluster" in decision:
        return "vm" in moves or units.get("vm", {}).get("id") in moves
    return decision["method"] == BALANCE and "vm" in moves


def _between(before: Record, after: Record, host: Optional[str]) -> Iterator[Line]:
    """The hosts that the filters left, except which the engine asked no costs."""
    if before.get("method") != FILTERS:
        return
    scored = {host["id"] for host in after.get("hosts", ())}
    gone = [each for each in before.get("answer") or () if each not in scored]
    called = outcomes.host_names([before])
    names = [called.get(each, each) for each in gone if host in (None, each)]
    if names:
        listed = outcomes.listed(names, "and")
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
    if last.get("beforehand"):
        yield "The engine asked because this daemon had asked it where it would migrate the VM."
        return
    if "fault" in last:
        if last.get("form") == "engine":
            yield "The caller got no answer: an engine goes on without our units."
        return
    if method == FILTERS and not answer:
        yield "The caller was told that no host is fit: an engine places the VM nowhere."
    elif method == FILTERS:
        yield (
            "The caller asked for no costs after that: an engine asks for none if one host is left "
            "to it, or if its policy names no external cost function."
        )
        yield _NOT_TOLD
    elif method == COSTS:
        yield "The engine adds its own weights to these costs, and then takes the best host."
        yield _NOT_TOLD
    elif method == BALANCE and answer:
        yield "Whether it migrates the VM, the engine decides."


def grid(decisions: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows; decisions on the same hosts share a row for each host.

    A filter's cell has its verdict, a cost function's its cost as it counts, before it is
    multiplied. The best hosts stand first, those that were removed last; there are ``MOST_HOSTS``
    at most.

    Args:
        decisions: in the order of their times, ``explanation.cleaned``.
    """
    shown = [({host["id"]: host for host in each["hosts"]}, columns(each)) for each in decisions]
    if not any(units for _, units in shown):  # a scheduler's choice is told line by line
        return [], []
    names = outcomes.host_names(decisions)
    out = {host for decision in decisions for host in outcomes.removed(decision)}
    last: dict[str, Host] = {}
    for hosts, _ in shown:
        for key, host in hosts.items():
            if "rank" in host or "rank" not in last.get(key, {}):
                last[key] = host
    ranks = {key: place for each in decisions for key, place in ranking.places(each).items()}
    rows = []
    in_order = sorted(last, key=lambda key: (key in out, last[key].get("rank", len(last))))
    for key in in_order[: explanation.MOST_HOSTS]:
        cells = [_cell(unit, hosts.get(key, {})) for hosts, units in shown for unit in units]
        if ranks:
            cells += [str(last[key].get("total", _NOTHING)), str(ranks.get(key, _NOTHING))]
        rows.append([names[key], *cells])
    headings = [_heading(unit) for _, units in shown for unit in units]
    return ["HOST", *headings, *(("TOTAL", "RANK") if ranks else ())], rows


def columns(decision: Record) -> list[UnitRecord]:
    """The units with a verdict or cost for a host: filters and cost functions that were asked.

    A filter that is not there has verdicts, too, where its conf file has it reject all hosts.
    """
    kinds = (Kind.FILTER.label, Kind.COST_FUNCTION.label)
    of_hosts = [unit for unit in decision.get("units", ()) if unit.get("kind") in kinds]
    return [
        unit for unit in of_hosts if unit.get("outcome") != NOT_ASKED
        or any(_cell(unit, host) != _NOTHING for host in decision["hosts"])
    ]  # fmt: skip


def _heading(unit: UnitRecord) -> str:
    factor = f" ×{unit['factor']}" if "factor" in unit else ""
    return f"{unit['name']}{factor}{' (shadow)' if unit.get('mode') == 'shadow' else ''}"


def entry_of(unit: UnitRecord, host: Host) -> Union[Verdict, Cost, None]:
    """A unit's verdict or cost for a host; None if it gave none."""
    is_filter = unit["kind"] == Kind.FILTER.label
    entries = host.get("verdicts", ()) if is_filter else host.get("costs", ())
    return next((each for each in entries if each["unit"] == unit["name"]), None)


def _cell(unit: UnitRecord, host: Host) -> str:
    """What a unit said of a host."""
    entry = entry_of(unit, host) or {}
    word = entry.get("verdict", entry.get("held", entry.get("cost", NEVER_ASKED)))
    return _NOTHING if word == NEVER_ASKED else str(word)
