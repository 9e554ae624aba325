"""From a decision to its record: plain texts, numbers, lists and dicts (contract 8.1).

Pure: nothing here asks the clock or the disk. What is not known is not in the record.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from ovirt_scheduler.history import query, ranking
from ovirt_scheduler.history.record import (
    FAILED,
    NEVER_ASKED,
    NOT_ASKED,
    PASSED,
    REMOVED,
    Cost,
    Entity,
    Host,
    Record,
    UnitRecord,
    Verdict,
    entity,
)
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.jobs import Decision, DriverCall, Request, ShadowCall
from ovirt_scheduler.model.requests import Document, Entities, IdsOrDocument, RequestedUnit
from ovirt_scheduler.model.results import CallResult, Migration
from ovirt_scheduler.model.tasks import EngineReplies, Returns
from ovirt_scheduler.model.units import Kind, OnFailure, UnitCall
from ovirt_scheduler.model.values import hidden, properties

_BYTES_OF_HOST = 100  # its id, and what a unit said of it


class _RecordedUnit(NamedTuple):
    """A unit that a request named: its record, and how its call ended, if there was one."""

    unit: UnitRecord
    call: Optional[UnitCall]
    result: Optional[CallResult]


def without_documents(decision: Decision) -> Decision:
    """The decision without documents, and without arguments and answers of a topic's method.

    These may be large, and are in no record.
    """
    request, execution, answer = decision.request, decision.execution, decision.answer
    call, balance, of_driver = request.driver_call, execution.balance, execution.driver_call
    if call is not None:
        answer = answer if call.defined else None
        call = DriverCall(call.driver, call.method)
    entities = Entities(_ids(request.entities.hosts))
    balance = balance and balance._replace(value=None)
    of_driver = of_driver and of_driver._replace(value=None)
    return decision._replace(
        request=request._replace(entities=entities, driver_call=call),
        execution=execution._replace(balance=balance, driver_call=of_driver, packs={}),
        answer=answer,
        replies=EngineReplies(),
    )


def size(decision: Decision, shadows: Sequence[ShadowCall] = ()) -> int:
    """About how many bytes of memory a decision takes, with what units in shadow said of it."""
    execution = decision.execution
    documents = (each for each in decision.request.entities if isinstance(each, Document))
    called = [*execution.results]
    called += [each.result for each in shadows if each.result is not None]
    texts = [*itertools.chain(*decision.request.properties.items())]
    for result in called:
        texts += (result.stdout, result.stderr, result.traceback, *result.reasons.values())
    of_hosts = _BYTES_OF_HOST * len(execution.hosts) * (1 + len(called))
    packs = sum(pack.size for pack in execution.packs.values())
    return of_hosts + packs + sum(len(each.data) for each in documents) + sum(map(len, texts))


def make_record(
    decision: Decision, shadows: Sequence[ShadowCall] = (), beforehand: bool = False
) -> Record:
    """The record of a call: of policy units, or of a driver and the policy units before it.

    Args:
        decision: maybe ``without_documents``.
        shadows: the calls of the units in shadow, if they were made already.
        beforehand: whether the engine asked only to answer a question of this daemon's.
    """
    caller, custom = decision.request.caller, decision.request.properties
    record: Record = {
        "id": caller.decision,
        "time": query.written(decision.time),
        "milliseconds": round(decision.seconds * 1000, 2),
        "caller": caller.peer,
        "method": _method(decision.request),
        "form": "daemon" if caller.cluster else caller.form.value,
    }
    if caller.cluster:
        record["cluster"] = caller.cluster
    if beforehand and not caller.cluster:
        record["beforehand"] = True
    _put_vm(record, decision.execution.vm, decision.execution.names)
    if custom:
        record["properties"] = shown_properties(custom)
    _put_units_and_hosts(record, decision, shadows)
    _put_answer(record, decision)
    if decision.errors:
        record["errors"] = list(decision.errors)
    return record


def shown_properties(custom: Mapping[str, str]) -> dict[str, str]:
    """The properties of a call, without what may be a password."""
    return {
        name: hidden.HIDDEN if properties.is_secret(name) else hidden.without_secrets(value)
        for name, value in custom.items()
    }


def _method(request: Request) -> str:
    """As XML-RPC has it: ``selectHost``."""
    if request.driver_call is None:
        return next(iter(request.units)).method
    if request.driver_call.defined is None:
        return "schedule"
    first, *others = request.driver_call.method.split("_")
    return first + "".join(map(str.title, others))


def _put_units_and_hosts(record: Record, decision: Decision, shadows: Sequence[ShadowCall]) -> None:
    """Add the calls, the hosts, and the verdicts and costs of the policy units."""
    request, execution, names = decision.request, decision.execution, decision.execution.names
    recorded = [*_recorded_units(decision, shadows)]
    record["units"] = [each.unit for each in recorded]
    if request.driver_call is not None:
        driver = request.driver_call.driver
        own: UnitRecord = {"name": driver.name, "kind": driver.label, "checksum": driver.checksum}
        record["units"].append({**own, **_ended(execution.driver_call), "mode": "live"})
    hosts = execution.hosts or _ids(request.entities.hosts)
    record["hosts"] = entries = [entity(host, names.get(host, "")) for host in hosts]
    remaining: Sequence[Host] = entries
    for unit in recorded:
        if unit.unit["kind"] == Kind.FILTER.label:  # those in shadow come last
            about = remaining if unit.unit["mode"] == "live" else entries
            remaining = _put_verdicts(unit, entries, about, missed=execution.rejected)
    _put_costs(recorded, entries)


def _recorded_units(decision: Decision, shadows: Sequence[ShadowCall]) -> Iterator[_RecordedUnit]:
    """The policy units that the request names, in its order, and those in shadow."""
    for kind, units in decision.request.units.items():
        called = {call.unit.name: call for call in decision.calls if call.unit.kind is kind}
        ended = {result.unit: result for result in decision.execution.of(kind)}
        for unit in units:
            name = unit.name
            problems = () if name in called else decision.unit_errors.get(name, ())
            yield _recorded_unit(kind, unit, called.get(name), ended.get(name), "; ".join(problems))
    for call, result, problem in shadows:
        in_shadow = RequestedUnit(call.unit.name, call.factor)
        yield _recorded_unit(call.unit.kind, in_shadow, call, result, problem)


def _recorded_unit(
    kind: Kind, named: RequestedUnit, call: Optional[UnitCall], result: Optional[CallResult],
    problem: str,
) -> _RecordedUnit:  # fmt: skip
    """A unit, with its record.

    Args:
        problem: why it was not called.
    """
    unit: UnitRecord = {"name": named.name, "kind": kind.label}
    if kind is Kind.COST_FUNCTION:
        unit["factor"] = named.factor
    if call is not None:
        unit["checksum"] = call.unit.checksum
    unit.update(_ended(result, problem))
    unit["mode"] = "live" if call is None else call.unit.mode
    migration = None if result is None else result.value
    if unit["mode"] == "shadow" and isinstance(migration, Migration):
        hosts = ", ".join(migration.hosts) or "any host"
        unit.setdefault("notes", []).append(f"would migrate {migration.vm} to {hosts}")
    return _RecordedUnit(unit, call, result)


def _put_answer(record: Record, decision: Decision) -> None:
    """Add the answer, the reasons of what was called last, and which units were decisive."""
    request, answer, result = decision.request, decision.answer, decision.execution.final
    chosen: Container[str] = ()
    if request.returns is Returns.COSTS:
        ranking.put_totals(record)
        answer = ranking.ranked(record)
        record["decisive"] = [*ranking.decisive(record)]
    elif isinstance(answer, Migration):
        _put_vm(record, answer.vm, decision.execution.names)
        chosen, answer = answer.hosts, {"vm": answer.vm, "hosts": list(answer.hosts)}
    elif request.returns is Returns.MIGRATIONS:
        chosen = {host for hosts in answer.values() for host in hosts}
        answer = {vm: list(hosts) for vm, hosts in answer.items()}
        names = decision.execution.names
        named: list[Entity] = [entity(vm, names[vm]) for vm in answer if vm in names]
        if named:
            record["vms"] = named
    elif isinstance(answer, tuple):
        chosen, answer = {*answer}, list(answer)
    if answer is not None and request.returns is not Returns.VALUE:
        record["answer"] = answer
    if request.returns in (Returns.SELECTION, Returns.TRUTH):
        ranking.put_totals(record)
        if any("total" in host for host in record["hosts"]):
            record["decisive"] = [*ranking.decisive(record)]
    if result is not None:
        migrates = request.returns in (Returns.MIGRATION, Returns.MIGRATIONS)
        _put_reasons(record["hosts"], result, chosen, {} if migrates else {"verdict": REMOVED})


def _ids(hosts: IdsOrDocument) -> tuple[str, ...]:
    return hosts if isinstance(hosts, tuple) else ()


def _put_vm(record: Record, vm: Optional[str], names: Mapping[str, str]) -> None:
    """A VM that is yet to be made has a name at most."""
    shown_vm = entity(vm or "", names.get(vm or "", ""))
    if shown_vm:
        record["vm"] = shown_vm


def _ended(result: Optional[CallResult], problem: str = "") -> UnitRecord:
    """How a unit's call ended.

    Args:
        problem: why it was not called.
    """
    ended: UnitRecord = {"outcome": NOT_ASKED if result is None else result.outcome.value}
    message = problem if result is None else result.message
    if message:
        ended["message"] = message
    if result is not None:
        ended["milliseconds"] = round(result.seconds * 1000, 2)
        if result.notes or result.remarks:
            ended["notes"] = [*result.notes, *result.remarks]
        if result.ok and result.notes:
            ended["corrected"] = True
    return ended


def _put_verdicts(
    recorded: _RecordedUnit, hosts: Sequence[Host], before: Sequence[Host], missed: bool = False
) -> list[Host]:
    """Add one filter's verdict on each host, and return the hosts that it did not remove.

    Args:
        missed: a missing filter accepts no host.
    """
    result = recorded.result
    about = {host["id"] for host in before} if result is not None else set()
    accepted = frozenset(result.value) if result is not None and result.ok else frozenset()
    failed = result is not None and not result.ok
    rejects = recorded.call is not None and recorded.call.unit.on_failure is OnFailure.REJECT
    reasons = {} if result is None else result.reasons
    # Hosts of which the filters say the same share their verdicts: of 20 filters and 10,000 hosts,
    # verdicts of their own would take 44 MB.
    shared: dict[tuple[int, str, str], tuple[Verdict, ...]] = {}
    for host in hosts:
        key, reason = host["id"], ""
        if key not in about:
            verdict = REMOVED if missed and recorded.call is None else NEVER_ASKED
        elif failed:
            verdict = REMOVED if rejects else FAILED
        else:
            verdict, reason = PASSED if key in accepted else REMOVED, reasons.get(key, "")
        earlier = host.get("verdicts", ())
        alike = id(earlier), verdict, reason
        if alike not in shared:
            entry: Verdict = {"unit": recorded.unit["name"], "verdict": verdict}
            if reason:
                entry["reason"] = reason
            shared[alike] = (*earlier, entry)
        host["verdicts"] = shared[alike]
    return [host for host in before if host["verdicts"][-1]["verdict"] != REMOVED]


def _put_costs(recorded: Sequence[_RecordedUnit], hosts: Sequence[Host]) -> None:
    """Put the costs of the functions into the records of the hosts.

    Those of a function in shadow are as they would count beside the live ones.
    """
    scored = [
        (call, result)
        for _, call, result in recorded
        if call is not None and result is not None and call.unit.kind is Kind.COST_FUNCTION
    ]
    live = [function for function in scored if not function[0].unit.shadow]
    shadows = scored[len(live) :]
    counted = [*aggregate.clamped_costs(live)]
    counted += [aggregate.clamped_costs([*live, shadow])[-1] for shadow in shadows]
    for (call, result), costs in zip(scored, counted):
        for host in hosts:
            key = host["id"]
            if key in costs:
                host.setdefault("costs", []).append(_cost(call, result, key, costs[key]))
            elif result.ok and key in result.reasons:
                left_out: Cost = {"unit": call.unit.name, "reason": result.reasons[key]}
                host.setdefault("costs", []).append(left_out)


def _cost(call: UnitCall, result: CallResult, host: str, counted: int) -> Cost:
    """A function's cost of a host.

    Args:
        counted: the cost as it counts.
    """
    cost: Cost = {
        "unit": call.unit.name, "cost": result.value[host], "factor": call.factor,
        "weighted": call.factor * counted,
    }  # fmt: skip
    if counted != result.value[host]:
        cost["held"] = counted
    if host in result.reasons:
        cost["reason"] = result.reasons[host]
    return cost


def _put_reasons(
    hosts: Sequence[Host], result: CallResult, chosen: Container[str], of_others: Verdict
) -> None:
    """Add the reasons that a balance or a driver gave for hosts, each with its verdict.

    Args:
        chosen: ids of the hosts that passed.
        of_others: the verdict on hosts that are not chosen; a migration has none.
    """
    for host in hosts:
        reason = result.reasons.get(host["id"])
        with_verdict = {verdict["unit"] for verdict in host.get("verdicts", ())}
        if reason is not None and result.unit not in with_verdict:
            verdict: Verdict = {"verdict": PASSED} if host["id"] in chosen else of_others
            entry: Verdict = {"unit": result.unit, **verdict, "reason": reason}
            host["verdicts"] = (*host.get("verdicts", ()), entry)
