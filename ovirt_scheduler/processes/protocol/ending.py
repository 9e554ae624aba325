"""Why a process of a plugin, or a reader, ends: a reason, and what is known besides."""

from __future__ import annotations

import enum
from typing import NamedTuple

from ovirt_scheduler.model.values.text import one_line

_LONGEST_DETAIL = 200  # characters of what a process says of its own end


class Reason(enum.Enum):
    """The reasons; ``word`` is for metrics, ``label`` for the log."""

    CHANGED = "changed", "a call changed its process"
    LEFTOVERS = "leftovers", "a call left something behind"
    LIMIT = "limit", "a call, or its calls together, reached a limit"
    EXIT = "exit", "a call ended with sys.exit"
    SERVED = "served", "it has done its share"
    FAILED = "failed", "it ended, or was killed, with a task"
    MISLED = "misled", "what it said cannot be read"
    NOT_READY = "not ready", "it was not ready for a call in time"
    SURPLUS = "surplus", "it is not needed now"
    OUTDATED = "outdated", "this version of the file, or its limits, are not in use any more"

    def __init__(self, _: str, label: str) -> None:
        self.label = label

    @property
    def word(self) -> str:
        """The word for metrics."""
        return str(self.value[0])


# What a process says of itself. All but the last are its plugin's doing.
OWN = (Reason.CHANGED, Reason.LEFTOVERS, Reason.LIMIT, Reason.EXIT, Reason.SERVED)


class Ending(NamedTuple):
    """Why a process ends."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason.label}{self.detail and ': '}{self.detail}"

    def pack(self) -> bytes:
        """The payload of a frame that says it."""
        return f"{self.reason.word}:{self.detail}".encode()


def unpack(payload: bytes) -> Ending:
    """What a process says of its own end; MISLED if it says something else."""
    word, _, detail = one_line(payload.decode("utf-8", "replace"), _LONGEST_DETAIL).partition(":")
    reason = next((reason for reason in OWN if reason.word == word), None)
    return OUT_OF_TURN if reason is None else Ending(reason, detail)


OUT_OF_TURN = Ending(Reason.MISLED, "it spoke out of turn")
ENDED = Ending(Reason.FAILED, "it has ended")
ABANDONED = Ending(Reason.FAILED, "its request was given up")
