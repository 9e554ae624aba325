"""What the log tells of one plugin call: its failure, what was put right, what it printed.

A plugin's own message is told, and what it printed; no document, and no property's value.
"""

from __future__ import annotations

import logging
from typing import Dict, Mapping, Sequence

from ovirt_scheduler.log.fields import Block, Name
from ovirt_scheduler.model.results import CallResult, Outcome

_log = logging.getLogger(__name__)

_SHOWN_OUTPUT = 2000  # characters of what a plugin printed


def described(request_id: str, kind: str, result: CallResult) -> Dict[str, object]:
    """The fields of every line on a call.

    Args:
        kind: of what was called, in words.
    """
    return {
        "request": request_id,
        "kind": kind,
        "unit": Name(result.unit),
        "outcome": result.outcome.value,
        "milliseconds": round(result.seconds * 1000, 1),
    }


def has_lines(result: CallResult) -> bool:
    """Whether ``tell`` has any: there are none where all was well and nothing was printed."""
    return not result.ok or bool(result.notes or result.stdout or result.stderr)


def tell(call: Mapping[str, object], result: CallResult) -> None:
    """The lines on a call, as ``described``."""
    if not result.ok:
        _tell_failure(call, result)
    for note in result.notes:
        _log.warning("%(request)s %(kind)s %(unit)s: %(reason)s", {**call, "reason": note})
    for stream, printed in (("stdout", result.stdout), ("stderr", result.stderr)):
        if printed.strip():
            told = {**call, "stream": stream, "output": _output(printed.strip())}
            _log.info("%(request)s %(kind)s %(unit)s printed to %(stream)s:", told)


def tell_left_out(request_id: str, kind: str, units: Mapping[str, Sequence[str]]) -> None:
    """The lines on units that were asked for, and were not called as they were.

    Args:
        kind: of the units, in words.
        units: name to what is wrong.
    """
    for name, problems in units.items():
        told = {"request": request_id, "kind": kind, "unit": Name(name)}
        for problem in problems:
            _log.warning("%(request)s %(kind)s %(unit)s: %(reason)s", {**told, "reason": problem})


def tell_request(request_id: str, problems: Sequence[str]) -> None:
    """The lines on what is wrong with no single unit: what the engine told of ids, sums."""
    for problem in problems:
        _log.warning("%(request)s: %(reason)s", {"request": request_id, "reason": problem})


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


def _output(text: str) -> Block:
    return Block(text if len(text) <= _SHOWN_OUTPUT else f"{text[:_SHOWN_OUTPUT]}\u2026")
