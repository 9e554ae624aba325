"""Handlers that write the log to standard error, or to a file that rotates.

A log that cannot be written stops nothing: the disk may be full, the folder gone, or the reader of
standard error stuck. The lines of a file go to standard error, after one that says why. When the
file takes lines again, its first one says how many it has missed.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import stat
import time
from collections.abc import Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path

from ovirt_scheduler.errors import ConfigError

_MOST_BYTES = 10 << 20
_KEPT = 6
_RETRY_BYTES = 1 << 20  # that a file grows beyond its size before its rotation is tried again
_STANDARD_ERROR = 2
_PATIENCE = 1.0  # seconds for standard error to take a line
_PAUSE = 10.0  # seconds without a try after a line that it did not take


class StandardError(logging.Handler):
    """Writes each line to standard error at once, without a buffer that could fail later."""

    _next_try = 0.0  # on the monotonic clock, of all handlers: there is one standard error

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. One that cannot be formatted is reported there, too."""
        try:
            self.write(self.format(record))
        except Exception:  # noqa: BLE001  a record that cannot be formatted must not harm its caller
            self.handleError(record)

    @classmethod
    def write(cls, line: str) -> None:
        """Write a line. It is lost if there is no standard error.

        Where whoever reads it takes nothing, the line is lost after a second, and those of the next
        ten seconds at once: nobody waits for a reader that is stuck.
        """
        if time.monotonic() < cls._next_try:
            return
        left = memoryview(f"{line}\n".encode("utf-8", "backslashreplace"))
        with contextlib.suppress(OSError):
            while left:
                if not _is_writable():
                    cls._next_try = time.monotonic() + _PAUSE
                    return
                left = left[os.write(_STANDARD_ERROR, left[: select.PIPE_BUF]) :]


def _is_writable() -> bool:
    """Whether standard error takes as much as ``select.PIPE_BUF`` soon, or fails at once."""
    if stat.S_ISREG(os.fstat(_STANDARD_ERROR).st_mode):
        return True
    waiting = select.poll()
    waiting.register(_STANDARD_ERROR, select.POLLOUT)
    return bool(waiting.poll(_PATIENCE * 1000))


class LogFile(RotatingFileHandler):
    """Appends lines to a file, and makes a new one where others moved or removed it."""

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES, kept: int = _KEPT) -> None:
        """Open the file.

        Args:
            path: of the file; its folder has to exist.
            most_bytes: the size at which a file is renamed to ``PATH.1``, and that to ``PATH.2``.
            kept: how many renamed files there are at most.

        Raises:
            ConfigError: it cannot be opened.
        """
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
        """Write a record to the file, or to standard error if that fails."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  as in StandardError
            self.handleError(record)
            return
        try:
            stream, size = self._current()
            if size and size + len(line) >= self.maxBytes:
                self.doRollover()
                stream, _ = self._current()
            stream.write(f"{self._missed_lines()}{line}\n")
        except OSError as error:
            self._miss(line, error.strerror or str(error))
        else:
            self._missed = 0
        if self._ended:  # a line of a thread that was about to log when the log changed
            self._close_stream()

    def doRollover(self) -> None:  # noqa: N802  logging's own name
        """Rename the files. If that fails, the file goes on growing.

        Raises:
            OSError: the file cannot be opened again.
        """
        try:
            super().doRollover()
        except OSError as error:
            self.stream = self._open()
            self.maxBytes = self.stream.tell() + _RETRY_BYTES
            warning = self._warning(
                "the log cannot be rotated: %(reason)s; it grows until the daemon may write to "
                "%(folders)s",
                {"reason": error.strerror, "folders": str(Path(self.baseFilename).parent)},
            )
            self.stream.write(f"{warning}\n")
        else:
            self.maxBytes = self._most_bytes

    def close(self) -> None:
        """Close the file. A line that comes later opens and closes it once more."""
        self._ended = True
        super().close()

    def _open(self) -> io.TextIOWrapper:
        raw = _WholeLines(self.baseFilename, "a", opener=_open_private)
        self._opened = os.fstat(raw.fileno())
        return io.TextIOWrapper(raw, self.encoding, self.errors, write_through=True)

    def _current(self) -> tuple[io.TextIOWrapper, int]:
        """The open file, opened anew if another one or none has its name now; and its size.

        Raises:
            OSError: it cannot be opened.
        """
        if self.stream is not None:
            with contextlib.suppress(OSError):
                named = os.stat(self.baseFilename)  # noqa: PTH116  no objects, under the lock
                if os.path.samestat(named, self._opened):
                    return self.stream, named.st_size
        self._close_stream()
        self.stream = self._open()
        return self.stream, self._opened.st_size

    def _close_stream(self) -> None:
        """Close the file, but not the handler: that waits for whoever changes the log.

        ``basicConfig`` holds logging's own lock while it waits for this handler's.
        """
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def _miss(self, line: str, reason: str) -> None:
        if not self._missed:
            self._reason = reason
            warning = self._warning(
                "the log %(file)s cannot be written: %(reason)s; its lines come here",
                {"file": self.baseFilename, "reason": reason},
            )
            StandardError.write(warning)
        self._missed += 1
        StandardError.write(line)

    def _missed_lines(self) -> str:
        """The line that says how many lines the file has missed; empty if none."""
        if not self._missed:
            return ""
        warning = self._warning(
            "lines that could not be written here: %(count)d (%(reason)s); "
            "they are on standard error",
            {"count": self._missed, "reason": self._reason},
        )
        return f"{warning}\n"

    def _warning(self, message: str, fields: Mapping[str, object]) -> str:
        """A line of this module's own."""
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, (fields,), None)
        return self.format(record)


class _WholeLines(io.FileIO):
    """A file to which a line is written whole or not at all."""

    def write(self, line: bytes) -> int:  # type: ignore[override]
        """Write a line.

        Raises:
            OSError: it cannot be written whole; the file is as long as before.
        """
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self.fileno(), left) :]
        except OSError:
            with contextlib.suppress(OSError):
                self.truncate(os.fstat(self.fileno()).st_size - (len(line) - len(left)))
            raise
        return len(line)


def _open_private(path: str, flags: int) -> int:
    """Open a file that is not for everybody to read: it holds what plugins print.

    Nobody waits for a pipe: one that nobody reads is not opened, one that is full takes no line.
    """
    return os.open(path, flags | os.O_NONBLOCK, 0o640)
