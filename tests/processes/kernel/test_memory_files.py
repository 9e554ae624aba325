"""Sealed files in memory, from the kernel itself."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Iterator

import pytest

from ovirt_scheduler.processes.kernel import memory_files
from tests.support.processes import open_files


def packed() -> set[int]:
    """The descriptors of such files that this process has open."""
    return {number for number, target in open_files().items() if "memfd:packed" in target}


class Busy:
    """Bytes for a file that is mapped while it is written, so that the kernel does not seal it."""

    def __init__(self) -> None:
        self.before = packed()

    def pieces(self) -> Iterator[bytes]:
        yield b"begun"
        (made,) = packed() - self.before
        self.mapping = mmap.mmap(made, 5)
        yield b", done"


def test_a_file_that_is_busy_for_a_moment_is_sealed():
    """What the kernel itself does to its pages makes it busy, too."""
    busy = Busy()
    pieces = busy.pieces()

    def given():
        yield from pieces
        threading.Timer(0.02, busy.mapping.close).start()

    descriptor = memory_files.sealed(given())
    try:
        assert os.pread(descriptor, 100, 0) == b"begun, done"
        with pytest.raises(PermissionError):
            os.write(descriptor, b"!")
    finally:
        os.close(descriptor)


def test_a_file_that_stays_busy_is_told_and_closed():
    """Not without end."""
    busy = Busy()
    with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
        memory_files.sealed(busy.pieces())
    busy.mapping.close()
    assert packed() == busy.before
