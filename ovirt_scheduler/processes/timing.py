"""How long processes are kept, and how long is waited for them."""

from __future__ import annotations

from typing import NamedTuple


class ProcessTimes(NamedTuple):
    """Times of the processes below the daemon, in seconds."""

    # Of a zygote.
    start: float = 20.0  # for it to be ready
    starts: int = 5  # that are tried, where somebody kills each zygote while it starts
    end: float = 5.0  # for it to end a worker, and to tell how it ended
    obey: float = 5.0  # for it to give a sign of life

    # Of a process that serves a plugin, or reads documents.
    load: float = 60.0  # from the setup until it has to be ready
    settle: float = 1.0  # from an answer until it has to be ready again
    patience: float = 0.005  # for it to be ready, before another is used
    quiet: float = 5.0  # without a word from any process, until the zygote is asked for one
    last: float = 0.5  # for one whose connection has ended to have ended itself
    life: float = 3600.0  # for which one is kept: libraries are updated under it
    idle: float = 5.0  # for which more than one of a plugin are kept
    grown: float = 5.0  # without a call, after which one that has grown is replaced

    # Of the thread that keeps them ready.
    tick: float = 0.25  # between two looks while a process settles
    rest: float = 5.0  # ... while none does


TIMES = ProcessTimes()
