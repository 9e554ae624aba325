"""What the statistics of a host say of its use, for readers of documents and for schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional


def busy_percent(statistics: Mapping[str, float]) -> float:
    """How busy its processors are, from 0 to 100; 0 if that is not known."""
    busy = statistics.get("cpu.current.user", 0.0) + statistics.get("cpu.current.system", 0.0)
    if "cpu.current.idle" in statistics:
        busy = 100 - statistics["cpu.current.idle"]
    return min(100.0, max(0.0, busy))


def used_memory(
    statistics: Mapping[str, float], memory: int, for_more_vms: Optional[int]
) -> Optional[int]:
    """How much of its memory is used, in bytes; None if that is not known.

    Args:
        memory: bytes; 0: not known.
        for_more_vms: bytes that the engine would give to other VMs, if known.
    """
    if "memory.used" in statistics:
        return int(statistics["memory.used"])
    if memory and "memory.free" in statistics:
        return max(0, memory - int(statistics["memory.free"]))
    if memory and for_more_vms is not None:
        return max(0, memory - int(for_more_vms))
    return None
