"""Reads a cluster from the engine, page by page, and asks only for what is used.

::

    the engine ──► a page of hosts or VMs ──► a reader's process ──► packs: what schedulers get
                   (one after another)                        └────► states: what the daemon knows

The engine has no query for statuses alone: a VM takes 8 kB, with its statistics 19 kB. So all VMs
are read only before a scheduler is called, and rarely otherwise. In between, only these are read:
the hosts, the VMs that events name, and those whose status will soon change.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

from ovirt_scheduler.clusters.reader_reports import HOSTS, VMS, HostOrVm, Report
from ovirt_scheduler.engine.inventory import STATISTICS, Inventory
from ovirt_scheduler.errors import EngineUnavailable, SchedulerError, UnreadableDocument
from ovirt_scheduler.model.cluster_state import ClusterState, HostState, VmState
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import EngineReplies, EngineReply
from ovirt_scheduler.processes.executor import Executor

_STATUS_EVERY = 60.0  # seconds between looks at what may have changed, without an event
_ALL_EVERY = 600.0  # seconds between looks at all VMs, where no scheduler is called
_STEADY = ("up", "down", "suspended")  # a VM stays like this until an event tells otherwise

Read = tuple[dict[str, Any], list[EngineReply]]  # states by id, and what schedulers get


class ClusterView(NamedTuple):
    """A cluster at one moment.

    Attributes:
        state: of its hosts and VMs.
        replies: its hosts and VMs as schedulers get them; None if not all were read.
        with_statistics: whether the replies have statistics.
    """

    state: ClusterState
    replies: Optional[EngineReplies] = None
    with_statistics: bool = False


class ClusterReader:
    """Reads one cluster; used by one thread.

    Args:
        name: of the cluster; letters, digits, ``-``, ``_`` and ``.`` alone.
        stopping: set when no other page may be asked for.

    Attributes:
        look_at: when to look even if no event has come, on the monotonic clock.
        state: as the latest look found it; None: there was none.
        measured: its hosts, as the latest look with statistics found them.
    """

    def __init__(
        self, name: str, inventory: Inventory, executor: Executor, stopping: threading.Event
    ) -> None:
        self._search = f"cluster={name}"
        self._inventory = inventory
        self._executor = executor
        self._stopping = stopping
        self._share = inventory.share()  # of the latest look
        self._cluster: Optional[str] = None  # its id: that of most hosts of its name
        self.state: Optional[ClusterState] = None
        self.measured: Mapping[str, HostState] = MappingProxyType({})
        self._named: Optional[frozenset[str]] = frozenset()  # by events since then; None: anything
        self._all_at = 0.0
        self.look_at = 0.0

    @property
    def has_news(self) -> bool:
        """Whether an event has named something of the cluster since the latest look."""
        return self._named != frozenset()

    def note_named(self, named: Optional[frozenset[str]]) -> None:
        """Note ids that events name; None: they may have named anything."""
        if named is None or self._named is None:
            self._named = None
        elif self.state is not None:
            self._named |= named & (self.state.hosts.keys() | self.state.vms.keys())

    def read(self, all_of_it: bool, statistics: bool, followed: Collection[str]) -> ClusterView:
        """Read the part of the cluster that is used now.

        Args:
            all_of_it: read all hosts and VMs, because the scheduler will be called.
            statistics: read their statistics, too.
            followed: ids of VMs that are read each time.

        Raises:
            EngineUnavailable: a page does not come, or what comes is no page.
            UnreadableDocument: a page cannot be read.
            SchedulerError: there is no host.
        """
        self._share = self._inventory.share()
        former, now = self.state, time.monotonic()
        if all_of_it or former is None or self._named is None or now >= self._all_at:
            return self._all(statistics)
        if self._named or now >= self.look_at:
            state = self._changed(former, self._named.union(followed))
            self.look_at = now + _STATUS_EVERY
            self._named = frozenset()
        else:
            state = self._with_vms(former, [vm for vm in followed if vm in former.vms])
        self.state = state
        return ClusterView(state)

    def complete(self, view: ClusterView, statistics: bool) -> ClusterView:
        """The same view, if it has all hosts and VMs, and the statistics; else a new one.

        Raises:
            As ``look``.
        """
        has_all = view.replies is not None and view.with_statistics >= statistics
        return view if has_all else self._all(statistics)

    def _all(self, statistics: bool) -> ClusterView:
        """Read all hosts and VMs.

        A known host or VM that is on no page is asked for by its id: while pages are read, others
        may come or go, and push it onto another page.
        """
        former, now = self.state or ClusterState({}, {}), time.monotonic()
        follow = STATISTICS if statistics else ""
        hosts, of_hosts = self._hosts(former, follow)
        vms, of_vms = self._pages("vms", self._search, follow)
        rest, of_rest = self._by_ids("vms", former.vms.keys() - vms.keys(), follow)
        state = self._in_cluster(hosts, {**vms, **rest})
        replies = EngineReplies(self._joined(of_hosts), vms=self._joined(of_vms + of_rest))
        self.state, self._named = state, frozenset()
        if statistics:
            self.measured = state.hosts
        self.look_at, self._all_at = now + _STATUS_EVERY, now + _ALL_EVERY
        return ClusterView(state, replies, statistics)

    def _changed(self, former: ClusterState, named: Collection[str]) -> ClusterState:
        """Read all hosts, the VMs of these ids, and the others that may have changed."""
        hosts, _ = self._hosts(former)
        unsteady = " and ".join([self._search, *(f"status!={status}" for status in _STEADY)])
        vms, _ = self._pages("vms", unsteady)
        unsteady_vms = [
            vm
            for vm, state in former.vms.items()
            if vm not in vms and (vm in named or state.status not in _STEADY)
        ]
        return self._with_vms(ClusterState(hosts, {**former.vms, **vms}), unsteady_vms)

    def _hosts(self, former: ClusterState, follow: str = "") -> Read:
        self.look_at = 0.0  # if this look fails, the next one asks again
        hosts, replies = self._pages("hosts", self._search, follow)
        if not hosts:
            raise SchedulerError(
                "the engine knows no host in it; is there a cluster of that name, and may the "
                "user of [engine] see it?"
            )
        clusters = Counter(host.cluster for host in hosts.values())
        self._cluster = clusters.most_common(1)[0][0]
        rest, of_rest = self._by_ids("hosts", former.hosts.keys() - hosts.keys(), follow)
        return {**hosts, **rest}, replies + of_rest

    def _with_vms(self, former: ClusterState, ids: Collection[str]) -> ClusterState:
        """The same with these VMs as they are now, and without those that are gone."""
        read, _ = self._by_ids("vms", ids)
        gone = set(ids).difference(read)
        vms = {vm: read.get(vm, state) for vm, state in former.vms.items() if vm not in gone}
        return self._in_cluster(former.hosts, vms)

    def _pages(self, kind: str, search: str, follow: str = "") -> Read:
        """All that a search finds."""
        replies: list[EngineReply] = []

        def keep(page: Document) -> dict[str, Any]:
            by_id, reply = self._read(kind, page)
            replies.append(reply)
            return by_id

        return self._inventory.read_pages(kind, search, keep, follow, self._share), replies

    def _by_ids(self, kind: str, ids: Collection[str], follow: str = "") -> Read:
        documents = self._inventory.pages_of(kind, ids, follow, self._share)
        answers = [self._read(kind, document) for document in documents]
        merged = {key: state for by_id, _ in answers for key, state in by_id.items()}
        return merged, [reply for _, reply in answers]

    def _read(self, kind: str, page: Document) -> tuple[dict[str, Any], EngineReply]:
        report: Report[Any] = HOSTS if kind == HOSTS.role.value else VMS
        try:
            pack, by_id = report.read(self._executor, page)
        except UnreadableDocument as error:
            raise UnreadableDocument(f"the engine's reply cannot be read: {error}") from None
        if self._stopping.is_set():
            raise EngineUnavailable("it is not asked any more: the daemon stops, or reloads")
        document = page if self._inventory.keeps_documents else None
        return by_id, EngineReply(document, tuple(by_id), pack)

    def _joined(self, replies: Sequence[EngineReply]) -> tuple[EngineReply, ...]:
        """One reply made from several; otherwise each call of a plugin would join them."""
        if self._inventory.keeps_documents:
            return tuple(replies)
        ids = tuple(dict.fromkeys(each for reply in replies for each in reply.ids))
        packs = [reply.pack for reply in replies if reply.pack is not None]
        for reply in replies:
            reply.pack = None  # so that each goes when it was copied
        return (EngineReply(None, ids, self._executor.joined(packs)),)

    def _in_cluster(
        self, hosts: Mapping[str, HostState], vms: Mapping[str, VmState]
    ) -> ClusterState:
        """Without hosts and VMs that were asked for by id, and are in another cluster by now."""

        def stays(entities: Mapping[str, HostOrVm]) -> dict[str, HostOrVm]:
            return {key: each for key, each in entities.items() if each.cluster == self._cluster}

        return ClusterState(stays(hosts), stays(vms))
