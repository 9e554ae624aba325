"""Says in one line what a decision came to: in the log, to the engine, and in a simulation.

From documents it has only the names of a VM and of the chosen host.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Optional

from ovirt_scheduler.log.fields import Name, Names
from ovirt_scheduler.model.jobs import Decision
from ovirt_scheduler.model.results import CallResult, Migration
from ovirt_scheduler.model.tasks import Returns
from ovirt_scheduler.model.units import Kind, OnFailure, UnitCall
from ovirt_scheduler.model.values.text import count_of

_SHOWN_UNITS = 8
_OF_HOSTS = (Returns.HOSTS, Returns.COSTS, Returns.SELECTION, Returns.IDS)  # each host at most once


def fields(decision: Decision) -> dict[str, object]:
    """The fields of the log's line on the request: units, hosts in and out, who had problems."""
    request, execution, answer = decision.request, decision.execution, decision.answer
    units = [unit.name for wanted in request.units.values() for unit in wanted]
    if request.driver_call is not None:
        units.insert(0, request.driver_call.driver.name)
    vm = execution.vm
    hosts: Collection[str] = ()
    if isinstance(answer, Migration):
        vm, hosts = answer.vm, answer.hosts
    elif request.returns is Returns.MIGRATIONS:
        hosts = {host for several in answer.values() for host in several}
    elif request.returns in _OF_HOSTS:
        hosts = answer
    about = f"VM {_named(vm, execution.names)}, " if vm or "" in execution.names else ""
    problems = Names(list(decision.unit_errors)) if decision.unit_errors else None
    ending = f"; problems with {problems}" if problems else ""
    return {
        "units": Names(units),
        "hosts_in": len(execution.hosts),
        "hosts_out": len(hosts),
        "problems": problems,
        "outcome": decision.outcome.value,
        "vm": Name(vm) if vm else None,
        "decided": f"{about}{text(decision)}{ending}",
    }


def text(decision: Decision) -> str:
    """The outcome for the hosts: ``12 hosts: 3 left, 7 removed by MaxVms, 2 by Memory``.

    Of a scheduler's call also which host was chosen, or how many VMs are to be migrated. A topic's
    own method gets no hosts.
    """
    returns, execution, answer = decision.request.returns, decision.execution, decision.answer
    if returns is Returns.VALUE:
        return "answered" if decision.failure is None else "no answer"
    outcome = remaining = _remaining(len(execution.hosts), execution.filters, decision.calls)
    if execution.rejected:
        outcome = remaining = _rejected(decision)
    if returns is Returns.COSTS:
        outcome = f"{len(answer)} with a cost"
    elif isinstance(answer, Migration):
        outcome = f"{len(answer.hosts) or 'any'} to migrate to"
    elif returns is Returns.MIGRATION:
        outcome = "nothing to migrate"
    elif decision.request.driver_call is not None and decision.failure is None:
        if returns is Returns.MIGRATIONS:
            outcome = f"{remaining}; {count_of(len(answer), 'VM')} to migrate"
        elif isinstance(answer, tuple):
            outcome = (
                f"{remaining}; chosen {_named(answer[0], execution.names) if answer else 'none'}"
            )
    return f"{count_of(len(execution.hosts), 'host')}: {outcome}"


def _rejected(decision: Decision) -> str:
    """How many hosts missing filters removed, where one rejects them all (contract 4.2)."""
    called = {call.unit.name for call in decision.calls}
    filters = decision.request.units.get(Kind.FILTER, ())
    missing = Names([each.name for each in filters if each.name not in called])
    return f"0 left, {len(decision.execution.hosts)} removed by {missing}"


def _remaining(hosts: int, filters: Sequence[CallResult], calls: Sequence[UnitCall]) -> str:
    """How many hosts filters left, and which removed how many."""
    count = hosts
    removals: list[str] = []
    for result, call in zip(filters, calls):
        rejects = call.unit.on_failure is OnFailure.REJECT
        accepted = len(result.value) if result.ok else 0 if rejects else count
        if accepted < count:
            by = "by" if removals else "removed by"
            removals.append(f"{count - accepted} {by} {Name(result.unit)}")
        count = accepted
    more = len(removals) - _SHOWN_UNITS
    if more > 0:
        removals[_SHOWN_UNITS:] = [f"others by {more} more"]
    return ", ".join((f"{count} left", *removals))


def _named(entity: Optional[str], names: Mapping[str, str]) -> str:
    """Name and id, as far as they are known."""
    name = names.get(entity or "")
    if not entity or not name:
        return str(Name(entity or name or ""))
    return f"{Name(name)} ({Name(entity)})"
