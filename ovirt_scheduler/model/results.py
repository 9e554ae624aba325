"""How one call of a plugin ended, and what it answered; and what a request came to.

These are the words for it in the log, records, metrics, the status and pages.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class CallOutcome(enum.Enum):
    """How a call of a unit or a driver ended."""

    OK = "ok"
    RAISED = "raised"
    TIMED_OUT = "timed out"
    KILLED = "killed"
    BAD_ANSWER = "bad answer"
    REFUSED = "refused"  # it did not run: a property's value is not one that it takes
    NOT_ASKED = "not asked"  # it was not called


class RequestOutcome(enum.Enum):
    """What a request came to: the first of these that is true of it."""

    FAULT = "fault"
    UNIT_MISSING = "unit missing"  # a unit that it names is not there, or refuses a property
    UNIT_FAILED = "unit failed"
    NO_HOST_LEFT = "no host left"
    DEGRADED = "degraded"  # answered with less than was asked for, such as without the engine
    CORRECTED = "corrected"  # something in a unit's answer was put right
    OK = "ok"


@dataclass(frozen=True)
class Migration:
    """A balance's answer: the VM to move and the hosts it may go to."""

    vm: str
    hosts: tuple[str, ...]


class CallResult(NamedTuple):
    """How one plugin call ended. A plugin's failure is a value, not an exception."""

    unit: str
    outcome: CallOutcome
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
        return self.outcome is CallOutcome.OK

    @property
    def problems(self) -> tuple[str, ...]:
        """The messages for the caller: why the call failed, or what was corrected."""
        return self.notes if self.ok else (self.message, *self.notes, *self.remarks)
