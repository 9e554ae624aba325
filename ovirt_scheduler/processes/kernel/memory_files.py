"""Sealed files in memory, which nobody can change: ``memfd_create(2)``, ``fcntl(2)``."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_PAUSES = (0.001, 0.004, 0.016, 0.064, 0.256)  # seconds, after which sealing is tried again


def sealed(pieces: Iterable[bytes]) -> int:
    """Write bytes into a new file in memory and seal it.

    Returns:
        Its descriptor, which is not inherited; the caller closes it.

    Raises:
        OSError: no descriptor, no memory, or a kernel before 3.17.
    """
    descriptor = os.memfd_create("packed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        _seal(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _seal(descriptor: int) -> None:
    """Seal a file. The kernel says EBUSY while it uses a page of it, as when memory is short."""
    for pause in (*_PAUSES, None):
        try:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        except OSError as error:
            if error.errno != errno.EBUSY or pause is None:
                raise
            time.sleep(pause)
        else:
            return
