"""The children of a process: what a new child drops of its parent's, and how all are ended.

Used in the zygote and in what it forks; in the daemon for what a dead zygote leaves behind.
``waitid(2)``, ``proc(5)``.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Callable, Optional

# ``signal.signal`` makes an enumeration of each value, which copies memory of the parent.
_handle: Callable[[int, int], object] = importlib.import_module("_signal").signal
_DEFAULT = int(signal.SIG_DFL)
_PAUSE = 0.005  # seconds between two checks
_READ_BYTES = 4096
_WALL = 0x40000000  # __WALL: also children that end without SIGCHLD, as clone(2) can make them


def reset_signals(handled: Iterable[signal.Signals]) -> None:
    """Restore the default action of signals that the parent handled."""
    signal.set_wakeup_fd(-1)
    for number in handled:
        _handle(number, _DEFAULT)


def close_all_but(spared: Collection[int]) -> None:
    """Close every descriptor but the standard three and the spared ones."""
    listed = os.listdir("/proc/self/fd")  # noqa: PTH208  no objects on this path
    first = 3
    for beyond in (*sorted(spared), max(map(int, listed)) + 1):
        os.closerange(first, beyond)  # the one that listed the folder is closed already
        first = beyond + 1


def reap(forked: Collection[int], most: int = 256) -> Iterator[tuple[int, int]]:
    """Collect the children that have ended.

    The process group of a forked one is killed first, while the zombie still holds its number.

    Args:
        forked: pids of the processes that this one has forked itself. The caller removes each one
            that is yielded before it goes on.
        most: children to collect, so that an endless chain of forks cannot hold the caller up.

    Yields:
        Pid and wait status of each child that is in ``forked``.
    """
    for _ in range(most):
        try:
            ended = _first_ended()
        except ChildProcessError:
            return
        if ended is None:
            return
        if ended.si_pid in forked:
            kill(ended.si_pid)
        pid, status = os.waitpid(ended.si_pid, _WALL)
        if pid in forked:
            yield pid, status


def pids(spared: Collection[int] = ()) -> list[int]:
    """List the children of this process; one that ended counts until it is reaped.

    Args:
        spared: children to leave out, as they live.
    """
    if not spared and not exist():  # this is faster than the list
        return []
    return [pid for pid in _children() if pid not in spared]


def exist() -> bool:
    """Whether this process has a child; one that ended counts until it is reaped."""
    try:
        _first_ended()
    except ChildProcessError:
        return False
    return True


def one_has_ended() -> bool:
    """Whether there is a child to be reaped."""
    try:
        return _first_ended() is not None
    except ChildProcessError:
        return False


def _first_ended() -> Optional[os.waitid_result]:
    return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | _WALL)


def kill_all(killed: Iterable[int]) -> None:
    """Kill children of this process.

    Their own children become this process's in turn, so call it again until there are none.
    A child's pid cannot be another's: nobody but this process can reap it.
    """
    for pid in killed:
        kill(pid)


def end_all(seconds: float) -> bool:
    """Kill and reap every child of this process, and what becomes its child by that.

    A thread gets no signal of their end, so this checks every few milliseconds.

    Returns:
        False if a child remains after so many seconds.
    """
    give_up = time.monotonic() + seconds
    while True:
        for _ in reap(()):
            pass
        remaining = pids()
        if not remaining or time.monotonic() > give_up:
            return not remaining
        kill_all(remaining)
        time.sleep(_PAUSE)


def kill(pid: int) -> None:
    """Kill a process and the process group that it leads, if it leads one."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def _children() -> list[int]:
    own = os.getpid()
    try:
        listed = _read(f"/proc/self/task/{own}/children")
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        every = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
        return [pid for pid in every if _parent(pid) == own]
    return [int(pid) for pid in listed.split()]


def _parent(pid: int) -> int:
    try:
        stat = _read(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # pid (name) state ppid: the name may hold anything, a closing bracket too.
    return int(stat[stat.rindex(b")") + 2 :].split()[1])


def _read(path: str) -> bytes:
    """A file of /proc, without the objects that open() makes: this is done in each call."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, _READ_BYTES), b""))
    finally:
        os.close(descriptor)
