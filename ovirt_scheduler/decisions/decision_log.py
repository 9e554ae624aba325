"""What the log tells of a decision: what each unit decided, and of the request as a whole."""

from __future__ import annotations

import logging
from typing import Dict, Mapping, Tuple

from ovirt_scheduler.decisions import log
from ovirt_scheduler.log.fields import Costs, Name, Names
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.decisions import Decision
from ovirt_scheduler.model.results import CallResult, Migration
from ovirt_scheduler.model.units import Kind

_log = logging.getLogger(__name__)


def fields(decision: Decision) -> Dict[str, object]:
    """What the line on the request tells of it: units, hosts in and out, who had problems."""
    answer = decision.answer
    hosts = answer.hosts if isinstance(answer, Migration) else answer or ()
    return {
        "units": Names([wanted.name for wanted in decision.request.wanted]),
        "hosts_in": len(decision.hosts),
        "hosts_out": len(hosts),
        "problems": Names(list(decision.unit_errors)) if decision.unit_errors else None,
        "outcome": "degraded" if decision.unit_errors or decision.errors else "ok",
    }


def tell(decision: Decision) -> None:
    """The lines on the plugin calls, in the order in which they ran."""
    left = decision.hosts
    in_full = _log.isEnabledFor(logging.DEBUG)
    for result in decision.results:
        if not in_full and not log.has_lines(result):
            continue
        call = log.described(
            decision.request.caller.request_id, decision.request.kind.words, result
        )
        if result.ok and in_full:
            _tell_value(call, decision.request.kind, result, left)
            if decision.request.kind is Kind.FILTER:
                left = _kept(result, left)
        log.tell(call, result)


def _tell_value(
    call: Mapping[str, object], kind: Kind, result: CallResult, left: Tuple[str, ...]
) -> None:
    """What a unit decided on the hosts that those before it left."""
    if kind is Kind.FILTER:
        kept = frozenset(_kept(result, left))
        removed = Names([host for host in left if host not in kept])
        told = {**call, "hosts_in": len(left), "removed": removed}
        _log.debug(
            "%(request)s %(kind)s %(unit)s removed %(removed)s of %(hosts_in)d hosts in "
            "%(milliseconds).1f ms",
            told,
        )
    elif kind is Kind.COST_FUNCTION:
        costs = Costs(result.value)
        _log.debug(
            "%(request)s %(kind)s %(unit)s costs %(costs)s in %(milliseconds).1f ms",
            {**call, "costs": costs},
        )
    elif isinstance(result.value, Migration):
        migration = {"vm": Name(result.value.vm), "hosts": Names(result.value.hosts)}
        _log.debug(
            "%(request)s %(kind)s %(unit)s migrates %(vm)s to %(hosts)s in %(milliseconds).1f ms",
            {**call, **migration},
        )


def _kept(result: CallResult, hosts: Tuple[str, ...]) -> Tuple[str, ...]:
    return aggregate.among(hosts, result.value)[0]
