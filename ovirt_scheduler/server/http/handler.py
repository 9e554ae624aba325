"""Serves one HTTP connection: the TLS handshake, the requests one after another, their answers."""

from __future__ import annotations

import io
import logging
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Callable, Optional, Protocol, Union

from OpenSSL import SSL

from ovirt_scheduler.log.fields import Name
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.server.dispatch import Dispatcher
from ovirt_scheduler.server.http.connections import Connections
from ovirt_scheduler.server.http.request import (
    BodyReader,
    Request,
    RequestRefused,
    Room,
    bad,
    listed,
)
from ovirt_scheduler.server.http.stream import Stream, TlsError
from ovirt_scheduler.server.pages.site import Page, Site, is_page

logger = logging.getLogger(__name__)

_LINGER = 2.0  # seconds in which a client may read our last answer
_BUFFER = 65536  # bytes of a connection that are read at once

_PATHS: Mapping[str, Optional[AnswerForm]] = {  # None: what the settings say (contract 1.3)
    "/design": AnswerForm.DESIGN,
    "/engine": AnswerForm.ENGINE,
    "/": None,
    "/RPC2": None,
}


@dataclass(frozen=True)
class ServerSettings:
    """How to serve (contract 6); times in seconds, sizes in bytes."""

    address: str = "localhost"
    port: int = 18781  # 0: the kernel chooses
    tls: Optional[SSL.Context] = None  # of connections to come; None: plain HTTP
    root_form: AnswerForm = AnswerForm.DESIGN
    max_connections: int = 512
    max_request_size: int = 64 << 20
    connection_timeout: float = 10.0  # for a handshake, for a request, for a stalled answer
    idle_timeout: float = 60.0  # between two requests
    answer_timeout: float = 60.0  # for the whole answer to be taken
    site: Optional[Site] = None  # None: there are no pages


class Server(Protocol):
    """What a connection needs of the server; all but ``connections`` may be replaced meanwhile."""

    settings: ServerSettings
    dispatcher: Dispatcher
    room: Room
    connections: Connections
    stopping: bool  # each connection is to end after its answer


class ConnectionHandler:
    """One connection, from its first byte to its last; runs in its own thread.

    Args:
        peer: address:port, for the log.
    """

    def __init__(self, connection: socket.socket, peer: str, server: Server) -> None:
        self._connection, self._peer, self._server = connection, peer, server
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        patience = server.settings.connection_timeout
        self._stream = Stream(connection, time.monotonic() + patience, patience)
        self._input = io.BufferedReader(self._stream, _BUFFER)
        self._context: Optional[SSL.Context] = None
        self._request = Request()

    def serve(self) -> None:
        """Serve until the client or the server ends the connection, and close it."""
        linger = _LINGER
        try:
            self._goes_on = self._open()
            while self._goes_on and self._request_begins():
                self._serve_one()
        except OSError as error:  # nobody to serve any more, or nobody in time
            logger.debug("%(peer)s: cut: %(reason)s", {"peer": self._peer, "reason": str(error)})
            linger = 0.0
        finally:
            self._stream.say_goodbye(linger)
            logger.debug("%(peer)s: closed", {"peer": self._peer})

    def _request_begins(self) -> bool:
        """Wait for the first byte of a request; False: the client, or the server, wants no more.

        Raises:
            TimeoutError: no request came.
        """
        self._stream.deadline = time.monotonic() + self._server.settings.idle_timeout
        try:
            first = self._input.peek(1)
        except ConnectionError:  # no request is cut by that; many clients leave so
            return False
        return bool(first) and self._server.connections.set_busy(self._connection)

    def _serve_one(self) -> None:
        """Take one request in, and answer it; ``_goes_on`` says what then.

        Raises:
            TimeoutError: the answer was not taken in time.
            ConnectionError: the connection broke.
        """
        settings = self._server.settings
        self._request = Request()
        self._body: Optional[BodyReader] = None
        self._stream.deadline = time.monotonic() + settings.connection_timeout
        try:
            received = self._receive()
        except RequestRefused as refusal:
            self._refuse(refusal.status, str(refusal))
        except TimeoutError:
            text = f"the request did not arrive within {settings.connection_timeout:g} seconds"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, text)
        except MemoryError:
            text = "the daemon has no memory for a request of this size now; try again later"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, text)
        else:
            if isinstance(received, Page):
                self._show(received)
            elif received is not None:
                self._answer(received)
        finally:
            if self._body is not None:
                self._body.release()
        if not self._server.connections.set_idle(self._connection):
            self._goes_on = False

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Refuse the request in plain text, and close the connection."""
        self._goes_on = False
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET, HEAD" if is_page(self._request.path) else "POST"
        self._show(Page(status, f"{text}\n".encode(), headers), text)

    def _show(self, page: Page, reason: str = "") -> None:
        """Answer with a page, and log one that is not what was asked for."""
        status = HTTPStatus(page.status)
        if status >= HTTPStatus.BAD_REQUEST:
            # Verb and path: no more of what came, which may be anything.
            target = f"{self._request.method} {self._request.path}" if self._request.method else "-"
            logger.info(
                "request %(request)s %(target)s, %(peer)s: %(outcome)s, %(reason)s",
                {
                    "request": self._request.id,
                    "target": Name(target),
                    "peer": self._peer,
                    "outcome": f"HTTP {status:d}",
                    "reason": reason or status.phrase,
                },
            )
        self._send(status, page.body, page.headers)

    def _send(self, status: HTTPStatus, body: bytes, headers: Mapping[str, str]) -> None:
        """Write an answer; ``headers`` are those besides what every answer has."""
        if self._context is not self._server.settings.tls or self._server.stopping:
            self._goes_on = False  # it comes back under the new rules, if they let it
        self._stream.deadline = time.monotonic() + self._server.settings.answer_timeout
        head = [
            f"HTTP/1.1 {status:d} {status.phrase}",
            "Server: ovirt-scheduler",
            time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
            *([] if status is HTTPStatus.NOT_MODIFIED else [f"Content-Length: {len(body)}"]),
            f"X-Request-Id: {self._request.id}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        if not self._goes_on:
            head.append("Connection: close")
        elif self._request.version == "HTTP/1.0":
            head.append("Connection: keep-alive")
        sent = "\r\n".join((*head, "", "")).encode("ascii")
        self._stream.send_all(sent if self._request.method == "HEAD" else sent + body)

    def _open(self) -> bool:
        """Shake hands where TLS is spoken; False, and said why, where the peer cannot be served."""
        speaks_tls, context = self._stream.speaks_tls(), self._server.settings.tls
        if speaks_tls is None:
            return False
        if context is None:
            if speaks_tls:
                logger.warning(
                    "%(peer)s speaks TLS, but this port is plain HTTP: ssl = false",
                    {"peer": self._peer},
                )
            return not speaks_tls
        if not speaks_tls:
            logger.warning(
                "%(peer)s speaks no TLS, but this port does: ssl = true", {"peer": self._peer}
            )
            self._refuse(HTTPStatus.BAD_REQUEST, "this port speaks TLS; use https")
            return False
        if not self._server.connections.set_greeted(self._connection):
            return False
        try:
            self._stream.start_tls(context)
        except TlsError as error:
            logger.warning(
                "%(peer)s: no TLS handshake: %(reason)s",
                {"peer": self._peer, "reason": str(error)},
            )
            return False
        self._context = context
        if self._stream.client is not None:
            self._peer = f"{self._stream.client} at {self._peer}"
        return True

    def _receive(self) -> Union[bytes, Page, None]:
        """Take a request in: the body of a call, or the page to answer with; None: none came.

        Raises:
            RequestRefused: it cannot be taken; the client is to be told.
        """
        self._goes_on = False  # unless all of the head is good
        request = self._request
        if not request.read(self._input):
            return None
        self._goes_on = request.stays_open
        if is_page(request.path):
            return self._page()
        self._form = self._answer_form()
        limit = self._server.settings.max_request_size
        self._body = BodyReader(request.headers, self._input, limit, self._server.room)
        if "100-continue" in listed(request.headers, "expect") and request.version != "HTTP/1.0":
            self._stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
        return self._body.read()

    def _answer_form(self) -> AnswerForm:
        """The answer form that the path asks for (contract 1.3).

        Raises:
            RequestRefused: no call is taken there, or not from a page in a browser.
        """
        if self._request.path not in _PATHS:
            text = f"there is nothing here; the paths are {', '.join(_PATHS)}"
            raise RequestRefused(HTTPStatus.NOT_FOUND, text)
        if self._request.method != "POST":
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "send an XML-RPC call with POST")
        if "origin" in self._request.headers:  # a browser's: of any page that somebody here reads
            raise RequestRefused(HTTPStatus.FORBIDDEN, "no call from a page in a browser is taken")
        return _PATHS[self._request.path] or self._server.settings.root_form

    def _page(self) -> Page:
        """The page that a GET or a HEAD asks for.

        Raises:
            RequestRefused: it is no GET, or no page is served.
        """
        site, request = self._server.settings.site, self._request
        if site is None:
            text = "no page is served here: see pages in scheduler.conf"
            raise RequestRefused(HTTPStatus.NOT_FOUND, text)
        if request.method not in ("GET", "HEAD"):
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "this is a page: read it with GET")
        length = request.headers.get("content-length", ["0"])
        if length != ["0"] or "transfer-encoding" in request.headers:
            raise bad("a GET has no body here")
        address, local = self._connection.getpeername()[0], self._connection.getsockname()[0]
        return site.answer(request.path, request.query, request.headers, address, local)

    def _answer(self, body: bytes) -> None:
        afterwards: list[Callable[[], None]] = []
        caller = Caller(self._request.id, self._form, self._peer, afterwards=afterwards)
        document = self._server.dispatcher.answer(caller, body)
        try:
            self._send(HTTPStatus.OK, document, {"Content-Type": "text/xml"})
        finally:  # also where nobody takes the answer
            for each in afterwards:
                each()
