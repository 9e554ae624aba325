"""Resource limits of a process: soft ones, which hold now, below hard ones, which hold for good.

``getrlimit(2)``, ``proc(5)``.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import time
from pathlib import Path

from ovirt_scheduler.model.plugins import Limits

_PAGE = resource.getpagesize()
# Bytes of data that a process may grow by between its calls, before it is replaced. Much of it is
# never touched: the stacks of a library's threads, its buffers.
ROOM = 256 << 20
_KILLED_FIRST = "500"  # of 1000: as though it had half of the machine's memory besides its own
# Address space that is reserved and not used: by libraries, stacks, malloc, and a Java that a
# plugin starts.
_RESERVE = 4 << 30
# RLIMIT_AS counts shared mappings, too; RLIMIT_DATA does not.
_MEMORY = (resource.RLIMIT_DATA, resource.RLIMIT_AS)
_NONE = resource.RLIM_INFINITY  # no limit; it is -1


def be_killed_first() -> None:
    """Make the kernel kill this process or its children first when the machine has no memory.

    To be called before ``prctl.hide_memory``, after which only root may write the file.
    """
    with contextlib.suppress(OSError):  # an administrator gave it more already, or it is not there
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST, "ascii")


def limit_memory(extra: int) -> None:
    """Let this process have ``extra`` bytes beside what it has now, until ``lift_soft``."""
    for which, now in zip(_MEMORY, _memory()):
        _set(which, now + extra)


def set_soft_and_hard(limits: Limits) -> None:
    """Put this process, and all that it starts, under a plugin call's limits for good."""
    _set_for_good(limits, limits.memory, limits.cpu)


def set_hard(limits: Limits, loaded: bool = False) -> None:
    """Set the hard limits of a process that serves many calls; ``set_soft`` sets each call's.

    Args:
        loaded: False while it loads its plugin, which may take twice the memory of a call.
    """
    memory = ROOM + (limits.memory if loaded else 2 * limits.memory)
    # A call begins with less than cpu_limit used; SIGXCPU comes at its soft limit.
    _set_for_good(limits, memory, 2 * limits.cpu + 1)


def set_soft(limits: Limits, data: int, size: int) -> None:
    """Set the soft limits for the call that begins: its own share, beside what is used already.

    Args:
        data, size: bytes that this process uses, ``VmData`` and ``VmSize`` of /proc/self/status.
    """
    _set(resource.RLIMIT_DATA, data + limits.memory)
    _set(resource.RLIMIT_AS, size + _RESERVE + limits.memory)
    _set(resource.RLIMIT_CPU, math.ceil(time.process_time()) + limits.cpu)


def lift_soft() -> None:
    """Set the soft limits back to the hard ones."""
    for which in (*_MEMORY, resource.RLIMIT_CPU):
        _set(which, _NONE)


def _set_for_good(limits: Limits, memory: int, cpu: int) -> None:
    for which, now in zip(_MEMORY, _memory()):
        _set(which, now + memory, now + memory)
    # One second between: SIGXCPU comes at the soft limit, SIGKILL at the hard one.
    _set(resource.RLIMIT_CPU, cpu, cpu + 1)
    _set(resource.RLIMIT_NOFILE, limits.open_files, limits.open_files)
    _set(resource.RLIMIT_CORE, 0, 0)


def _set(which: int, soft: int, hard: int = _NONE) -> None:
    """Set a limit, no higher than the hard one that is in force; that stays if none is given."""
    _, ceiling = resource.getrlimit(which)
    if hard == _NONE or (ceiling < hard and ceiling != _NONE):
        hard = ceiling
    if soft == _NONE or (hard < soft and hard != _NONE):
        soft = hard
    resource.setrlimit(which, (soft, hard))


def _memory() -> tuple[int, int]:
    """The bytes that each limit of ``_MEMORY`` counts, and a reserve for the address space.

    ``data`` and ``size`` of /proc/self/statm, without the objects that open() makes.
    """
    statm = os.open("/proc/self/statm", os.O_RDONLY)
    pages = os.read(statm, 256).split()
    os.close(statm)
    return int(pages[5]) * _PAGE, int(pages[0]) * _PAGE + _RESERVE
