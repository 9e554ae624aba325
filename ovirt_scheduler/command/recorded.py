"""Reads the history for a command: from the file in the state folder, or by asking the daemon."""

from __future__ import annotations

import time
from typing import Optional, Protocol, cast

from ovirt_scheduler.command.terminal import Call
from ovirt_scheduler.errors import CallRefused, HistoryUnreadable, NoAnswer
from ovirt_scheduler.history import schema
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.model import spelling
from ovirt_scheduler.model.requests import AnswerForm

_SECONDS, _PAUSE = 1.0, 0.05  # for which a record is waited for, and between two looks


class Recorded(Protocol):
    """Where decisions can be looked up; ``history.reader.Reader`` is one."""

    def decision(self, decision: str) -> Optional[Record]:
        """The record of that id; None where there is none."""

    def decisions(self, query: Query) -> list[Record]:
        """The records that fit, the newest first."""


def vm_hint(recorded: Recorded, vm: str) -> str:
    """``; did you mean X?``, of the VMs of the latest decisions; empty where none is near."""
    latest = recorded.decisions(Query(brief=True))
    return spelling.hint(
        vm, sorted({each["vm"].get("name", "") for each in latest if "vm" in each})
    )


def awaited(file: Recorded, call: Call, decision: str, named: bool) -> Optional[Record]:
    """The record of a decision that a daemon has just made, which it writes within a second.

    Args:
        file: the history in the state folder, which may not be readable.
        call: to the daemon.
        named: the daemon may be another's than that whose history this is.

    Returns:
        None where nobody has it in time, or tells it.
    """
    kept = [OfDaemon(call), file] if named else [file]
    until = time.monotonic() + _SECONDS
    while kept and time.monotonic() < until:
        time.sleep(_PAUSE)
        try:
            found = kept[0].decision(decision)
        except (CallRefused, NoAnswer, HistoryUnreadable):
            del kept[0]
            continue
        if found is not None:
            return found
    return None


class OfDaemon:
    """What a running daemon has recorded.

    Raises (when called):
        NoAnswer, CallRefused: as for the calls of ``terminal.remote``.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def decision(self, decision: str) -> Optional[Record]:
        """The record of that id; None where there is none."""
        return cast("Record", self._call(AnswerForm.DESIGN, "decision", decision).answer) or None

    def decisions(self, query: Query) -> list[Record]:
        """The records that fit, the newest first; the daemon is asked for one outcome at most."""
        asked = {name: value for name, value in vars(query).items() if value not in (None, ())}
        if query.outcomes:
            (asked["outcome"],) = asked.pop("outcomes")
        for name in {"since", "until"} & asked.keys():
            asked[name] = schema.written(asked[name])
        return cast("list[Record]", self._call(AnswerForm.DESIGN, "decisions", asked).answer)
