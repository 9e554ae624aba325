"""The engine's events: what they name, who caused them, and how migrations ended.

::

    <event id="1012"><code>62</code><time>2026-01-31T08:00:00.123Z</time><vm id="…"/>…</event>

An event of code 62 says that the migration of a VM was started, one of code 63 that it is done, and
one of code 65 or 120 that it failed. Only numbers, ids, times and descriptions are searched for;
the document is not parsed.
"""

from __future__ import annotations

import contextlib
import html
import re
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple, Optional
from urllib.parse import urlencode

from ovirt_scheduler.engine.event_writer import ORIGIN
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import EngineUnavailable
from ovirt_scheduler.model.requests import UUID
from ovirt_scheduler.model.values.hidden import without_secrets
from ovirt_scheduler.model.values.text import writable

MOST = 1000  # in one query: 1 MB
MOST_BYTES = 8 << 20  # of the answer
_ENDS_SECONDS = 5.0  # for the answer how migrations ended
_MOST_TOGETHER = 10_000  # hosts and VMs that several answers name

_STARTED, _DONE, _FAILED = b"62", b"63", (b"65", b"120")

_OURS = b"<origin>%b<" % ORIGIN.encode()
_BEGIN = re.compile(rb"<event\s")
_NUMBER = re.compile(rb"""[^<>]{0,400}?\bid=["']([0-9]{1,18})["']""")
_CODE = re.compile(rb"<code>([0-9]{1,9})</code>")
_DESCRIPTION = re.compile(rb"<description>([^<]{1,2000})</description>")
_TIME = re.compile(rb"<time>([0-9TZ:.+-]{20,40})</time>")
ID = rb"""\b[^<>]{0,400}?\bid=["'](%s)["']""" % UUID.pattern.encode().replace(b"(", b"(?:")
_VM = re.compile(rb"<vm" + ID)
_NAMED = re.compile(rb"<(?:host|vm)" + ID)
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

    def with_later(self, later: Events) -> Events:
        """These and later ones, as one answer; of too many the oldest are left out."""
        both = None
        if self.named is not None and later.named is not None:
            both = self.named | later.named
        ids = self.correlation_ids | later.correlation_ids
        return Events(
            later.latest,
            None if both is None or len(both) > _MOST_TOGETHER else both,
            later.correlation_ids if len(ids) > _MOST_TOGETHER else ids,
        )


class News:
    """What has happened in a cluster since its thread asked last. Safe to use from many threads."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._events: Optional[Events] = None

    def put(self, events: Events) -> None:
        """Add events to those that wait."""
        with self._condition:
            self._events = events if self._events is None else self._events.with_later(events)
            self._condition.notify()

    def take(self, until: float) -> Optional[Events]:
        """All that wait, as soon as there are some; None: none came until then."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._events is not None, max(0.0, until - time.monotonic())
            )
            events, self._events = self._events, None
            return events


def read(document: bytes) -> Events:
    """What is found in a document of events. Those of this daemon name nothing."""
    numbers = [number for number, _ in _split(document)]
    document = b"<event ".join(part for part in _BEGIN.split(document) if _OURS not in part)
    named, correlation_ids = (
        frozenset(each.decode() for each in sought.findall(document))
        for sought in (_NAMED, _CORRELATION_ID)
    )
    all_told = len(numbers) < MOST
    return Events(max(numbers, default=None), named if all_told else None, correlation_ids)


def ask(inventory: Inventory, after: Optional[int], deadline: float) -> Events:
    """Ask for the events after one; without one, for the number of the latest alone.

    Raises:
        EngineUnavailable: as for ``Inventory.bytes_at``.
    """
    news = read(_document(inventory, after, deadline))
    if after is None:
        return Events(news.latest)
    return news._replace(latest=after if news.latest is None else news.latest)


def _document(inventory: Inventory, after: Optional[int], deadline: float) -> bytes:
    query = {"max": 1} if after is None else {"from": after, "max": MOST}
    return inventory.bytes_at(f"/events?{urlencode(query)}", deadline, MOST_BYTES)


class MigrationEnd(NamedTuple):
    """How a migration ended, as far as the events say it.

    Attributes:
        seconds: that it took, if it is done.
        failure: why it failed, in the engine's words; empty if it did not, or no event says it.
    """

    seconds: Optional[float] = None
    failure: str = ""


def ask_migration_ends(
    inventory: Inventory, after: Mapping[str, int], mark: str
) -> Mapping[str, MigrationEnd]:
    """Ask how migrations ended that have just ended.

    Args:
        after: the ids of the VMs, each with the number of the last event before its migration.
        mark: the correlation id of the migrations.

    Returns:
        By VM. A VM is left out if the engine has no event of it, or gives no answer.
    """
    with contextlib.suppress(EngineUnavailable):  # the next query tells
        if after:
            deadline = time.monotonic() + _ENDS_SECONDS
            return migration_ends(_document(inventory, min(after.values()), deadline), after, mark)
    return {}


def migration_ends(document: bytes, after: Mapping[str, int], mark: str) -> dict[str, MigrationEnd]:
    """How the latest migrations of VMs ended, as far as it is in a document of events.

    Args:
        document: in any order; the same event may come twice.
        after: the ids of the VMs, each with the number of the last event before its migration.
        mark: the correlation id of the migrations; only the failures of these count.
    """
    started: dict[str, float] = {}
    ends: dict[str, MigrationEnd] = {}
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
            ends.pop(key, None)
        elif code[1] == _DONE and key in started:
            ends[key] = MigrationEnd(max(0.0, moment - started[key]))
        elif code[1] in _FAILED and mark.encode() in _CORRELATION_ID.findall(event):
            words = _DESCRIPTION.search(event)
            ends[key] = MigrationEnd(failure=_text(words[1]) if words else "")
    return ends


def _text(words: bytes) -> str:
    """A text of a document for a message, in one line."""
    text = without_secrets(html.unescape(words.decode("utf-8", "replace")))
    return f"{writable(' '.join(text.split())):.300}"


def _split(document: bytes) -> Iterator[tuple[int, bytes]]:
    """Each event, with its number."""
    for event in _BEGIN.split(document)[1:]:
        number = _NUMBER.match(event)
        if number:
            yield int(number[1]), event
