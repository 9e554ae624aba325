"""A client of the engine's REST API: its login, GET over connections that stay open, and actions.

It uses libcurl, like the SDK. The SDK itself loads its readers, types and services whenever it is
imported, logs in without a time limit, and sends one query at a time.
"""

from __future__ import annotations

import contextlib
import html
import http.client
import importlib
import io
import json
import re
import threading
import time
from collections import deque
from typing import Any, Callable, NamedTuple, Optional
from urllib.parse import urlencode, urlsplit

from ovirt_scheduler import __version__
from ovirt_scheduler.errors import (
    AnswerLate,
    AnswerLost,
    AnswersTooLarge,
    ConfigError,
    EngineDenial,
    EngineRefusal,
    EngineUnavailable,
)
from ovirt_scheduler.model.answer_memory import Claim, Share
from ovirt_scheduler.model.plugins import EngineAccess, set_proxy
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.values.hidden import remember, without_secrets
from ovirt_scheduler.model.values.text import writable
from ovirt_scheduler.settings.table import EngineSettings

VM_PATH = "/vms/"  # and an id

MOST_BYTES = 64 << 20  # of one answer, unpacked
_MOST_LOGIN_BYTES = 1 << 20  # of the answer to a login, which the daemon reads itself
_MOST_ACTION_BYTES = 4 << 20  # of the answer to an action
_TOKEN_SECONDS = 300.0  # then a new login
_TAKEN_SECONDS = 5.0  # for which a token that the engine accepted counts as good
_LOGOUT_SECONDS = 1.0
_LONGEST_TOKEN = 16384  # characters
_LOGIN_ERRORS = (  # the codes of RFC 6749, sections 4.1.2.1 and 5.2
    "access_denied", "invalid_client", "invalid_grant", "invalid_request", "invalid_scope",
    "server_error", "temporarily_unavailable", "unauthorized_client", "unsupported_grant_type",
    "unsupported_response_type",
)  # fmt: skip

_XML = ("application/xml", "text/xml")
_LONGEST_FAULT = 1 << 16  # bytes that are looked through for its reason
_FAULT = re.compile(rb"<(reason|detail)>([^<]{1,2000})</")


def without_query(url: str) -> str:
    """An URL for a message: a query may hold a hundred ids."""
    return url.partition("?")[0]


class _HttpReply(NamedTuple):
    status: int
    content_type: str
    body: bytes
    claim: Optional[Claim]  # what counts the body

    @property
    def words(self) -> str:
        """The status and the type of the content, for a message."""
        kind = self.content_type.partition(";")[0] or "nothing"
        return f"{self._status} with {writable(without_secrets(kind)):.60}"

    @property
    def is_xml(self) -> bool:
        """Whether the content is called XML."""
        return self.content_type.startswith(_XML)

    @property
    def has_fault(self) -> bool:
        """Whether the content is a fault of the engine, or has one in it."""
        return self.is_xml and b"<fault" in self.body[:_LONGEST_FAULT]

    def failure(self, url: str) -> EngineUnavailable:
        """The exception to raise, because this is not what was asked for."""
        kind = EngineRefusal if self.has_fault else EngineUnavailable
        if self.status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            kind = EngineDenial
        reason = self._reason()
        message = f"{self._status}: {reason}" if reason else self._without_reason
        message = f"{without_query(url)}: {message}"
        return kind(message, reason) if issubclass(kind, EngineRefusal) else kind(message)

    @property
    def _without_reason(self) -> str:
        if not self.is_xml:
            return f"{self.words}; expected XML"
        if self.has_fault:
            return f"{self.words}: a fault without a reason"
        is_error = self.status >= http.HTTPStatus.BAD_REQUEST
        return f"{self.words}, {'but no fault' if is_error else 'which is not what was asked for'}"

    def _reason(self) -> str:
        """The engine's own reason, if its fault has one."""
        # Two texts are all that is looked for, so this is no reading of the document.
        parts = dict(_FAULT.findall(self.body[:_LONGEST_FAULT]))
        texts = (parts[name] for name in (b"reason", b"detail") if name in parts)
        reason = ": ".join(html.unescape(text.decode("utf-8", "replace")) for text in texts)
        if not self.is_xml:
            return ""
        reason = without_secrets(reason)
        return f"{writable(' '.join(reason.split())):.300}"

    @property
    def _status(self) -> str:
        phrase = http.client.responses.get(self.status, "")
        return f"answered HTTP {self.status} {phrase}".rstrip()


class EngineClient:
    """Sends requests to the engine, and logs in when due. Safe to use from many threads."""

    def __init__(self, settings: EngineSettings) -> None:
        self.url = settings.url
        self._settings = settings
        self._proxy = settings.proxy or ""
        parts = urlsplit(settings.url)
        self._sso = f"{parts.scheme}://{parts.netloc}/ovirt-engine"
        self._login = threading.Lock()
        self._token: Optional[str] = None
        self._logged_in_at = 0.0
        self._taken_at = float("-inf")  # when the engine last accepted the token
        self._former_token: Optional[str] = None  # calls under way may still use it
        # Loaded where there is an engine to ask: libcurl with its libraries takes 5 MB.
        self._pycurl = importlib.import_module("pycurl")
        self._idle: deque[Any] = deque()

    def get(
        self, path: str, deadline: float, most: int = MOST_BYTES, share: Optional[Share] = None
    ) -> Optional[Document]:
        """The XML that the engine answers; None if there is no such VM.

        Args:
            most: bytes of the answer, unpacked.
            share: of the memory of answers, for this one; None: it is not counted.

        Raises:
            EngineRefusal: it answers with a fault.
            AnswerLate: it does not answer in time.
            AnswersTooLarge: there is no room for the answer.
            EngineUnavailable: it answers something else, or nothing in time.
        """
        url = self.url + path

        def ask(token: str) -> _HttpReply:
            return self._send(url, _headers(token), deadline, most, share=share)

        reply = self._authorized(ask, deadline)
        # A proxy, and a server at another path, answer so with a page of their own.
        of_engine = reply.has_fault or not reply.body
        is_404 = reply.status == http.HTTPStatus.NOT_FOUND
        missing = is_404 and of_engine and path.startswith(VM_PATH)
        if not missing and (reply.status != http.HTTPStatus.OK or not reply.is_xml):
            raise reply.failure(url)
        self._taken_at = time.monotonic()
        return None if missing else Document(reply.body, claim=reply.claim)

    def post(self, path: str, document: str, deadline: float, answer: str) -> None:
        """Have the engine carry out an action, or make an entity.

        Args:
            document: the XML to send.
            answer: the name of the element that it answers with.

        Raises:
            EngineRefusal: it does not: it answers with a fault.
            AnswerLost: it may have done so, or not.
            EngineUnavailable: it was not asked, as there is no login.
        """
        url = self.url + path

        def send(token: str) -> _HttpReply:
            headers = [*_headers(token), "Content-Type: application/xml"]
            try:
                return self._send(url, headers, deadline, _MOST_ACTION_BYTES, document, once=True)
            except EngineUnavailable as error:
                raise AnswerLost(str(error)) from None

        reply = self._authorized(send, deadline)
        failure, is_error = reply.failure(url), reply.status >= http.HTTPStatus.BAD_REQUEST
        if isinstance(failure, EngineRefusal):
            is_no = reply.status < http.HTTPStatus.INTERNAL_SERVER_ERROR
            raise failure if is_no else AnswerLost(str(failure))
        whole = re.compile(rb"<%b[\s>](?s:.*)</%b>\s*" % (answer.encode(), answer.encode()))
        if is_error or not (reply.is_xml and whole.search(reply.body)):
            raise AnswerLost(str(failure))
        self._taken_at = time.monotonic()

    def _authorized(self, send: Callable[[str], _HttpReply], deadline: float) -> _HttpReply:
        """Send a request with a token, and once more with a new one if that has expired."""
        token = self._current_token(deadline)
        reply = send(token)
        if reply.status == http.HTTPStatus.UNAUTHORIZED:  # the token has expired, or seems so
            token = self._current_token(deadline, refused=token)
            reply = send(token)
        return reply

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
        return EngineAccess(
            self.url, None if ca_file is None else str(ca_file), token, proxy=self._proxy
        )

    def close(self) -> None:
        """Log out, and close the connections."""
        for token in (self._token, self._former_token):
            self._log_out(token)
        with contextlib.suppress(IndexError):  # until none is left; a call may take one meanwhile
            while True:
                self._idle.pop().close()

    def _current_token(self, deadline: float, refused: Optional[str] = None) -> str:
        """The token of the latest login; of a new login if it is old, or the refused one."""
        if not self._login.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise AnswerLate(f"{self.url}: no login in time")
        try:
            now = time.monotonic()
            if self._token in (None, refused) or now >= self._logged_in_at + _TOKEN_SECONDS:
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
            remember(password)
        except ConfigError as error:
            raise EngineUnavailable(f"{self.url}: no login: password_file {error}") from None
        form = {
            "grant_type": "password",
            "scope": "ovirt-app-api",
            "username": settings.username,
            "password": password,
        }
        headers = ["Accept: application/json"]
        reply = self._send(url, headers, deadline, _MOST_LOGIN_BYTES, urlencode(form))
        answer: object = None
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(reply.body)
        fields = answer if isinstance(answer, dict) else {}
        token = fields.get("access_token")
        if isinstance(token, str) and re.fullmatch(rf"[!-~]{{1,{_LONGEST_TOKEN}}}", token):
            remember(token)
            return token
        # Nothing else of it: the engine was sent the password, and might write it in any way.
        codes = [fields.get(name) for name in ("error", "error_code")]
        code = next((code for code in codes if code in _LOGIN_ERRORS), None)
        if code is not None:
            raise EngineUnavailable(f"{url}: no login for {settings.username}: {code}")
        raise EngineUnavailable(f"{url}: {reply.words}, and no token for {settings.username}")

    def _log_out(self, token: Optional[str]) -> None:
        """Have the engine forget a token; if that fails, the token expires."""
        if token is not None:
            form = {"scope": "ovirt-app-api", "token": token}
            deadline = time.monotonic() + _LOGOUT_SECONDS
            with contextlib.suppress(EngineUnavailable):
                url = f"{self._sso}/services/sso-logout"
                self._send(url, [], deadline, body=urlencode(form))

    def _send(
        self,
        url: str,
        headers: list[str],
        deadline: float,
        most: int = MOST_BYTES,
        body: Optional[str] = None,
        once: bool = False,
        share: Optional[Share] = None,
    ) -> _HttpReply:
        """One exchange, over a connection that is open already if there is one.

        Args:
            body: to be posted; None: a GET.
            once: whether to send it once at most. On an open connection that the engine closes
                without an answer, libcurl sends it again.

        Raises:
            AnswerLate: not all of the answer came in time.
            AnswersTooLarge: there is no room for it.
            EngineUnavailable: nothing came that is HTTP.
        """
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            raise AnswerLate(f"{without_query(url)}: no time was left to ask it")
        answer, pycurl = _Body(most, share), self._pycurl
        curl = self._idle_curl()
        try:
            set_proxy(curl, self._proxy)
            curl.setopt(pycurl.URL, url)
            curl.setopt(pycurl.HTTPHEADER, headers)
            curl.setopt(pycurl.USERAGENT, f"ovirt-scheduler/{__version__}")
            curl.setopt(pycurl.TIMEOUT_MS, max(1, int(seconds_left * 1000)))
            curl.setopt(pycurl.NOSIGNAL, 1)  # there are other threads
            curl.setopt(pycurl.ACCEPT_ENCODING, "")  # whatever libcurl unpacks
            curl.setopt(pycurl.WRITEFUNCTION, answer.write)
            curl.setopt(pycurl.FRESH_CONNECT, once)
            if self._settings.ca_file is not None:
                curl.setopt(pycurl.CAINFO, str(self._settings.ca_file))
            if body is not None:
                curl.setopt(pycurl.COPYPOSTFIELDS, body)
            _perform(curl)
            content_type = (curl.getinfo_raw(pycurl.CONTENT_TYPE) or b"").decode("iso-8859-1")
            status = curl.getinfo(pycurl.RESPONSE_CODE)
            return _HttpReply(status, content_type, answer.getvalue(), answer.claim)
        except pycurl.error as error:
            answer.give_back()
            code, message = error.args
            reason, kind = without_secrets(message) or f"libcurl's error {code}", EngineUnavailable
            if answer.problem:
                reason, kind = answer.problem, AnswersTooLarge
            elif code == pycurl.E_OPERATION_TIMEDOUT:
                kind = AnswerLate
            raise kind(f"{without_query(url)}: {reason}") from None
        except KeyboardInterrupt:
            curl = None  # a thread still waits for an answer
            raise
        finally:
            if curl is not None:
                curl.reset()  # forgets all but its open connections
                self._idle.append(curl)

    def _idle_curl(self) -> Any:
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        return self._pycurl.Curl()


def _perform(curl: Any) -> None:
    """Send what is set, and wait for the answer.

    While libcurl waits, Python does nothing on a signal. So the main thread has another one wait,
    and Ctrl-C ends it.
    """
    if threading.current_thread() is not threading.main_thread():
        curl.perform()
        return
    errors: list[BaseException] = []

    def run() -> None:
        try:
            curl.perform()
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, name="engine", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors.pop()  # its traceback has this frame, and shall keep nothing


def _headers(token: str) -> list[str]:
    return ["Version: 4", "Accept: application/xml", f"Authorization: Bearer {token}"]


class _Body(io.BytesIO):
    """The body of an answer, up to a limit; beyond it libcurl gives up.

    Attributes:
        problem: why it is too large.
    """

    def __init__(self, most: int, share: Optional[Share]) -> None:
        super().__init__()
        self._most = most
        self.claim = None if share is None else share.claim()
        self.problem = ""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self.tell() + len(data) > self._most:
            self.problem = f"an answer of more than {self._most >> 20} MiB"
            return 0
        try:
            if self.claim is not None:
                self.claim.grow(len(data))
        except AnswersTooLarge as error:
            self.problem = str(error)
            return 0
        return super().write(data)

    def give_back(self) -> None:
        """Drop it at once: a traceback may keep it."""
        self.close()
        if self.claim is not None:
            self.claim.give_back()
