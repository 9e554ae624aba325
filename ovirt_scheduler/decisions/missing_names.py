"""Remembers which policy units, schedulers and topics callers name that are not there."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from ovirt_scheduler.model.units import LONGEST_NAME

_SECONDS = 3600.0  # that a name is remembered after it was last named
_MOST = 1000  # names that are remembered: they come from callers, who may make them up

KindAndName = tuple[str, str]  # the kind in words, and the name


class MissingUnit(NamedTuple):
    """A policy unit, a scheduler or a topic that callers name, and that is not there."""

    kind: str  # in words: filter, cost function, balance, scheduler, topic
    name: str
    since: float  # when it was first named, in seconds since 1970
    times: int  # how often it was named since
    because: str = ""  # what callers are told
    kinds: tuple[str, ...] = ()  # of policy units that have this name, in words
    unloaded: str = ""  # why its file gives no unit, if it has one


class Namings(NamedTuple):
    """How often something was named. Times are in seconds since 1970."""

    first: float
    latest: float
    times: int


class MissingNames:
    """Names that callers used within the last hour in vain. Safe to use from many threads.

    While it is full, further names are not remembered.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[KindAndName, Namings] = {}

    def add(self, kind: str, name: str) -> None:
        """Remember that something was named, and is not there."""
        now, key = time.time(), (kind, name[:LONGEST_NAME])
        with self._lock:
            before = self._names.get(key)
            if before is not None and before.latest + _SECONDS > now:
                self._names[key] = Namings(before.first, now, before.times + 1)
            elif before is not None or len(self._names) < _MOST:
                self._names[key] = Namings(now, now, 1)

    def forget(self, kind: str, name: str) -> None:
        """Forget a name: it is there again."""
        with self._lock:
            self._names.pop((kind, name), None)

    def recent(self) -> dict[KindAndName, Namings]:
        """Those of the last hour; older ones are forgotten."""
        now = time.time()
        with self._lock:
            self._names = {
                key: namings
                for key, namings in self._names.items()
                if namings.latest + _SECONDS > now
            }
            return dict(self._names)
