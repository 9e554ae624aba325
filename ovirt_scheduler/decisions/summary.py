"""Says in one line what a decision came to: in the log, to the engine, and in a simulation.

From documents it has only the names of a VM and of the chosen host.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Optional

from ovirt_scheduler.log.fields import Name, Names
from ovirt_scheduler.model.jobs import Decision
from ovirt_scheduler.model.results import Migration
from ovirt_scheduler.model.tasks import Returns
from ovirt_scheduler.model.units import Kind, OnFailure
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
    removals = _removals(decision)
    count = len(execution.hosts) - sum(removals.values())
    outcome = remaining = ", ".join((f"{count} left", *_removal_words(removals)))
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


def why_not(decision: Decision) -> str:
    """Why hosts were not chosen: ``7 hosts removed by MaxVms, 2 by Memory``; empty if all could."""
    removals = _removals(decision)
    if not removals:
        return "" if decision.answer else "the scheduler chooses none"
    return ", ".join(_removal_words(removals, "host"))


def _removals(decision: Decision) -> dict[str, int]:
    """How many hosts each filter removed, of those that removed any; by name, in their order."""
    request, execution = decision.request, decision.execution
    count = len(execution.hosts)
    if execution.rejected:  # by a missing filter that rejects them all (contract 4.2)
        called = {call.unit.name for call in decision.calls}
        filters = request.units.get(Kind.FILTER, ())
        missing = Names([unit.name for unit in filters if unit.name not in called])
        return {str(missing): count}
    removals = {}
    for result, call in zip(execution.filters, decision.calls):
        rejects = call.unit.on_failure is OnFailure.REJECT
        accepted = len(result.value) if result.ok else 0 if rejects else count
        if accepted < count:
            removals[str(Name(result.unit))] = count - accepted
        count = accepted
    return removals


def _removal_words(removals: Mapping[str, int], counted: str = "") -> list[str]:
    """``7 removed by MaxVms``, ``2 by Memory``; with what is counted beside the first number."""
    words = [f"{number} by {names}" for names, number in removals.items()]
    if removals:
        names, number = next(iter(removals.items()))
        words[0] = f"{count_of(number, counted) if counted else number} removed by {names}"
    more = len(words) - _SHOWN_UNITS
    if more > 0:
        words[_SHOWN_UNITS:] = [f"others by {more} more"]
    return words


def _named(entity: Optional[str], names: Mapping[str, str]) -> str:
    """Name and id, as far as they are known."""
    name = names.get(entity or "")
    if not entity or not name:
        return str(Name(entity or name or ""))
    return f"{Name(name)} ({Name(entity)})"
