"""What the statistics of a host say of its use, for readers of documents and for schedulers.

An engine that has not measured a host yet tells 0 of everything: then nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

_USER, _SYSTEM, _IDLE = "cpu.current.user", "cpu.current.system", "cpu.current.idle"


def busy_percent(statistics: Mapping[str, float]) -> Optional[float]:
    """How busy its processors are, from 0 to 100; None if that is not known."""
    if _IDLE in statistics:
        busy = 100 - statistics[_IDLE]
    elif _USER in statistics or _SYSTEM in statistics:
        busy = statistics.get(_USER, 0.0) + statistics.get(_SYSTEM, 0.0)
    else:
        return None
    return None if _lack_figures(statistics) else min(100.0, max(0.0, busy))


def used_memory(
    statistics: Mapping[str, float], memory: int, for_more_vms: Optional[int]
) -> Optional[int]:
    """How much of its memory is used, in bytes; None if that is not known.

    Args:
        memory: bytes; 0: not known.
        for_more_vms: bytes that the engine would give to other VMs, if known.
    """
    used, free = statistics.get("memory.used"), statistics.get("memory.free")
    if used == 0 and _lack_figures(statistics):
        used = free = None
    if used is not None:
        return int(used)
    if memory and free is not None:
        return max(0, memory - int(free))
    if memory and for_more_vms is not None:
        return max(0, memory - int(for_more_vms))
    return None


def _lack_figures(statistics: Mapping[str, float]) -> bool:
    return all(statistics.get(name) == 0 for name in (_USER, _SYSTEM, _IDLE))
