"""Explains a decision in sentences: which unit removed a host, and why another host is the best.

Pure: a decision is a ``Record``, and lines of text come out. Names, reasons and
messages come from plugins and callers, so a decision is ``cleaned`` first.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Collection, Container, Iterator, Mapping
from typing import NamedTuple, Optional, TypeVar, Union, cast

from ovirt_scheduler.history import outcomes, query, ranking
from ovirt_scheduler.history.record import (
    NOT_ASKED,
    OK,
    PASSED,
    REMOVED,
    Cost,
    Entity,
    Host,
    Record,
    UnitRecord,
    Verdict,
)
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values.text import count_of, each_text, with_names

_T = TypeVar("_T")

MOST_HOSTS = 100  # that are told of at once, the best first

_DRIVERS = ("scheduler", "driver")  # kinds of units
_ENDED = {
    "raised": "raised an error",
    "killed": "was killed",
    "bad answer": "gave a bad answer",
    "refused": "did not run",
}


class Tone(enum.Enum):
    """The kind of a line, by which it is coloured."""

    PLAIN = "plain"
    HEADING = "heading"
    GOOD = "good"  # the best host
    BAD = "bad"  # a host is out
    TROUBLE = "trouble"  # something failed


class Line(NamedTuple):
    """One line of an explanation, with its tone for a terminal or a page."""

    text: str
    tone: Tone = Tone.PLAIN


def cleaned(value: _T) -> _T:
    """The decision, with each text on one line and without characters that steer a terminal."""
    return cast("_T", each_text(value, printable))


def lines(decision: Record, host: Optional[str] = None) -> Iterator[Line]:
    """All that is to be told of one decision.

    Args:
        decision: ``cleaned``.
        host: the id of the only host to tell of; None: of ``MOST_HOSTS``.
    """
    at = when(decision["time"])
    yield Line(f"{at}  {heading(decision)}", Tone.HEADING)
    yield Line(f"  {_circumstances(decision)}")
    decisive = _decisive(decision) if host is None else ()
    for line in (*_HostLines(decision).lines(host), *_of_units(decision), *decisive):
        yield Line(f"  {line.text}", line.tone)


def when(text: str) -> str:
    """A record's time, in this machine's time zone: ``2026-01-31 12:00:00``."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(query.moment(text)))


def heading(decision: Record) -> str:
    """The call and its outcome, in one sentence."""
    moved = isinstance(decision.get("answer"), Mapping)  # the answer names what is migrated
    subject = f" for VM {vm_name(decision)}" if decision.get("vm") and not moved else ""
    cluster = f" of cluster {decision['cluster']}" if decision.get("cluster") else ""
    drivers = (each["name"] for each in decision.get("units", ()) if each.get("kind") in _DRIVERS)
    of_drivers = "".join(f" of {name}" for name in drivers)
    method = decision.get("method", "a call")
    return f"{method}{of_drivers}{subject}{cluster}: {outcomes.outcome(decision)}"


def in_order(decision: Record) -> list[Host]:
    """The hosts: the best first, those that filters removed last."""
    hosts, out = decision["hosts"], outcomes.removed(decision)
    return sorted(hosts, key=lambda host: (host["id"] in out, host.get("rank", len(hosts) + 1)))


def why(decision: Record) -> dict[str, str]:
    """For a table's cell on each host: ``MaxVms: runs 12 VMs``, or the sum of the host's costs."""
    out, shadows = outcomes.removed(decision), ranking.shadows(decision, Kind.COST_FUNCTION)
    filters = {unit["name"] for unit in ranking.units_of(decision, Kind.FILTER)}
    looking_on = {unit["name"] for unit in decision["units"] if unit.get("mode") == "shadow"}

    def of(host: Host) -> str:
        if host["id"] in out:
            return _with_reason(out[host["id"]])
        costs = " + ".join(
            f"{_share(cost)} ({cost['reason']})" if cost.get("reason") else _share(cost)
            for cost in ranking.scores(host)
            if cost["unit"] not in shadows
        )
        reasons = (
            _with_reason(verdict)
            for verdict in host.get("verdicts", ())
            if verdict.get("reason") and verdict["unit"] not in looking_on
            if not (costs and verdict["unit"] in filters)
        )
        return "; ".join(filter(None, (costs, *reasons)))

    return {host["id"]: of(host) for host in decision.get("hosts", ())}


def is_plain(decision: Record) -> bool:
    """Whether one unit decided alone and gave no reasons, so that its answer says it all.

    Units in shadow decide nothing.
    """
    units = [unit["name"] for unit in decision.get("units", ()) if unit.get("mode") != "shadow"]
    has_reasons = any(
        entry.get("reason") and entry["unit"] in units
        for host in decision.get("hosts", ())
        for entry in (*host.get("verdicts", ()), *host.get("costs", ()))
    )
    return len(units) < 2 and not has_reasons


def vm_name(decision: Record) -> str:
    """The name of the decision's VM; its id if it has no name."""
    return label(decision.get("vm") or {})


def label(subject: Entity) -> str:
    """The name of a host or a VM; its id if it has no name."""
    return str(subject.get("name") or subject.get("id") or "without a name")


def ordinal(number: int) -> str:
    """The number as a place in a row: 1st, 2nd, 3rd, 11th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 <= number % 100 <= 13 else ending}"


def _circumstances(decision: Record) -> str:
    items = decision.get("properties", {}).items()
    properties = ", ".join(f"{name}={value}" for name, value in items)
    text = f"decision {decision['id']}, {decision['milliseconds']:.1f} ms"
    if decision.get("caller"):
        text += f", asked by {decision['caller']}"
    if decision.get("beforehand"):
        text += " beforehand: this daemon had asked the engine where it would migrate the VM"
    return f"{text}; properties {properties}" if properties else text


def _of_units(decision: Record) -> Iterator[Line]:
    """Units that failed or were not asked, what was put right, and what is wrong besides."""
    removers = {verdict["unit"] for verdict in outcomes.removed(decision).values()}
    names = outcomes.names_by_id(decision)
    for unit in decision.get("units", ()):
        name, ended = unit["name"], unit.get("outcome", OK)
        because = f": {with_names(unit['message'], names)}" if unit.get("message") else ""
        if outcomes.has_failed(unit):
            effect = _effect(unit, removers)
            yield Line(f"{name} {_ENDED.get(ended, ended)}, {effect}{because}", Tone.TROUBLE)
        elif ended == NOT_ASKED:
            yield Line(f"{name} was not asked{because or ': no host was left for it'}")
        for note in unit.get("notes", ()):
            yield Line(f"note on {name}: {with_names(note, names)}", Tone.TROUBLE)
    for error in decision.get("errors", ()):
        yield Line(f"problem: {with_names(error, names)}", Tone.TROUBLE)


def _effect(unit: UnitRecord, removers: Collection[str]) -> str:
    """The effect of a unit's failure on the hosts."""
    if unit.get("mode") == "shadow":
        return "which counts for nothing (shadow)"
    if unit.get("kind") == Kind.COST_FUNCTION.label:
        return "and added nothing"
    if unit.get("kind") != Kind.FILTER.label:
        return "and decided nothing"
    if unit["name"] in removers:
        return "and accepted no host (on_failure = reject)"
    return "and was left out"


class _HostLines:
    """What is to be told of the hosts, by what follows from the whole decision."""

    def __init__(self, decision: Record) -> None:
        self._in_order = in_order(decision)
        self._removed = outcomes.removed(decision)
        self._places = ranking.places(decision)
        self._others = {
            unit: ranking.places_by(decision, totals)
            for unit, totals in ranking.without_each(decision).items()
        }
        scored = (cost["unit"] for host in self._in_order for cost in ranking.scores(host))
        self._functions = dict.fromkeys(scored)
        self._selects = decision.get("method") != Kind.COST_FUNCTION.method
        self._shadow_filters = ranking.shadows(decision, Kind.FILTER)
        self._shadows = ranking.shadows(decision, Kind.COST_FUNCTION)
        self._filters = {unit["name"] for unit in ranking.units_of(decision, Kind.FILTER)}
        self._counts_costs = bool(ranking.units_of(decision, Kind.COST_FUNCTION))

    def lines(self, only: Optional[str]) -> Iterator[Line]:
        """What each host's fate was, the best first; hosts with the same lines share them.

        Args:
            only: the id of a host, of which alone it is told, and more; None: of ``MOST_HOSTS``.
        """
        shared: dict[Line, list[str]] = {}
        for place, host in enumerate(self._in_order):
            if host["id"] == only or (only is None and place < MOST_HOSTS):
                verdicts = self._verdicts(host, in_full=only is not None)
                for line in (*verdicts, *self._rank(host), *self._costs(host)):
                    shared.setdefault(line, []).append(str(host.get("name") or host["id"]))
        for line, names in shared.items():
            yield Line(f"{', '.join(names)}: {line.text}", line.tone)

    def _verdicts(self, host: Host, in_full: bool) -> Iterator[Line]:
        """The filters' verdicts on a host, and the reasons of balances and schedulers.

        Args:
            in_full: the filters that it passed are named where it has costs or is out, too.
        """
        passed, reasons = [], []
        for entry in host.get("verdicts", ()):
            unit, verdict = entry["unit"], entry.get("verdict")
            if unit in self._shadow_filters:
                if verdict == REMOVED:
                    because = _because(entry)
                    yield Line(f"{unit} would have removed it, and only looks on (shadow){because}")
            elif unit not in self._filters:
                reasons.append(Line(_with_reason(entry)))
            elif verdict == PASSED:
                passed.append(f"{unit} ({entry['reason']})" if entry.get("reason") else unit)
        removal = self._removed.get(host["id"])
        if passed and (in_full or not (removal or host.get("costs"))):
            yield Line(f"passed {outcomes.listed(passed, 'and')}")
        if removal:
            yield Line(f"removed by {_with_reason(removal)}", Tone.BAD)
        yield from reasons

    def _rank(self, host: Host) -> Iterator[Line]:
        """``2nd of 3, cost 14 = EvenVms 2 × 4 + Memory 1 × 6; without Memory it would be 1st``."""
        name, place = host["id"], self._places.get(host["id"])
        total = self._total(host)
        if name in self._removed:
            return
        if place is None:
            if self._selects and total:
                yield Line(f"{total}; it is not in the answer")
            elif self._counts_costs:
                yield Line("no cost function scored it: it is not in the answer", Tone.TROUBLE)
            return
        equals = [*self._places.values()].count(place) - 1
        shared = f", with {count_of(equals, 'other')}" if equals else ""
        ranks = [f"{ordinal(place)} of {len(self._places)}{shared}{f', {total}' if total else ''}"]
        for unit, places in self._others.items() if len(self._others) > 1 else ():
            if name not in places:
                if not self._selects:
                    ranks.append(f"without {unit} it would have no cost")
            elif places[name] != place:
                ranks.append(f"without {unit} it would be {ordinal(places[name])}")
        yield Line("; ".join(ranks), Tone.GOOD if place == 1 else Tone.PLAIN)

    def _total(self, host: Host) -> str:
        """``cost 14 = EvenVms 2 × 4 + Memory 1 × 6``; empty if no cost counts."""
        if "total" not in host:
            return ""
        costs = _sum(host, self._shadows)
        return f"cost {host['total']} = {costs}" if costs else "cost 0: no cost function scored it"

    def _costs(self, host: Host) -> Iterator[Line]:
        """The costs of a host that have a reason, those of units in shadow, and who left it out."""
        costs = {cost["unit"]: cost for cost in host.get("costs", ())}
        if "total" in host and _sum(host, self._shadows):
            for name in self._functions:
                if name not in costs and name not in self._shadows:
                    yield Line(f"{name} leaves it out, which counts as a cost of 0")
        for cost in costs.values():
            because = _because(cost)
            if "cost" not in cost:
                yield Line(f"{cost['unit']} leaves it out{because}")
            elif cost["unit"] in self._shadows:
                yield Line(f"{_share(cost)} would count, but looks on (shadow){because}")
            elif because:
                yield Line(f"{cost['unit']} costs {cost['cost']}{because}")


def _with_reason(verdict: Verdict) -> str:
    """``MaxVms: runs 12 VMs``: a unit, with its reason where it gave one."""
    return f"{verdict['unit']}{_because(verdict)}"


def _because(entry: Union[Verdict, Cost]) -> str:
    return f": {entry['reason']}" if entry.get("reason") else ""


def _sum(host: Host, shadows: Container[str]) -> str:
    """What a host's total is made of; empty if no cost counts."""
    costs = (cost for cost in ranking.scores(host) if cost["unit"] not in shadows)
    return " + ".join(map(_share, costs))


def _share(cost: Cost) -> str:
    """``EvenVms 2 × 4``: a unit, its factor, the host's cost."""
    counted = cost.get("held", cost["cost"])
    clamped = f" (clamped; the unit said {cost['cost']})" if counted != cost["cost"] else ""
    factor, number = (f"({each})" if each < 0 else each for each in (cost["factor"], counted))
    return f"{cost['unit']} {factor} × {number}{clamped}"


def _decisive(decision: Record) -> Iterator[Line]:
    """Which cost functions made the best host the best."""
    bests = ranking.bests(decision)
    for unit, totals in ranking.with_shadows(decision).items():
        others = ranking.bests_by(decision, totals)
        if others or ranking.winner(decision, totals).is_another:
            would = (
                f"{_winners(decision, others)} would be best{', too' if others == bests else ''}"
            )
            yield Line(f"with {unit}, which looks on (shadow), {would}")
    for unit, others in ranking.decisive(decision).items():
        winners = _winners(decision, others)
        yield Line(f"{unit} was decisive: without it {winners} would be best")


def _winners(decision: Record, hosts: list[str]) -> str:
    return outcomes.listed(outcomes.named(decision, hosts), "and") if hosts else "another host"
