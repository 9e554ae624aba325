"""What the log tells of a decision: of each plugin call, and of the request as a whole.

A plugin's own message is told, and what it printed; no document, and no property's value.
"""

from __future__ import annotations

import logging
from typing import Dict, Mapping, Tuple, cast

from ovirt_scheduler.log_fields import Block, Costs, Name, Names
from ovirt_scheduler.model import CallResult, Decision, Kind, Migration, Outcome

_log = logging.getLogger(__name__)

_SHOWN_OUTPUT = 2000  # characters of what a plugin printed


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
    for result in decision.results:
        call = {
            "request": decision.request.caller.request_id,
            "kind": decision.request.kind.words,
            "unit": Name(result.unit),
            "outcome": result.outcome.value,
            "milliseconds": round(result.seconds * 1000, 1),
        }
        if not result.ok:
            _tell_failure(call, result)
        elif _log.isEnabledFor(logging.DEBUG):
            _tell_value(call, decision.request.kind, result, left)
            if decision.request.kind is Kind.FILTER:
                left = _kept(result, left)
        for note in result.notes:
            _log.warning("%(request)s %(kind)s %(unit)s: %(reason)s", {**call, "reason": note})
        for stream, printed in (("stdout", result.stdout), ("stderr", result.stderr)):
            if printed.strip():
                told = {**call, "stream": stream, "output": _output(printed.strip())}
                _log.info("%(request)s %(kind)s %(unit)s printed to %(stream)s:", told)


def _tell_failure(call: Mapping[str, object], result: CallResult) -> None:
    if result.outcome is Outcome.REFUSED:  # its message has the value
        _log.warning(
            "%(request)s %(kind)s %(unit)s did not run: its conf file refuses a property's value; "
            "the answer names it",
            call,
        )
        return
    trace = Block(result.traceback.rstrip()) if result.traceback else None
    _log.warning(
        "%(request)s %(kind)s %(unit)s %(outcome)s after %(milliseconds).0f ms: %(reason)s",
        {**call, "reason": result.message, "traceback": trace},
    )


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
        costs = Costs(cast("Mapping[str, int]", result.value))
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
    accepted = frozenset(cast("Tuple[str, ...]", result.value))
    return tuple(host for host in hosts if host in accepted)


def _output(text: str) -> Block:
    return Block(text if len(text) <= _SHOWN_OUTPUT else f"{text[:_SHOWN_OUTPUT]}\u2026")
