"""Sealed files in memory, which nobody can change: ``memfd_create(2)``, ``fcntl(2)``."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


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
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
