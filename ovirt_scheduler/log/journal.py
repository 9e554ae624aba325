"""Writes the log to systemd's journal, with its fields: the native journal protocol.

One datagram for each entry; one that is too large goes as a sealed memfd whose descriptor is
passed (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/, systemd.journal-fields(7))::

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
from typing import Iterator, List, Mapping, Tuple

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
    """Whether standard error goes to the journal: ``JOURNAL_STREAM``, systemd.exec(5)."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        stream = os.fstat(2)
    except OSError:
        return False
    return (device, inode) == (str(stream.st_dev), str(stream.st_ino))


class JournalHandler(logging.Handler):
    """Sends each record to the journal; while that takes none, to standard error.

    Both changes are told once.

    Args:
        address: of journald's socket.
        pause: seconds for which a journal that failed is left alone, so that one that hangs
            does not hold up the daemon.
    """

    def __init__(self, address: str = SOCKET, pause: float = 1.0) -> None:
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
        """Send a record; one that the journal does not take is written to standard error."""
        try:
            reason = self._send(entry(record))
            if reason:
                if not self._failed:
                    self._failed = True  # first: what is told now comes through here too
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
        """Give the socket back."""
        self._socket.close()
        super().close()

    def _send(self, data: bytes) -> str:
        """Send an entry; gives why it was not taken, and nothing where it was."""
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
        """Pass an entry that no datagram holds as a memfd that nobody can change any more."""
        descriptor = os.memfd_create("ovirt-scheduler-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))
            self._socket.sendmsg([], [passed], 0, self._address)


def entry(record: logging.LogRecord) -> bytes:
    """The record as the journal's protocol writes it."""
    lines: List[str] = []
    blocks = b""
    for name, value in _entry_fields(record):
        if "\n" in value:
            data = as_utf8(value)
            blocks += b"%s\n%s%s\n" % (name.encode("ascii"), struct.pack("<Q", len(data)), data)
        else:
            lines += (name, "=", value, "\n")
    return as_utf8("".join(lines)) + blocks


def _entry_fields(record: logging.LogRecord) -> Iterator[Tuple[str, str]]:
    """The journal's own fields, then ours; one of several values comes several times."""
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
