"""The progress of an exchange of a task and its answer, and why its worker ends then."""

from __future__ import annotations

import enum

from ovirt_scheduler.processes.protocol.ending import ENDED, Ending, Reason


class ExchangeState(enum.Enum):
    """The progress of an exchange."""

    WAITING = "waiting"  # for a worker
    SETTLING = "settling"  # the worker has not said yet that it has finished the task before
    UNDER_WAY = "under way"
    ANSWERED = "answered"
    TOO_LATE = "too late"  # its time was over before a worker had it
    NOT_READY = "not ready"  # its worker takes longer to settle than there is patience for
    NOT_BEGUN = "not begun"  # its worker ended before it took the task: another can have it
    TIMED_OUT = "timed out"
    ENDED = "ended"  # its worker did, without an answer
    MISLED = "misled"  # what came is no answer; ``problem`` says why
    NOT_SENT = "not sent"  # descriptors or memory lack for the task; likewise


# Why a worker ends, where it has not said so itself.
ENDINGS = {
    ExchangeState.ANSWERED: None,
    ExchangeState.NOT_BEGUN: ENDED,
    ExchangeState.ENDED: ENDED,
    ExchangeState.MISLED: Ending(Reason.MISLED),
    ExchangeState.TIMED_OUT: Ending(Reason.FAILED, ExchangeState.TIMED_OUT.value),
    ExchangeState.NOT_SENT: Ending(Reason.FAILED, ExchangeState.NOT_SENT.value),
}
