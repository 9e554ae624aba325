"""A record of the log as text: plain for people, or with its fields as JSON or for the journal.

Text from elsewhere can neither forge a line nor steer a terminal. Every unprintable character is
escaped as in Python (``\\n``, ``\\x1b``, ``\\ud800``). Further lines of a
traceback or of output are indented; lines of the log never are.
"""

from __future__ import annotations

import datetime
import functools
import json
import logging
import re
import struct
import time
import uuid
from collections.abc import Iterator, Mapping

from ovirt_scheduler.log.fields import FIELDS, Block, Names

_INDENT = "\n    "
_FIELD = re.compile(r"%\((\w+)\)[.0-9]*[a-z]")
_PREFIX = "SCHEDULER_"  # before each of our fields: systemd has its own, such as UNIT
_PRIORITIES = ((logging.ERROR, "3"), (logging.WARNING, "4"), (logging.INFO, "6"))  # syslog(3)
_NAMESPACE = uuid.UUID("b3a1d8f2-6c0e-4f57-9d24-7e5a1c98f360")  # of message ids


class PlainFormatter(logging.Formatter):
    """``2026-01-31 12:00:00.000+01:00 INFO    request …``, in local time with its offset."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines, without the last line break."""
        local = time.localtime(record.created)
        seconds, zone = time.strftime("%Y-%m-%d %H:%M:%S %z", local).rsplit(" ", 1)
        moment = f"{seconds}.{int(record.msecs):03}{zone[:3]}:{zone[3:]}"
        return f"{moment} {record.levelname:<7} {text(record)}"


class JsonFormatter(logging.Formatter):
    """One object on one line, in ASCII: time (RFC 3339, UTC), level, logger, message, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line, without its line break."""
        created = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        line = {
            "time": created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": sentence(record),
            **fields(record),
        }
        return as_json(line)


def journal_entry(record: logging.LogRecord) -> bytes:
    """The record in the journal's native protocol.

    It is in https://systemd.io/JOURNAL_NATIVE_PROTOCOL/ and systemd.journal-fields(7)::

        MESSAGE=one line \\n               a value without a line break
        MESSAGE \\n  length  value \\n      any value: its length in 8 bytes, little-endian
    """
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
    yield "MESSAGE_ID", message_id(str(record.msg))
    yield "PRIORITY", next((code for least, code in _PRIORITIES if record.levelno >= least), "7")
    yield "SYSLOG_IDENTIFIER", "ovirt-scheduler"
    yield "CODE_FILE", record.pathname
    yield "CODE_LINE", str(record.lineno)
    yield "CODE_FUNC", record.funcName or ""
    for name, value in fields(record).items():
        for part in value.first if isinstance(value, Names) else (value,):
            yield _PREFIX + name.upper(), part if isinstance(part, str) else str(part)


def fields(record: logging.LogRecord) -> dict[str, object]:
    """The record's fields that are not None, and the traceback if it has an exception."""
    args = record.args if isinstance(record.args, dict) else {}
    values = {name: args[name] for name in args if name in FIELDS and args[name] is not None}
    if record.exc_info and record.exc_info[0] is not None:
        values["traceback"] = Block(logging.Formatter().formatException(record.exc_info))
    return values


@functools.lru_cache(maxsize=256)
def message_id(message: str) -> str:
    """The journal's id of a message: the same for each of its lines.

    It is made from the sentence as the manual has it, with the names of fields in capitals.
    """
    words = _FIELD.sub(lambda field: field.group(1).upper(), message)
    return uuid.uuid5(_NAMESPACE, words).hex


def sentence(record: logging.LogRecord) -> str:
    """The message, on one line."""
    return printable(record.getMessage())


def text(record: logging.LogRecord) -> str:
    """The message, followed by output and traceback. Several lines of these are indented."""
    shown = sentence(record)
    for value in fields(record).values():
        if isinstance(value, Block):
            lines = [printable(line.expandtabs()) for line in value.splitlines()]
            separator = " " if len(lines) == 1 else _INDENT
            shown += "".join(f"{separator}{line}" for line in lines)
    return shown


def printable(words: str) -> str:
    """The words, with every unprintable character escaped, so that they fit on a line."""
    if words.isprintable():
        return words
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in words
    )


def as_utf8(words: str) -> bytes:
    """UTF-8, with a lone surrogate as ``\\ud800``: not every reader takes one."""
    return str.encode(words, "utf-8", "backslashreplace")


def as_json(value: object) -> str:
    """JSON in ASCII, with lone surrogates as ``as_utf8`` shows them."""
    return json.dumps(_plain(value), separators=(",", ":"))


def _plain(value: object) -> object:
    """The value in types that ``json`` knows, without a lone surrogate."""
    if isinstance(value, str):
        return as_utf8(value).decode("utf-8")
    if isinstance(value, Names):
        return [_plain(name) for name in value.first]
    if isinstance(value, Mapping):
        return {_plain(name): _plain(each) for name, each in value.items()}
    return value
