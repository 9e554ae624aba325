"""Compares decisions that were made again with what they were, and adds up what differs.

A decision comes out the same if its answer and every host's total do. If not, the units are found
that answered otherwise on the same question. Pure: records in, numbers out.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ovirt_scheduler.history import explanation, outcomes
from ovirt_scheduler.history.record import (
    FAILED,
    NEVER_ASKED,
    NOT_ASKED,
    REMOVED,
    Entity,
    Record,
    UnitRecord,
    entity,
)
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values.hidden import HIDDEN
from ovirt_scheduler.workbench.replay import Remade

_NOTHING: Record = {"method": "", "units": [], "hosts": []}  # what a refused request has


class _RecordedCall(NamedTuple):
    """A unit's call in a decision.

    Attributes:
        unit: its record.
        question: what it was asked about: hosts in their order, costs, properties.
        said: of each host, or as its answer.
    """

    unit: UnitRecord
    question: object
    answers: Mapping[str, object]

    @property
    def outcome(self) -> str:
        """How it ended."""
        return self.unit["outcome"]

    @property
    def failed_hosts(self) -> Optional[str]:
        """The verdict on the hosts of a filter that failed; None if it did not."""
        verdicts = {*self.answers.values()} & {FAILED, REMOVED}
        return str(next(iter(verdicts), "")) if outcomes.has_failed(self.unit) else None

    def differs(self, other: _RecordedCall) -> bool:
        """Whether it says something else, if that is this unit's doing.

        The same code may say something else if it was asked something else.
        """
        same = all(self.unit.get(key) == other.unit.get(key) for key in ("checksum", "factor"))
        if same and self.question != other.question:
            return False
        common = self.answers.keys() & other.answers.keys()
        ended = {self.outcome, other.outcome}
        return (len(ended) > 1 and NOT_ASKED not in ended) or any(
            self.answers[key] != other.answers[key] for key in common
        )


class Side:
    """What one policy made of a decision.

    Args:
        made: its record, or why the request was refused.

    Attributes:
        record: of a refused request an empty one.
        answer: as a record has it; ``{"refused": why}`` where there is none.
        winner: the id of the best host, where hosts are ranked or one is selected.
        out: the hosts that filters removed.
        milliseconds: that the calls of its units took.
        totals: of the hosts.
        calls: of the units that are there, by kind and name.
        failures: of units, with why.
    """

    def __init__(self, remade: Remade) -> None:
        record = remade if isinstance(remade, dict) else {**_NOTHING, "answer": {"refused": remade}}
        answer, hosts = record.get("answer"), record["hosts"]
        # Those in shadow are not asked in a replay.
        live = [unit for unit in record["units"] if unit.get("mode", "live") == "live"]
        ranks = record["method"] in ("runCostFunctions", "selectHost", "candidates")
        self.remade, self.record = remade, record
        self.answer: Any = answer
        self.winner: Optional[str] = str(answer[0]) if ranks and answer else None
        self.out = outcomes.removed(record)
        self.decisive: Sequence[str] = record.get("decisive", ())
        # Not of all of it: documents are read once for every policy.
        self.milliseconds = sum(float(unit.get("milliseconds", 0)) for unit in live)
        self.totals = {host["id"]: host.get("total") for host in hosts}
        self.calls = {  # a name may be that of a filter and of a cost function
            (unit["kind"], unit["name"]): self._call(unit) for unit in live if "checksum" in unit
        }
        self.failures = {
            unit["name"]: f"{unit['name']} {unit['outcome']}: {unit.get('message', '')}"
            for unit in live
            if outcomes.has_failed(unit)
        }

    def _call(self, unit: UnitRecord) -> _RecordedCall:
        hosts, kind = self.record["hosts"], unit["kind"]
        answers: dict[str, object] = {}
        question: Iterable[object] = [host["id"] for host in hosts if host["id"] not in self.out]
        if kind == Kind.FILTER.label:
            for host in hosts:
                own = (each for each in host.get("verdicts", ()) if each["unit"] == unit["name"])
                for verdict in (*own,)[:1]:  # a scheduler may have the filter's name
                    if verdict.get("verdict", NEVER_ASKED) != NEVER_ASKED:
                        answers[host["id"]] = verdict["verdict"]
            question = [*answers]
        elif kind == Kind.COST_FUNCTION.label:
            for host in hosts:
                for cost in host.get("costs", ()):
                    if cost["unit"] == unit["name"]:
                        answers[host["id"]] = cost["cost"], cost.get("factor")
        elif unit["outcome"] != NOT_ASKED:
            answers["answer"] = self.answer
            question = [(host, self.totals[str(host)]) for host in question]
        return _RecordedCall(unit, ([*question], self.record.get("properties", {})), answers)

    def differing(self, other: Side) -> list[str]:
        """The units that said something else on the same question, or are in one of both."""
        if isinstance(other.remade, str):
            return []
        units: dict[str, None] = {}
        for kind, name in {**self.calls, **other.calls}:
            mine, theirs = (side.calls.get((kind, name)) for side in (self, other))
            if mine is None or theirs is None or mine.differs(theirs):
                units[name] = None
        return [*units]

    def edited(self, other: Side) -> set[str]:
        """The units whose code is another one there, or that are in one of both."""
        mine, theirs = (
            {(*key, call.unit["checksum"]) for key, call in side.calls.items()}
            for side in (self, other)
        )
        return {name for _, name, _ in mine ^ theirs}

    def treated_otherwise(self, other: Side) -> set[str]:
        """The filters that failed on both sides, with another ``on_failure``."""
        return {
            name
            for (kind, name), call in self.calls.items()
            if kind == Kind.FILTER.label and (kind, name) in other.calls
            if {call.failed_hosts, other.calls[kind, name].failed_hosts} == {FAILED, REMOVED}
        }


class Difference(NamedTuple):
    """A decision that comes out otherwise.

    Attributes:
        units: that said something else, or were not there before.
        refused: hosts that are newly removed.
        no_host: whether none is left, where there was one.
        winners: the best hosts before and after, where they differ; None where there was none.
        why: lines that tell what became of which host, and by whom.
    """

    id: str
    time: str
    method: str
    vm: Entity
    old: Any
    new: Any
    units: Sequence[str]
    refused: Sequence[Entity]
    no_host: bool
    winners: Optional[tuple[Optional[Entity], Optional[Entity]]]
    why: Sequence[str]


class Totals:
    """What decisions come to together.

    Attributes:
        wins: by the id of a host, how often it was the best.
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
        if not isinstance(side.remade, str):
            self.times.append(side.milliseconds)

    @property
    def median(self) -> Optional[float]:
        """Of the times."""
        return round(statistics.median(self.times), 2) if self.times else None

    def fields(self, names: Mapping[str, str]) -> dict[str, Any]:
        """For JSON.

        Args:
            names: of hosts, by their ids.
        """
        return {
            "wins": [
                {**entity(host, names.get(host, "")), "count": count}
                for host, count in self.wins.most_common()
            ],
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
        edited: units whose code is another than then, with the number of decisions.
        treated_otherwise: filters that failed then, too, with another ``on_failure`` now.
        masked: properties whose values were not recorded, of decisions that differ for no reason
            that is known.
        failures: of units that did not fail before, with why.
        uncertain: ids of decisions that do not even come out the same unchanged, by the same code:
            what the changes do to them cannot be told.
        names: of hosts, by their ids, where they have one.
    """

    def __init__(self, changed: bool) -> None:
        self.changed = changed
        self.count = self.same = 0
        self.unsteady: Counter[str] = Counter()
        self.edited: Counter[str] = Counter()
        self.treated_otherwise: Counter[str] = Counter()
        self.masked: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.uncertain: list[str] = []
        self.names: dict[str, str] = {}
        self.differ: list[Difference] = []
        self.before, self.after = Totals(), Totals()

    def add(self, then: Record, remade: Sequence[Remade]) -> None:
        """Take in a decision.

        Args:
            then: as it was recorded.
            remade: on today's plugins; and with the changes, where there are any.
        """
        recorded, today, *changed = map(Side, (then, *remade))
        self.names.update((host["id"], host["name"]) for host in then["hosts"] if "name" in host)
        edited, settings = recorded.edited(today), recorded.treated_otherwise(today)
        otherwise = recorded.differing(today)
        to_blame = [unit for unit in otherwise if unit not in {*edited, *settings}]
        answers = (recorded.answer, recorded.totals), (today.answer, today.totals)
        is_same = not otherwise and answers[0] == answers[1]
        masked = [name for name, value in then.get("properties", {}).items() if value == HIDDEN]
        self.edited.update(edited)
        self.treated_otherwise.update(settings)
        self.unsteady.update(to_blame)
        is_uncertain = bool(to_blame) or isinstance(today.remade, str)
        if not is_same and not otherwise and masked:
            self.masked.update(masked)
            is_uncertain = True
        if not changed:
            self._compare(then, recorded, today)
        elif is_uncertain:
            self.uncertain.append(then["id"])
        else:
            self._compare(then, today, changed[0])
        self.same += is_same
        self.count += 1  # last, as Ctrl-C may come anywhere

    def label(self, host: str) -> str:
        """A host's name; with its id where another one has that name, too."""
        name = self.names.get(host, host)
        alike = sum(each == name for each in self.names.values())
        return f"{name} ({host})" if alike > 1 else name

    def wins(self, totals: Totals) -> dict[str, int]:
        """How often each host was the best, for a person."""
        return {self.label(host): count for host, count in totals.wins.items()}

    def _compare(self, then: Record, before: Side, after: Side) -> None:
        self.before.add(before)
        self.after.add(after)
        new = after.failures.keys() - before.failures.keys()
        self.failures.update(after.failures[unit] for unit in new)
        if before.answer == after.answer:
            return
        winners = [side.winner and self._host(side.winner) for side in (before, after)]
        clean = explanation.cleaned
        self.differ.append(
            Difference(
                then["id"],
                str(then["time"]),
                then["method"],
                then.get("vm", {}),
                before.answer,
                after.answer,
                before.differing(after),
                [self._host(host) for host in after.out if host not in before.out],
                after.answer == [] != before.answer,
                None if winners[0] == winners[1] else (winners[0] or None, winners[1] or None),
                [*_why(clean(then), clean(before.record), clean(after.remade))],
            )
        )

    def _host(self, host: str) -> Entity:
        return entity(host, self.names.get(host, ""))

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "decisions": self.count,
            "same": self.same / self.count if self.count else None,
            "unsteady": dict(self.unsteady.most_common()),
            "edited": dict(self.edited.most_common()),
            "on_failure": dict(self.treated_otherwise.most_common()),
            "masked": dict(self.masked.most_common()),
            "uncertain": self.uncertain,
            "changed": self.changed,
            "differ": [each._asdict() for each in self.differ],
            "before": self.before.fields(self.names),
            "after": self.after.fields(self.names),
        }


def _why(then: Record, old: Record, new: Remade) -> Iterator[str]:
    """What became of which host."""
    if isinstance(new, str):
        yield f"refused: {new}"
        return
    before, after = _fates(old), _fates(new)
    for host, name in outcomes.host_names([then]).items():
        fate, now = (fates.get(host, "not among the hosts") for fates in (before, after))
        if fate != now:
            yield f"{name}: {fate}; now {now}"
    decisive, others = (", ".join(record.get("decisive", ())) or "none" for record in (old, new))
    if decisive != others:
        yield f"decisive: {decisive}; now {others}"
    for record, word in ((old, "before"), (new, "now")):
        yield f"{word}: {outcomes.outcome(record)}"


def _fates(record: Record) -> dict[str, str]:
    """By host: left, removed by a unit and why, the sum of its costs, or no cost."""
    removed, whys, fates = outcomes.removed(record), explanation.why(record), {}
    for host in record["hosts"]:
        why = whys[host["id"]]
        if host["id"] in removed:
            why = f"removed by {why}"
        elif "total" in host:
            why = f"{host['total']} = {why}"
        no_verdict = "no cost" if record["method"] == Kind.COST_FUNCTION.method else "left"
        fates[host["id"]] = why or no_verdict
    return fates
