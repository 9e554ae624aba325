"""The XML-RPC server: it accepts connections, and starts a thread for each.

That thread does everything else, the TLS handshake included. So nobody waits for a slow or
silent client::

    accept ──► Connections ──► thread: ConnectionHandler ──► BodyReader ──► Dispatcher ─┐
               (room?)                 (Stream: TLS,         (limits)       (the call)  │
                                        deadlines) ▲────────────────────────────────────┘

Only the sockets and threads of the standard library's server are used, and in ``dispatch`` its
registry of functions. Its reading of HTTP has no limits, and accepts requests that others read in
another way. ``MultiPathXMLRPCServer`` would have all of its methods overridden.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import select
import socket
import socketserver
import threading
import time
import xmlrpc.server
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Callable, Optional

from ovirt_scheduler.log.fields import Name
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.processes.kernel import malloc
from ovirt_scheduler.server.dispatch import Dispatcher, Method
from ovirt_scheduler.server.http import listening
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

if TYPE_CHECKING:
    from ovirt_scheduler.server.http.tls import TlsContext

logger = logging.getLogger(__name__)

_BODIES = 16  # bodies of the largest size that there is room for at one time
_SILENT = 1.0  # seconds for a first byte on a connection, when the server stops
_GREETED = 5.0  # and for a first request, where a handshake has begun
_STOPPING = 0.5  # seconds in which threads may end when their connections are broken
_RECLAIM = 64  # connections that have ended: then free memory is given back
_ACCEPT_PAUSE = 0.2  # seconds to wait where the system has no room for a connection
_TOLD_EVERY = 60.0  # seconds from one line of the log on that to the next
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
    tls: Optional[TlsContext] = None  # of connections to come; None: plain HTTP
    root_form: AnswerForm = AnswerForm.DESIGN
    max_connections: int = 512
    max_request_size: int = 64 << 20
    connection_timeout: float = 10.0  # for a handshake, and for a request to arrive
    idle_timeout: float = 60.0  # between two requests
    answer_timeout: float = 60.0  # for the whole answer to be taken
    site: Optional[Site] = None  # None: there are no pages


class SchedulerServer(socketserver.ThreadingMixIn, xmlrpc.server.SimpleXMLRPCServer):
    """Serves the methods until it is stopped; it listens as soon as it is made.

    Attributes:
        url: where it is to be reached, with the port that it really has.
        stopping: each connection ends after its answer.
        kept: somebody keeps the listening socket for the next daemon. When this one accepts no
            more, new callers wait for the next one, and are not refused.

    Args:
        methods: the offered ones, beside the three ``system.`` methods that describe them.
        listener: the listening socket, if there is one already; see ``listening.handed_over``.

    Raises:
        AddressUnavailable: the port is taken, or the machine does not have the address now.
        ConfigError: the address or the port cannot be listened on.
    """

    request_queue_size = 1024  # the engine waits 100 ms to be connected, but 120 s for its answer
    daemon_threads = True  # stop() waits for them, and no longer than it is allowed to
    block_on_close = False

    def __init__(
        self,
        settings: ServerSettings,
        methods: Sequence[Method],
        listener: Optional[socket.socket] = None,
    ):
        self.connections = Connections(settings.max_connections)
        self.renew(settings, methods)
        self._ended = itertools.count(1)
        self._next_told = 0.0  # that none can be accepted; on the monotonic clock
        self.stopping = False
        self.kept = False
        self._closing = threading.Event()  # none is accepted any more
        self._accepting = threading.Lock()
        bound = listener or listening.bound(settings.address, settings.port)
        super().__init__(bound.getsockname(), logRequests=False, bind_and_activate=False)
        self.socket.close()  # made, and not bound, by the standard library
        self.socket = bound
        try:
            self.server_activate()
        except OSError as error:
            self.server_close()
            raise listening.refusal(settings.address, settings.port, error) from None
        self.socket.setblocking(False)  # a connection may be gone before it is accepted
        self._woken, self._wake = socket.socketpair()
        self._waiting = select.poll()
        for each in (self.socket, self._woken):
            self._waiting.register(each, select.POLLIN)
        scheme = "http" if settings.tls is None else "https"
        self.url = f"{scheme}://{_peer((settings.address, self.server_address[1]))}"

    def serve_forever(self, poll_interval: float = 0.5) -> None:  # noqa: ARG002  nothing is polled
        """Accept connections until another thread calls ``stop``."""
        with self._accepting:
            while not self._closing.is_set():
                try:
                    self._waiting.poll()
                    self._serve(*self.get_request())
                except BlockingIOError:  # it is gone already, or the server stops
                    continue
                except (OSError, RuntimeError, MemoryError) as error:
                    self._cannot_accept(error)

    def stop(
        self, grace: float, end_calls: Callable[[], None] = lambda: None, drain: float = 0.0
    ) -> None:
        """Accept no more connections, let calls under way finish, and close every connection.

        Callers that were accepted by then are served. Each answer from now on ends its connection.

        Args:
            grace: seconds that running calls may take; then they are ended, and there is half a
                second to answer their callers and to break every connection.
            end_calls: ends the plugin calls that running calls wait for.
            drain: seconds before that in which connections are still accepted, for a load
                balancer that has to notice first.
        """
        self.stopping = True
        if self._accepting.locked():  # else nobody was ever served
            time.sleep(drain)
        deadline = time.monotonic() + grace
        self._closing.set()
        with contextlib.suppress(OSError):  # it was stopped before
            if not self.kept:
                self.socket.shutdown(socket.SHUT_RDWR)  # who comes now is refused at once
            self._wake.send(b"!")  # ends the wait for a connection
        if self._accepting.acquire(timeout=grace):  # what is accepted is in the table
            self._accepting.release()
        now = time.monotonic()
        self.connections.drain(min(now + _SILENT, deadline), min(now + _GREETED, deadline))
        if not self.connections.wait_until_idle(deadline):
            logger.warning(
                "calls are still under way after %(seconds)g s; they are cut off",
                {"seconds": grace},
            )
            end_calls()
            self.connections.wait_until_idle(time.monotonic() + _STOPPING)
        if not self.connections.close(max(deadline, time.monotonic() + _STOPPING)):
            logger.warning("a call did not end; its thread is left behind")
        with self._accepting:
            self.server_close()
            self._wake.close()
            self._woken.close()

    def renew(self, settings: ServerSettings, methods: Sequence[Method]) -> None:
        """Serve with these settings from now on; no connection and no call is broken.

        A connection that was made under another TLS context is closed after its next answer,
        which says so. Address and port stay, and so does whether TLS is spoken.
        """
        self.settings = settings
        self.room = Room(_BODIES * settings.max_request_size)
        self.dispatcher = Dispatcher(methods)
        self.connections.set_limit(settings.max_connections)

    def register_function(self, function: Any = None, name: Optional[str] = None) -> Any:  # noqa: ARG002
        """Offer one more ``Method``, under its own name, until the next ``renew``."""
        self.dispatcher.register_function(function)
        return function

    def shutdown(self) -> None:
        """Stop at once; the stock name for it."""
        self.stop(0.0)

    def _cannot_accept(self, error: Exception) -> None:
        """Wait a little if a descriptor, a thread or memory is lacking; log it now and then."""
        if self._closing.is_set():
            return
        if time.monotonic() >= self._next_told:
            self._next_told = time.monotonic() + _TOLD_EVERY
            why = getattr(error, "strerror", None) or str(error) or "out of memory"
            logger.error("no connection can be accepted: %(reason)s", {"reason": why})
        self.connections.abort_longest_idle()  # gives a descriptor and a thread back
        self._closing.wait(_ACCEPT_PAUSE)

    def _serve(self, request: socket.socket, address: Any) -> None:
        """Start the connection's thread, as soon as there is room for it.

        Raises:
            RuntimeError, MemoryError: no thread can be started; the connection is closed.
        """
        if not self.connections.add(request):
            request.close()
            return
        try:
            self.process_request(request, address)
        except (RuntimeError, MemoryError):
            self.connections.remove(request)
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection; runs in its own thread."""
        ConnectionHandler(request, client_address, self).serve()

    def shutdown_request(self, request: Any) -> None:
        """Let the connection go; its thread ends here."""
        self.connections.remove(request)
        if next(self._ended) % _RECLAIM == 0:
            malloc.give_back()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  # stock
        """Log what no handler expected; the connection is closed, the others go on."""
        peer = _peer(client_address)
        logger.exception("%(peer)s: the connection is closed, this is a bug", {"peer": peer})


def _peer(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ConnectionHandler:
    """One connection, from its first byte to its last; runs in its own thread.

    Args:
        address: the client's.
    """

    def __init__(
        self, connection: socket.socket, address: tuple[Any, ...], server: SchedulerServer
    ) -> None:
        self._connection, self._server = connection, server
        self._address, self._peer = address[0], _peer(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self._stream = Stream(connection, time.monotonic() + server.settings.connection_timeout)
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
        return bool(self._input.peek(1)) and self._server.connections.set_busy(self._connection)

    def _serve_one(self) -> bool:
        """Take one request in, and answer it; False: the connection ends now.

        Raises:
            TimeoutError: the answer was not taken in time.
            ConnectionError: the connection broke.
        """
        settings, request = self._server.settings, Request()
        afterwards: list[Callable[[], None]] = []
        answer: Optional[Page] = None
        goes_on = False  # after a refusal
        self._stream.deadline = time.monotonic() + settings.connection_timeout
        try:
            if request.read(self._input):
                is_call = not is_page(request.path)
                answer = self._call(request, afterwards) if is_call else self._page(request)
                goes_on = request.stays_open()
        except RequestRefused as refusal:
            answer = _refusal(request, refusal.status, str(refusal))
        except TimeoutError:
            text = f"the request did not arrive within {settings.connection_timeout:g} seconds"
            answer = _refusal(request, HTTPStatus.REQUEST_TIMEOUT, text)
        except MemoryError:
            text = "the daemon has no memory for a request of this size now; try again later"
            answer = _refusal(request, HTTPStatus.SERVICE_UNAVAILABLE, text)
        try:
            if answer is not None:
                goes_on = self._send(request, answer, goes_on)
        finally:  # also where nobody takes the answer
            for each in afterwards:
                each()
        return self._server.connections.set_idle(self._connection) and goes_on

    def _send(self, request: Request, answer: Page, goes_on: bool) -> bool:
        """Write an answer, and log it if it is an error of HTTP.

        Args:
            answer: its headers are those besides what every answer has.
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

    def _log_error(self, request: Request, answer: Page) -> None:
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
            request, text = Request(), "this port speaks TLS; use https"
            return self._send(request, _refusal(request, HTTPStatus.BAD_REQUEST, text), False)
        if not self._server.connections.set_greeted(self._connection):
            return False
        try:
            client = self._stream.start_tls(context)
        except TlsError as error:
            logger.warning(
                "%(peer)s: no TLS handshake: %(reason)s",
                {"peer": self._peer, "reason": str(error)},
            )
            return False
        self._context = context
        if client is not None:
            self._peer = f"{client} at {self._peer}"
        return True

    def _page(self, request: Request) -> Page:
        """The page that a GET or a HEAD asks for.

        Raises:
            RequestRefused: it is no GET, or no page is served, or the page cannot be made.
        """
        site = self._server.settings.site
        if site is None:
            text = "no page is served here: see pages in scheduler.conf"
            raise RequestRefused(HTTPStatus.NOT_FOUND, text)
        if request.method not in ("GET", "HEAD"):
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "this is a page: read it with GET")
        length = request.headers.get("content-length", "0")
        if length != "0" or "transfer-encoding" in request.headers:
            raise bad("a GET has no body here")
        local = self._connection.getsockname()[0]
        try:
            return site.answer(request.path, request.query, request.headers, self._address, local)
        except MemoryError:
            raise
        except Exception:
            logger.exception("request %(request)s failed, this is a bug", {"request": request.id})
            text = "internal error; the daemon's log has more"
            raise RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR, text) from None

    def _call(self, request: Request, afterwards: list[Callable[[], None]]) -> Page:
        """The answer to a call; its body is read here.

        Args:
            afterwards: takes what is to be done when the answer is out.

        Raises:
            RequestRefused: it cannot be taken; the text is for the client.
            OSError: as the stream raises, TimeoutError among them.
        """
        settings = self._server.settings
        form = _answer_form(request) or settings.root_form
        reader = BodyReader(
            request.headers, self._input, settings.max_request_size, self._server.room
        )
        if "100-continue" in listed(request.headers, "expect") and not request.is_old:
            self._stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
        caller = Caller(request.id, form, self._peer, address=self._address, afterwards=afterwards)
        try:
            body = reader.read()
            document = self._server.dispatcher.answer(caller, body)
        finally:
            reader.release()
        return Page(HTTPStatus.OK, document, {"Content-Type": "text/xml"})


def _answer_form(request: Request) -> Optional[AnswerForm]:
    """The answer form that the path asks for (contract 1.3); None: what the settings say.

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


def _refusal(request: Request, status: HTTPStatus, text: str) -> Page:
    """The refusal of a request, in plain text."""
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = "GET, HEAD" if is_page(request.path) else "POST"
    return Page(status, f"{text}\n".encode(), headers)
