"""Memory that many threads have used and freed, given back to the system: ``malloc_trim(3)``.

Each thread allocates in a part of the heap of its own, and what is freed there stays with the
process until somebody asks.
"""

from __future__ import annotations

import ctypes
import itertools

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library alone


class Reclaim:
    """Gives free memory back each time that it has been told so often that some was used."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._told = itertools.count(1)

    def used(self) -> None:
        """Tell that some was used. Takes milliseconds when it is the turn to give it back, in
        which other threads run.
        """
        if _trim is not None and next(self._told) % self._every == 0:
            _trim(0)
