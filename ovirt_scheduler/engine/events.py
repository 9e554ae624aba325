"""What the engine's events tell: what they name, who caused them, and how long migrations took.

::

    <event id="1012"><code>62</code><time>2026-01-31T08:00:00.123Z</time><vm id="…"/>…</event>

An event of code 62 tells that the migration of a VM was started, and one of code 63 that it is
done. Numbers, ids and times are all that is looked for, so this is no reading of the document.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple, Optional

from ovirt_scheduler.model.requests import UUID

MOST = 1000  # in one query: 1 MB
MOST_BYTES = 8 << 20  # of the answer

_STARTED, _DONE = b"62", b"63"
_MOST_VMS = 10_000  # that are remembered

_BEGIN = re.compile(rb"<event\s")
_NUMBER = re.compile(rb"""[^<>]{0,400}?\bid=["']([0-9]{1,18})["']""")
_CODE = re.compile(rb"<code>([0-9]{1,9})</code>")
_TIME = re.compile(rb"<time>([0-9T:.+-]{19,40}|[0-9T:.-]{19,36}Z)</time>")
_ID = rb"""\b[^<>]{0,400}?\bid=["'](%s)["']""" % UUID.pattern.encode().replace(b"(", b"(?:")
_VM = re.compile(rb"<vm" + _ID)
_NAMED = re.compile(rb"<(?:host|vm)" + _ID)
_CORRELATION_ID = re.compile(rb"<correlation_id>([0-9A-Za-z_-]{1,50})</correlation_id>")


class Events(NamedTuple):
    """What the engine told of its events.

    Attributes:
        latest: the number of the latest; None where there has been none yet.
        named: ids of the hosts and VMs that they name; None where there were too many to know.
        correlation_ids: of what caused them.
    """

    latest: Optional[int]
    named: Optional[frozenset[str]] = frozenset()
    correlation_ids: frozenset[str] = frozenset()


def read(document: bytes) -> Events:
    """What a document of events tells."""
    numbers = [number for number, _ in _split(document)]
    named, correlation_ids = (
        frozenset(each.decode() for each in sought.findall(document))
        for sought in (_NAMED, _CORRELATION_ID)
    )
    all_told = len(numbers) < MOST
    return Events(max(numbers, default=None), named if all_told else None, correlation_ids)


class MigrationTimes:
    """The latest migration of each VM, as the events told it. Many threads may use it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the VM's id: when it was started and done, in seconds since 1970.
        self._times: dict[str, tuple[float, Optional[float]]] = {}

    def take_in(self, document: bytes) -> None:
        """Take in events, in any order."""
        with self._lock:
            for _, event in sorted(_split(document)):
                self._take_in(event)
            while len(self._times) > _MOST_VMS:
                del self._times[next(iter(self._times))]

    def seconds(self, vms: Iterable[str]) -> dict[str, float]:
        """How long the latest migration of each VM took, as far as it is known to be done."""
        with self._lock:
            times = {vm: self._times[vm] for vm in vms if vm in self._times}
        return {
            vm: max(0.0, done - started)
            for vm, (started, done) in times.items()
            if done is not None
        }

    def forget(self, vm: str) -> None:
        """Forget a former migration: the next begins."""
        with self._lock:
            self._times.pop(vm, None)

    def _take_in(self, event: bytes) -> None:
        code, time, vm = _CODE.search(event), _TIME.search(event), _VM.search(event)
        if not code or not time or not vm:
            return
        try:
            moment = datetime.fromisoformat(_with_zone(time[1].decode())).timestamp()
        except ValueError:
            return
        key = vm[1].decode()
        started, _ = self._times.get(key, (None, None))
        if code[1] == _DONE and started is not None:
            self._times[key] = started, moment
        elif code[1] == _STARTED and started != moment:  # else it is told once more
            self._times.pop(key, None)  # so that it is the newest
            self._times[key] = moment, None


def _split(document: bytes) -> Iterator[tuple[int, bytes]]:
    """Each event, with its number."""
    for event in _BEGIN.split(document)[1:]:
        number = _NUMBER.match(event)
        if number:
            yield int(number[1]), event


def _with_zone(text: str) -> str:
    """As Python 3.9 reads it: the fraction has three or six digits there, and Z is no zone."""
    text = re.sub(r"\.([0-9]+)", lambda found: f".{found[1]:0<6.6}", text)
    return text.replace("Z", "+00:00")
