"""Why processes below the zygote end, in words for the log.

A reason is a word or two, and after a colon what is known besides: ``memory``, ``modules: json.x``.
"""

from __future__ import annotations

import threading
from collections import Counter, deque

from ovirt_scheduler.model.tasks import ENDS
from ovirt_scheduler.model.values.text import one_line
from ovirt_scheduler.processes.protocol import frames

_LONGEST = 200  # characters of a reason that a process gives
_MOST_LATEST = 100  # reasons

OUT_OF_TURN = "spoke out of turn"

# Why the daemon ends a process; ``ENDS`` has the reasons of processes that end by themselves.
_WORDS = {
    **ENDS,
    "abandoned": "its request was given up",
    "age": "it was kept for an hour",
    "did not get ready": "it was not ready for another call in time",
    "ended": "it has ended",
    "grown": "it took more memory than a new one, and was idle",
    "idle": "fewer are needed now",
    "kept_processes": "there were more than kept_processes",
    "killed": "a call was killed",
    "misled": "its answer cannot be read",
    "not in use": "this version of the file, or its limits, are not in use any more",
    "not started": "it did not start",
    "timed out": "a call timed out",
}

_BY_ITSELF = {*ENDS, "did not get ready", "ended", OUT_OF_TURN}


def in_words(why: str) -> str:
    """A reason for the log."""
    reason, colon, more = why.partition(":")
    return f"{_WORDS.get(reason, reason)}{colon}{more}"


def is_of_the_plugin(why: str) -> bool:
    """Whether a reason is the plugin's doing, if nobody has called the process yet."""
    return why.partition(":")[0] in _BY_ITSELF


def of_frame(frame: frames.Frame, nonce: int) -> str:
    """The reason that a process gives for its end: one of ``ENDS``, or ``OUT_OF_TURN``.

    Args:
        nonce: of its last task.
    """
    if frame.kind == frames.DIFFERS and frame.nonce == nonce:
        text = one_line(frame.payload.decode("utf-8", "replace"), _LONGEST)
        if text.partition(":")[0] in ENDS:
            return text
    return OUT_OF_TURN


class Ends:
    """The reasons for which processes have ended. Safe to use from many threads."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._latest: deque[str] = deque(maxlen=_MOST_LATEST)
        self._lock = threading.Lock()

    def note(self, why: str, is_of_a_plugin: bool) -> None:
        """Count an end."""
        with self._lock:
            self._counts[why.partition(":")[0]] += 1
            if is_of_a_plugin:
                self._latest.append(why)

    def counts(self) -> dict[str, int]:
        """How many processes have ended, by the reason without its details."""
        with self._lock:
            return dict(self._counts)

    def take_latest(self) -> list[str]:
        """Why processes of plugins have ended by themselves since the last call of this, in words.

        Without those that have served ``calls_per_process`` calls.
        """
        with self._lock:
            latest = [*self._latest]
            self._latest.clear()
        reasons = ENDS.keys() - {"calls_per_process"}
        return [in_words(why) for why in latest if why.partition(":")[0] in reasons]
