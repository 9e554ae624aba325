"""Returns freed memory of this process to the system: ``mallopt(3)``, ``malloc_trim(3)``."""

from __future__ import annotations

import ctypes
import itertools

_LIBC = ctypes.CDLL(None)
# Both are of the GNU C library alone.
_mallopt = getattr(_LIBC, "mallopt", None)
_trim = getattr(_LIBC, "malloc_trim", None)
_M_MMAP_THRESHOLD = -3
_LARGE = 1 << 20  # bytes


def give_back_large_blocks() -> None:
    """Make ``free`` return each large block to the system, in this process and its children.

    By itself the C library puts larger and larger blocks into the heap, once one of that size has
    been freed: after a large document, most of what the next one took stayed with the process.
    """
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, _LARGE)


def give_back() -> None:
    """Return all memory that is free now. Takes milliseconds, in which other threads run."""
    if _trim is not None:
        _trim(0)


class Reclaim:
    """Calls ``malloc_trim(3)`` on every n-th use of memory.

    Args:
        every: n.

    Each thread allocates in a part of the heap of its own, and what is freed there stays with the
    process until somebody asks.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._uses = itertools.count(1)

    def used(self) -> None:
        """Count one use; on every n-th, return the memory that is free."""
        if next(self._uses) % self._every == 0:
            give_back()
