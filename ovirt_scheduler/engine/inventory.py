"""What the engine knows of hosts and VMs that came as ids, over its REST API (contract 5.2).

::

    ids ──► paths ──► kept, or asked by somebody now? ──► that answer
            100 ids a piece       └─ else: token ──► GET ──► the document, as it came
                                           └─ login: SSO

The documents are opened by readers alone. libcurl asks, as it does for the SDK; not
the SDK itself, which loads its readers, types and services whenever it is imported, logs in
without a time limit, and has one query under way at a time.
"""

from __future__ import annotations

import contextlib
import html
import http
import io
import json
import re
import threading
import time
from collections import deque
from concurrent.futures import Future, wait
from typing import Deque, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, cast
from urllib.parse import urlencode, urlsplit

import pycurl

from ovirt_scheduler import __version__
from ovirt_scheduler.errors import ConfigError, EngineUnavailable
from ovirt_scheduler.model.plugins import EngineAccess
from ovirt_scheduler.model.requests import UUID, Document
from ovirt_scheduler.model.tasks import EngineReplies, EngineReply, Ids
from ovirt_scheduler.model.text import writable
from ovirt_scheduler.settings.config import EngineSettings

_LONGEST = 10.0  # seconds that one request waits for the engine, at most
_SHORTEST_PAUSE = 1.0  # seconds without a query after one that failed
_IDS = 100  # in one query: 4.5 kB of URL; the web server before the engine takes 8
_MOST_KEPT = 128  # answers
_MOST_KEPT_BYTES = 64 << 20
_MOST_BYTES = 64 << 20  # of one answer, unpacked

_TOKEN_SECONDS = 300.0  # then a new login
_TAKEN_SECONDS = 5.0  # for which a token is known to be good that the engine took
_LOGOUT_SECONDS = 1.0
_LONGEST_TOKEN = 16384  # characters
_LOGIN_ERRORS = (  # the codes of RFC 6749, sections 4.1.2.1 and 5.2
    "access_denied", "invalid_client", "invalid_grant", "invalid_request", "invalid_scope",
    "server_error", "temporarily_unavailable", "unauthorized_client", "unsupported_grant_type",
    "unsupported_response_type",
)  # fmt: skip

_VM = "/vms/"
_STATISTICS = {"follow": "statistics"}  # an engine older than 4.2 does not know it: it has none
_EVENT = re.compile(rb"""<event\b[^<>]{0,400}?\bid=["']([0-9]{1,18})["']""")
_XML = ("application/xml", "text/xml")
_LONGEST_FAULT = 1 << 16  # bytes that are looked through for its reason
_FAULT = re.compile(rb"<(reason|detail)>([^<]{1,2000})</")


class Inventory:
    """Asks the engine, and keeps what it says for a moment. Safe to use from many threads.

    The same thing is asked by one thread at a time; the others wait for its answer. After a
    failure nobody asks for ``cache_seconds`` (at least 1): the same failure is told at once.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._engine = _Engine(settings)
        self._kept_for = settings.cache_seconds
        self._lock = threading.Lock()
        self._answers: Dict[str, Tuple[float, Future[Optional[EngineReply]]]] = {}  # by path
        self._failure: Optional[str] = None  # how the latest query ended
        self._retry_at = 0.0

    def look_up(
        self,
        hosts: Sequence[str],
        vm: Optional[str],
        deadline: float,
        vms: Sequence[str] = (),
        statistics: bool = False,
    ) -> EngineReplies:
        """Look up hosts and VMs by id. Without ids the engine is not asked.

        Args:
            hosts, vms: ids; what is no UUID, or unknown to the engine, is left out of the answer.
            vm: likewise.
            deadline: of the request, on the monotonic clock; half of what is left until then
                is the plugins'.
            statistics: whether the documents are to have those of each host and VM.

        Raises:
            EngineUnavailable: one line that names the URL, and never the password.
        """
        deadline = _share(deadline)
        follow = _STATISTICS if statistics else {}
        of_hosts, of_vms = (
            tuple(filter(None, (self._reply(path, ids, deadline) for path, ids in searches)))
            for searches in (_searches("hosts", hosts, follow), _searches("vms", vms, follow))
        )
        machine = None
        if vm is not None and UUID.fullmatch(vm):  # nothing else gets into a path
            query = f"?{urlencode(follow)}" if follow else ""
            machine = self._reply(_VM + vm + query, (vm,), deadline)
        return EngineReplies(of_hosts, machine, of_vms)

    def access(self, deadline: float) -> EngineAccess:
        """What plugins may reach the engine with: a token that it took a moment ago.

        Raises:
            EngineUnavailable: one line that names the URL, and never the password.
        """
        deadline = _share(deadline)
        with self._failing_fast():
            return self._engine.access(deadline)

    def cluster(self, name: str, deadline: float) -> Tuple[Document, Document]:
        """The hosts and the VMs of a cluster, as they are now, with their statistics.

        Args:
            name: of the cluster; letters, digits, ``-``, ``_`` and ``.`` alone.

        Raises:
            EngineUnavailable: as for ``look_up``.
        """
        query = urlencode({"search": f"cluster={name}", **_STATISTICS})
        hosts, vms = (self._now(f"/{kind}?{query}", deadline) for kind in ("hosts", "vms"))
        return hosts, vms

    def latest_event(self, after: Optional[int], deadline: float) -> Optional[int]:
        """The number of the engine's latest event; ``after`` again where there is none since.

        Raises:
            EngineUnavailable: as for ``look_up``.
        """
        query = urlencode({"max": 1} if after is None else {"from": after, "max": 1})
        document = self._now(f"/events?{query}", deadline)
        # A number is all that is looked for, so this is no reading of the document.
        numbers = [int(number) for number in _EVENT.findall(document.data)]
        return max(numbers, default=after)

    def _now(self, path: str, deadline: float) -> Document:
        """What the engine answers there, which is not kept."""
        with self._failing_fast():
            return cast("Document", self._engine.get(path, deadline))  # only a VM may be missing

    def close(self) -> None:
        """Log out."""
        self._engine.close()

    def _reply(self, path: str, ids: Ids, deadline: float) -> Optional[EngineReply]:
        """The engine's reply at a path, from the cache or asked for now; None: no such VM."""
        with self._lock:
            now = time.monotonic()
            asked, answer = self._answers.get(path, (now, None))
            ours = answer is None or (answer.done() and now >= asked + self._kept_for)
            if answer is None or ours:
                self._make_room(now)
                answer = Future()
                self._answers[path] = now, answer
        if ours:
            self._ask(path, ids, deadline, answer)
        wait([answer], max(0.0, deadline - time.monotonic()))
        if not answer.done():
            raise EngineUnavailable(f"{self._engine.url}{_shown(path)}: no answer in time")
        return answer.result()

    def _make_room(self, now: float) -> None:
        done = [(path, asked, of) for path, (asked, of) in self._answers.items() if of.done()]
        size = sum(_size(of) for _, _, of in done)
        for path, asked, of in done:  # the oldest first
            full = len(self._answers) >= _MOST_KEPT or size > _MOST_KEPT_BYTES
            if full or now >= asked + self._kept_for:
                size -= _size(of)
                del self._answers[path]

    def _ask(
        self, path: str, ids: Ids, deadline: float, answer: Future[Optional[EngineReply]]
    ) -> None:
        try:
            with self._failing_fast():
                document = self._engine.get(path, deadline)
            answer.set_result(None if document is None else EngineReply(document, ids))
        except Exception as error:  # noqa: BLE001  those who wait have to get it, whatever it is
            with self._lock:
                del self._answers[path]
            answer.set_exception(error)

    @contextlib.contextmanager
    def _failing_fast(self) -> Iterator[None]:
        """Around a query: after one that failed, say so again instead of trying for a while."""
        pause = max(_SHORTEST_PAUSE, self._kept_for)
        with self._lock:
            now = time.monotonic()
            if self._failure is not None:
                if now < self._retry_at:
                    raise EngineUnavailable(self._failure)
                self._retry_at = now + pause  # this one tries; the others need not wait for it
        try:
            yield
        except EngineUnavailable as error:
            with self._lock:
                self._failure = str(error)
                self._retry_at = time.monotonic() + pause
            raise
        with self._lock:
            self._failure = None


def _share(deadline: float) -> float:
    """Until when a request may wait for the engine."""
    now = time.monotonic()
    return now + min(_LONGEST, (deadline - now) / 2)


def _searches(
    kind: str, ids: Sequence[str], follow: Mapping[str, str]
) -> Iterator[Tuple[str, Ids]]:
    """The queries for hosts or VMs with the ids in each, the same whatever the ids' order."""
    good = sorted(each for each in ids if UUID.fullmatch(each))  # nothing else gets into a search
    for start in range(0, len(good), _IDS):
        piece = tuple(good[start : start + _IDS])
        search = " or ".join(f"id={each}" for each in piece)
        yield f"/{kind}?" + urlencode({"search": search, "max": len(piece), **follow}), piece


def _size(of: Future[Optional[EngineReply]]) -> int:
    """Bytes of memory that an answer takes, as it came and as it was read."""
    reply = None if of.exception() else of.result()
    if reply is None:
        return 0
    return len(reply.document.data) + (0 if reply.pack is None else reply.pack.size)


def _shown(url: str) -> str:
    """An URL in a message: without a search of a hundred ids."""
    return url.partition("?")[0]


class _Reply(NamedTuple):
    status: int
    content_type: str
    body: bytes

    @property
    def words(self) -> str:
        kind = self.content_type.partition(";")[0] or "nothing"
        return f"{self._status} with {kind:.60}"

    def refusal(self, secret: str) -> str:
        """Why there is no document: the engine's own reason, where it tells one in a fault.

        Args:
            secret: a reason that has it is not told.
        """
        # Two texts are all that is looked for, so this is no reading of the document.
        said = dict(_FAULT.findall(self.body[:_LONGEST_FAULT]))
        texts = (said[name] for name in (b"reason", b"detail") if name in said)
        reason = ": ".join(html.unescape(text.decode("utf-8", "replace")) for text in texts)
        if not self.content_type.startswith(_XML) or not reason.strip() or secret in reason:
            return f"{self.words}; expected XML"
        return f"{self._status}: {writable(' '.join(reason.split())):.300}"

    @property
    def _status(self) -> str:
        phrases = {status.value: f" {status.phrase}" for status in http.HTTPStatus}
        return f"answered HTTP {self.status}{phrases.get(self.status, '')}"


class _Engine:
    """The REST API and its login, over connections that stay open."""

    def __init__(self, settings: EngineSettings) -> None:
        self.url = settings.url
        self._settings = settings
        parts = urlsplit(settings.url)
        self._sso = f"{parts.scheme}://{parts.netloc}/ovirt-engine"
        self._login = threading.Lock()
        self._token: Optional[str] = None
        self._logged_in_at = 0.0
        self._taken_at = float("-inf")  # when the engine took the token last
        self._former_token: Optional[str] = None  # calls under way may still use it
        self._idle: Deque[pycurl.Curl] = deque()

    def get(self, path: str, deadline: float) -> Optional[Document]:
        """The XML that the engine answers; None where there is no such VM.

        Raises:
            EngineUnavailable: it answers something else, or nothing in time.
        """
        url = self.url + path
        token = self._current_token(deadline)
        reply = self._get(url, token, deadline)
        if reply.status == http.HTTPStatus.UNAUTHORIZED:  # the token has expired, or seems so
            token = self._current_token(deadline, refused=token)
            reply = self._get(url, token, deadline)
        missing = reply.status == http.HTTPStatus.NOT_FOUND and path.startswith(_VM)
        if not missing and (reply.status != 200 or not reply.content_type.startswith(_XML)):
            raise EngineUnavailable(f"{_shown(url)}: {reply.refusal(token)}")
        self._taken_at = time.monotonic()
        return None if missing else Document(reply.body)

    def access(self, deadline: float) -> EngineAccess:
        """A token that is good now, as far as can be known.

        Raises:
            EngineUnavailable: as for ``get``.
        """
        token = self._current_token(deadline)
        if time.monotonic() >= self._taken_at + _TAKEN_SECONDS:
            self.get("", deadline)
            token = self._current_token(deadline)
        ca_file = self._settings.ca_file
        return EngineAccess(self.url, None if ca_file is None else str(ca_file), token)

    def close(self) -> None:
        for token in (self._token, self._former_token):
            self._log_out(token)
        while self._idle:
            self._idle.pop().close()

    def _current_token(self, deadline: float, refused: Optional[str] = None) -> str:
        """The token of the latest login; of a new one where it is old, or the refused one."""
        if not self._login.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise EngineUnavailable(f"{self.url}: no login in time")
        try:
            now = time.monotonic()
            if self._token is None or self._token == refused:
                self._token = self._log_in(deadline)
                self._logged_in_at = now
            elif now >= self._logged_in_at + _TOKEN_SECONDS:
                token = self._log_in(deadline)
                self._log_out(self._former_token)
                self._former_token, self._token = self._token, token
                self._logged_in_at = now
            return self._token
        finally:
            self._login.release()

    def _log_in(self, deadline: float) -> str:
        """A token of the engine's single sign-on."""
        settings = self._settings
        url = f"{self._sso}/sso/oauth/token"
        try:
            password = settings.password()
        except ConfigError as error:
            raise EngineUnavailable(f"{self.url}: no login: password_file {error}") from None
        form = {
            "grant_type": "password",
            "scope": "ovirt-app-api",
            "username": settings.username,
            "password": password,
        }
        reply = self._send(url, ["Accept: application/json"], deadline, form)
        told: object = None
        with contextlib.suppress(ValueError, RecursionError):
            told = json.loads(reply.body)
        fields = told if isinstance(told, dict) else {}
        token = fields.get("access_token")
        if isinstance(token, str) and re.fullmatch(rf"[!-~]{{1,{_LONGEST_TOKEN}}}", token):
            return token
        # Nothing else of it: the engine was sent the password, and might write it in any way.
        codes = [fields.get(name) for name in ("error", "error_code")]
        code = next((code for code in codes if code in _LOGIN_ERRORS), None)
        if code is not None:
            raise EngineUnavailable(f"{url}: no login for {settings.username}: {code}")
        raise EngineUnavailable(f"{url}: {reply.words}, and no token for {settings.username}")

    def _log_out(self, token: Optional[str]) -> None:
        """Have the engine forget a token; where it does not, the token expires."""
        if token is not None:
            form = {"scope": "ovirt-app-api", "token": token}
            deadline = time.monotonic() + _LOGOUT_SECONDS
            with contextlib.suppress(EngineUnavailable):
                self._send(f"{self._sso}/services/sso-logout", [], deadline, form)

    def _get(self, url: str, token: str, deadline: float) -> _Reply:
        headers = ["Version: 4", "Accept: application/xml", f"Authorization: Bearer {token}"]
        return self._send(url, headers, deadline)

    def _send(
        self, url: str, headers: List[str], deadline: float, form: Optional[Dict[str, str]] = None
    ) -> _Reply:
        """One exchange, over a connection that is open already if there is one.

        Raises:
            EngineUnavailable: nothing came that is HTTP, or not all of it in time.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            raise EngineUnavailable(f"{_shown(url)}: the time was over before it was asked")
        body = _Body()
        curl = self._idle_curl()
        try:
            curl.setopt(pycurl.URL, url)
            curl.setopt(pycurl.HTTPHEADER, headers)
            curl.setopt(pycurl.USERAGENT, f"ovirt-scheduler/{__version__}")
            curl.setopt(pycurl.TIMEOUT_MS, max(1, int(left * 1000)))
            curl.setopt(pycurl.NOSIGNAL, 1)  # there are other threads
            curl.setopt(pycurl.ACCEPT_ENCODING, "")  # whatever libcurl unpacks
            curl.setopt(pycurl.WRITEFUNCTION, body.write)
            if self._settings.ca_file is not None:
                curl.setopt(pycurl.CAINFO, str(self._settings.ca_file))
            if form is not None:
                curl.setopt(pycurl.COPYPOSTFIELDS, urlencode(form))
            curl.perform()
            content_type = curl.getinfo(pycurl.CONTENT_TYPE) or ""
            return _Reply(curl.getinfo(pycurl.RESPONSE_CODE), content_type, body.getvalue())
        except pycurl.error as error:
            code, said = error.args
            reason = said or f"libcurl's error {code}"
            if body.too_large:
                reason = f"an answer of more than {_MOST_BYTES >> 20} MiB"
            raise EngineUnavailable(f"{_shown(url)}: {reason}") from None
        finally:
            curl.reset()  # forgets all but its open connections
            self._idle.append(curl)

    def _idle_curl(self) -> pycurl.Curl:
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        return pycurl.Curl()


class _Body(io.BytesIO):
    """What comes in, up to a limit; libcurl gives up when less is taken than it brought."""

    too_large = False

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.too_large = self.tell() + len(data) > _MOST_BYTES
        return 0 if self.too_large else super().write(data)
