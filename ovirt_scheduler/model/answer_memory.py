"""Bounds the memory of the engine's answers: of one look or request, and of all together.

::

    AnswerMemory      all that is under way
     +-- Share        what one look, or one request, may have of it
          +-- Claim   an answer, or what was read from it; it counts until nobody has it any more
"""

from __future__ import annotations

import threading

from ovirt_scheduler.errors import AnswersTooLarge


class AnswerMemory:
    """How many bytes answers take together. Safe to use from many threads.

    Args:
        most_each: bytes of one look, or of one request.
        most_in_all: bytes of all looks and requests that are under way.
    """

    def __init__(self, most_each: int = 512 << 20, most_in_all: int = 1 << 30) -> None:
        self.most_each, self.most_in_all = most_each, most_in_all
        self.lock = threading.RLock()  # an answer may go while its own thread has it
        self.used = 0

    def share(self) -> Share:
        """The share of a look or a request that begins."""
        return Share(self)


class Share:
    """What one look or request has of the memory."""

    def __init__(self, memory: AnswerMemory) -> None:
        self._memory = memory
        self._used = 0

    def claim(self) -> Claim:
        """One answer that begins to arrive."""
        return Claim(self)

    def count(self, size: int, bounded: bool = False) -> None:
        """Count so many bytes more, or less.

        Raises:
            AnswersTooLarge: they are bounded, and there is no room for them.
        """
        memory = self._memory
        with memory.lock:
            of_share, in_all = self._used + size, memory.used + size
            if bounded and of_share > memory.most_each:
                raise AnswersTooLarge(
                    "its answers to one look or request take more than "
                    f"{memory.most_each >> 20} MiB"
                )
            if bounded and in_all > memory.most_in_all:
                raise AnswersTooLarge(
                    "its answers to all looks and requests that are under way take more than "
                    f"{memory.most_in_all >> 20} MiB"
                )
            self._used, memory.used = of_share, in_all


class Claim:
    """The bytes of one answer."""

    def __init__(self, share: Share, size: int = 0) -> None:
        self._share = share
        self._size = size
        share.count(size)

    def grow(self, size: int) -> None:
        """Count so many bytes more, which are about to be kept.

        Raises:
            AnswersTooLarge: there is no room for them.
        """
        self._share.count(size, bounded=True)
        self._size += size

    def another(self, size: int) -> Claim:
        """What was made from the answer, and is kept in any case."""
        return Claim(self._share, size)

    def give_back(self) -> None:
        """Count it no more; nobody has it."""
        size, self._size = self._size, 0
        self._share.count(-size)

    def __del__(self) -> None:
        self.give_back()
