"""Processor time and memory of a process with all its descendants, from /proc."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)
_PAUSE = 0.002  # seconds between two looks at memory
_LOOK = 0.1  # and at which processes there are


def _stat(pid: int) -> list[str]:
    """The fields after the name: state, parent, ...; none where the process has gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    return list(depths(pid))


def depths(pid: int) -> dict[int, int]:
    """The process and its descendants, each with how far below the process it is."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  pathlib takes twice the time, many times a second
        if name.isdigit():
            fields = _stat(int(name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(name))
    found = {pid: 0}
    for parent in (left := [pid]):  # grows while it runs
        for child in children.get(parent, ()):
            found[child] = found[parent] + 1
            left.append(child)
    return found


def processor_seconds(pid: int) -> float:
    """Time that the tree has used, those included that have ended and were waited for."""
    total = 0
    for member in tree(pid):
        fields = _stat(member)
        total += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return total / _TICKS


def works(pid: int) -> bool:
    """Whether a process of the tree runs, or waits for a processor."""
    return any(_stat(member)[:1] == ["R"] for member in tree(pid))


def memory(pid: int) -> int:
    """Proportional set size of the tree, in bytes: shared pages count once."""
    return sum(map(_own_memory, tree(pid)))


def largest_titled(pid: int, titles: Sequence[str]) -> int:
    """The most memory of one process of the tree that shows one of these titles, likewise."""
    return max((_own_memory(each) for each in tree(pid) if _title(each) in titles), default=0)


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace").rstrip("\0 ")
    except OSError:  # it has gone
        return ""


def _own_memory(pid: int) -> int:
    try:
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text("ascii"))
    except OSError:  # it has gone
        return 0
    return int(found[1]) << 10 if found else 0


def wait_for_rest(pid: int, quiet: float, most: float = 60.0) -> None:
    """Wait until no process of the tree has come or gone for so many seconds.

    Args:
        most: seconds to wait in all.
    """
    until = time.monotonic() + most
    there, since = tree(pid), time.monotonic()
    while time.monotonic() < min(since + quiet, until):
        time.sleep(_LOOK)
        now = tree(pid)
        if now != there:
            there, since = now, time.monotonic()


class Peak:
    """Looks at the tree's memory again and again while it is entered.

    Looking costs processor time, so no other figure is taken meanwhile.

    Attributes:
        memory: the most that was seen, in bytes.
    """

    def __init__(self, pid: int) -> None:
        self.memory = 0
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while True:
            self.memory = max(self.memory, memory(self._pid))
            if self._done.wait(_PAUSE):
                return

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._done.set()
        self._thread.join()
