"""Takes rights away from a process: those of root, and the keys of whoever started it.

``credentials(7)``, ``session-keyring(7)``.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Collection
from pathlib import Path

from ovirt_scheduler.model import manual

# Lines of proc(5) with the capabilities that a process has, or hands on to programs it starts.
_HELD = ("CapPrm", "CapEff", "CapAmb")

_LIBC = ctypes.CDLL(None, use_errno=True)
# keyctl(2) has no function in libc, and its own number on each architecture.
_KEYCTL = {"x86_64": 250, "aarch64": 219, "ppc64le": 271, "riscv64": 219, "s390x": 280}
_JOIN_SESSION_KEYRING = 1


class NotGivenUp(Exception):
    """Rights could not be given up, or are still there; the text says which."""


def become(uid: int, gid: int, groups: Collection[int]) -> None:
    """Change from root to a user that has no rights of root's, with no way back.

    Whether the memory of the process is hidden is then what ``fs.suid_dumpable`` says: hide it
    again (``prctl(2)``).

    Raises:
        NotGivenUp: the system refuses it, or leaves something of root's.
    """
    try:
        os.setgroups(list(groups))
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except PermissionError:
        raise NotGivenUp(
            "root may not change users here: it lacks CAP_SETUID or CAP_SETGID, or a filter "
            f"refuses the system call ({manual.page('security.md')} has the lines for systemd)"
        ) from None
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (gid,) * 3:
        raise NotGivenUp(f"the change led to {os.getresuid()} and {os.getresgid()}")
    if not set(os.getgroups()) <= {gid, *groups}:
        raise NotGivenUp(f"the change led to the groups {os.getgroups()}")
    for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
        name, _, value = line.partition(":")
        if name in _HELD and int(value, 16):
            raise NotGivenUp(f"the change left capabilities ({name}: {value.strip()})")
    for go_back in (os.setuid, os.setgid):
        try:
            go_back(0)
        except PermissionError:
            continue
        raise NotGivenUp("the change can be taken back")


def leave_keyring() -> None:
    """Replace the session keyring, which came from whoever started the daemon, by an empty one.

    All who inherit a keyring can read its keys, as other users too. systemd's
    ``KeyringMode=private`` does the same for a service.
    """
    number = _KEYCTL.get(os.uname().machine)
    if number is not None and _LIBC.syscall(number, _JOIN_SESSION_KEYRING, None) < 0:
        error = ctypes.get_errno()
        if error not in (errno.ENOSYS, errno.EPERM):  # then there are no keys
            raise OSError(error, os.strerror(error))
