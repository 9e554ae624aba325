"""What the engine's events tell of migrations: how long they took, by the engine's own clock.

::

    <event id="1012"><code>62</code><time>2026-01-31T08:00:00.123Z</time><vm id="…"/>…</event>

An event of code 62 tells that the migration of a VM was started, and one of code 63 that it is
done. Codes, times and ids are all that is looked for, so this is no reading of the document.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from datetime import datetime
from typing import Dict, Iterable

from ovirt_scheduler.model.requests import UUID

_STARTED, _DONE = b"62", b"63"
_MOST = 10_000  # VMs that are remembered

_NUMBER = re.compile(rb"""^[^<>]{0,400}?\bid=["']([0-9]{1,18})["']""")
_CODE = re.compile(rb"<code>([0-9]{1,9})</code>")
_TIME = re.compile(rb"<time>([0-9T:.+-]{19,40}|[0-9T:.-]{19,36}Z)</time>")
_VM = re.compile(
    rb"""<vm\b[^<>]{0,400}?\bid=["'](%s)["']""" % UUID.pattern.encode().replace(b"(", b"(?:")
)


class MigrationTimes:
    """The latest migration of each VM, as the events told it. Many threads may use it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the VM's id: when it was started and done, in seconds since 1970.
        self._started: OrderedDict[str, float] = OrderedDict()
        self._done: OrderedDict[str, float] = OrderedDict()

    def take_in(self, document: bytes) -> None:
        """Take in events, in any order."""
        events = sorted(
            (int(number[1]), each)
            for each in document.split(b"<event ")[1:]
            for number in [_NUMBER.match(each)]
            if number
        )
        with self._lock:
            for _, event in events:
                self._take_in(event)
            for known in (self._started, self._done):
                while len(known) > _MOST:
                    known.popitem(last=False)

    def seconds(self, vms: Iterable[str]) -> Dict[str, float]:
        """How long the latest migration of each VM took, as far as it is known to be done."""
        with self._lock:
            done = [vm for vm in vms if vm in self._done and vm in self._started]
            return {vm: max(0.0, self._done[vm] - self._started[vm]) for vm in done}

    def forget(self, vm: str) -> None:
        """Forget a former migration: the next begins."""
        with self._lock:
            self._started.pop(vm, None)
            self._done.pop(vm, None)

    def _take_in(self, event: bytes) -> None:
        code, time, vm = _CODE.search(event), _TIME.search(event), _VM.search(event)
        if not code or not time or not vm or code[1] not in (_STARTED, _DONE):
            return
        try:
            moment = datetime.fromisoformat(_with_zone(time[1].decode())).timestamp()
        except ValueError:
            return
        key = vm[1].decode()
        if code[1] == _DONE:
            self._done[key] = moment
        elif self._started.get(key) != moment:  # else it is told once more
            self._started[key] = moment
            self._done.pop(key, None)
            self._started.move_to_end(key)


def _with_zone(text: str) -> str:
    """As Python 3.9 reads it: the fraction has three or six digits there, and Z is no zone."""
    text = re.sub(r"\.([0-9]+)", lambda found: f".{found[1]:0<6.6}", text)
    return text.replace("Z", "+00:00")
