"""Where the log's lines go: standard error, or a file that rotates.

A log that cannot be written stops nothing. A full disk, a folder that was taken away, a file that
cannot be renamed: it is told once on standard error, the lines go there meanwhile, and when the
file takes lines again it says how many it has missed.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Mapping, Optional, Tuple

from ovirt_scheduler.errors import ConfigError

_MOST_BYTES = 10 << 20
_KEPT = 6
_RETRY_BYTES = 1 << 20  # that a file grows beyond its size before its rotation is tried again
_STANDARD_ERROR = 2


class StandardError(logging.Handler):
    """Writes lines to the descriptor, with no buffer that could fail later."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
        except Exception:  # noqa: BLE001  a record that cannot be formatted must not harm its caller
            self.handleError(record)
        else:
            self.append(line)

    def append(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # there is nobody left to be told
            _write(_STANDARD_ERROR, line)


class LogFile(StandardError):
    """Appends lines to a file; one that was moved or removed by others is made anew.

    Args:
        path: of the file; its folder has to be there.
        most_bytes: from which a file is renamed to ``PATH.1``, the one before it to ``PATH.2``...
        kept: how many of these there are at most.

    Raises:
        ConfigError: it cannot be written.
    """

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES, kept: int = _KEPT) -> None:
        super().__init__()
        self._path = path.absolute()
        self._most_bytes = most_bytes
        self._rotate_at = most_bytes
        self._kept = kept
        self._missed = 0
        self._trouble = ""
        self._descriptor: Optional[int] = None
        self._closed = False
        try:
            self._open()
        except OSError as error:
            message = (
                f"the log cannot be written: {error.strerror}; make its folder, writable for the "
                "daemon, or mend log_file"
            )
            raise ConfigError(message, str(path)) from None

    def append(self, line: bytes) -> None:
        try:
            descriptor, size = self._ready(len(line))
            missed = self._missed_lines() if self._missed else b""
            try:
                _write(descriptor, missed + line)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)  # no half lines
                raise
        except OSError as error:
            self._miss(line, error)
        else:
            self._missed = 0
        if self._closed:  # a line of a thread that was about to log when the log changed
            self._let_go()

    def close(self) -> None:
        with self.lock or contextlib.nullcontext():
            self._closed = True
            self._let_go()
        super().close()

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        # What plugins print is in it, which is not for everybody.
        self._descriptor = os.open(self._path, flags, 0o640)
        return self._descriptor

    def _let_go(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _ready(self, wanted: int) -> Tuple[int, int]:
        """The descriptor of the file that bears the name now, with room, and the file's size.

        Raises:
            OSError: there is no file to be had.
        """
        descriptor = self._descriptor
        there = None if descriptor is None else self._still_there(descriptor)
        if descriptor is None or there is None:
            self._let_go()
            descriptor = self._open()
            there = os.fstat(descriptor)
        size = there.st_size
        if not size or size + wanted <= self._rotate_at:
            return descriptor, size
        try:
            self._rotate()
        except OSError as error:
            # A file that is too long is better than none.
            self._rotate_at = size + wanted + _RETRY_BYTES
            told = self._line(
                "the log cannot be rotated: %(reason)s; it grows until the daemon may write to "
                "%(folders)s",
                {"reason": error.strerror, "folders": str(self._path.parent)},
            )
            _write(descriptor, told)
            return descriptor, size + len(told)
        self._rotate_at = self._most_bytes
        self._let_go()
        return self._open(), 0

    def _still_there(self, descriptor: int) -> Optional[os.stat_result]:
        """What the system tells of our file; None where another, or none, bears its name."""
        try:
            there = self._path.stat()
        except OSError:
            return None
        return there if os.path.samestat(there, os.fstat(descriptor)) else None

    def _rotate(self) -> None:
        for number in range(self._kept - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                self._numbered(number).rename(self._numbered(number + 1))
        self._path.rename(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _miss(self, line: bytes, error: OSError) -> None:
        if not self._missed:
            self._trouble = error.strerror or str(error)
            told = self._line(
                "the log %(file)s cannot be written: %(reason)s; its lines come here",
                {"file": str(self._path), "reason": self._trouble},
            )
            super().append(told)
        self._missed += 1
        super().append(line)

    def _missed_lines(self) -> bytes:
        return self._line(
            "lines that could not be written here: %(count)d (%(reason)s); standard error got them",
            {"count": self._missed, "reason": self._trouble},
        )

    def _line(self, message: str, fields: Mapping[str, object]) -> bytes:
        """A warning of the log's own."""
        told = {"levelno": logging.WARNING, "levelname": "WARNING", "msg": message, "args": fields}
        line = self.format(logging.makeLogRecord({"name": __name__, **told}))
        return f"{line}\n".encode("utf-8", "backslashreplace")


def _write(descriptor: int, line: bytes) -> None:
    left = memoryview(line)
    while left:
        left = left[os.write(descriptor, left) :]
