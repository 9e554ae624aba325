"""Decides which daemon drives a cluster if several are told to.

Each migration carries a mark: a correlation id, which the engine shows with the events of the
migration. So a daemon sees the marks of other daemons on the cluster's migrations. Of two daemons,
the one that began to drive the cluster later stands by. A daemon that was told to take the cluster
over comes before daemons that were not; of several such daemons, the latest comes first.

A daemon stands by until it is told to take over, even after a restart: it cannot know whether the
other one has ended, or only makes no migrations.
"""

from __future__ import annotations

import logging
import re
import secrets
import socket
import time
import zlib
from collections.abc import Iterable
from typing import NamedTuple, Optional

from ovirt_scheduler.clusters.persistence import DriveMemory
from ovirt_scheduler.errors import SchedulerError
from ovirt_scheduler.log.marked_for_engine import for_engine
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.settings.value_types import Drive

_log = logging.getLogger(__name__)

# 50 characters at most, as the engine takes them; it allows letters, digits, - and _.
_MARK = re.compile(
    "ovirt-scheduler-([st])([0-9a-f]{11})-([0-9A-Za-z-]{1,11}-[0-9a-f]{4})-([0-9a-f]{4})"
)
_LONGEST_NAME = 11  # of the machine
_FARTHEST = 10 * 365 * 86_400_000  # milliseconds that another clock may be ahead
_MOST_WARNED = 20  # other daemons that the log names


class Mark(NamedTuple):
    """The daemon that sent a correlation id."""

    by_takeover: bool  # an administrator had it take the cluster over
    since: int  # milliseconds since 1970: when the daemon began to drive the cluster
    daemon: str  # the machine's name, and digits
    cluster: str  # digits made of its name

    @classmethod
    def read(cls, correlation_id: str) -> Optional[Mark]:
        """The mark in a correlation id; None if the id is not a daemon's."""
        match = _MARK.fullmatch(correlation_id)
        return match and cls(match[1] == "t", int(match[2], 16), match[3], match[4])

    def __str__(self) -> str:
        kind = "t" if self.by_takeover else "s"
        return f"ovirt-scheduler-{kind}{self.since:011x}-{self.daemon}-{self.cluster}"

    @property
    def machine(self) -> str:
        """The machine's name."""
        return self.daemon.rpartition("-")[0]

    @property
    def rank(self) -> tuple[int, int, str]:
        """The rank of the mark; the daemon with the lowest rank drives the cluster."""
        return (0, -self.since, self.daemon) if self.by_takeover else (1, self.since, self.daemon)


class ClusterOwnership:
    """Whether this daemon drives a cluster.

    A daemon that only logs migrations does not count.

    Args:
        store: keeps the memory of the cluster.

    Attributes:
        memory: has the mark, and for whom the daemon stands by.
    """

    def __init__(self, settings: ClusterSettings, store: DriveMemory) -> None:
        self._cluster = cluster = settings.name
        self._makes = settings.drive in (Drive.ON, Drive.APPROVE)
        self._store = store
        self.memory = store.cluster(cluster)
        self._tag = f"{zlib.crc32(cluster.encode()) & 0xFFFF:04x}"
        self._others: set[Mark] = set()  # that were heard, and not compared yet
        self._warned: set[tuple[str, str]] = set()  # a daemon and its driver, as logged

    @property
    def driven_by(self) -> str:
        """The daemon for which this one stands by; empty: it drives the cluster."""
        other = Mark.read(self.memory.driven_by) if self._makes else None
        return "" if other is None else other.daemon

    def add_marks(self, correlation_ids: Iterable[str]) -> None:
        """Add the marks of the engine's events; for the cluster's thread."""
        latest = _now() + _FARTHEST
        for mark in filter(None, map(Mark.read, correlation_ids)):
            if mark.cluster == self._tag and mark.since <= latest:
                self._others.add(mark)

    def take_over(self) -> None:
        """Take the cluster over at the next look; any thread may.

        Raises:
            SchedulerError: the daemon makes no migrations.
        """
        if not self._makes:
            raise SchedulerError(
                f"this daemon makes no migrations of {self._cluster}: set drive = on, and reload it"
            )
        self._store.request_takeover(self._cluster)

    def determine(self) -> None:
        """Find out whether the daemon drives the cluster; for the cluster's thread."""
        others, self._others = self._others, set()
        memory = self.memory
        if not self._makes:
            memory.mark = ""  # it begins to drive the cluster when it is told to
            return
        own = Mark.read(memory.mark)
        # A state folder that was copied has the mark of the daemon that it came from.
        if own is None or (own.machine, own.cluster) != (_machine(), self._tag):
            name = f"{_machine()}-{secrets.token_hex(2)}"  # which no other daemon has
            own = Mark(False, _now(), name, self._tag)
        if memory.taking:
            own = self._taking_over(own)
        others = {mark for mark in others if mark.daemon != own.daemon}
        first = min(others, key=lambda mark: mark.rank, default=None)
        if first is not None and first.rank < own.rank:
            memory.driven_by = str(first)
        if memory.mark != str(own) or others:
            memory.mark = str(own)
            self._store.save(self._cluster)
        self._warn({mark.daemon for mark in others})

    def _taking_over(self, own: Mark) -> Mark:
        """Take the cluster over; gives the mark of the daemon from then on."""
        memory = self.memory
        memory.taking = False
        former = Mark.read(memory.driven_by)
        memory.driven_by = ""
        if former is not None:
            # What happened meanwhile was for the other daemon: go on from what the engine says.
            memory.statuses, memory.moved = {}, []
        self._warned.clear()
        _log.info(
            "cluster %(cluster)s: taken over, this daemon drives it from now on",
            {"cluster": self._cluster},
        )
        return own._replace(by_takeover=True, since=max(_now(), former.since + 1 if former else 0))

    def _warn(self, others: set[str]) -> None:
        """Log the daemons that drive the cluster, too; each once."""
        driver = self.driven_by
        for daemon in [driver] if driver else sorted(others):
            if (daemon, driver) in self._warned or len(self._warned) >= _MOST_WARNED:
                continue
            self._warned.add((daemon, driver))
            fields = {"cluster": self._cluster, "daemon": daemon}
            if driver:
                _log.warning(
                    "cluster %(cluster)s: %(daemon)s drives it, and this daemon stands by; to have "
                    "it drive: ovirt-scheduler clusters take %(cluster)s",
                    fields,
                    extra=for_engine(),
                )
            else:
                _log.warning(
                    "cluster %(cluster)s: %(daemon)s migrates its VMs, too; it has to stand by, as "
                    "this daemon drives the cluster",
                    fields,
                    extra=for_engine(),
                )


def _now() -> int:
    return time.time_ns() // 1_000_000


def _machine() -> str:
    machine = re.sub("[^0-9A-Za-z-]+", "-", socket.gethostname().partition(".")[0])
    return machine[:_LONGEST_NAME] or "unknown"
