"""The XML-RPC server: it accepts connections, and starts a thread for each.

That thread does everything else, the TLS handshake included. So nobody waits for a slow or
silent client::

    accept ──► Connections ──► thread: ConnectionHandler ──► BodyReader ──► Dispatcher ─┐
               (room?)                 (the stream: TLS,     (limits)       (the call)  │
                                        deadlines) ▲────────────────────────────────────┘

Only the sockets and threads of the standard library's server are used, and in ``dispatch`` its
registry of functions. Its reading of HTTP has no limits, and accepts requests that others read in
another way. ``MultiPathXMLRPCServer`` would have all of its methods overridden.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import select
import socket
import socketserver
import threading
import time
import xmlrpc.server
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Optional

from ovirt_scheduler.model.jobs import Reported
from ovirt_scheduler.model.requests import AnswerForm
from ovirt_scheduler.processes.kernel import malloc
from ovirt_scheduler.server.dispatch import Dispatcher, Method
from ovirt_scheduler.server.http import listening
from ovirt_scheduler.server.http.connection_handler import ConnectionHandler, peer_name
from ovirt_scheduler.server.http.connections import Connections
from ovirt_scheduler.server.http.request_reader import Room
from ovirt_scheduler.server.http.routes import Route

if TYPE_CHECKING:
    from ovirt_scheduler.server.http.tls import TlsContext

logger = logging.getLogger(__name__)

_BODIES = 16  # bodies of the largest size that there is room for at one time
_ANSWERS = 256 << 20  # bytes of large answers that there is room for at least, until they are taken
_SILENT = 1.0  # seconds for a first byte on a connection, when the server stops
_GREETED = 5.0  # and for a first request, where a handshake has begun
_STOPPING = 0.5  # seconds in which threads may end when their connections are broken
_RECLAIM = 64  # connections that have ended: then free memory is given back
_ACCEPT_PAUSE = 0.2  # seconds to wait where the system has no room for a connection
_REPORT_EVERY = 60.0  # seconds from one line of the log on trouble of a kind to the next


@dataclass(frozen=True)
class ServerSettings:
    """How to serve; times in seconds, sizes in bytes."""

    address: str = "localhost"
    port: int = 18781  # 0: the kernel chooses
    tls: Optional[TlsContext] = None  # of connections to come; None: plain HTTP
    root_form: AnswerForm = AnswerForm.DESIGN
    max_connections: int = 512
    max_request_size: int = 64 << 20
    connection_timeout: float = 10.0  # for a handshake, and for a request to arrive
    idle_timeout: float = 60.0  # between two requests
    answer_timeout: float = 60.0  # for the whole answer to be taken
    routes: Mapping[str, Route] = field(default_factory=dict)  # by the first part of their paths
    decided: Callable[[Reported], None] = lambda _: None  # called when a decision's answer is out


class SchedulerServer(socketserver.ThreadingMixIn, xmlrpc.server.SimpleXMLRPCServer):
    """Serves the methods until it is stopped; it listens as soon as it is made.

    Attributes:
        url: where it is to be reached, with the port that it really has.
        stopping: each connection ends after its answer.
        socket_is_kept: somebody keeps the listening socket for the next daemon, such as whoever
            handed it over. When this one accepts no more, new callers wait for the next one, and
            are not refused.

    Args:
        methods: the offered ones, beside the three ``system.`` methods that describe them.
        listener: the listening socket, if there is one already; see ``listening.handed_over``.

    Raises:
        AddressUnavailable: the port is taken, or the machine does not have the address now.
        ConfigError: the address or the port cannot be listened on.
    """

    request_queue_size = 4096  # the engine waits 100 ms to be connected, but 120 s for its answer
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
        self._cut_requests = 0  # those that the log has
        self._next_report: dict[str, float] = {}  # by message: on the monotonic clock
        self.stopping = False
        self.socket_is_kept = listener is not None
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
        for watched in (self.socket, self._woken):
            self._waiting.register(watched, select.POLLIN)
        scheme = "http" if settings.tls is None else "https"
        self.url = f"{scheme}://{peer_name((settings.address, self.server_address[1]))}"

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
            if not self.socket_is_kept:
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
        self.answers = Room(max(_BODIES * settings.max_request_size, _ANSWERS))
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
        if self._may_report("none is accepted"):
            why = getattr(error, "strerror", None) or str(error) or "out of memory"
            logger.error("no connection can be accepted: %(reason)s", {"reason": why})
        self.connections.make_room()  # gives a descriptor and a thread back
        self._closing.wait(_ACCEPT_PAUSE)

    def _may_report(self, kind: str) -> bool:
        """Whether the log has had nothing on trouble of this kind for a while."""
        now = time.monotonic()
        may = now >= self._next_report.get(kind, 0.0)
        if may:
            self._next_report[kind] = now + _REPORT_EVERY
        return may

    def _serve(self, request: socket.socket, address: Any) -> None:
        """Start the connection's thread, as soon as there is room for it.

        Raises:
            RuntimeError, MemoryError: no thread can be started; the connection is closed.
        """
        if not self.connections.add(request):
            request.close()
            return
        cut = self.connections.cut_requests - self._cut_requests
        if cut and self._may_report("requests are cut"):
            self._cut_requests += cut
            logger.warning(
                "all connections are in use; closed for new ones before their requests had come: "
                "%(count)d",
                {"count": cut},
            )
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
        peer = peer_name(client_address)
        logger.exception("%(peer)s: the connection is closed, this is a bug", {"peer": peer})
