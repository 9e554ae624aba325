"""Flags of a process that ``prctl(2)`` sets: who may look into it, and how it dies."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_LIBC = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Have the orphans among this process's descendants become its children."""
    _set(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Be killed when the parent ends. For a parent with one thread only: the kernel's
    signal follows the thread that forked.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def gain_no_privileges() -> None:
    """Have programs with a set-user-ID bit, or capabilities of their own, run as all others do.

    What has another user's rights could not be killed by this process (contract 4.5).
    """
    _set(_PR_SET_NO_NEW_PRIVS, 1)


def hide_memory() -> None:
    """Have memory, environment and descriptors of this process be for root alone.

    Holds for what is forked from it, and ends with exec: other processes of its user cannot
    trace it then, nor open its ``mem``, ``environ`` and ``fd`` in ``/proc``.
    """
    _set(_PR_SET_DUMPABLE, 0)


def _set(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
