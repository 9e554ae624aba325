"""Sets the name of a process in ``ps`` and ``systemctl status`` by writing over its command line.

The kernel shows what is in the process's own memory, where its command line was (``proc(5)``).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from pathlib import Path


def set_title(words: str) -> None:
    """Call this process ``ovirt-scheduler: WORDS``; holds for what is forked from it, too.

    Words that are longer than the command line are cut. If the kernel does not say where the
    command line is, nothing changes.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        begin, size = _place()
        title = f"ovirt-scheduler: {words}".encode()[: size - 1]
        ctypes.memmove(begin, title.ljust(size, b"\0"), size)


@functools.cache
def _place() -> tuple[int, int]:
    """Address and size of the command line; they are the same in all that is forked."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, of which pid is field 1
    if not 0 < begin < end:
        raise ValueError("the kernel does not tell")
    return begin, end - begin
