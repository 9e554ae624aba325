"""A handler that writes the log and its fields to systemd's journal, in its native protocol.

Each entry is a datagram. One that is too large is passed as the descriptor of a sealed memfd
(https://systemd.io/JOURNAL_NATIVE_PROTOCOL/, systemd.journal-fields(7))::

    MESSAGE=one line \\n               a value without a line break
    MESSAGE \\n  length  value \\n      any value: its length in 8 bytes, little-endian
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping

from ovirt_scheduler.log.fields import Costs, Names
from ovirt_scheduler.log.file import StandardError
from ovirt_scheduler.log.format import PlainFormatter, as_json, as_utf8, fields, kind, text

_log = logging.getLogger(__name__)

SOCKET = "/run/systemd/journal/socket"

_PREFIX = "SCHEDULER_"  # before the name of each field of ours: UNIT and others are systemd's
_PRIORITIES = ((logging.ERROR, "3"), (logging.WARNING, "4"), (logging.INFO, "6"))  # syslog(3)
_SEND_SECONDS = 0.5
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def is_standard_error(environ: Mapping[str, str]) -> bool:
    """Whether standard error goes to the journal, as ``JOURNAL_STREAM`` says (systemd.exec(5))."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        stream = os.fstat(2)
    except OSError:
        return False
    return (device, inode) == (str(stream.st_dev), str(stream.st_ino))


class JournalHandler(logging.Handler):
    """Sends each record to the journal, or to standard error while the journal takes none.

    A line says when that begins, and another when it ends.
    """

    def __init__(self, address: str = SOCKET, pause: float = 1.0) -> None:
        """Make a handler, which needs no journal yet.

        Args:
            address: of journald's socket.
            pause: seconds without a try after one that failed, so that a journal that hangs does
                not hold up the daemon.
        """
        super().__init__()
        self._address = address
        self._pause = pause
        self._instead = StandardError()
        self._instead.setFormatter(PlainFormatter())
        self._failed = False
        self._next_try = 0.0  # on the monotonic clock
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_SEND_SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, or write it to standard error if the journal does not take it."""
        try:
            reason = self._send(entry(record))
            if reason:
                if not self._failed:
                    self._failed = True  # first: the warning comes through here, too
                    _log.warning(
                        "the journal takes nothing, the log goes to standard error: %(reason)s",
                        {"reason": reason},
                    )
                self._instead.handle(record)
            elif self._failed:
                self._failed = False
                _log.info("the journal takes entries again")
        except Exception:  # noqa: BLE001  as every handler does: a log breaks no call
            self.handleError(record)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()

    def _send(self, data: bytes) -> str:
        """Send an entry. Gives the reason if it was not taken, or an empty text."""
        if time.monotonic() < self._next_try:
            return "it did not a moment ago"
        try:
            try:
                self._socket.sendto(data, self._address)
            except OSError as error:
                if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                    raise
                self._send_large(data)
        except OSError as error:
            self._next_try = time.monotonic() + self._pause
            return error.strerror or str(error)
        return ""

    def _send_large(self, data: bytes) -> None:
        """Pass an entry that no datagram can hold in a memfd that nobody can change."""
        descriptor = os.memfd_create("ovirt-scheduler-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))
            self._socket.sendmsg([], [passed], 0, self._address)


def entry(record: logging.LogRecord) -> bytes:
    """The record in the journal's protocol."""
    lines: list[str] = []
    blocks = b""
    for name, value in _entry_fields(record):
        if "\n" in value:
            data = as_utf8(value)
            blocks += b"%s\n%s%s\n" % (name.encode("ascii"), struct.pack("<Q", len(data)), data)
        else:
            lines += (name, "=", value, "\n")
    return as_utf8("".join(lines)) + blocks


def _entry_fields(record: logging.LogRecord) -> Iterator[tuple[str, str]]:
    """The journal's own fields, then ours. A field with several values comes several times."""
    yield "MESSAGE", text(record)
    yield "MESSAGE_ID", kind(str(record.msg))
    yield "PRIORITY", next((code for least, code in _PRIORITIES if record.levelno >= least), "7")
    yield "SYSLOG_IDENTIFIER", "ovirt-scheduler"
    yield "CODE_FILE", record.pathname
    yield "CODE_LINE", str(record.lineno)
    yield "CODE_FUNC", record.funcName or ""
    for name, value in fields(record).items():
        for each in value.first if isinstance(value, Names) else (value,):
            shown = as_json(each) if isinstance(each, Costs) else each
            yield _PREFIX + name.upper(), shown if isinstance(shown, str) else str(shown)
