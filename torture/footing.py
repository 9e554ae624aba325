"""What the daemon holds of the machine: to be the same again when all is over."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from bench import usage

_MIB = 1 << 20
_PAUSE = 0.2  # seconds between two looks
_MORE_MEMORY = 32 * _MIB  # or a quarter: allocators keep some of what was used at once
_COME_AND_GO = 4  # processes: spare ones, and one that is about to be replaced
_ENDS = 3  # descriptors of the daemon for each: a socket, two pipes


@dataclass(frozen=True)
class Footing:
    """Descriptors and threads of the daemon; processes and memory of all its tree.

    ``descriptors`` and ``memory`` are None where they are root's alone to see.
    """

    descriptors: Optional[int]
    threads: int
    processes: int
    memory: Optional[int]  # bytes, proportional set size

    @classmethod
    def of(cls, pid: int) -> Footing:
        try:
            descriptors: Optional[int] = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
            memory: Optional[int] = usage.memory(pid)
        except PermissionError:
            descriptors = memory = None
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
        return cls(descriptors, threads, len(usage.tree(pid)), memory)

    def lines(self) -> list[tuple[str, str]]:
        hidden = "only root can see it"
        return [
            ("descriptors", hidden if self.descriptors is None else str(self.descriptors)),
            ("threads", str(self.threads)),
            ("processes", str(self.processes)),
            ("memory", hidden if self.memory is None else f"{self.memory / _MIB:.1f} MiB"),
        ]

    def regained(self, now: Footing) -> list[str]:
        """What is not back where it was, in words."""
        wrong = []
        if (now.descriptors or 0) > (self.descriptors or 0) + 2 + _ENDS * _COME_AND_GO:
            wrong.append(f"descriptors: {self.descriptors} before, {now.descriptors} after")
        if now.threads > self.threads:
            wrong.append(f"threads: {self.threads} before, {now.threads} after")
        if now.processes > self.processes + _COME_AND_GO:
            wrong.append(f"processes: {self.processes} before, {now.processes} after")
        before, after = self.memory or 0, now.memory or 0
        if after > before + max(_MORE_MEMORY, before // 4):
            wrong.append(f"memory: {before / _MIB:.1f} MiB before, {after / _MIB:.1f} after")
        return wrong


def settled(pid: int, before: Optional[Footing], seconds: float) -> Footing:
    """The footing as soon as it is what it was before, or after so many seconds.

    Without a ``before``, as soon as it stays the same.
    """
    give_up = time.monotonic() + seconds
    last = Footing.of(pid)
    while time.monotonic() < give_up:
        time.sleep(_PAUSE)
        now = Footing.of(pid)
        if before is not None and not before.regained(now):
            return now
        if before is None and (now.descriptors, now.threads, now.processes) == (
            last.descriptors, last.threads, last.processes,
        ):  # fmt: skip
            return now
        last = now
    return last
