"""Memory that was used and freed, and does not stay with the process."""

from __future__ import annotations

import ctypes

import pytest

from ovirt_scheduler.processes.kernel import malloc
from ovirt_scheduler.server.http import server
from tests.support.command import script
from tests.support.processes import resident
from tests.support.served import at_end, post

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library than GNU's"
)

SIZE = 64 << 20  # bytes


def used_and_freed() -> list[bytearray]:
    """Have a heap with much that is free between little that is not; gives the latter."""
    blocks = [bytearray(2000) for _ in range(SIZE // 2000)]
    return blocks[::100]


LARGE = """
from ovirt_scheduler.processes.kernel import malloc
from tests.support.processes import resident

malloc.give_back_large_blocks()
first = bytearray(30 << 20)
del first
before = resident()
first, above = bytearray(20 << 20), [bytearray(100_000) for _ in range(100)]
del first
print((resident() - before) >> 20)
"""


def test_large_blocks_are_given_back_at_once():
    """Also where one as large has been freed before, and others lie above it."""
    assert int(script(LARGE).stdout) < 15


def test_what_is_free_is_given_back():
    """Small blocks stay with the process until then."""
    kept = used_and_freed()
    before = resident()
    malloc.give_back()
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
