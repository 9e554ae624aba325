"""Keeps what a process has in memory, or in the kernel's keyrings, from others.

``prctl(2)``, ``session-keyring(7)``.
"""

from __future__ import annotations

import ctypes
import errno
import os

_PR_SET_DUMPABLE = 4
_LIBC = ctypes.CDLL(None, use_errno=True)

# keyctl(2) has no function in libc, and its own number on each architecture.
_KEYCTL = {"x86_64": 250, "aarch64": 219, "ppc64le": 271, "riscv64": 219, "s390x": 280}
_JOIN_SESSION_KEYRING = 1


def hide_memory() -> None:
    """Have memory, environment and descriptors of this process be for root alone.

    Holds for what is forked from it, and ends with exec: other processes of its user cannot
    trace it then, nor open its ``mem``, ``environ`` and ``fd`` in ``/proc``.
    """
    if _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def leave_keyring() -> None:
    """Have an empty session keyring, in place of the one that whoever started the daemon has.

    What is in that one can be read by all who inherit it, as other users too. systemd's
    ``KeyringMode=private`` does the same for a service.
    """
    number = _KEYCTL.get(os.uname().machine)
    if number is not None and _LIBC.syscall(number, _JOIN_SESSION_KEYRING, None) < 0:
        error = ctypes.get_errno()
        if error not in (errno.ENOSYS, errno.EPERM):  # then there are no keys to be had
            raise OSError(error, os.strerror(error))
