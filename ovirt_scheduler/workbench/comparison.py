"""Compares decisions that were made again with what they were, and adds up what differs.

A decision comes out the same where its answer and every host's total do. Where it does not, the
units are found that said something else on the same question. Pure: records in, numbers out.
"""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ovirt_scheduler.history import explanation
from ovirt_scheduler.history.record import NEVER_ASKED, NOT_ASKED, Record
from ovirt_scheduler.workbench.replay import Made

_REFUSED = "refused"  # the answer of a request that was refused


class Side(NamedTuple):
    """What one policy made of a decision.

    Attributes:
        answer: as a record has it; ``{"refused": why}`` where there is none.
        winner: the best host, where hosts are ranked or one is selected.
        milliseconds: that the calls of its units took.
        out: the hosts that are not in a filter's answer, or were removed before a selection.
    """

    answer: Any
    winner: Optional[str]
    out: Sequence[str]
    decisive: Sequence[str]
    milliseconds: float


class Difference(NamedTuple):
    """A decision that comes out otherwise; hosts are told by their names.

    Attributes:
        units: that said something else, or were not there before.
        why: lines that tell what became of which host, and by whom.
    """

    id: str
    time: str
    method: str
    vm: str
    old: Any
    new: Any
    units: Sequence[str]
    refused: Sequence[str]  # hosts, newly
    no_host: bool  # is left, where there was one
    winners: Optional[Tuple[str, str]]  # before and after, where they differ
    why: Sequence[str]

    def fields(self) -> Dict[str, Any]:
        """For JSON."""
        return {**self._asdict(), "winners": list(self.winners) if self.winners else None}


class Totals:
    """What decisions come to together.

    Attributes:
        wins: by host, how often it was the best.
        decisive: by unit, how often it was.
        times: milliseconds that the calls of each decision's units took.
    """

    def __init__(self) -> None:
        self.wins: Counter[str] = Counter()
        self.decisive: Counter[str] = Counter()
        self.times: List[float] = []

    def add(self, side: Side) -> None:
        """Count one decision in."""
        if side.winner is not None:
            self.wins[side.winner] += 1
        self.decisive.update(side.decisive)
        self.times.append(side.milliseconds)

    def fields(self) -> Dict[str, Any]:
        """For JSON."""
        return {
            "wins": dict(self.wins.most_common()),
            "decisive": dict(self.decisive.most_common()),
            "milliseconds": {
                "median": round(statistics.median(self.times), 2) if self.times else None,
                "total": round(sum(self.times), 1),
            },
        }


class Comparison:
    """Decisions as they were, as they are on today's plugins, and with changes.

    Args:
        changed: whether there are changes; else today's plugins are compared with what was.

    Attributes:
        count, same: decisions, and those of them that come out the same on today's plugins.
        unsteady: units that are to blame for the others: time, chance or the engine is in them.
        edited: units whose code is another than then, with the number of decisions that differ.
        uncertain: ids of decisions that do not even come out the same unchanged, by the same code:
            what the changes do to them cannot be told.
    """

    def __init__(self, changed: bool) -> None:
        self.changed = changed
        self.count = self.same = 0
        self.unsteady: Counter[str] = Counter()
        self.edited: Counter[str] = Counter()
        self.uncertain: List[str] = []
        self.differ: List[Difference] = []
        self.before, self.after = Totals(), Totals()

    def add(self, then: Record, made: Sequence[Made]) -> None:
        """Take in a decision.

        Args:
            then: as it was recorded.
            made: on today's plugins; and with the changes, where there are any.
        """
        self.count += 1
        today = made[0]
        recorded, now = _side(then), _side(today)
        edited = set(_edited(then, today))
        self.edited.update(edited)
        otherwise = [] if isinstance(today, str) else list(_units(then, today))
        if not otherwise and recorded.answer == now.answer and _totals(then) == _totals(today):
            self.same += 1
        to_blame = [unit for unit in otherwise if unit not in edited]
        self.unsteady.update(to_blame)
        if to_blame and self.changed:
            self.uncertain.append(then["id"])
            return
        if not self.changed:
            self._compare(then, then, today, recorded, now)
        elif isinstance(today, str):
            self.uncertain.append(then["id"])
        else:
            self._compare(then, today, made[1], now, _side(made[1]))

    def _compare(self, then: Record, old: Record, new: Made, before: Side, after: Side) -> None:
        self.before.add(before)
        self.after.add(after)
        if before.answer == after.answer:
            return
        name = {host["id"]: str(host.get("name") or host["id"]) for host in then["hosts"]}
        winners = None
        if before.winner != after.winner:
            winners = (before.winner or "none", after.winner or "none")
        refused = [host for host in after.out if host not in before.out]
        self.differ.append(
            Difference(
                then["id"],
                str(then["time"]),
                then["method"],
                explanation.vm_name(then) if "vm" in then else "",
                before.answer,
                after.answer,
                list(_units(old, new)),
                [name.get(host, host) for host in refused],
                _is_empty(after) and not _is_empty(before),
                winners,
                list(_why(old, new, name)),
            )
        )

    def fields(self) -> Dict[str, Any]:
        """For JSON."""
        return {
            "decisions": self.count,
            "same": self.same / self.count if self.count else None,
            "unsteady": dict(self.unsteady.most_common()),
            "edited": dict(self.edited.most_common()),
            "uncertain": self.uncertain,
            "changed": self.changed,
            "differ": [each.fields() for each in self.differ],
            "before": self.before.fields(),
            "after": self.after.fields(),
        }


def _side(made: Made) -> Side:
    if isinstance(made, str):
        return Side({_REFUSED: made}, None, [], [], 0.0)
    answer = made.get("answer")
    out = [*explanation.removed(made)]
    name = explanation.host_names([made])
    # Not of all of it: documents are read once for every policy.
    milliseconds = sum(float(unit.get("milliseconds", 0)) for unit in _live(made))
    ranks = made["method"] in ("runCostFunctions", "selectHost", "candidates")
    winner = name.get(answer[0], answer[0]) if ranks and answer else None
    return Side(answer, winner, out, made.get("decisive", ()), milliseconds)


def _is_empty(side: Side) -> bool:
    """Whether no host is left."""
    return bool(side.answer == [])


def _totals(made: Made) -> Mapping[str, Any]:
    return (
        {} if isinstance(made, str) else {each["id"]: each.get("total") for each in made["hosts"]}
    )


def _live(made: Record) -> List[Record]:
    """The units that counted: those in shadow are not asked in a replay."""
    return [unit for unit in made["units"] if unit.get("mode", "live") == "live"]


def _edited(then: Record, today: Made) -> Iterator[str]:
    """The units whose code is another, or that are not there any more."""
    now = (
        {}
        if isinstance(today, str)
        else {unit["name"]: unit.get("checksum") for unit in today["units"]}
    )
    for unit in _live(then):
        if "checksum" in unit and now.get(unit["name"]) != unit["checksum"]:
            yield unit["name"]


def _units(old: Record, new: Made) -> Iterator[str]:
    """The units that said something else of a host that both were asked about, or ended so."""
    if isinstance(new, str):
        return
    before, after = _said(old), _said(new)
    for unit in dict.fromkeys((*before, *after)):
        one, other = before.get(unit), after.get(unit)
        if one is None or other is None or _differs(one, other):
            yield unit
        elif len(one) == len(other) == 1 and old.get("answer") != new.get("answer"):
            yield unit  # a balance or a scheduler, which says nothing of single hosts


def _differs(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return any(one[host] != other[host] for host in one.keys() & other.keys())


def _said(made: Record) -> Dict[str, Dict[str, object]]:
    """How each unit ended, and of each host that it was asked about: a verdict, or its share."""
    said: Dict[str, Dict[str, object]] = {
        unit["name"]: {} if unit["outcome"] == NOT_ASKED else {"": unit["outcome"]}
        for unit in _live(made)
    }
    for host in made["hosts"]:
        for verdict in host.get("verdicts", ()):
            if verdict["verdict"] != NEVER_ASKED and verdict["unit"] in said:
                said[verdict["unit"]][host["id"]] = verdict["verdict"]
        for cost in host.get("costs", ()):
            if cost["unit"] in said:
                said[cost["unit"]][host["id"]] = cost["weighted"]
    return said


def _why(old: Record, new: Made, name: Mapping[str, str]) -> Iterator[str]:
    """What became of which host."""
    if isinstance(new, str):
        yield f"refused: {new}"
        return
    for host, called in name.items():
        before, after = _fate(old, host), _fate(new, host)
        if before != after:
            yield f"{called}: {before}; now {after}"
    decisive, others = (", ".join(made.get("decisive", ())) or "none" for made in (old, new))
    if decisive != others:
        yield f"decisive: {decisive}; now {others}"
    for made, word in ((old, "before"), (new, "now")):
        yield f"{word}: {explanation.outcome(explanation.cleaned(made))}"


def _fate(made: Record, host: str) -> str:
    """Of a host: left, removed by a unit and why, or the sum of its costs."""
    shown = explanation.cleaned(made)
    found = next((each for each in shown["hosts"] if each["id"] == host), None)
    if found is None:
        return "not among the hosts"
    why = explanation.why(shown)[host]
    if host in explanation.removed(shown):
        return f"removed by {why}"
    return f"{found['total']} = {why}" if "total" in found else why or "left"
