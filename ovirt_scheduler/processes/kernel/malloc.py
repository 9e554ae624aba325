"""Returns freed memory of this process to the system: ``mallopt(3)``, ``malloc_trim(3)``."""

from __future__ import annotations

import ctypes

_LIBC = ctypes.CDLL(None)
# Both are of the GNU C library alone.
_mallopt = getattr(_LIBC, "mallopt", None)
_trim = getattr(_LIBC, "malloc_trim", None)
_M_MMAP_THRESHOLD = -3
_LARGE = 1 << 20  # bytes


def give_back_large_blocks() -> None:
    """Make ``free`` return each large block to the system, in this process and its children.

    Else the C library puts larger and larger blocks into the heap, once one of that size has been
    freed, and after two large documents most of the memory stays with the process.
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
