"""Resource limits, sessions, and the end of everything that a process left behind.

Used in the zygote and in what it forks; in the daemon for what a dead zygote leaves behind.
``prctl(2)``, ``getrlimit(2)``, ``proc(5)``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from pathlib import Path
from typing import Collection, Iterable, Iterator, List, Tuple

from ovirt_scheduler.model import Limits

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = resource.getpagesize()
_KILLED_FIRST = "500"  # of 1000: as though it had half of the machine's memory besides its own
# Address space for what is no memory: libraries, stacks, what malloc, and a Java that a plugin
# starts, keep for later.
_RESERVE = 4 << 30
_PAUSE = 0.005  # seconds between two looks
_FEW = 256  # pids that are tried one by one rather than listed


def become_subreaper() -> None:
    """Have the orphans among this process's descendants become its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER)


def gain_no_privileges() -> None:
    """Have programs with a set-user-ID bit, or capabilities of their own, run as all others do.

    What has another user's rights could not be killed by this process (contract 4.5).
    """
    _prctl(_PR_SET_NO_NEW_PRIVS)


def _prctl(option: int) -> None:
    if _LIBC.prctl(option, 1, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def be_killed_first() -> None:
    """Have the kernel end this process, or what is forked from it, before its parent where the
    machine has no memory left (``proc(5)``). Before ``secrecy.hide_memory``: after it the file is
    root's.
    """
    with contextlib.suppress(OSError):  # an administrator gave it more already, or it is not there
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST, "ascii")


def die_with_parent(parent: int) -> None:
    """Be killed when the parent ends. For a parent with one thread only: the kernel's
    signal follows the thread that forked.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def reset_signals(
    handled: Iterable[signal.Signals] = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM),
) -> None:
    """Forget the handlers of the process that this one was forked from."""
    signal.set_wakeup_fd(-1)
    for number in handled:
        signal.signal(number, signal.SIG_DFL)


def close_all_but(kept: Collection[int]) -> None:
    """Close every descriptor that was inherited and is not kept."""
    listed = os.listdir("/proc/self/fd")  # noqa: PTH208  no objects on this path
    first = 3
    for beyond in (*sorted(kept), max(map(int, listed)) + 1):
        os.closerange(first, beyond)  # the one that listed the folder is closed already
        first = beyond + 1


def limit_memory(extra: int) -> None:
    """Set the soft limit of data to what this process has now and ``extra`` bytes more."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    _set(resource.RLIMIT_DATA, data_bytes() + extra, hard)


def unlimit_memory() -> None:
    """Set the soft limit of data back to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def apply(limits: Limits) -> None:
    """Put this process, and all that it starts, under a plugin call's limits for good."""
    mapped, data = _mapped_and_data()
    _set(resource.RLIMIT_DATA, data + limits.memory, data + limits.memory)
    # Which does not count mappings that are shared.
    space = mapped + limits.memory + _RESERVE
    _set(resource.RLIMIT_AS, space, space)
    # One second between: SIGXCPU comes at the soft limit, SIGKILL at the hard one.
    _set(resource.RLIMIT_CPU, limits.cpu, limits.cpu + 1)
    _set(resource.RLIMIT_NOFILE, limits.open_files, limits.open_files)
    _set(resource.RLIMIT_CORE, 0, 0)


def _set(which: int, soft: int, hard: int) -> None:
    """Set a limit, no higher than the hard one that is in force already."""
    _, ceiling = resource.getrlimit(which)
    if ceiling != resource.RLIM_INFINITY:
        hard = ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)
        soft = min(soft, hard)
    resource.setrlimit(which, (soft, hard))


def data_bytes() -> int:
    """What RLIMIT_DATA counts of this process."""
    return _mapped_and_data()[1]


def _mapped_and_data() -> Tuple[int, int]:
    """Bytes that RLIMIT_AS and RLIMIT_DATA count: ``size`` and ``data`` of /proc/self/statm."""
    pages = _read("/proc/self/statm").split()
    return int(pages[0]) * _PAGE, int(pages[5]) * _PAGE


def _read(path: str) -> bytes:
    """A file of /proc, without the objects that open() makes: this is done in each call."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, _PAGE), b""))
    finally:
        os.close(descriptor)


def is_alone() -> bool:
    """Whether this process has one thread, and no descendant at all.

    For a sub-reaper: the parents of each descendant lead to a child of this process. Then
    nothing can be left of it once it ends.
    """
    # A folder has a link for itself, one for its parent, and one for each folder in it.
    if os.stat("/proc/self/task").st_nlink > 3:  # noqa: PTH116  no objects on this path
        return False
    return not _has_children()


def reap(known: Collection[int]) -> Iterator[Tuple[int, int]]:
    """Collect the children that have ended.

    A known one's process group is killed first, while the zombie still holds its number.

    Yields:
        Pid and wait status of each known one.
    """
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        if ended.si_pid in known:
            kill(ended.si_pid)
        pid, status = os.waitpid(ended.si_pid, 0)
        if pid in known:
            yield pid, status


def children(spared: Collection[int] = (), since: int = 0) -> List[int]:
    """The children of this process, but for those spared; ended ones too until they are reaped.

    Args:
        spared: children that are known to live.
        since: ``last_pid()`` before any of the wanted could be forked; makes the look cheap.
    """
    if not spared and not _has_children():  # which needs no look around
        return []
    return [pid for pid in _children(since) if pid not in spared]


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def last_pid() -> int:
    """The number that the kernel gave last to a process or thread; 0 where it does not tell."""
    try:
        return int(_read("/proc/loadavg").split()[4])
    except FileNotFoundError:  # proc(5) mounted with subset=pid
        return 0


def kill_all(pids: Iterable[int]) -> None:
    """Kill children of this process.

    Their own children become this process's in turn, so look again until there are none.
    A child's pid cannot be another's: nobody but this process can reap it.
    """
    for pid in pids:
        kill(pid)


def end_children(seconds: float) -> bool:
    """Kill and reap every child of this process, and what becomes its child by that.

    Nothing tells a thread of their end, so it looks again and again.

    Returns:
        False where one is left after so many seconds.
    """
    give_up = time.monotonic() + seconds
    while True:
        for _ in reap(()):
            pass
        left = children()
        if not left or time.monotonic() > give_up:
            return not left
        kill_all(left)
        time.sleep(_PAUSE)


def kill(pid: int) -> None:
    """Kill a process and the process group that it leads, if it leads one."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def _children(since: int) -> List[int]:
    own = os.getpid()
    try:
        listed = _read(f"/proc/self/task/{own}/children")
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid in _pids(since) if _parent(pid) == own]
    return [int(pid) for pid in listed.split()]


def _pids(since: int) -> Iterable[int]:
    """The numbers that processes forked since then can have."""
    last = last_pid()
    if 0 < since <= last and last - since < _FEW:
        return range(since + 1, last + 1)
    every = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    if since <= last:
        return (pid for pid in every if pid > since)
    return (pid for pid in every if pid > since or pid <= last)  # the numbers began anew


def _parent(pid: int) -> int:
    try:
        stat = _read(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # pid (name) state ppid: the name may hold anything, a closing bracket too.
    return int(stat[stat.rindex(b")") + 2 :].split()[1])
