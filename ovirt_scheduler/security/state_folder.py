"""The folder of the daemon's own files: certificate, history, last good plugins and so on."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security import trust

_log = logging.getLogger(__name__)

_LOCK = "lock"


class StateFolder:
    """The state folder, made where it is missing, and locked until this process ends.

    It is checked once, with all that is in it, before anything is made there. From then on nobody
    else can put anything there: whoever has a path from here may write without another look. A
    second daemon would write into the first one's files.

    Args:
        path: of the folder. Where nothing can be written there, the log says so.

    Raises:
        ConfigError: others could change what is there, another daemon has it, or it is another
            user's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: Optional[int] = None  # the descriptor that holds the lock
        self.open()

    def __truediv__(self, name: str) -> Path:
        """The path of a file in it."""
        return self.path / name

    @property
    def is_emptied(self) -> bool:
        """Whether the lock is not there any more, so that another daemon could take the folder."""
        if self._lock is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._lock), (self / _LOCK).lstat())
        except OSError:
            return True

    def open(self) -> None:
        """Make the folder where it is missing, check and lock it; as for the class."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_other_owner(self.path)
            check(self.path)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self / _LOCK, flags, 0o600)
        except OSError as error:
            _log.warning(
                "%(file)s cannot be locked: %(reason)s; start no other daemon on it",
                {"file": str(self.path), "reason": error.strerror},
            )
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _lock_owner(descriptor)
            os.close(descriptor)
            raise ConfigError(
                f"another daemon uses this state folder{owner}; stop it, or set STATE_DIRECTORY to "
                "a folder of this one's own",
                str(self.path),
            ) from None
        former, self._lock = self._lock, descriptor
        if former is not None:
            os.close(former)


def _lock_owner(descriptor: int) -> str:
    """Who has locked a file, as far as the kernel tells: `` (process 17)``; or empty."""
    inode = str(os.fstat(descriptor).st_ino)
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            kind, pid, place = line.split()[1], line.split()[-4], line.split()[-3]
            if kind == "FLOCK" and place.rpartition(":")[2] == inode and int(pid) > 0:
                return f" (process {pid})"
    return ""


def check(folder: Path) -> None:
    """Check that nobody else can change a state folder or anything in it, or has put a link there.

    Raises:
        ConfigError: somebody can, or has; the text says what to do.
        OSError: the folder cannot be read.
    """
    for place in (folder, *_entries(folder)):
        problem = None
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
            name, mend = trust.user_name(status.st_uid), f"rm {shlex.quote(str(place))}"
            problem = f"is a link that the user {name} made; remove it: {mend}"
        else:
            with contextlib.suppress(FileNotFoundError):  # what a link leads to
                problem = trust.tampering(place)
        if problem:
            raise ConfigError(problem, str(place))


def _entries(folder: Path) -> Iterator[Path]:
    for inside, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(inside, name)


def _refuse_other_owner(folder: Path) -> None:
    owner = folder.stat().st_uid
    if os.geteuid() == 0 and owner != 0:
        name = trust.user_name(owner)
        raise ConfigError(
            f"is the state folder of the user {name}, who could not use what root's daemon leaves "
            f"there; run the daemon as {name} (systemctl start ovirt-scheduler), or set "
            "STATE_DIRECTORY to another folder",
            str(folder),
        )
