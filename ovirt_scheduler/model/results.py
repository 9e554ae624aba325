"""How one call of a plugin ended, and what it answered."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Outcome(enum.Enum):
    """How a call ended; the value is the word for logs and tables."""

    OK = "ok"
    REFUSED = "refused"  # it did not run: a property's value is not one that it takes
    RAISED = "raised"
    TIMED_OUT = "timed out"
    KILLED = "killed"
    BAD_ANSWER = "bad answer"


@dataclass(frozen=True)
class Migration:
    """A balance's answer: the VM to move and the hosts it may go to."""

    vm: str
    hosts: tuple[str, ...]


class CallResult(NamedTuple):
    """How one plugin call ended. A plugin's failure is a value, not an exception."""

    unit: str
    outcome: Outcome
    value: Any = None  # as ``Returns`` says
    message: str = ""  # one line, for an administrator; empty when all is well
    seconds: float = 0.0
    notes: tuple[str, ...] = ()  # what was put right in a good answer (hosts not given, ...)
    remarks: tuple[str, ...] = ()  # what changes no answer: output or reasons that were cut
    stdout: str = ""
    stderr: str = ""
    traceback: str = ""
    reasons: Mapping[str, str] = {}  # by host, where it said why

    @property
    def ok(self) -> bool:
        """Whether the call has an answer that counts."""
        return self.outcome is Outcome.OK

    @property
    def problems(self) -> tuple[str, ...]:
        """The messages for the caller: why the call failed, or what was corrected."""
        return self.notes if self.ok else (self.message, *self.notes, *self.remarks)
