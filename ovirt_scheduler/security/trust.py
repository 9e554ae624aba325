"""Whether other users could change a file, or read it.

Root and the user of this process are trusted. A user who may write a folder may replace the files
in it, so the owners and modes of all folders from ``/`` on count. A symbolic link counts as its
target, with the folders on the way there. In a sticky folder, such as ``/tmp``, only the owner of
an entry may replace it.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

_MOST_LINKS = 40  # as in path_resolution(7)


def tampering(path: Path) -> Optional[str]:
    """Find out how users other than root and this process's could change a file or folder.

    Args:
        path: its absolute path.

    Returns:
        What is wrong, with what mends it; None if nobody else can change it.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: a folder on the way to it cannot be read.
    """
    sticky: set[Path] = set()  # folders that others may write, but only to their own entries
    place = path
    for place, status in _way(path):
        link = stat.S_ISLNK(status.st_mode)
        if (not link or place.parent in sticky) and status.st_uid not in _trusted():
            return _belonging(place, status, path)
        writers = "" if link else _others(place, status, stat.S_IWGRP, stat.S_IWOTH)
        if writers and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
            sticky.add(place)
        elif writers:
            return _openness(place, writers, path)
    return _openness(place, "o", path) if place in sticky else None


def exposure(path: Path) -> Optional[str]:
    """Find out how others could read or change a file with a secret.

    Args:
        path: its absolute path.

    Returns:
        What is wrong, with what mends it; None if nobody else can read or change it.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: a folder on the way to it cannot be read.
    """
    problem = tampering(path)
    if problem is None:
        status = path.stat()
        readers = _others(path, status, stat.S_IRGRP, stat.S_IROTH)
        if readers:
            mend = f"chmod 600 {shlex.quote(str(path))}"
            if status.st_uid != os.geteuid():  # else it could no longer be read
                mend = f"chown {user_name(os.geteuid())} {shlex.quote(str(path))} && {mend}"
            problem = f"can be read by {_WHO[readers]}; mend it: {mend}"
    return problem


_WHO = {"g": "its group", "o": "everybody", "go": "its group and everybody"}


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Each folder and link on the way to a path, then the file or folder itself."""
    here = Path("/")
    yield here, here.lstat()
    ahead = list(reversed(path.parts[1:]))
    links = 0
    while ahead:
        part = ahead.pop()
        if part == "..":
            here = here.parent
            continue
        entry = here / part
        status = entry.lstat()
        yield entry, status
        if not stat.S_ISLNK(status.st_mode):
            here = entry
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = entry.readlink()
        ahead.extend(reversed(target.parts[target.is_absolute() :]))
        if target.is_absolute():
            here = Path("/")


def _trusted() -> set[int]:
    return {0, os.geteuid()}


def _others(place: Path, status: os.stat_result, group: int, everybody: int) -> str:
    """Who has a permission and is not trusted, in chmod's letters: ``g``, ``o``, ``go`` or none."""
    letters = ""
    if status.st_mode & group and not _private(place, status.st_gid):
        letters += "g"
    if status.st_mode & everybody:
        letters += "o"
    return letters


def _private(place: Path, gid: int) -> bool:
    """Whether the group is this process's own and has no members but trusted users."""
    if gid != os.getegid():
        return False
    if "system.posix_acl_access" in os.listxattr(place):
        return False  # the group's bits stand for others, too: acl(5)
    users = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == gid}
    with contextlib.suppress(KeyError):  # a group without a name
        for name in grp.getgrgid(gid).gr_mem:
            with contextlib.suppress(KeyError):  # a member who is no user
                users.add(pwd.getpwnam(name).pw_uid)
    return users <= _trusted()


def _belonging(place: Path, status: os.stat_result, path: Path) -> str:
    who = user_name(os.geteuid())
    expected = "not root" if who == "root" else f"neither root nor {who}, who runs this"
    writers = who if who == "root" else f"root or {who}"
    mend = f"move it to a folder that only {writers} can write"  # one on the way has its own owner
    if place == path:
        command = "chown -h root" if stat.S_ISLNK(status.st_mode) else "chown root"
        mend = f"mend it: {command} {shlex.quote(str(place))}"
    owner = user_name(status.st_uid)
    return f"{_shown(place, path)}belongs to {owner}, {expected}; {mend}"


def _openness(place: Path, letters: str, path: Path) -> str:
    return (
        f"{_shown(place, path)}can be written by {_WHO[letters]}; "
        f"mend it: chmod {letters}-w {shlex.quote(str(place))}"
    )


def _shown(place: Path, path: Path) -> str:
    return "" if place == path else f"{place}, on the way to it, "


def user_name(uid: int) -> str:
    """A user's name, or the number of one without."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"{uid}"
