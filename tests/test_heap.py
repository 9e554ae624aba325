"""Memory that was used and freed, and does not stay with the process."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path
from typing import List

import pytest
from served import at_end, post

from ovirt_scheduler import server
from ovirt_scheduler.heap import Reclaim

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library than GNU's"
)

SIZE = 64 << 20  # bytes


def resident() -> int:
    """Bytes of memory that this process has of the machine's."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


def used_and_freed() -> List[bytearray]:
    """Have a heap with much that is free between little that is not; gives the latter."""
    blocks = [bytearray(2000) for _ in range(SIZE // 2000)]
    return blocks[::100]


def test_it_is_given_back_when_it_was_told_so_often():
    """Not before, and then again and again."""
    reclaim = Reclaim(every=3)
    for _ in range(2):
        kept = used_and_freed()
        before = resident()
        reclaim.used()
        reclaim.used()
        assert resident() > before - SIZE // 4
        reclaim.used()
        assert resident() < before - SIZE // 2
        del kept


def test_connections_that_end_have_it_given_back(plain):
    """Each had a thread, and the heap that the thread used."""
    kept = used_and_freed()
    before = resident()
    for _ in range(server._RECLAIM):
        connection = plain.raw()
        connection.sendall(post(Connection="close"))
        while not at_end(connection):
            pass
    plain.end()
    assert kept
    assert resident() < before - SIZE // 2
