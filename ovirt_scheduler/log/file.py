"""Where the log's lines go: standard error, or a file that rotates.

A log that cannot be written stops nothing. The disk may be full, the folder gone, or the file not
to be renamed. Standard error says so once and gets the lines meanwhile. When the file takes lines
again, it says how many it has missed.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Mapping

from ovirt_scheduler.errors import ConfigError

_MOST_BYTES = 10 << 20
_KEPT = 6
_RETRY_BYTES = 1 << 20  # that a file grows beyond its size before its rotation is tried again
_STANDARD_ERROR = 2


class StandardError(logging.Handler):
    """Writes lines to the descriptor, with no buffer that could fail later."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; one that cannot be formatted is told, as every handler does it."""
        try:
            self.write(self.format(record))
        except Exception:  # noqa: BLE001  a record that cannot be formatted must not harm its caller
            self.handleError(record)

    @staticmethod
    def write(line: str) -> None:
        """Write a line; where there is no standard error it is lost."""
        with contextlib.suppress(OSError):
            _write(_STANDARD_ERROR, f"{line}\n".encode("utf-8", "backslashreplace"))


class LogFile(RotatingFileHandler):
    """Appends lines to a file. One that others moved or removed is made anew.

    Args:
        path: of the file; its folder has to be there.
        most_bytes: from which a file is renamed to ``PATH.1``, the one before it to ``PATH.2``...
        kept: how many of these there are at most.

    Raises:
        ConfigError: it cannot be written.
    """

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES, kept: int = _KEPT) -> None:
        self._most_bytes = most_bytes
        self._missed = 0  # lines
        self._reason = ""  # why they were missed
        self._ended = False
        try:
            super().__init__(
                path, maxBytes=most_bytes, backupCount=kept, encoding="utf-8",
                errors="backslashreplace",
            )  # fmt: skip
        except OSError as error:
            message = (
                f"the log cannot be written: {error.strerror}; make its folder, writable for the "
                "daemon, or mend log_file"
            )
            raise ConfigError(message, str(path)) from None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, to standard error where the file takes none."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  as in StandardError
            self.handleError(record)
            return
        try:
            stream = self._current()
            size = os.fstat(stream.fileno()).st_size
            if size and size + len(line) >= self.maxBytes:
                self.doRollover()
                stream = self._current()
            stream.write(f"{self._missed_lines()}{line}\n")
        except OSError as error:
            self._miss(line, error.strerror or str(error))
        else:
            self._missed = 0
        if self._ended:  # a line of a thread that was about to log when the log changed
            super().close()

    def doRollover(self) -> None:  # noqa: N802  logging's own name
        """Rename the files. Where that fails the file grows, as one too long is better than none.

        Raises:
            OSError: there is no file to be had.
        """
        try:
            super().doRollover()
        except OSError as error:
            self.stream = self._open()
            self.maxBytes = self.stream.tell() + _RETRY_BYTES
            told = self._warning(
                "the log cannot be rotated: %(reason)s; it grows until the daemon may write to "
                "%(folders)s",
                {"reason": error.strerror, "folders": str(Path(self.baseFilename).parent)},
            )
            self.stream.write(f"{told}\n")
        else:
            self.maxBytes = self._most_bytes

    def close(self) -> None:
        """Give the file back. A line that comes later opens it for itself alone."""
        self._ended = True
        super().close()

    def _open(self) -> io.TextIOWrapper:
        raw = _WholeLines(self.baseFilename, "a", opener=_open_private)
        return io.TextIOWrapper(raw, self.encoding, self.errors, write_through=True)

    def _current(self) -> io.TextIOWrapper:
        """The open file; another one where its name is no longer that of the former.

        Raises:
            OSError: there is no file to be had.
        """
        if self.stream is not None:
            with contextlib.suppress(OSError):
                if os.path.samestat(Path(self.baseFilename).stat(), os.fstat(self.stream.fileno())):
                    return self.stream
        super().close()
        self.stream = self._open()
        return self.stream

    def _miss(self, line: str, reason: str) -> None:
        if not self._missed:
            self._reason = reason
            told = self._warning(
                "the log %(file)s cannot be written: %(reason)s; its lines come here",
                {"file": self.baseFilename, "reason": reason},
            )
            StandardError.write(told)
        self._missed += 1
        StandardError.write(line)

    def _missed_lines(self) -> str:
        """The line on those that are missing here; empty where there are none."""
        if not self._missed:
            return ""
        told = self._warning(
            "lines that could not be written here: %(count)d (%(reason)s); standard error got them",
            {"count": self._missed, "reason": self._reason},
        )
        return f"{told}\n"

    def _warning(self, message: str, fields: Mapping[str, object]) -> str:
        """A line of the log's own."""
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, (fields,), None)
        return self.format(record)


class _WholeLines(io.FileIO):
    """A file that takes all bytes of a line or none."""

    def write(self, line: bytes) -> int:  # type: ignore[override]
        """Write a line; where it does not fit, what was written of it is cut off again.

        Raises:
            OSError: it does not fit.
        """
        size = os.fstat(self.fileno()).st_size
        try:
            _write(self.fileno(), line)
        except OSError:
            with contextlib.suppress(OSError):
                self.truncate(size)
            raise
        return len(line)


def _write(descriptor: int, line: bytes) -> None:
    left = memoryview(line)
    while left:
        left = left[os.write(descriptor, left) :]


def _open_private(path: str, flags: int) -> int:
    """What plugins print is in the log, which is not for everybody."""
    return os.open(path, flags, 0o640)
