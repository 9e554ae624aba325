"""Compares decisions that were made again with what they were, and adds up what differs.

A decision comes out the same if its answer and every host's total do. If not, the units are found
that answered otherwise on the same question. Pure: records in, numbers out.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ovirt_scheduler.history import explanation
from ovirt_scheduler.history.record import NEVER_ASKED, NOT_ASKED, Record, Unit
from ovirt_scheduler.workbench.replay import Made

_NOTHING: Record = {"method": "", "units": [], "hosts": []}  # what a refused request has


class Side:
    """What one policy made of a decision.

    Args:
        made: its record, or why the request was refused.

    Attributes:
        record: of a refused request an empty one.
        answer: as a record has it; ``{"refused": why}`` where there is none.
        winner: the best host, where hosts are ranked or one is selected.
        out: the hosts that filters removed.
        milliseconds: that the calls of its units took.
        totals: of the hosts.
        said: by unit, how it ended and what it said of each host that it was asked about.
        checksums: of the units, as far as they are known.
        failures: of units, with why.
    """

    def __init__(self, made: Made) -> None:
        record = made if isinstance(made, dict) else {**_NOTHING, "answer": {"refused": made}}
        answer, hosts = record.get("answer"), record["hosts"]
        # Those in shadow are not asked in a replay.
        live = [unit for unit in record["units"] if unit.get("mode", "live") == "live"]
        ranks = record["method"] in ("runCostFunctions", "selectHost", "candidates")
        names = explanation.host_names([record])
        self.made, self.record = made, record
        self.answer: Any = answer
        self.winner = names.get(answer[0], str(answer[0])) if ranks and answer else None
        self.out = explanation.removed(record)
        self.decisive: Sequence[str] = record.get("decisive", ())
        # Not of all of it: documents are read once for every policy.
        self.milliseconds = sum(float(unit.get("milliseconds", 0)) for unit in live)
        self.totals = {host["id"]: host.get("total") for host in hosts}
        self.said = _said(hosts, live)
        self.checksums = {unit["name"]: unit["checksum"] for unit in live if "checksum" in unit}
        self.failures = {
            unit["name"]: f"{unit['name']} {unit['outcome']}: {unit.get('message', '')}"
            for unit in live
            if explanation.has_failed(unit)
        }

    def differing(self, other: Side) -> list[str]:
        """The units that said something else of a host that both asked about, or ended so.

        Where there are none, but the answers differ: those that say nothing of single hosts, as a
        balance and a scheduler.
        """
        if isinstance(other.made, str):
            return []
        both = {**self.said, **other.said}
        units = [
            unit
            for unit in both
            if (mine := self.said.get(unit)) is None
            or (theirs := other.said.get(unit)) is None
            or any(mine[key] != theirs[key] for key in mine.keys() & theirs.keys())
        ]
        if units or self.answer == other.answer:
            return units
        return [unit for unit, said in both.items() if len(self.said.get(unit, said)) == 1]


class Difference(NamedTuple):
    """A decision that comes out otherwise; hosts are named.

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
    winners: Optional[tuple[str, str]]  # before and after, where they differ
    why: Sequence[str]


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
        self.times: list[float] = []

    def add(self, side: Side) -> None:
        """Count one decision."""
        if side.winner is not None:
            self.wins[side.winner] += 1
        self.decisive.update(side.decisive)
        if not isinstance(side.made, str):
            self.times.append(side.milliseconds)

    @property
    def median(self) -> Optional[float]:
        """Of the times."""
        return round(statistics.median(self.times), 2) if self.times else None

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "wins": dict(self.wins.most_common()),
            "decisive": dict(self.decisive.most_common()),
            "milliseconds": {"median": self.median, "total": round(sum(self.times), 1)},
        }


class Comparison:
    """Decisions as they were, as they are on today's plugins, and with changes.

    Args:
        changed: whether there are changes; else today's plugins are compared with what was.

    Attributes:
        count, same: decisions, and those of them that come out the same on today's plugins.
        unsteady: units that are to blame for the others: time, chance or the engine is in them.
        edited: units whose code is another than then, with the number of decisions that differ.
        failures: of units that did not fail before, with why.
        uncertain: ids of decisions that do not even come out the same unchanged, by the same code:
            what the changes do to them cannot be told.
    """

    def __init__(self, changed: bool) -> None:
        self.changed = changed
        self.count = self.same = 0
        self.unsteady: Counter[str] = Counter()
        self.edited: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.uncertain: list[str] = []
        self.differ: list[Difference] = []
        self.before, self.after = Totals(), Totals()

    def add(self, then: Record, made: Sequence[Made]) -> None:
        """Take in a decision.

        Args:
            then: as it was recorded.
            made: on today's plugins; and with the changes, where there are any.
        """
        recorded, today, *changed = map(Side, (then, *made))
        edited = {unit for unit, _ in recorded.checksums.items() ^ today.checksums.items()}
        self.edited.update(edited)
        otherwise = recorded.differing(today)
        to_blame = [unit for unit in otherwise if unit not in edited]
        self.unsteady.update(to_blame)
        if not changed:
            self._compare(then, recorded, today)
        elif to_blame or isinstance(today.made, str):
            self.uncertain.append(then["id"])
        else:
            self._compare(then, today, changed[0])
        answers = (recorded.answer, recorded.totals), (today.answer, today.totals)
        self.same += not otherwise and answers[0] == answers[1]
        self.count += 1  # last, as Ctrl-C may come anywhere

    def _compare(self, then: Record, before: Side, after: Side) -> None:
        self.before.add(before)
        self.after.add(after)
        new = after.failures.keys() - before.failures.keys()
        self.failures.update(after.failures[unit] for unit in new)
        if before.answer == after.answer:
            return
        names = explanation.host_names([then])
        winners = None
        if before.winner != after.winner:
            winners = (before.winner or "none", after.winner or "none")
        self.differ.append(
            Difference(
                then["id"],
                str(then["time"]),
                then["method"],
                explanation.vm_name(then) if "vm" in then else "",
                before.answer,
                after.answer,
                before.differing(after),
                [names.get(host, host) for host in after.out if host not in before.out],
                after.answer == [] != before.answer,
                winners,
                list(
                    _why(
                        explanation.cleaned(then),
                        explanation.cleaned(before.record),
                        explanation.cleaned(after.made),
                    )
                ),
            )
        )

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "decisions": self.count,
            "same": self.same / self.count if self.count else None,
            "unsteady": dict(self.unsteady.most_common()),
            "edited": dict(self.edited.most_common()),
            "uncertain": self.uncertain,
            "changed": self.changed,
            "differ": [each._asdict() for each in self.differ],
            "before": self.before.fields(),
            "after": self.after.fields(),
        }


def _said(
    hosts: Sequence[Mapping[str, Any]], units: Sequence[Unit]
) -> dict[str, dict[tuple[str, str], object]]:
    """How each unit ended, and of each host that it was asked about: a verdict, and its share.

    A name may be that of a filter and of a cost function.
    """
    said: dict[str, dict[tuple[str, str], object]] = {}
    for unit in units:
        if "checksum" in unit:  # else there was none of that name
            of_unit = said.setdefault(unit["name"], {})
            if unit["outcome"] != NOT_ASKED:
                of_unit[unit["kind"], ""] = unit["outcome"]
    for host in hosts:
        for part, word in (("verdicts", "verdict"), ("costs", "weighted")):
            for entry in host.get(part, ()):
                if entry["unit"] in said and entry.get(word, NEVER_ASKED) != NEVER_ASKED:
                    said[entry["unit"]][part, host["id"]] = entry[word]
    return said


def _why(then: Record, old: Record, new: Made) -> Iterator[str]:
    """What became of which host."""
    if isinstance(new, str):
        yield f"refused: {new}"
        return
    before, after = _fates(old), _fates(new)
    for host, name in explanation.host_names([then]).items():
        fate, now = (fates.get(host, "not among the hosts") for fates in (before, after))
        if fate != now:
            yield f"{name}: {fate}; now {now}"
    decisive, others = (", ".join(made.get("decisive", ())) or "none" for made in (old, new))
    if decisive != others:
        yield f"decisive: {decisive}; now {others}"
    for made, word in ((old, "before"), (new, "now")):
        yield f"{word}: {explanation.outcome(made)}"


def _fates(made: Record) -> dict[str, str]:
    """By host: left, removed by a unit and why, or the sum of its costs."""
    removed, whys, fates = explanation.removed(made), explanation.why(made), {}
    for host in made["hosts"]:
        why = whys[host["id"]]
        if host["id"] in removed:
            why = f"removed by {why}"
        elif "total" in host:
            why = f"{host['total']} = {why}"
        fates[host["id"]] = why or "left"
    return fates
