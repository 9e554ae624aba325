"""Handlers that write the log: to standard error, to a file, to systemd's journal.

Nothing stops if the log cannot be written: the disk may be full, the folder gone, the journal or
the reader of standard error stuck. The lines then go to standard error, after one that says why.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import socket
import stat
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.log.format import JsonFormatter, PlainFormatter, journal_entry

_log = logging.getLogger(__name__)

SOCKET = "/run/systemd/journal/socket"

_STANDARD_ERROR = 2
_PATIENCE = 1.0  # seconds for standard error to take a line
_PAUSE = 10.0  # seconds without a try after a line that it did not take
_SEND_SECONDS = 0.5
_LONGEST_ENTRY = 160 << 10  # bytes, so that a datagram holds it


def make(style: str, file: Optional[Path], environ: Mapping[str, str]) -> logging.Handler:
    """Make the handler for the journal, for standard error, or for a file.

    Args:
        style: auto, plain, json or journal.
        file: None for standard error, or the journal.
        environ: tells whether standard error goes to the journal already.

    Raises:
        ConfigError: the file cannot be written.
    """
    in_journal = style == "auto" and file is None and is_standard_error(environ)
    if style == "journal" or in_journal:
        return JournalHandler(SOCKET)
    handler = StandardError() if file is None else LogFile(file)
    handler.setFormatter(JsonFormatter() if style == "json" else PlainFormatter())
    return handler


def activate(handler: logging.Handler, level: str) -> None:
    """Log with this handler from now on, and close the one before."""
    # No line shows these; each record would read them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.setLevel(level.upper())
    former, root.handlers = root.handlers, [handler]  # at once: threads go on logging
    for previous in former:
        previous.close()


def print_line(line: str) -> None:
    """Print a line to standard error, for whoever started the daemon, at any level of the log.

    It is JSON if the log is JSON, because then a program reads it.
    """
    used = logging.getLogger().handlers
    if any(isinstance(each.formatter, JsonFormatter) for each in used):
        record = logging.LogRecord(__name__, logging.INFO, __file__, 0, line, None, None)
        line = JsonFormatter().format(record)
    StandardError().write(line)


def is_standard_error(environ: Mapping[str, str]) -> bool:
    """Whether standard error goes to the journal, as ``JOURNAL_STREAM`` says (systemd.exec(5))."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        stream = os.fstat(2)
    except OSError:
        return False
    return (device, inode) == (str(stream.st_dev), str(stream.st_ino))


class StandardError(logging.Handler):
    """Writes each line to standard error at once, without a buffer that could fail later."""

    _next_try = 0.0  # on the monotonic clock, of all handlers: there is one standard error

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. One that cannot be formatted is reported there, too."""
        try:
            self.write(self.format(record))
        except Exception:  # noqa: BLE001  a record that cannot be formatted must not harm its caller
            self.handleError(record)

    def write(self, line: str) -> None:
        """Write a line. It is lost if there is no standard error.

        If its reader is stuck, the line is lost after a second, and the lines of the next ten
        seconds are lost at once.
        """
        if time.monotonic() < StandardError._next_try:
            return
        remaining = memoryview(f"{line}\n".encode("utf-8", "backslashreplace"))
        with contextlib.suppress(OSError):
            while remaining:
                if not _is_writable():
                    StandardError._next_try = time.monotonic() + _PAUSE
                    return
                remaining = remaining[os.write(_STANDARD_ERROR, remaining[: select.PIPE_BUF]) :]


def _is_writable() -> bool:
    """Whether standard error takes as much as ``select.PIPE_BUF`` soon, or fails at once."""
    if stat.S_ISREG(os.fstat(_STANDARD_ERROR).st_mode):
        return True
    waiting = select.poll()
    waiting.register(_STANDARD_ERROR, select.POLLOUT)
    return bool(waiting.poll(_PATIENCE * 1000))


class LogFile(logging.Handler):
    """Appends lines to a file, and makes a new one where it was moved or removed, as by logrotate.

    Lines that the file does not take go to standard error. The standard library's
    ``WatchedFileHandler`` would wait for a pipe, leave half a line on a full disk, and print a
    traceback for each line that it cannot write.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Args:
            path: of the file; its folder has to exist.

        Raises:
            ConfigError: it cannot be opened.
        """
        super().__init__()
        self._path = str(path)
        self._fails = self._ended = False
        self._file: Optional[_WholeLines] = None
        self._standard_error = StandardError()
        try:
            self._file = self._current()
        except OSError as error:
            message = (
                f"the log cannot be written: {error.strerror}; make its folder, writable for the "
                "daemon, or mend log_file"
            )
            raise ConfigError(message, self._path) from None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record to the file, or to standard error if that fails."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  as in StandardError
            self.handleError(record)
            return
        try:
            self._current().write(f"{line}\n".encode("utf-8", "backslashreplace"))
            self._fails = False
        except OSError as error:
            if not self._fails:
                self._fails = True
                warning = self._warning(
                    "the log %(file)s cannot be written: %(reason)s; its lines come here",
                    {"file": self._path, "reason": error.strerror or str(error)},
                )
                self._standard_error.write(warning)
            self._standard_error.write(line)
        if self._ended:  # a line of a thread that was about to log when the log changed
            self._close_file()

    def close(self) -> None:
        """Close the file. A line that comes later opens and closes it once more."""
        self.acquire()
        try:
            self._ended = True
            self._close_file()
        finally:
            self.release()
        super().close()

    def _current(self) -> _WholeLines:
        """The open file, opened anew if another one or none has its name now.

        Raises:
            OSError: it cannot be opened.
        """
        if self._file is not None:
            with contextlib.suppress(OSError):
                named = os.stat(self._path)  # noqa: PTH116  no objects, under the lock
                if os.path.samestat(named, os.fstat(self._file.fileno())):
                    return self._file
            self._close_file()
        self._file = _WholeLines(self._path, "a", opener=_open_private)
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

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
        remaining = memoryview(line)
        try:
            while remaining:
                remaining = remaining[os.write(self.fileno(), remaining) :]
        except OSError:
            with contextlib.suppress(OSError):
                self.truncate(os.fstat(self.fileno()).st_size - (len(line) - len(remaining)))
            raise
        return len(line)


def _open_private(path: str, flags: int) -> int:
    """Open a file that is not for everybody to read: it holds what plugins print.

    A pipe holds nothing up: without a reader it is not opened, a full one takes no line.
    """
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o640)


class JournalHandler(StandardError):
    """Sends each record to the journal, or to standard error while the journal takes none.

    A line says when that begins, and another when it ends. A record with a very long traceback,
    which no datagram holds, goes to standard error, too.
    """

    def __init__(self, address: str = SOCKET, pause: float = 1.0) -> None:
        """Make a handler, which needs no journal yet.

        Args:
            address: of journald's socket.
            pause: seconds without a try after a failure, so that a journal that hangs does not
                hold up the daemon.
        """
        super().__init__()
        self._address = address
        self._pause = pause
        self.setFormatter(PlainFormatter())  # of standard error
        self._failed = False
        self._next_send = 0.0  # on the monotonic clock
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_SEND_SECONDS)
        # Not by ``close``: a thread may be about to log here when the log changes.
        weakref.finalize(self, self._socket.close)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, or write it to standard error if the journal does not take it."""
        try:
            entry = journal_entry(record)
            if len(entry) > _LONGEST_ENTRY:
                super().emit(record)
            elif reason := self._send(entry):
                if not self._failed:
                    self._failed = True  # first: the warning comes through here, too
                    _log.warning(
                        "the journal takes nothing, the log goes to standard error: %(reason)s",
                        {"reason": reason},
                    )
                super().emit(record)
            elif self._failed:
                self._failed = False
                _log.info("the journal takes entries again")
        except Exception:  # noqa: BLE001  as every handler does: a log breaks no call
            self.handleError(record)

    def _send(self, data: bytes) -> str:
        """Send an entry.

        Returns:
            Why the journal did not take it; empty if it did.
        """
        if time.monotonic() < self._next_send:
            return "it did not a moment ago"
        try:
            self._socket.sendto(data, self._address)
        except OSError as error:
            self._next_send = time.monotonic() + self._pause
            return error.strerror or str(error)
        return ""
