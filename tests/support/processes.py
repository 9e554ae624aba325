"""Processes of the machine: which there are, and commands that run as other users."""

from __future__ import annotations

import contextlib
import pwd
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from ovirt_scheduler.processes import pool
from ovirt_scheduler.processes.executor import Executor

NOBODY = pwd.getpwnam("nobody")
STRANGER = 12345


def open_files() -> dict[int, str]:
    """What each descriptor of this process leads to."""
    found = {}
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own, or another thread's
            found[int(each.name)] = str(each.readlink())
    return found


def change_times(executor: Executor, **times: float) -> None:
    """Change how long the processes of an executor that runs are kept, and waited for."""
    executor._pool.times = executor._pool.times._replace(**times)


def resident() -> int:
    """Bytes of memory that this process has of the machine's."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


def processes_with(marker: str) -> list[int]:
    """Pids of the live processes that have the marker on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if marker.encode() in words:
                found.append(int(entry.name))
    return found


# What a zygote has below it where no plugin is in use: a reader, and spare processes.
SPARE_BELOW = 1 + pool.SPARE


def zygote_of(executor: Executor) -> Optional[int]:
    """The pid of the zygote; None if there is none just now."""
    zygote = executor._forker._zygote
    return zygote and zygote.pid


def offspring(pid: int) -> list[int]:
    """Pids of the live processes below this one, zombies included."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text("utf-8")
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(stat[stat.rindex(")") + 2 :].split()[1])
    below = [pid]
    for parent in below:
        below.extend(child for child, its_parent in parents.items() if its_parent == parent)
    return below[1:]


def lives(pid: int) -> bool:
    """Whether a process is there, and more than a zombie that whoever adopted it has yet to reap."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def title(pid: int) -> str:
    """As procps and systemd read it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def for_all_users(*change: str) -> list[str]:
    """The beginning of a command, root's, in which other users can run this interpreter.

    One that lies in root's home is shown to them in a mount namespace.

    Args:
        change: further words of the beginning.
    """
    home = Path(sys.base_prefix)
    hidden = [folder for folder in (home, *home.parents) if not folder.stat().st_mode & 0o001]
    if not hidden:
        return [*change]
    script = (
        'd=$(mktemp -d) && mount --bind "$1" "$d" && mount -t tmpfs -o mode=755 none "$2" && '
        'mkdir -p "$1" && mount --move "$d" "$1" && rmdir "$d" && shift 2 && exec "$@"'
    )
    return ["unshare", "-m", "sh", "-c", script, "sh", str(home), str(hidden[-1]), *change]


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that other users reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="ovirt-scheduler-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def as_stranger() -> list[str]:
    """The beginning of a command that runs the rest as a user without rights."""
    number = str(STRANGER)
    return for_all_users("setpriv", "--reuid", number, "--regid", number, "--clear-groups", "--")
