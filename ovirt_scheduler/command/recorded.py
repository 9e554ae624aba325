"""The history as a command reads it: the state folder's file, or what the daemon tells of it."""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone
from typing import Any, ContextManager, Dict, Iterator, List, Optional, Protocol, cast

from ovirt_scheduler.command.terminal import Call
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.model.requests import AnswerForm

Record = Dict[str, Any]  # a decision (contract 8.1)


class Recorded(Protocol):
    """Where decisions can be looked up; ``history.store.Reader`` is one."""

    def decision(self, decision: str) -> Optional[Record]:
        """The record of that id; None where there is none."""

    def decisions(self, query: Query) -> List[Record]:
        """The records that fit, the newest first."""


@contextlib.contextmanager
def of_daemon(calls: ContextManager[Call]) -> Iterator[Recorded]:
    """What a running daemon has recorded."""
    with calls as call:
        yield _OfDaemon(call)


class _OfDaemon:
    def __init__(self, call: Call) -> None:
        self._call = call

    def decision(self, decision: str) -> Optional[Record]:
        return cast("Record", self._call(AnswerForm.DESIGN, "decision", decision).answer) or None

    def decisions(self, query: Query) -> List[Record]:
        asked = {name: value for name, value in vars(query).items() if value is not None}
        for name in {"since", "until"} & asked.keys():
            moment = datetime.fromtimestamp(asked[name], timezone.utc)
            asked[name] = moment.isoformat().replace("+00:00", "Z")
        return cast("List[Record]", self._call(AnswerForm.DESIGN, "decisions", asked).answer)
