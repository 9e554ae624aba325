"""Unpacks parts of a history, within a limit: somebody else may have made the file."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator

from ovirt_scheduler.errors import HistoryUnreadable


class Unpacking:
    """What one query reads of a file: so many bytes at most, packed and unpacked."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = self._remaining_bytes = most_bytes

    def counted(self, rows: Iterable[sqlite3.Row]) -> Iterator[sqlite3.Row]:
        """Rows of the file, one after another: a text may stand once there, and in each of them.

        Raises:
            HistoryUnreadable: it is too much.
        """
        for row in rows:
            self._count(sum(len(value) for value in row if isinstance(value, (str, bytes))))
            yield row

    def _count(self, size: int) -> None:
        self._remaining_bytes -= size
        if self._remaining_bytes < 0:
            raise HistoryUnreadable(
                f"what is read takes more than {self._most_bytes >> 20} MiB; ask for less: a "
                "smaller limit, a VM or a shorter time"
            )

    def unpack(self, packed: bytes, base: bytes = b"") -> bytes:
        """A part as it was before it was packed.

        Args:
            base: what it was packed as the difference from.

        Raises:
            HistoryUnreadable: it is too much.
            zlib.error: it is damaged.
        """
        unpacker = zlib.decompressobj(zdict=base)
        part = unpacker.decompress(packed, self._remaining_bytes + 1)
        self._count(len(part))
        if not unpacker.eof:
            raise zlib.error("a packed part ends early")
        return part
