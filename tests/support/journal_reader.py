"""A socket that stands where journald's does, and a strict reader of its protocol."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from tests.support.waiting import LONG

_MOST = 1 << 20


class Journal:
    """Listens from its start; ``with`` closes it.

    Args:
        path: of the socket; nothing is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(LONG)
        self._socket.bind(str(path))

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def entry(self) -> dict[str, list[str]]:
        """Wait for the next entry; each field with its values."""
        return fields_of(self._socket.recv(_MOST))

    def fill(self) -> int:
        """Take nothing more: no further datagram fits. Gives how many there are then."""
        filled = 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                while True:
                    sender.sendto(b"A=x\n", str(self._path))
                    filled += 1
            except BlockingIOError:
                return filled


def fields_of(data: bytes) -> dict[str, list[str]]:
    """An entry's fields; AssertionError or ValueError where it is not to the letter."""
    found: dict[str, list[str]] = {}
    assert data.endswith(b"\n")
    while data:
        line, _, rest = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            length = int.from_bytes(rest[:8], "little")
            value, end, data = (
                rest[8 : 8 + length],
                rest[8 + length : 9 + length],
                rest[9 + length :],
            )
            assert len(value) == length
            assert end == b"\n"
        else:
            data = rest
        assert re.fullmatch(rb"[A-Z][A-Z0-9_]{0,63}", name), name
        found.setdefault(name.decode("ascii"), []).append(value.decode("utf-8"))
    return found
