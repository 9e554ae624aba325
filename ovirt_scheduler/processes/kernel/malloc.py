"""Memory that was used and freed, given back to the system: ``mallopt(3)``, ``malloc_trim(3)``."""

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
    """Have this process, and what is forked from it, keep no large block that it has freed.

    By itself the C library puts larger and larger blocks into the heap, once one of that size has
    been freed: after a large document, most of what the next one took stayed with the process.
    """
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, _LARGE)


def give_back() -> None:
    """Give back what is free now. Takes milliseconds, in which other threads run."""
    if _trim is not None:
        _trim(0)


class Reclaim:
    """Gives free memory back each time that it has been told so often that some was used.

    Each thread allocates in a part of the heap of its own, and what is freed there stays with the
    process until somebody asks.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._told = itertools.count(1)

    def used(self) -> None:
        """Tell that some was used."""
        if next(self._told) % self._every == 0:
            give_back()
