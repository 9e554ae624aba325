"""Returns memory that is not needed: ``mallopt(3)``, ``malloc_trim(3)``, ``madvise(2)``."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path

_LIBC = ctypes.CDLL(None)
# Both are of the GNU C library alone.
_mallopt = getattr(_LIBC, "mallopt", None)
_trim = getattr(_LIBC, "malloc_trim", None)
_M_MMAP_THRESHOLD = -3
_LARGE = 1 << 20  # bytes
_MADV_DONTNEED = 4


def give_back_large_blocks() -> None:
    """Make ``free`` return each large block to the system, in this process and its children.

    By itself the C library puts larger and larger blocks into the heap, once one of that size has
    been freed: after a large document, most of what the next one took stayed with the process.
    """
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, _LARGE)


def give_back() -> None:
    """Return all memory that is free now. Takes milliseconds, in which other threads run.

    Each thread allocates in a part of the heap of its own, and what is freed there stays with the
    process until somebody asks.
    """
    if _trim is not None:
        _trim(0)


def give_back_code() -> None:
    """Return the pages of programs and libraries that are as they are in their files.

    Much of them was needed only while they were loaded. What is used again comes back from the
    file, or from the kernel's memory of it.
    """
    with contextlib.suppress(OSError):
        for begin, end in [*_unchanged_code()]:
            _LIBC.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_DONTNEED)


def _unchanged_code() -> Iterator[tuple[int, int]]:
    """Begin and end of each mapping of a file that nobody can write, and nobody has written."""
    place, is_code = "", False
    with Path("/proc/self/smaps").open("rb") as smaps:  # a line at a time: it is long
        for line in smaps:
            words = line.split()
            if not words[0].endswith(b":"):  # a mapping begins
                is_code = words[1] in (b"r-xp", b"r--p") and words[-1].startswith(b"/")
                place = words[0].decode("ascii")
            elif is_code and words[:2] == [b"Anonymous:", b"0"]:
                begin, end = place.split("-")
                yield int(begin, 16), int(end, 16)
