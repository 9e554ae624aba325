"""Flags that ``prctl(2)`` sets: who may inspect this process, and whose death ends it."""

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
    """Make this process the parent of every orphan among its descendants."""
    _set(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends.

    The parent must have one thread: the kernel kills when the thread ends that forked.

    Args:
        parent: its pid; if it has ended already, this process exits.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def gain_no_privileges() -> None:
    """Let no program that is started from here gain rights by a set-user-ID bit or capabilities.

    This process could not kill one with more rights than its own (contract 4.5).
    """
    _set(_PR_SET_NO_NEW_PRIVS, 1)


def hide_memory() -> None:
    """Close memory, environment and descriptors of this process to all but root.

    Other processes of its user cannot trace it then, nor open its ``mem``, ``environ`` and
    ``fd`` in ``/proc``. A fork inherits this; exec ends it.
    """
    _set(_PR_SET_DUMPABLE, 0)


def _set(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
