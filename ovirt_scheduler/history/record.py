"""From a decision to its record: plain texts, numbers, lists and dicts (contract 8.1).

Pure: nothing here asks the clock or the disk. What is not known is not in the record.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional, Union

from ovirt_scheduler.history import ranking
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.decisions import Decision, ShadowCall
from ovirt_scheduler.model.drivers import DriverDecision, Subjects
from ovirt_scheduler.model.requests import Document, Hosts, Request, WantedUnit
from ovirt_scheduler.model.results import CallResult, Migration
from ovirt_scheduler.model.units import Kind, OnFailure, UnitCall

Record = dict[str, Any]
AnyDecision = Union[Decision, DriverDecision]

PASSED, REMOVED, FAILED, NEVER_ASKED = "passed", "removed", "failed", "never asked"
NOT_ASKED = "not asked"  # the outcome of a unit that was not called

_BYTES_OF_HOST = 100  # its id, and what a unit said of it

HIDDEN = "\u2026"
_SECRET = re.compile("password|secret|token|key", re.IGNORECASE)

METHODS = {
    Kind.FILTER: "runFilters",
    Kind.COST_FUNCTION: "runCostFunctions",
    Kind.BALANCE: "runLoadBalancing",
}


class _Asked(NamedTuple):
    """A unit that a request named: its record, and how its call ended, as far as there was one."""

    unit: Record
    call: Optional[UnitCall]
    result: Optional[CallResult]


def light(decision: AnyDecision) -> AnyDecision:
    """The same without documents, and without arguments and answers of a topic's method.

    They may be large, and are in no record.
    """
    if isinstance(decision, Decision):
        request = decision.request
        if not any(isinstance(each, Document) for each in (request.hosts, request.vm)):
            return decision
        request = request._replace(hosts=_ids(request.hosts), vm=None)
        return decision._replace(request=request, execution=decision.execution._replace(packs={}))
    asked, result = decision.request, decision.execution.result
    of_topic = asked.defined is None
    result = None if result is None else result._replace(value=None)
    return decision._replace(
        request=asked._replace(subjects=Subjects(), arguments={}, destinations={}),
        execution=decision.execution._replace(result=result, packs={}),
        answer=None if of_topic else decision.answer,
    )


def size(decision: AnyDecision) -> int:
    """Bytes of memory, about, that a decision keeps which is ``light``."""
    called = [*decision.execution.results]
    called += [each.result for each in decision.shadows if each.result is not None]
    texts = sum(map(len, itertools.chain(*decision.request.properties.items())))
    for result in called:
        texts += sum(map(len, (result.stdout, result.stderr, result.traceback)))
        texts += sum(map(len, result.reasons.values()))
    return _BYTES_OF_HOST * len(decision.execution.hosts) * (1 + len(called)) + texts


def of(decision: AnyDecision) -> Record:
    """The record of a call: of policy units, or of a driver and the policy units before it.

    Args:
        decision: ``light`` is enough of it.
    """
    caller, properties = decision.request.caller, decision.request.properties
    record: Record = {
        "id": caller.decision,
        "time": decision.time,
        "milliseconds": round(decision.seconds * 1000, 2),
        "caller": caller.peer,
        "method": _method(decision),
        "form": "daemon" if caller.cluster else caller.form.value,
    }
    if caller.cluster:
        record["cluster"] = caller.cluster
    _put_vm(record, decision.execution.vm, decision.execution.names)
    if properties:
        record["properties"] = {
            name: HIDDEN if _SECRET.search(name) else value for name, value in properties.items()
        }
    if isinstance(decision, Decision):
        _put_units(record, decision)
    else:
        _put_driver(record, decision)
    if decision.errors:
        record["errors"] = list(decision.errors)
    if decision.secret:
        secret = decision.secret
        record = each_text(record, lambda text: text.replace(secret, HIDDEN))
    return record


def _method(decision: AnyDecision) -> str:
    """As XML-RPC has it: ``selectHost``."""
    request = decision.request
    if isinstance(request, Request):
        return METHODS[request.kind]
    if request.defined is None:
        return "schedule"
    first, *others = request.method.split("_")
    return first + "".join(map(str.title, others))


def _put_units(record: Record, decision: Decision) -> None:
    request, execution = decision.request, decision.execution
    kind, answer, called = request.kind, decision.answer, execution.results
    asked = _asked(kind, request.wanted, decision.calls, called, decision.unit_errors)
    hosts = execution.hosts or _ids(request.hosts)
    # Where no filter ran, one that is not there accepts no host (contract 4.2).
    missed = kind is Kind.FILTER and not called and not answer
    _put_said(record, decision, hosts, asked, len(asked), missed)
    if kind is Kind.BALANCE:
        chosen = answer.hosts if isinstance(answer, Migration) else ()
        _put_reasons(record["hosts"], called, chosen)
    if isinstance(answer, Migration):
        _put_vm(record, answer.vm, execution.names)
        record["answer"] = {"vm": answer.vm, "hosts": list(answer.hosts)}
    elif kind is Kind.COST_FUNCTION:
        record["answer"] = ranking.ranked(record)
        record["decisive"] = [*ranking.decisive(record)]
    elif isinstance(answer, tuple):
        record["answer"] = list(answer)


def _put_driver(record: Record, decision: DriverDecision) -> None:
    request, execution = decision.request, decision.execution
    driver, answer = request.driver, decision.answer
    filters = _asked(
        Kind.FILTER, request.filters, decision.filters, execution.filters, decision.unit_errors
    )
    costs = _asked(
        Kind.COST_FUNCTION, request.cost_functions, decision.cost_functions,
        execution.cost_functions, decision.unit_errors,
    )  # fmt: skip
    functions = len(decision.cost_functions)
    _put_said(record, decision, execution.hosts, [*filters, *costs], functions)
    own = {"name": driver.name, "kind": driver.words, "checksum": driver.checksum}
    record["units"].append({**own, **_ended(execution.result)})
    chosen: Sequence[str] = answer if isinstance(answer, tuple) else ()
    if isinstance(answer, Mapping):
        chosen = [host for hosts_of_vm in answer.values() for host in hosts_of_vm]
        record["answer"] = {vm: list(hosts_of_vm) for vm, hosts_of_vm in answer.items()}
    elif driver.defines(request.method) is not None:
        record["answer"] = list(answer) if isinstance(answer, tuple) else answer
    if execution.result is not None:
        _put_reasons(record["hosts"], (execution.result,), chosen)
    best = ranking.best(record)
    if best is not None and isinstance(answer, tuple) and answer[:1] == (best,):
        record["decisive"] = [*ranking.decisive(record)]


def _put_said(
    record: Record,
    decision: AnyDecision,
    hosts: Sequence[str],
    asked: Sequence[_Asked],
    functions: int,
    missed: bool = False,
) -> None:
    """Add the policy units, the hosts, and what the units said of these.

    Args:
        hosts: their ids.
        functions: cost functions of the call, but for those in shadow.
        missed: a filter that is not there accepts no host.
    """
    names = decision.execution.names
    shadows = _asked_in_shadow(decision.shadows)
    record["units"] = [each.unit for each in (*asked, *shadows)]
    record["hosts"] = told = [entity(host, names.get(host, "")) for host in hosts]
    left: Sequence[Record] = told
    for each in _of_kind(asked, Kind.FILTER):
        left = _put_verdicts(each, told, left, missed and each.call is None)
    _put_costs(told, _of_kind(asked, Kind.COST_FUNCTION), functions)
    for each in _of_kind(shadows, Kind.FILTER):
        _put_verdicts(each, told, told)
    _put_costs(told, _of_kind(shadows, Kind.COST_FUNCTION), functions + 1)
    ranking.put_totals(record)


def _of_kind(asked: Sequence[_Asked], kind: Kind) -> list[_Asked]:
    return [each for each in asked if each.unit["kind"] == kind.words]


def _ids(hosts: Hosts) -> tuple[str, ...]:
    return hosts if isinstance(hosts, tuple) else ()


def _asked_in_shadow(shadows: Sequence[ShadowCall]) -> list[_Asked]:
    asked = []
    for call, result, problem in shadows:
        wanted, kind = WantedUnit(call.unit.name, call.factor), call.unit.kind
        asked.append(_asked_one(kind, wanted, call, result, problem, "shadow"))
        migration = result.value if result is not None and result.ok else None
        if isinstance(migration, Migration):
            hosts = ", ".join(migration.hosts) or "any host"
            notes = asked[-1].unit.setdefault("notes", [])
            notes.append(f"would migrate {migration.vm} to {hosts}")
    return asked


def _asked(
    kind: Kind,
    wanted: Sequence[WantedUnit],
    calls: Sequence[UnitCall],
    results: Sequence[CallResult],
    problems: Mapping[str, Sequence[str]],
) -> list[_Asked]:
    called = {call.unit.name: call for call in calls}
    ended = {result.unit: result for result in results}
    named: dict[str, WantedUnit] = {}
    for each in wanted:
        named.setdefault(each.name, each)  # of a name that is there twice, the first counts
    return [
        _asked_one(
            kind,
            each,
            called.get(name),
            ended.get(name),
            "" if name in called else "; ".join(problems.get(name, ())),
        )
        for name, each in named.items()
    ]


def _asked_one(
    kind: Kind, wanted: WantedUnit, call: Optional[UnitCall], result: Optional[CallResult],
    problem: str, mode: str = "live",
) -> _Asked:  # fmt: skip
    """A unit, with its record.

    Args:
        problem: why it was not called.
    """
    unit: Record = {"name": wanted.name, "kind": kind.words}
    if kind is Kind.COST_FUNCTION:
        unit["factor"] = wanted.factor
    if call is not None:
        unit["checksum"] = call.unit.checksum
    return _Asked({**unit, **_ended(result, problem, mode)}, call, result)


def _put_vm(record: Record, vm: Optional[str], names: Mapping[str, str]) -> None:
    """A VM that is yet to be made has a name at most."""
    found = entity(vm or "", names.get(vm or "", ""))
    if found:
        record["vm"] = found


def entity(identity: str, name: str) -> Record:
    """A host or a VM: its id and its name, as far as they are known."""
    found = {"id": identity} if identity else {}
    if name:
        found["name"] = name
    return found


def _ended(result: Optional[CallResult], problem: str = "", mode: str = "live") -> Record:
    """How a unit's call ended."""
    if result is None:
        message, ended = problem, dict[str, Any](outcome=NOT_ASKED)
    else:
        message = result.message
        ended = {"outcome": result.outcome.value, "milliseconds": round(result.seconds * 1000, 2)}
        if result.notes:
            ended["notes"] = list(result.notes)
    if message:
        ended["message"] = message
    return {**ended, "mode": mode}


def _put_verdicts(
    asked: _Asked, hosts: Sequence[Record], left: Sequence[Record], missed: bool = False
) -> list[Record]:
    """Add what one filter said of each host; those that are left after it."""
    result = asked.result
    about = {host["id"] for host in left} if result is not None else set()
    kept = frozenset(result.value) if result is not None and result.ok else frozenset()
    failed = result is not None and not result.ok
    rejects = asked.call is not None and asked.call.unit.on_failure is OnFailure.REJECT
    reasons = {} if result is None else result.reasons
    # Hosts of which a filter says the same share the entry: of 20 filters and 10,000 hosts, entries
    # of their own would take 44 MB.
    entries = {
        verdict: {"unit": asked.unit["name"], "verdict": verdict}
        for verdict in (PASSED, REMOVED, FAILED, NEVER_ASKED)
    }
    for host in hosts:
        key, reason = host["id"], ""
        if key not in about:
            verdict = REMOVED if missed else NEVER_ASKED
        elif failed:
            verdict = REMOVED if rejects else FAILED
        else:
            verdict, reason = PASSED if key in kept else REMOVED, reasons.get(key, "")
        entry = entries[verdict]
        host.setdefault("verdicts", []).append({**entry, "reason": reason} if reason else entry)
    return [host for host in left if host["verdicts"][-1]["verdict"] != REMOVED]


def _put_costs(hosts: Sequence[Record], costs: Sequence[_Asked], functions: int) -> None:
    """Put the costs of each cost function into the records of the hosts.

    Args:
        functions: of the call, which bound each one's costs.
    """
    by_id = {host["id"]: host for host in hosts}
    for asked in costs:
        result = asked.result
        if result is None or not result.ok:
            continue
        name, factor = asked.unit["name"], asked.unit["factor"]
        held, _ = aggregate.held(result.value, factor, functions)
        for host, cost in result.value.items():
            counted = held[host]
            entry: Record = {
                "unit": name, "cost": cost, "factor": factor, "weighted": factor * counted
            }  # fmt: skip
            if counted != cost:
                entry["held"] = counted
            if host in result.reasons:
                entry["reason"] = result.reasons[host]
            if host in by_id:
                by_id[host].setdefault("costs", []).append(entry)


def _put_reasons(
    hosts: Sequence[Record], results: Sequence[CallResult], chosen: Sequence[str]
) -> None:
    """Add a verdict where a balance or a driver said why: whether it named the host."""
    for result in results:
        for host in hosts:
            asked = {verdict["unit"] for verdict in host.get("verdicts", ())}
            if host["id"] in result.reasons and result.unit not in asked:
                verdict = PASSED if host["id"] in chosen else REMOVED
                host.setdefault("verdicts", []).append(
                    {"unit": result.unit, "verdict": verdict, "reason": result.reasons[host["id"]]}
                )


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """A record, or a part of one, with each text of it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): each_text(each, change) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [each_text(each, change) for each in value]
    return value
