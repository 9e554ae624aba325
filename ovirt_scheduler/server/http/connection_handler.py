"""One connection: its TLS handshake, the requests on it, and their answers."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import time
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Optional

from ovirt_scheduler.log.fields import Name
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.server.http.request_reader import (
    BodyReader,
    HttpRequest,
    RequestRefused,
    bad,
    listed,
)
from ovirt_scheduler.server.http.routes import FRONT, Response, Route, first_part
from ovirt_scheduler.server.http.stream import ConnectionStream, TlsError

if TYPE_CHECKING:
    from ovirt_scheduler.server.http.server import SchedulerServer
    from ovirt_scheduler.server.http.tls import TlsContext

logger = logging.getLogger(__name__)

_LINGER = 2.0  # seconds in which a client may read our last answer
_BUFFER = 65536  # bytes of a connection that are read at once
_SMALL = 65536  # bytes of an answer for which there is always room

_PATHS: Mapping[str, Optional[AnswerForm]] = {  # None: what the settings say
    "/design": AnswerForm.DESIGN,
    "/engine": AnswerForm.ENGINE,
    "/": None,
    "/RPC2": None,
}


class ConnectionHandler:
    """One connection, from its first byte to its last; runs in its own thread.

    Args:
        address: the client's.
    """

    def __init__(
        self, connection: socket.socket, address: tuple[Any, ...], server: SchedulerServer
    ) -> None:
        self._connection, self._server, self._table = connection, server, server.connections
        self._address, self._peer = address[0], peer_name(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self._stream = ConnectionStream(
            connection, time.monotonic() + server.settings.connection_timeout
        )
        self._input = io.BufferedReader(self._stream, _BUFFER)
        self._context: Optional[TlsContext] = None

    def serve(self) -> None:
        """Serve until the client or the server ends the connection, and close it."""
        try:
            goes_on = self._open()
            while goes_on and self._request_begins():
                goes_on = self._serve_one()
        except OSError as error:  # nobody to serve any more, or nobody in time
            logger.debug("%(peer)s: cut: %(reason)s", {"peer": self._peer, "reason": str(error)})
        finally:
            self._stream.say_goodbye(_LINGER)
            logger.debug("%(peer)s: closed", {"peer": self._peer})

    def _request_begins(self) -> bool:
        """Wait for the first byte of a request; False: one side ends the connection.

        Raises:
            TimeoutError: no request came.
            ConnectionError: the connection broke.
        """
        self._stream.deadline = time.monotonic() + self._server.settings.idle_timeout
        self._stream.measure()
        has_begun = bool(self._input.peek(1))
        return has_begun and self._table.begin_request(self._connection, self._stream)

    def _serve_one(self) -> bool:
        """Take one request in, and answer it; False: the connection ends now.

        Raises:
            TimeoutError: the answer was not taken in time.
            ConnectionError: the connection broke, or was closed for another.
        """
        with contextlib.ExitStack() as at_end:  # also where nobody takes the answer
            goes_on = self._answer_one(at_end)
        return self._table.set_idle(self._connection) and goes_on

    def _answer_one(self, at_end: contextlib.ExitStack) -> bool:
        """Like ``_serve_one``.

        Args:
            at_end: takes what is to be done when the answer is out.
        """
        settings, request = self._server.settings, HttpRequest()
        answer: Optional[Response] = None  # nobody waits for one
        goes_on = False  # after a refusal
        self._stream.deadline = time.monotonic() + settings.connection_timeout
        try:
            if request.read(self._input):
                route = self._route(request)
                if route is None:
                    answer = self._call(request, at_end)
                else:
                    answer = self._page(request, route)
                goes_on = request.stays_open()
        except RequestRefused as refusal:
            answer = _refusal(request, refusal.status, str(refusal))
        except TimeoutError:
            text = f"the request did not arrive within {settings.connection_timeout:g} seconds"
            answer = _refusal(request, HTTPStatus.REQUEST_TIMEOUT, text)
        except MemoryError:
            text = "the daemon has no memory for a request of this size now; try again later"
            answer = _refusal(request, HTTPStatus.SERVICE_UNAVAILABLE, text)
        if answer is not None:
            self._end_arrival()
            goes_on = self._send_in_room(request, answer, goes_on)
        return goes_on

    def _send_in_room(self, request: HttpRequest, answer: Response, goes_on: bool) -> bool:
        """Like ``_send``, with a refusal instead of an answer that there is no room for."""
        answers = self._server.answers
        size = len(answer.body) if len(answer.body) > _SMALL else 0
        if not answers.reserve(size):
            text = "large answers are not taken yet, and there is no room for this one; try later"
            return self._send(
                request, _refusal(request, HTTPStatus.SERVICE_UNAVAILABLE, text), goes_on
            )
        try:
            return self._send(request, answer, goes_on)
        finally:
            answers.give_back(size)

    def _send(self, request: HttpRequest, answer: Response, goes_on: bool) -> bool:
        """Write an answer, and log it if it is an error of HTTP.

        Args:
            goes_on: whether the connection is to go on.

        Returns:
            Whether it does.
        """
        status = HTTPStatus(answer.status)
        if status >= HTTPStatus.BAD_REQUEST:
            self._log_error(request, answer)
        if self._context is not self._server.settings.tls or self._server.stopping:
            goes_on = False  # it comes back under the new rules, if they let it
        self._stream.deadline = time.monotonic() + self._server.settings.answer_timeout
        head = [
            f"HTTP/1.1 {status:d} {status.phrase}",
            "Server: ovirt-scheduler",
            f"Date: {formatdate(usegmt=True)}",
            f"Content-Length: {len(answer.body)}",
            f"X-Request-Id: {request.id}",
            *(f"{name}: {value}" for name, value in answer.headers.items()),
        ]
        if not goes_on:
            head.append("Connection: close")
        sent = "\r\n".join((*head, "", "")).encode("ascii")
        self._stream.send_all(sent if request.method == "HEAD" else sent + answer.body)
        return goes_on

    def _log_error(self, request: HttpRequest, answer: Response) -> None:
        status = HTTPStatus(answer.status)
        is_text = answer.headers["Content-Type"].startswith("text/plain")
        # Verb and path: no more of what came, which may be anything.
        target = f"{request.method} {request.path}" if request.method else "-"
        logger.info(
            "request %(request)s %(target)s, %(peer)s: %(outcome)s, %(reason)s",
            {
                "request": request.id,
                "target": Name(target),
                "peer": self._peer,
                "outcome": f"HTTP {status:d}",
                "reason": answer.body.decode().strip() if is_text else status.phrase,
            },
        )

    def _open(self) -> bool:
        """Shake hands if the port speaks TLS; False, and logged, if the peer cannot be served."""
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
            request, text = HttpRequest(), "this port speaks TLS; use https"
            return self._send(request, _refusal(request, HTTPStatus.BAD_REQUEST, text), False)
        if not self._table.set_greeted(self._connection, self._stream):
            return False
        try:
            client = self._stream.start_tls(context)
        except TlsError as error:
            logger.warning(
                "%(peer)s: no TLS handshake: %(reason)s", {"peer": self._peer, "reason": str(error)}
            )
            return False
        self._context = context
        if client is not None:
            self._peer = f"{client} at {self._peer}"
        return True

    def _end_arrival(self) -> None:
        """Note that no more of the request is read, and an answer is due.

        Raises:
            ConnectionAbortedError: the connection was closed for another.
        """
        if not self._table.set_busy(self._connection):
            raise ConnectionAbortedError("it makes room for another one")

    def _route(self, request: HttpRequest) -> Optional[Route]:
        """The route of a page; None: it is a call, or there is nothing."""
        routes, is_read = self._server.settings.routes, request.method in ("GET", "HEAD")
        if request.path in _PATHS and not (is_read and request.path == "/" and FRONT in routes):
            return None
        route = routes.get(first_part(request.path))
        return routes.get(FRONT) if route is None and is_read else route

    def _page(self, request: HttpRequest, route: Route) -> Response:
        """The page that a GET or a HEAD asks for.

        Raises:
            RequestRefused: it is no GET, or the page cannot be made.
        """
        if request.method not in ("GET", "HEAD"):
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "this is a page: read it with GET")
        length = request.headers.get("content-length", "0")
        if length != "0" or "transfer-encoding" in request.headers:
            raise bad("a GET has no body here")
        self._end_arrival()
        local = self._connection.getsockname()[0]
        try:
            return route(request.path, request.query, request.headers, self._address, local)
        except MemoryError:
            raise
        except Exception:
            logger.exception("request %(request)s failed, this is a bug", {"request": request.id})
            text = "internal error; the daemon's log has more"
            raise RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR, text) from None

    def _call(self, request: HttpRequest, at_end: contextlib.ExitStack) -> Response:
        """The answer to a call; its body is read here.

        Args:
            at_end: reports what was decided, and gives back the room of the body.

        Raises:
            RequestRefused: it cannot be taken; the text is for the client.
            OSError: as the stream raises, TimeoutError among them.
        """
        settings = self._server.settings
        form = _answer_form(request) or settings.root_form
        reader = BodyReader(
            request.headers, self._input, settings.max_request_size, self._server.room
        )
        at_end.callback(reader.release)  # what was decided has its documents until then
        self._table.begin_body(self._connection, self._stream)
        if "100-continue" in listed(request.headers, "expect") and not request.is_old:
            self._stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
        caller = Caller(request.id, form, self._peer, address=self._address)
        body = reader.read()
        self._end_arrival()
        document, reported = self._server.dispatcher.answer(caller, body)
        if reported is not None:
            at_end.callback(settings.decided, reported)
        return Response(HTTPStatus.OK, document, {"Content-Type": "text/xml"})


def _answer_form(request: HttpRequest) -> Optional[AnswerForm]:
    """The answer form that the path asks for; None: what the settings say.

    Raises:
        RequestRefused: no call is taken there, or not from a page in a browser.
    """
    if request.path not in _PATHS:
        text = f"there is nothing here: calls go to {', '.join(_PATHS)}; pages begin at /status"
        raise RequestRefused(HTTPStatus.NOT_FOUND, text)
    if request.method != "POST":
        text = "send an XML-RPC call with POST; pages for a browser begin at /status"
        raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, text)
    if "origin" in request.headers:  # a browser's: of any page that somebody here reads
        raise RequestRefused(HTTPStatus.FORBIDDEN, "no call from a page in a browser is taken")
    return _PATHS[request.path]


def _refusal(request: HttpRequest, status: HTTPStatus, text: str) -> Response:
    """The refusal of a request, in plain text."""
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = "POST" if request.path in _PATHS else "GET, HEAD"
    return Response(status, f"{text}\n".encode(), headers)


def peer_name(address: tuple[Any, ...]) -> str:
    """A client as the log names it: ``ADDRESS:PORT``."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
