"""Looks up hosts and VMs in the engine by id, and keeps its replies for a moment (contract 5.2).

::

    ids ──► paths ──► kept, or asked for just now? ──► that reply
            100 ids a piece       └─ else: the client ──► the document, as it came

Only readers open the documents.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Callable, NamedTuple, Optional, TypeVar, cast
from urllib.parse import quote, urlencode
from xml.sax.saxutils import quoteattr

from ovirt_scheduler.engine.client import MOST_BYTES, VM_PATH, EngineClient, without_query
from ovirt_scheduler.errors import (
    AnswerLate,
    AnswersTooLarge,
    ConfigError,
    EngineRefusal,
    EngineUnavailable,
)
from ovirt_scheduler.model.answer_memory import AnswerMemory, Share
from ovirt_scheduler.model.plugins import EngineAccess
from ovirt_scheduler.model.requests import UUID, Document
from ovirt_scheduler.model.tasks import EngineReplies, EngineReply, Ids, Sought
from ovirt_scheduler.settings.table import EngineSettings

PAGE_SECONDS = 60.0  # for a page to come
LONGEST = 10.0  # seconds that one request waits for the engine, at most
_ACTION_SECONDS = 20.0  # for the answer to one
_IDS = 100  # in one query: 4.5 kB of URL; the web server before the engine takes 8

STATISTICS = "statistics"  # to follow; an engine older than 4.2 does not know it, and has none

T = TypeVar("T")


class EngineState(NamedTuple):
    """How the last question to the engine's REST API ended."""

    url: str
    problem: str = ""
    since: Optional[float] = None  # seconds since 1970
    answers: Mapping[str, int] = {}  # by ok and failed


class InventoryBounds(NamedTuple):
    """How much is asked of the engine, and how often."""

    page: int = 200  # hosts or VMs: 4 MB with their statistics
    entities: int = 100_000  # hosts or VMs, of all pages together
    pause: float = 1.0  # seconds without a query after one that failed, at least
    answers: int = 128  # that are kept
    answer_bytes: int = 64 << 20  # of these


BOUNDS = InventoryBounds()


class Inventory:
    """Asks the engine, and keeps its replies for a moment. Safe to use from many threads.

    One thread at a time sends a query; others with the same query wait for its reply. After a
    failure no query is sent for ``cache_seconds`` (at least 1): each fails at once for the same
    reason. What is asked by ``bytes_at`` has no such effect: an engine that cannot answer it may
    answer everything else.

    Args:
        keeps_documents: whether to keep a document after it was read, because decisions are
            recorded with their documents.
        memory: bounds the answers of this and of other inventories.
        patience: seconds that one request waits for the engine, at most.
        bounds: of what is asked and kept.

    Attributes:
        settings: which engine is asked, and how.
    """

    def __init__(
        self,
        settings: EngineSettings,
        keeps_documents: bool = False,
        memory: Optional[AnswerMemory] = None,
        patience: float = LONGEST,
        bounds: InventoryBounds = BOUNDS,
    ) -> None:
        self.settings = settings
        self.bounds = bounds
        self.keeps_documents = keeps_documents
        self.patience = patience
        self._memory = memory or AnswerMemory()
        self._client = EngineClient(settings)
        self._unread_password = ""  # why there is none to log in with
        self._kept_for = settings.cache_seconds
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[float, Future[Optional[EngineReply]]]] = {}  # by path
        self._failure = ""  # why the latest query failed; empty if it was answered
        self._failing_since: Optional[float] = None  # seconds since 1970
        self._answers_by: Counter[str] = Counter()  # ok and failed
        self._retry_at = 0.0  # until then queries fail as the latest did

    def check_password(self) -> None:
        """Read the password before the engine is asked; ``state`` tells if it cannot be read.

        Raises:
            ConfigError: it cannot be read.
        """
        self._unread_password = ""
        try:
            self.settings.password()
        except ConfigError as error:
            self._unread_password = f"password_file {error}"
            raise

    def look_up(self, sought: Sought, deadline: float) -> EngineReplies:
        """Look up hosts and VMs by id. Without ids the engine is not asked.

        Args:
            sought: what is no UUID, or unknown to the engine, is left out of the answer.
            deadline: of the request, on the monotonic clock; half of what is left until then
                is the plugins'.

        Raises:
            EngineUnavailable: one line that names the URL, and never the password.
        """
        deadline, share = self._until(deadline), self.share()
        hosts, vm, vms, statistics = sought
        follow = STATISTICS if statistics else ""
        try:
            of_hosts, of_vms = (
                tuple(filter(None, (self._reply(*each, deadline, share) for each in searches)))
                for searches in (_searches("hosts", hosts, follow), _searches("vms", vms, follow))
            )
            machine = None
            if vm is not None and UUID.fullmatch(vm):  # nothing else gets into a path
                query = f"?follow={follow}" if follow else ""
                machine = self._reply(VM_PATH + vm + query, (vm,), deadline, share)
            return EngineReplies(of_hosts, machine, of_vms)
        except AnswersTooLarge:
            with self._lock:
                self._make_room(0)  # what it has asked for goes, too
            raise
        finally:
            with self._lock:
                self._make_room()

    def share(self) -> Share:
        """The share of a look, or of a request, of the memory of answers."""
        return self._memory.share()

    def access(self, deadline: float) -> EngineAccess:
        """The access of plugins to the engine: a token that it accepted a moment ago.

        Raises:
            EngineUnavailable: one line that names the URL, and never the password.
        """
        deadline = self._until(deadline)
        with self._failing_fast(deadline):
            return self._client.access(deadline)

    def read_pages(
        self,
        kind: str,
        search: str,
        read: Callable[[Document], Mapping[str, T]],
        follow: str = "",
        share: Optional[Share] = None,
    ) -> dict[str, T]:
        """Read what a search finds, as it is now, page by page and sorted by name.

        Args:
            kind: ``hosts``, ``vms`` or ``clusters``.
            search: in the engine's words.
            read: reads a page, and gives what is on it, by id.
            follow: links whose documents each one is to have in it.
            share: of a look's answers, if these are among them.

        Raises:
            EngineUnavailable: as for ``look_up``; or pages repeat, or there are too many.
        """
        by_id: dict[str, T] = {}
        share = share or self.share()
        page_size = self.bounds.page
        for number in range(1, self.bounds.entities // page_size + 1):
            query = _query(f"{search} sortby name page {number}", page_size, follow)
            some = read(self._now(f"/{kind}?{query}", time.monotonic() + PAGE_SECONDS, share))
            is_last = len(some) != page_size  # more: this engine knows no pages, and sends all
            if not is_last and some.keys() <= by_id.keys():
                raise EngineUnavailable(
                    f"page {number} of the engine's {kind} repeats those before it"
                )
            for key, entity in some.items():  # one on two pages has moved to the second meanwhile
                by_id.setdefault(key, entity)
            if is_last:
                return by_id
        raise EngineUnavailable(f"the engine tells of more than {self.bounds.entities:,} {kind}")

    def pages_of(
        self, kind: str, ids: Iterable[str], follow: str, share: Share
    ) -> Iterator[Document]:
        """Documents of the hosts or VMs of these ids, as they are now; as for ``read_pages``."""
        for path, _ in _searches(kind, tuple(ids), follow):
            yield self._now(path, time.monotonic() + PAGE_SECONDS, share)

    def document_at(
        self, path: str, deadline: float, most: int = MOST_BYTES, share: Optional[Share] = None
    ) -> Document:
        """What the engine answers there; if that fails, other queries are sent nevertheless.

        Args:
            most: bytes of the answer.
            share: of a look's answers, if it is among them.

        Raises:
            EngineUnavailable: as for ``look_up``.
        """
        with self._lock:
            if time.monotonic() < self._retry_at:
                raise EngineUnavailable(self._failure)
        with self._counted():
            return cast("Document", self._client.get(path, deadline, most, share))

    def bytes_at(self, path: str, deadline: float, most: int) -> bytes:
        """The bytes of ``document_at``.

        Raises:
            EngineUnavailable: as for ``look_up``.
        """
        return self.document_at(path, deadline, most).data

    def migrate(self, vm: str, host: str, mark: str, in_closure: bool = False) -> None:
        """Have a VM migrated; whoever asks has to follow the migration.

        Args:
            vm, host: their ids; no host: the engine chooses one.
            in_closure: with the VMs on its host that hard positive affinity groups tie to it.
            mark: the correlation id of the migration, which the engine's events show.

        Raises:
            As for ``EngineClient.post``.
        """
        target = f"<host id={quoteattr(host)}/>" if host else ""
        if in_closure:
            target += "<migrate_vms_in_affinity_closure>true</migrate_vms_in_affinity_closure>"
        path = f"{VM_PATH}{quote(vm, safe='')}/migrate?{urlencode({'correlation_id': mark})}"
        with self._counted():
            deadline = time.monotonic() + _ACTION_SECONDS
            self._client.post(path, f"<action>{target}</action>", deadline, "action")

    def write_event(self, event: str) -> None:
        """Have the engine keep an event.

        Raises:
            As for ``EngineClient.post``.
        """
        with self._counted():
            self._client.post("/events", event, time.monotonic() + _ACTION_SECONDS, "event")

    def _now(self, path: str, deadline: float, share: Optional[Share]) -> Document:
        """What the engine answers there. It is not kept.

        One that refuses to answer is there, so that other queries are sent nevertheless.
        """
        with self._failing_fast(deadline, by_refusals=False):
            # Only a VM may be missing.
            return cast("Document", self._client.get(path, deadline, share=share))

    def state(self) -> EngineState:
        """How the latest query ended, and how many ended how since the start."""
        with self._lock:
            answers = dict(self._answers_by)
            problem = self._failure or self._unread_password
            return EngineState(self._client.url, problem, self._failing_since, answers)

    def close(self) -> None:
        """Log out."""
        self._client.close()

    def _reply(self, path: str, ids: Ids, deadline: float, share: Share) -> Optional[EngineReply]:
        """The engine's reply at a path, from the cache or asked for now; None: no such VM."""
        while True:
            with self._lock:
                now = time.monotonic()
                asked_at, answer = self._answers.get(path, (now, None))
                ours = answer is None or (answer.done() and now >= asked_at + self._kept_for)
                if answer is None or ours:
                    answer = Future()
                    self._answers[path] = now, answer
                    self._make_room()
            if ours:
                self._ask(path, ids, deadline, share, answer)
            wait([answer], max(0.0, deadline - time.monotonic()))
            if not answer.done():
                raise AnswerLate(f"{self._client.url}{without_query(path)}: no answer in time")
            error = answer.exception()
            if error is None:
                return answer.result()
            if ours or not isinstance(error, (AnswerLate, AnswersTooLarge)):
                # A traceback has the frames of who asked, with all that is there already: without
                # copies they would stay until Python looks for cycles.
                raise copy.copy(error)
            # Who asked had less time, or no room: this request asks itself.

    def _make_room(self, most: Optional[int] = None) -> None:
        """Forget answers that are old, and the oldest of those that take too much memory."""
        most = self.bounds.answer_bytes if most is None else most
        now = time.monotonic()
        answered = [(path, at, of) for path, (at, of) in self._answers.items() if of.done()]
        size = sum(_size(of) for _, _, of in answered)
        for path, asked_at, of in answered:  # the oldest first
            full = len(self._answers) > self.bounds.answers or size > most
            if full or now >= asked_at + self._kept_for:
                size -= _size(of)
                del self._answers[path]

    def _ask(
        self,
        path: str,
        ids: Ids,
        deadline: float,
        share: Share,
        answer: Future[Optional[EngineReply]],
    ) -> None:
        try:
            with self._failing_fast(deadline):
                document = self._client.get(path, deadline, share=share)
            reply = None
            if document is not None:
                reply = EngineReply(document, ids, keeps_document=self.keeps_documents)
            answer.set_result(reply)
        except Exception as error:  # noqa: BLE001  those who wait have to get it, whatever it is
            with self._lock:
                del self._answers[path]
            answer.set_exception(copy.copy(error))

    def _until(self, deadline: float) -> float:
        """Until when a request may wait for the engine."""
        now = time.monotonic()
        return now + min(self.patience, (deadline - now) / 2)

    @contextlib.contextmanager
    def _failing_fast(self, deadline: float, by_refusals: bool = True) -> Iterator[None]:
        """Around a query: after one that failed, say so again instead of trying for a while.

        One that has little time left, or that asks for too much, fails alone: that is no fault of
        the engine.

        Args:
            by_refusals: whether others fail for a while, too, where the engine refuses this one.
        """
        now = time.monotonic()
        if now >= deadline:
            raise AnswerLate(f"{self._client.url}: no time was left to ask it")
        has_time = deadline - now >= self.patience / 2
        pause = max(self.bounds.pause, self._kept_for)
        with self._lock:
            if now < self._retry_at:
                raise EngineUnavailable(self._failure)
            if self._failure:
                self._retry_at = now + pause  # this query tries; others fail at once
        try:
            with self._counted():
                yield
        except EngineUnavailable as error:
            fails_alone = isinstance(error, AnswersTooLarge) or (
                isinstance(error, AnswerLate) and not has_time
            )
            with self._lock:
                if fails_alone:
                    self._retry_at = 0.0
                elif by_refusals or not isinstance(error, EngineRefusal):
                    self._failure = str(error)
                    self._failing_since = self._failing_since or time.time()
                    self._retry_at = time.monotonic() + pause
            raise
        with self._lock:
            self._failure, self._failing_since, self._retry_at = "", None, 0.0
            self._unread_password = ""

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Around a query: count how it ends."""
        outcome = "failed"
        try:
            yield
            outcome = "ok"
        finally:
            with self._lock:
                self._answers_by[outcome] += 1


def _query(search: str, most: int, follow: str) -> str:
    query: dict[str, object] = {"search": search, "max": most}
    return urlencode({**query, "follow": follow} if follow else query)


def _searches(kind: str, ids: Sequence[str], follow: str) -> Iterator[tuple[str, Ids]]:
    """The queries for hosts or VMs with the ids in each, the same whatever the ids' order."""
    good = sorted(each for each in ids if UUID.fullmatch(each))  # nothing else gets into a search
    for start in range(0, len(good), _IDS):
        piece = tuple(good[start : start + _IDS])
        search = " or ".join(f"id={each}" for each in piece)
        yield f"/{kind}?{_query(search, len(piece), follow)}", piece


def _size(of: Future[Optional[EngineReply]]) -> int:
    """Bytes of memory that an answer takes, as it came and as it was read."""
    reply = None if of.exception() else of.result()
    if reply is None:
        return 0
    document = b"" if reply.document is None else reply.document.data
    return len(document) + (0 if reply.pack is None else reply.pack.size)
