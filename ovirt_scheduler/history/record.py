"""From a decision to its record: plain texts, numbers, lists and dicts (contract 8.1).

Pure: nothing here asks the clock or the disk. What is not known is not in the record.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, cast

from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.decisions import Decision
from ovirt_scheduler.model.requests import Caller, WantedUnit
from ovirt_scheduler.model.results import CallResult, Migration
from ovirt_scheduler.model.units import Kind, OnFailure, UnitCall

Record = Dict[str, Any]

PASSED, REMOVED, FAILED, NEVER_ASKED = "passed", "removed", "failed", "never asked"
NOT_ASKED = "not asked"  # the outcome of a unit that was not called

HIDDEN = "\u2026"
_SECRET = re.compile("password|secret|token|key", re.IGNORECASE)

_METHODS = {
    Kind.FILTER: "runFilters",
    Kind.COST_FUNCTION: "runCostFunctions",
    Kind.BALANCE: "runLoadBalancing",
}


class _Asked(NamedTuple):
    """A unit that a request named: what it is, and how its call ended, as far as there was one."""

    wanted: WantedUnit
    kind: str  # in words
    call: Optional[UnitCall]
    result: Optional[CallResult]
    problem: str = ""  # why it was not called


def light(decision: Decision) -> Decision:
    """The same without what may be large and is in no record: documents, and what was printed."""
    request = replace(decision.request, hosts=(), vm=None)
    called = tuple(_light(result) for result in decision.called)
    return replace(decision, request=request, called=called, results=())


def _light(result: CallResult) -> CallResult:
    if result.stdout or result.stderr or result.traceback:
        return replace(result, stdout="", stderr="", traceback="")
    return result


def of_units(decision: Decision) -> Record:
    """The record of a call of policy units.

    Args:
        decision: ``light`` is enough of it.
    """
    request = decision.request
    asked = _asked(
        request.wanted, request.kind, decision.calls, decision.called, decision.unit_errors
    )
    filters = asked if request.kind is Kind.FILTER else []
    costs = asked if request.kind is Kind.COST_FUNCTION else []
    record = _begun(request.caller, _METHODS[request.kind], decision.time, decision.seconds)
    _put_vm(record, decision.vm, decision.names)
    _put_properties(record, request.properties)
    record["units"] = [_unit(each) for each in asked]
    hosts = _hosts(decision.hosts, decision.names, filters, costs)
    record["hosts"] = hosts
    answer = decision.answer
    if isinstance(answer, Migration):
        record["answer"] = {"vm": answer.vm, "hosts": list(answer.hosts)}
        _put_vm(record, answer.vm, decision.names)
    elif request.kind is Kind.COST_FUNCTION:
        record["answer"] = [host["id"] for host in best_first(hosts)]
        record["decisive"] = decisive(hosts)
    else:
        record["answer"] = list(cast("Tuple[str, ...]", answer or ()))
    if decision.errors:
        record["errors"] = list(decision.errors)
    return _without(record, decision.secret)


def best_first(hosts: Iterable[Record]) -> List[Record]:
    """The hosts that have a total, the best first; of equal ones that which was given first."""
    return sorted((host for host in hosts if "total" in host), key=lambda host: host["total"])


def decisive(hosts: Sequence[Record]) -> List[str]:
    """The cost functions without any one of which another host had the lowest total.

    Without the only one, all hosts are equal, and the first of those given is the best.

    Args:
        hosts: as in a record, with totals and costs.
    """
    ranked = [host for host in hosts if "total" in host]
    if not ranked:
        return []
    best = best_first(ranked)[0]["id"]
    weighted = [{cost["unit"]: cost["weighted"] for cost in host["costs"]} for host in ranked]
    units = dict.fromkeys(unit for costs in weighted for unit in costs)
    found = []
    for unit in units:
        totals = [host["total"] - costs.get(unit, 0) for host, costs in zip(ranked, weighted)]
        if ranked[totals.index(min(totals))]["id"] != best:
            found.append(unit)
    return found


def _asked(
    wanted: Sequence[WantedUnit],
    kind: Kind,
    calls: Sequence[Tuple[WantedUnit, UnitCall]],
    results: Sequence[CallResult],
    problems: Mapping[str, Sequence[str]],
) -> List[_Asked]:
    called = {call.unit.name: call for _, call in calls}
    ended = {result.unit: result for result in results}
    unique = {each.name: each for each in reversed(wanted)}  # of a name that is there twice
    return [
        _Asked(
            each,
            kind.words,
            called.get(each.name),
            ended.get(each.name),
            "" if each.name in called else "; ".join(problems.get(each.name, ())),
        )
        for each in dict.fromkeys(unique[each.name] for each in wanted)
    ]


def _begun(caller: Caller, method: str, time: float, seconds: float) -> Record:
    record: Record = {
        "id": caller.request_id,
        "time": time,
        "milliseconds": round(seconds * 1000, 2),
        "caller": caller.peer,
        "method": method,
        "form": caller.form.value,
    }
    return record


def _put_vm(record: Record, vm: Optional[str], names: Mapping[str, str]) -> None:
    if vm:
        record["vm"] = _named(vm, names)


def _named(entity: str, names: Mapping[str, str]) -> Record:
    name = names.get(entity)
    return {"id": entity, "name": name} if name else {"id": entity}


def _put_properties(record: Record, properties: Mapping[str, str]) -> None:
    if properties:
        record["properties"] = {
            name: HIDDEN if _SECRET.search(name) else value for name, value in properties.items()
        }


def _unit(asked: _Asked) -> Record:
    unit: Record = {"name": asked.wanted.name, "kind": asked.kind}
    if asked.kind == Kind.COST_FUNCTION.words:
        unit["factor"] = asked.wanted.factor
    if asked.call is not None:
        unit["checksum"] = asked.call.unit.checksum
    _put_result(unit, asked.result, asked.problem)
    return unit


def _put_result(unit: Record, result: Optional[CallResult], problem: str = "") -> None:
    unit["outcome"] = NOT_ASKED if result is None else result.outcome.value
    if result is not None:
        unit["milliseconds"] = round(result.seconds * 1000, 2)
        if result.notes:
            unit["notes"] = list(result.notes)
    message = problem if result is None else result.message
    if message:
        unit["message"] = message
    unit["mode"] = "live"


def _hosts(
    given: Sequence[str],
    names: Mapping[str, str],
    filters: Sequence[_Asked],
    costs: Sequence[_Asked],
) -> List[Record]:
    hosts = [_named(host, names) for host in given]
    if filters:
        _put_verdicts(hosts, filters)
    if costs:
        _put_costs(hosts, costs)
    return hosts


def _put_verdicts(hosts: Sequence[Record], filters: Sequence[_Asked]) -> None:
    for host in hosts:
        host["verdicts"] = []
    left = list(hosts)
    for asked in filters:
        name, result = asked.wanted.name, asked.result
        kept: Optional[frozenset[str]] = None
        if result is not None and result.ok:
            kept = frozenset(result.value)
        rejects = asked.call is not None and asked.call.unit.on_failure is OnFailure.REJECT
        asked_about = {host["id"] for host in left} if result is not None else frozenset()
        for host in hosts:
            verdict: Record = {"unit": name}
            if host["id"] not in asked_about:
                verdict["verdict"] = NEVER_ASKED
            elif kept is None:
                verdict["verdict"] = REMOVED if rejects else FAILED
                verdict["reason"] = cast("CallResult", result).message
            else:
                verdict["verdict"] = PASSED if host["id"] in kept else REMOVED
            host["verdicts"].append(verdict)
        left = [host for host in left if host["verdicts"][-1]["verdict"] != REMOVED]


def _put_costs(hosts: Sequence[Record], costs: Sequence[_Asked]) -> None:
    by_id = {host["id"]: host for host in hosts}
    for asked in costs:
        if asked.result is None or not asked.result.ok:
            continue
        name, factor = asked.wanted.name, asked.wanted.factor
        limit = aggregate.bound(factor, len(costs))
        for host, cost in cast("Mapping[str, int]", asked.result.value).items():
            counted = max(-limit, min(limit, cost))
            entry: Record = {
                "unit": name, "cost": cost, "factor": factor, "weighted": factor * counted
            }  # fmt: skip
            if counted != cost:
                entry["held"] = counted
            by_id[host].setdefault("costs", []).append(entry)
    put_totals(hosts)


def put_totals(hosts: Sequence[Record]) -> None:
    """Add to each host with costs their sum, and its rank."""
    for host in hosts:
        if "costs" in host:
            host["total"] = sum(cost["weighted"] for cost in host["costs"])
    for rank, host in enumerate(best_first(hosts), 1):
        host["rank"] = rank


def _without(record: Record, secret: str) -> Record:
    """The record, with a secret kept as an ellipsis wherever it has got into a text."""
    return cast("Record", _hidden(record, secret)) if secret else record


def _hidden(value: Any, secret: str) -> Any:
    if isinstance(value, str):
        return value.replace(secret, HIDDEN)
    if isinstance(value, list):
        return [_hidden(each, secret) for each in value]
    if isinstance(value, dict):
        return {key: _hidden(each, secret) for key, each in value.items()}
    return value
