"""The XML-RPC server: sockets, TLS, HTTP, threads.

One thread accepts; each connection has a thread of its own, which does everything else,
the TLS handshake included, so that nobody waits for a slow or silent client::

    accept ──► Connections ──► thread: Stream ──► HTTP ──► BodyReader ──► Dispatcher ─┐
               (room?)                 (TLS, deadlines)    (limits)       (the call)  │
                                              ▲───────────────────────────────────────┘

Of the standard library's servers the one is used that knows of sockets and threads alone: what
those above it leave unbounded, or understand in more ways than one, is all of HTTP.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import secrets
import socket
import socketserver
import threading
import time
import xmlrpc.client
import xmlrpc.server
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from OpenSSL import SSL

from ovirt_scheduler.log.fields import Name
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.processes.kernel.malloc import Reclaim
from ovirt_scheduler.server.dispatch import Dispatcher
from ovirt_scheduler.server.http import listening
from ovirt_scheduler.server.http.body import BodyReader, Room
from ovirt_scheduler.server.http.connections import Connections
from ovirt_scheduler.server.http.head import (
    RequestRefused,
    listed,
    read_first_line,
    read_headers,
    stays_open,
)
from ovirt_scheduler.server.http.stream import Stream, TlsError
from ovirt_scheduler.server.method import Method

logger = logging.getLogger(__name__)

_LINGER = 2.0  # seconds in which a client may read our last answer
_SHOWN = 200  # characters of a text that may be the caller's own
_BODIES = 16  # bodies of the largest size that there is room for at one time
_STOPPING = 0.5  # seconds in which threads may end when their connections are broken
_RECLAIM = 64  # connections that have ended: then free memory is given back
_BUFFER = 65536  # bytes in each direction of a connection
_COMPRESSED = 16384  # bytes from which an answer is worth compressing
_ACCEPT_PAUSE = 0.2  # seconds to wait where the system has no room for a connection

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
    tls: Optional[SSL.Context] = None  # None: plain HTTP
    root_form: AnswerForm = AnswerForm.DESIGN
    max_connections: int = 512
    max_request_size: int = 64 << 20
    connection_timeout: float = 10.0  # for a handshake, for a request, for a stalled answer
    idle_timeout: float = 60.0  # between two requests
    answer_timeout: float = 60.0  # for the whole answer to be taken


class SchedulerServer(socketserver.ThreadingMixIn, xmlrpc.server.SimpleXMLRPCServer):
    """Serves the methods until it is stopped; it listens as soon as it is made.

    Attributes:
        url: where it is to be reached, with the port that it really has.
        tls: the context for connections to come; may be replaced by a new one at any time.

    Args:
        methods: what is offered, beside the three ``system.`` methods that tell about them.

    Raises:
        AddressUnavailable: the port is taken, or the address is not here now.
        ConfigError: the address or the port cannot be listened on.
    """

    request_queue_size = 1024  # the engine waits 100 ms to be connected, but 120 s for its answer
    daemon_threads = True  # stop() waits for them, and no longer than it is allowed to
    block_on_close = False

    def __init__(self, settings: ServerSettings, methods: Sequence[Method]):
        self.settings = settings
        self.tls = settings.tls
        self.dispatcher = Dispatcher(methods)
        self.connections = Connections(settings.max_connections)
        self.room = _room(settings)
        self._reclaim = Reclaim(_RECLAIM)
        self._stopping = threading.Event()
        self._accepting = threading.Lock()
        bound = listening.bound(settings.address, settings.port)
        self.address_family = bound.family
        super().__init__(
            bound.getsockname(),
            _Connection,  # type: ignore[arg-type]  # which needs nothing of http.server
            logRequests=False,
            bind_and_activate=False,
        )
        self.socket.close()  # made, and not bound, by the standard library
        self.socket = bound
        try:
            self.server_activate()
        except OSError as error:
            self.server_close()
            raise listening.refusal(settings.address, settings.port, error) from None
        host = f"[{settings.address}]" if ":" in settings.address else settings.address
        scheme = "http" if settings.tls is None else "https"
        self.url = f"{scheme}://{host}:{self.server_address[1]}"

    def serve_forever(self, poll_interval: float = 0.5) -> None:  # noqa: ARG002  # nothing is polled
        """Accept connections until another thread calls ``stop``."""
        troubled = False
        with self._accepting:
            while not self._stopping.is_set():
                try:
                    self._serve(*self.get_request())
                except (OSError, RuntimeError, MemoryError) as error:
                    troubled = self._cannot_accept(error, troubled)
                else:
                    if troubled:
                        logger.warning("connections are accepted again")
                    troubled = False

    def stop(self, grace: float, end_calls: Callable[[], None] = lambda: None) -> None:
        """Take no more calls, let those under way finish, and close every connection.

        A call that arrives on an open connection meanwhile gets fault 104.

        Args:
            grace: seconds that calls under way may take; then they are ended, and there is half
                a second to tell their callers and to break every connection.
            end_calls: ends what the calls under way wait for.
        """
        deadline = time.monotonic() + grace
        self._stopping.set()
        self.dispatcher.refuse_calls()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # ends the accept that waits
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

    def renew(self, settings: ServerSettings, methods: Sequence[Method]) -> None:
        """Serve from now on like this; no connection and no call is broken.

        A connection that was made under another TLS context is closed after its next answer,
        which says so. Address and port stay, and so does whether TLS is spoken.
        """
        self.settings, self.tls = settings, settings.tls
        self.room = _room(settings)
        self.dispatcher = Dispatcher(methods)
        self.connections.set_limit(settings.max_connections)

    def shutdown(self) -> None:
        """Stop at once; the stock name for it."""
        self.stop(0.0)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def shutdown_request(self, request: Any) -> None:
        """Let the connection go; its thread ends here."""
        self.connections.remove(request)
        self._reclaim.used()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  # stock
        """Log what no handler expected; the connection is closed, the others go on."""
        peer = _peer(client_address)
        logger.exception("%(peer)s: the connection is closed, this is a bug", {"peer": peer})

    def _cannot_accept(self, error: Exception, troubled: bool) -> bool:
        """Wait a little where a descriptor, a thread or memory is lacking.

        Returns:
            True, for ``troubled``: it keeps the log short.
        """
        if self.stopping:
            return True
        if not troubled:
            why = getattr(error, "strerror", None) or str(error) or "out of memory"
            logger.error("no connection can be accepted: %(reason)s", {"reason": why})
        self.connections.abort_longest_idle()  # gives a descriptor and a thread back
        self._stopping.wait(_ACCEPT_PAUSE)
        return True

    def _serve(self, request: socket.socket, address: Any) -> None:
        """Start the connection's thread, as soon as there is room for it.

        Raises:
            RuntimeError, MemoryError: there is no thread to be had; the connection is closed.
        """
        if not self.connections.add(request):
            request.close()
            return
        try:
            self.process_request(request, address)
        except (RuntimeError, MemoryError):
            self.connections.remove(request)
            raise


class _Connection(socketserver.BaseRequestHandler):
    """One connection, from its first byte to its last; runs in its own thread."""

    server: SchedulerServer

    def setup(self) -> None:
        settings = self.server.settings
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        deadline = time.monotonic() + settings.connection_timeout
        self._stream = Stream(self.request, deadline, settings.connection_timeout)
        self._input = io.BufferedReader(self._stream, _BUFFER)
        self._output = io.BufferedWriter(self._stream, _BUFFER)
        self._peer = _peer(self.client_address)
        self._context: Optional[SSL.Context] = None
        self._linger = _LINGER
        self._start_request()

    def handle(self) -> None:
        try:
            self._goes_on = self._open()
            while self._goes_on:
                self._serve_one()
        except OSError as error:  # nobody to serve any more, or nobody in time
            logger.debug("%(peer)s: cut: %(reason)s", {"peer": self._peer, "reason": str(error)})
            self._linger = 0.0

    def finish(self) -> None:
        self._stream.say_goodbye(self._linger)
        self._stream.close()  # before the writer, which would flush what nobody takes
        logger.debug("%(peer)s: closed", {"peer": self._peer})

    def _serve_one(self) -> None:
        """Wait for one request, take it in, and answer it; ``_goes_on`` says what then.

        Raises:
            TimeoutError: no request came, or the answer was not taken in time.
            ConnectionError: the connection broke.
        """
        settings, connections = self.server.settings, self.server.connections
        self._stream.deadline = time.monotonic() + settings.idle_timeout
        try:
            first = self._input.peek(1)
        except ConnectionError:  # no request is cut by that; many clients leave so
            first = b""
        if not first or not connections.set_busy(self.request):
            self._goes_on = False
            return
        self._start_request()
        self._stream.deadline = time.monotonic() + settings.connection_timeout
        try:
            body = self._receive()
        except RequestRefused as refusal:
            self._refuse(refusal.status, str(refusal))
        except TimeoutError:
            text = f"the request did not arrive within {settings.connection_timeout:g} seconds"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, text)
        except MemoryError:
            text = "the daemon has no memory for a request of this size now; try again later"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, text)
        else:
            if body is not None:
                self._answer(body)
        finally:
            if self._body is not None:
                self._body.release()
        self._output.flush()
        if not connections.set_idle(self.request):
            self._goes_on = False

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Refuse the request in plain text, log it, and close the connection."""
        text = text[:_SHOWN]
        logger.info(
            "request %(request)s %(target)s, %(peer)s: %(outcome)s, %(reason)s",
            {
                "request": self._request_id,
                "target": Name(self._target()),
                "peer": self._peer,
                "outcome": f"HTTP {status:d}",
                "reason": text,
            },
        )
        self._goes_on = False
        allow = ["Allow: POST"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []
        headers = (*allow, "Content-Type: text/plain; charset=utf-8", "Connection: close")
        self._send(status, f"{text}\n".encode(), *headers)

    def _target(self) -> str:
        """Verb and path; no more of what came, which may be anything."""
        return f"{self._command} {self._path.partition('?')[0]}" if self._command else "-"

    def _send(self, status: HTTPStatus, body: bytes, *headers: str) -> None:
        """Begin to write an answer.

        Args:
            headers: lines of its head besides those of every answer.
        """
        self._stream.deadline = time.monotonic() + self.server.settings.answer_timeout
        head = (
            f"HTTP/1.1 {status:d} {status.phrase}",
            "Server: ovirt-scheduler",
            time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
            f"Content-Length: {len(body)}",
            f"X-Request-Id: {self._request_id}",
            *headers,
        )
        self._output.write("\r\n".join((*head, "", "")).encode("ascii"))
        if self._command != "HEAD":
            self._output.write(body)

    def _start_request(self) -> None:
        self._request_id = secrets.token_hex(8)
        self._body: Optional[BodyReader] = None
        self._form = self.server.settings.root_form
        self._command, self._path, self._version = "", "", ""

    def _open(self) -> bool:
        """Shake hands where TLS is spoken; False, and said why, where the peer cannot be served."""
        speaks_tls, context = self._stream.speaks_tls(), self.server.tls
        if speaks_tls is None:
            return False
        if context is None and speaks_tls:
            logger.warning(
                "%(peer)s speaks TLS, but this port is plain HTTP: ssl = false",
                {"peer": self._peer},
            )
            return False
        if context is not None and not speaks_tls:
            logger.warning(
                "%(peer)s speaks no TLS, but this port does: ssl = true", {"peer": self._peer}
            )
            self._refuse(HTTPStatus.BAD_REQUEST, "this port speaks TLS; use https")
            self._output.flush()
            return False
        if context is not None:
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

    def _receive(self) -> Optional[bytes]:
        """Take a request in; None where none came, or it is refused and the client knows.

        Raises:
            RequestRefused: it cannot be taken; the client is to be told.
        """
        self._goes_on = False  # unless all of the head is good
        first = read_first_line(self._input)
        if first is None:
            return None
        self._command, self._path, self._version = first
        self._headers = read_headers(self._input, first.version)
        self._goes_on = stays_open(first.version, self._headers)
        if not self._accept_target():
            return None
        limit = self.server.settings.max_request_size
        self._body = BodyReader(self._headers, self._input, limit, self.server.room)
        if "100-continue" in listed(self._headers, "expect") and first.version != "HTTP/1.0":
            self._output.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._output.flush()
        return self._body.read()

    def _accept_target(self) -> bool:
        """Find the answer form that the path asks for (contract 1.3)."""
        try:
            path = urlsplit(re.sub("^//+", "/", self._path)).path
        except ValueError:
            path = ""
        if path not in _PATHS:
            known = ", ".join(_PATHS)
            self._refuse(HTTPStatus.NOT_FOUND, f"there is nothing here; the paths are {known}")
            return False
        if self._command != "POST":
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "send an XML-RPC call with POST")
            return False
        if "origin" in self._headers:  # a browser's: of any page that somebody here reads
            self._refuse(HTTPStatus.FORBIDDEN, "no call from a page in a browser is taken")
            return False
        self._form = _PATHS[path] or self.server.settings.root_form
        return True

    def _answer(self, body: bytes) -> None:
        caller = Caller(self._request_id, self._form, self._peer)
        document = self.server.dispatcher.answer(caller, body)
        headers = ["Content-Type: text/xml"]
        if len(document) >= _COMPRESSED and self._accepts_gzip():
            document = xmlrpc.client.gzip_encode(document)
            headers.append("Content-Encoding: gzip")
        if self._context is not self.server.tls or self.server.stopping:
            self._goes_on = False  # it comes back under the new rules, if they let it
        if not self._goes_on:
            headers.append("Connection: close")
        elif self._version == "HTTP/1.0":
            headers.append("Connection: keep-alive")
        self._send(HTTPStatus.OK, document, *headers)

    def _accepts_gzip(self) -> bool:
        for element in listed(self._headers, "accept-encoding"):
            coding, _, weight = element.partition(";")
            if coding.strip() in ("gzip", "x-gzip"):
                return re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", weight) is None
        return False


def _room(settings: ServerSettings) -> Room:
    return Room(_BODIES * settings.max_request_size)


def _peer(address: Tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
