"""Says in a few words what a decision came to: which hosts are left, which units failed.

Pure: a decision is a ``Record``, and words come out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ovirt_scheduler.history import ranking
from ovirt_scheduler.history.record import (
    NOT_ASKED,
    OK,
    REMOVED,
    Entity,
    Record,
    Summary,
    UnitRecord,
    Verdict,
)
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.model.results import RequestOutcome
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values.text import count_of

_MOST_NAMED = 10  # hosts or migrations in a heading


def outcome(decision: Record) -> str:
    """The outcome: ``12 hosts: 3 left, 7 removed by MaxVms, 2 by Memory``."""
    answer, method = decision.get("answer"), decision.get("method")
    number = len(decision.get("hosts", ()))
    count = count_of(number, "host") if number else "no hosts"
    if "fault" in decision:
        return f"refused with fault {decision['fault']}: {'; '.join(decision.get('errors', ()))}"
    if isinstance(answer, Mapping) and answer:
        return _migrations(decision, answer)
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if method == Kind.FILTER.method:
        result = remaining_hosts(decision)
    elif method == Kind.COST_FUNCTION.method:
        bests = ranking.bests(decision)
        names = listed(named(decision, bests), "and") if bests else ""
        result = f"{names} {'are' if bests[1:] else 'is'} best" if bests else "no costs"
        if bests[1:] and len(bests) == number:
            result = "all cost the same"
    elif isinstance(answer, list):
        hosts = listed(named(decision, answer), "then")
        result = hosts if answer else f"no host: {remaining_hosts(decision)}"
    elif failed := failed_units(decision):
        return f"{' and '.join(failed)} failed"
    else:
        return "answered, which is not kept" if method == "schedule" else "nothing to do"
    return f"{count}: {result}"


def summary(decision: Record) -> Summary:
    """What a list shows of a decision, besides what the decision says itself; ``cleaned``."""
    text, failed, missing = outcome(decision), failed_units(decision), missing_units(decision)
    if failed and "failed" not in text:
        text += f"; {', '.join(failed)} failed"
    if missing:
        text += f"; not there: {', '.join(missing)}"
    for unit in live(decision):
        if ranking.has_no_effect(decision, unit):
            text += f"; {unit['name']} has no effect"
    failing = filter(has_failed, decision["units"])
    failures = [(unit["name"], unit.get("message", unit["outcome"])) for unit in failing]
    good = {RequestOutcome.OK, RequestOutcome.CORRECTED}
    if decision.get("beforehand"):
        text += "; asked beforehand"
        good.add(RequestOutcome.NO_HOST_LEFT)
    is_bad = came_to(decision) not in good
    return {"summary": printable(text), "is_bad": is_bad, "failures": failures}


def came_to(decision: Record) -> RequestOutcome:
    """What a request came to; as ``Decision.outcome``."""
    if "fault" in decision:
        return RequestOutcome.FAULT
    if missing_units(decision):
        return RequestOutcome.UNIT_MISSING
    if failed_units(decision):
        return RequestOutcome.UNIT_FAILED
    is_scored = decision["method"] == Kind.COST_FUNCTION.method
    no_answer = decision.get("answer") == [] and bool(decision.get("hosts")) and not is_scored
    if no_answer or leaves_none(decision):
        return RequestOutcome.NO_HOST_LEFT
    if decision.get("errors"):
        return RequestOutcome.DEGRADED
    is_corrected = any(unit.get("corrected") for unit in live(decision))
    return RequestOutcome.CORRECTED if is_corrected else RequestOutcome.OK


def remaining_hosts(decision: Record) -> str:
    """How many hosts the filters left, and how many each removed."""
    removed_by = Counter(verdict["unit"] for verdict in removed(decision).values())
    number = len(decision.get("hosts", ())) - sum(removed_by.values())
    words = [f"{number or 'none'} left"]
    for unit in ranking.units_of(decision, Kind.FILTER):
        if unit["name"] in removed_by:
            by = "by" if words[1:] else "removed by"
            words.append(f"{removed_by[unit['name']]} {by} {unit['name']}")
    return ", ".join(words)


def leaves_none(decision: Record) -> bool:
    """Whether there were hosts, and filters removed each of them."""
    return bool(decision.get("hosts")) and not any(ranking.remaining_hosts(decision))


def removed(decision: Record) -> dict[str, Verdict]:
    """The hosts that filters removed, each with the verdict that did."""
    filters = {unit["name"] for unit in ranking.units_of(decision, Kind.FILTER)}
    return {
        host["id"]: verdict
        for host in decision.get("hosts", ())
        for verdict in reversed(host.get("verdicts", ()))  # the first one stays
        if verdict.get("verdict") == REMOVED and verdict["unit"] in filters
    }


def host_names(decisions: Iterable[Record]) -> dict[str, str]:
    """The hosts' names by their ids; the id again if there is no name."""
    names: dict[str, str] = {}
    for decision in decisions:
        for host in decision.get("hosts", ()):
            names[host["id"]] = str(host.get("name") or names.get(host["id"]) or host["id"])
    return names


def names_by_id(decision: Record) -> dict[str, str]:
    """The names of the hosts and of the VM by their ids, as far as they are known."""
    entities: list[Entity] = [decision.get("vm", {}), *decision.get("hosts", ())]
    return {each["id"]: each["name"] for each in entities if "id" in each and "name" in each}


def named(decision: Record, hosts: Iterable[str]) -> list[str]:
    """The names of hosts by their ids."""
    names = host_names([decision])
    return [names.get(host, host) for host in hosts]


def failed_units(decision: Record) -> list[str]:
    """The units that failed and would have counted."""
    return [unit["name"] for unit in live(decision) if has_failed(unit)]


def missing_units(decision: Record) -> list[str]:
    """The units that were named and not called, as they are not there or refuse a property."""
    units = (unit for unit in live(decision) if unit.get("outcome") == NOT_ASKED)
    return [unit["name"] for unit in units if unit.get("message")]


def live(decision: Record) -> list[UnitRecord]:
    """The units that count: those that are not in shadow."""
    return [unit for unit in decision.get("units", ()) if unit.get("mode") != "shadow"]


def has_failed(unit: UnitRecord) -> bool:
    """Whether a unit was called and gave no answer that counts."""
    return unit.get("outcome", OK) not in (OK, NOT_ASKED)


def _migrations(decision: Record, answer: Mapping[str, Any]) -> str:
    """A balance's answer, or those of a scheduler: VM id to hosts."""
    single = isinstance(answer.get("vm"), str)
    moves = {answer["vm"]: answer.get("hosts", ())} if single else dict(answer)
    vms = [*decision.get("vms", ()), decision.get("vm") or {}]
    names = {vm.get("id"): vm.get("name") for vm in vms}
    words = []
    for moved, hosts in [*moves.items()][:_MOST_NAMED]:
        called = names.get(moved) or moved
        to = listed(named(decision, hosts), "or") if hosts else "any host"
        words.append(f"VM {called} to {to}")
    more = [f"{len(moves) - _MOST_NAMED} more"] if len(moves) > _MOST_NAMED else []
    return f"migrate {'; '.join([*words, *more])}"


def listed(names: list[str], word: str) -> str:
    """``lynx, puma or serval``; of many names the first, and how many more."""
    shown = names[:_MOST_NAMED]
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more")
    if word == "then":
        return ", then ".join(shown)
    *first, last = shown
    return f"{', '.join(first)} {word} {last}" if first else last
