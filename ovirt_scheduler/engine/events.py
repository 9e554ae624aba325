"""The engine's events: what they name, who caused them, and how long migrations took.

::

    <event id="1012"><code>62</code><time>2026-01-31T08:00:00.123Z</time><vm id="…"/>…</event>

An event of code 62 says that the migration of a VM was started, and one of code 63 that it is
done. Only numbers, ids and times are searched for; the document is not parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple, Optional

from ovirt_scheduler.model.requests import UUID

MOST = 1000  # in one query: 1 MB
MOST_BYTES = 8 << 20  # of the answer

_STARTED, _DONE = b"62", b"63"

_BEGIN = re.compile(rb"<event\s")
_NUMBER = re.compile(rb"""[^<>]{0,400}?\bid=["']([0-9]{1,18})["']""")
_CODE = re.compile(rb"<code>([0-9]{1,9})</code>")
_TIME = re.compile(rb"<time>([0-9TZ:.+-]{20,40})</time>")
_ID = rb"""\b[^<>]{0,400}?\bid=["'](%s)["']""" % UUID.pattern.encode().replace(b"(", b"(?:")
_VM = re.compile(rb"<vm" + _ID)
_NAMED = re.compile(rb"<(?:host|vm)" + _ID)
_CORRELATION_ID = re.compile(rb"<correlation_id>([0-9A-Za-z_-]{1,50})</correlation_id>")


class Events(NamedTuple):
    """What was found in the engine's events.

    Attributes:
        latest: the number of the latest; None if there has been none yet.
        named: ids of the hosts and VMs that they name; None if there were too many to know.
        correlation_ids: of what caused them.
    """

    latest: Optional[int]
    named: Optional[frozenset[str]] = frozenset()
    correlation_ids: frozenset[str] = frozenset()


def read(document: bytes) -> Events:
    """What is found in a document of events."""
    numbers = [number for number, _ in _split(document)]
    named, correlation_ids = (
        frozenset(each.decode() for each in sought.findall(document))
        for sought in (_NAMED, _CORRELATION_ID)
    )
    all_told = len(numbers) < MOST
    return Events(max(numbers, default=None), named if all_told else None, correlation_ids)


def migration_seconds(document: bytes, after: Mapping[str, int]) -> dict[str, float]:
    """How long the latest migrations took that are done, as far as it is in a document of events.

    Args:
        document: in any order; the same event may come twice.
        after: the ids of the VMs, each with the number of the last event before its migration.
    """
    started: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for number, event in sorted(_split(document)):
        code, time, vm = _CODE.search(event), _TIME.search(event), _VM.search(event)
        key = vm[1].decode() if vm else ""
        if not code or not time or number <= after.get(key, number):
            continue
        try:
            moment = datetime.strptime(time[1].decode(), "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
        except ValueError:
            continue
        if code[1] == _STARTED:
            started[key] = moment
            seconds.pop(key, None)
        elif code[1] == _DONE and key in started:
            seconds[key] = max(0.0, moment - started[key])
    return seconds


def _split(document: bytes) -> Iterator[tuple[int, bytes]]:
    """Each event, with its number."""
    for event in _BEGIN.split(document)[1:]:
        number = _NUMBER.match(event)
        if number:
            yield int(number[1]), event
