"""Resource limits, sessions, and the end of everything that a process left behind.

Used in the zygote and in what it forks; in the daemon for what a dead zygote leaves behind.
``prctl(2)``, ``getrlimit(2)``, ``proc(5)``.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import signal
import time
from pathlib import Path
from typing import Collection, Iterable, Iterator, List, Optional, Tuple

from ovirt_scheduler.model.plugins import Limits

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = resource.getpagesize()
# Bytes of data that a process may grow by between its calls, before it is replaced. Much of it is
# never touched: the stacks of a library's threads, its buffers.
ROOM = 256 << 20
_KILLED_FIRST = "500"  # of 1000: as though it had half of the machine's memory besides its own
# Address space for what is no memory: libraries, stacks, what malloc, and a Java that a plugin
# starts, keep for later.
_RESERVE = 4 << 30
# The second counts mappings that are shared, which the first does not.
_MEMORY = (resource.RLIMIT_DATA, resource.RLIMIT_AS)
_PAUSE = 0.005  # seconds between two looks


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
    """Let this process have ``extra`` bytes beside what it has now, until ``unlimit_memory``."""
    for which, now in zip(_MEMORY, _memory()):
        _set(which, now + extra, resource.getrlimit(which)[1])


def enter_folder(folder: str) -> None:
    """Work in a folder; in / where it has vanished."""
    for place in (folder, "/"):
        with contextlib.suppress(OSError):
            os.chdir(place)
            return


def unlimit_memory() -> None:
    """Set the soft limits of memory back to the hard ones."""
    for which in _MEMORY:
        _set_soft(which, resource.RLIM_INFINITY)


def apply(limits: Limits) -> None:
    """Put this process, and all that it starts, under a plugin call's limits for good."""
    _bound_memory(limits.memory)
    # One second between: SIGXCPU comes at the soft limit, SIGKILL at the hard one.
    _set(resource.RLIMIT_CPU, limits.cpu, limits.cpu + 1)
    _set(resource.RLIMIT_NOFILE, limits.open_files, limits.open_files)
    _set(resource.RLIMIT_CORE, 0, 0)


def bound(limits: Limits, loaded: bool = False) -> None:
    """Set the hard limits of a process that serves many calls; soft ones are set for each.

    Args:
        loaded: its plugin is: from now on memory is bounded by what one call may have.
    """
    _bound_memory(ROOM + (limits.memory if loaded else 2 * limits.memory))
    # A call begins with less than cpu_limit used; SIGXCPU comes at its soft limit.
    _set(resource.RLIMIT_CPU, 2 * limits.cpu + 1, 2 * limits.cpu + 2)
    _set(resource.RLIMIT_NOFILE, limits.open_files, limits.open_files)
    _set(resource.RLIMIT_CORE, 0, 0)


def allow(limits: Limits, data: int, size: int) -> None:
    """Set the soft limits for the call that begins: what it may have beside what is used.

    Args:
        data, size: bytes that this process uses, ``VmData`` and ``VmSize`` of /proc/self/status.
    """
    _set_soft(resource.RLIMIT_DATA, data + limits.memory)
    _set_soft(resource.RLIMIT_AS, size + _RESERVE + limits.memory)
    _set_soft(resource.RLIMIT_CPU, math.ceil(time.process_time()) + limits.cpu)


def disallow() -> None:
    """Set the soft limits back to the hard ones."""
    for which in (*_MEMORY, resource.RLIMIT_CPU):
        _set_soft(which, resource.RLIM_INFINITY)


def _bound_memory(extra: int) -> None:
    for which, now in zip(_MEMORY, _memory()):
        _set(which, now + extra, now + extra)


def _set(which: int, soft: int, hard: int) -> None:
    """Set a limit, no higher than the hard one that is in force already."""
    _, ceiling = resource.getrlimit(which)
    if ceiling != resource.RLIM_INFINITY:
        hard = ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)
        soft = min(soft, hard)
    resource.setrlimit(which, (soft, hard))


def _set_soft(which: int, soft: int) -> None:
    """Set a soft limit, no higher than the hard one."""
    _, hard = resource.getrlimit(which)
    if soft == resource.RLIM_INFINITY or (soft > hard != resource.RLIM_INFINITY):
        soft = hard
    resource.setrlimit(which, (soft, hard))


def data_bytes() -> int:
    """What RLIMIT_DATA counts of this process."""
    return _memory()[0]


def _memory() -> Tuple[int, int]:
    """What each limit of ``_MEMORY`` counts of this process; that of address space has a reserve.

    ``data`` and ``size`` of /proc/self/statm.
    """
    pages = _read("/proc/self/statm").split()
    return int(pages[5]) * _PAGE, int(pages[0]) * _PAGE + _RESERVE


def _read(path: str) -> bytes:
    """A file of /proc, without the objects that open() makes: this is done in each call."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, _PAGE), b""))
    finally:
        os.close(descriptor)


def reap(known: Collection[int], most: int = 256) -> Iterator[Tuple[int, int]]:
    """Collect the children that have ended.

    A known one's process group is killed first, while the zombie still holds its number.

    Args:
        known: pids; the caller forgets each one that is yielded before it asks for the next.
        most: to collect at once; who forks and ends without a pause must not keep the caller.

    Yields:
        Pid and wait status of each known one.
    """
    for _ in range(most):
        try:
            ended = _first_ended()
        except ChildProcessError:
            return
        if ended is None:
            return
        if ended.si_pid in known:
            kill(ended.si_pid)
        pid, status = os.waitpid(ended.si_pid, 0)
        if pid in known:
            yield pid, status


def children(spared: Collection[int] = ()) -> List[int]:
    """The children of this process, but for those spared; ended ones too until they are reaped.

    Args:
        spared: children that are known to live.
    """
    if not spared and not has_children():  # which needs no look around
        return []
    return [pid for pid in _children() if pid not in spared]


def has_children() -> bool:
    """Whether there is a child, be it one that has ended."""
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
    return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)


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


def _children() -> List[int]:
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
