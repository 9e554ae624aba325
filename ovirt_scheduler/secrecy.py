"""Keeps what a process has in memory from other processes of the same user. ``prctl(2)``."""

from __future__ import annotations

import ctypes
import os

_PR_SET_DUMPABLE = 4
_LIBC = ctypes.CDLL(None, use_errno=True)


def hide_memory() -> None:
    """Have memory, environment and descriptors of this process be for root alone.

    Holds for what is forked from it, and ends with exec: other processes of its user cannot
    trace it then, nor open its ``mem``, ``environ`` and ``fd`` in ``/proc``.
    """
    if _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
