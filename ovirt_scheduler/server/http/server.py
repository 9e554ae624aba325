"""The XML-RPC server: it accepts connections, and starts a thread for each.

That thread does everything else, the TLS handshake included. So nobody waits for a slow or
silent client::

    accept ──► Connections ──► thread: ConnectionHandler ──► BodyReader ──► Dispatcher ─┐
               (room?)                 (Stream: TLS,         (limits)       (the call)  │
                                        deadlines) ▲────────────────────────────────────┘

Of the standard library's server only the sockets and threads are used. Its reading of HTTP has
no limits, and takes requests that others read in another way.
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
from collections.abc import Sequence
from typing import Any, Callable, Optional

from ovirt_scheduler.processes.kernel import malloc
from ovirt_scheduler.server.dispatch import Dispatcher
from ovirt_scheduler.server.http import listening
from ovirt_scheduler.server.http.connections import Connections
from ovirt_scheduler.server.http.handler import ConnectionHandler, ServerSettings
from ovirt_scheduler.server.http.request import Room
from ovirt_scheduler.server.method import Method

logger = logging.getLogger(__name__)

_BODIES = 16  # bodies of the largest size that there is room for at one time
_SILENT = 1.0  # seconds for a first byte on a connection, when the server stops
_GREETED = 5.0  # and for a first request, where a handshake has begun
_STOPPING = 0.5  # seconds in which threads may end when their connections are broken
_RECLAIM = 64  # connections that have ended: then free memory is given back
_ACCEPT_PAUSE = 0.2  # seconds to wait where the system has no room for a connection


class SchedulerServer(socketserver.ThreadingMixIn, xmlrpc.server.SimpleXMLRPCServer):
    """Serves the methods until it is stopped; it listens as soon as it is made.

    Attributes:
        url: where it is to be reached, with the port that it really has.
        kept: somebody keeps the listening socket for the next daemon. Who comes when this one
            accepts no more waits for that, and is not refused.

    Args:
        methods: what is offered, beside the three ``system.`` methods that tell about them.
        listener: the listening socket, where there is one already; see ``listening.handed_over``.

    Raises:
        AddressUnavailable: the port is taken, or the address is not here now.
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
        self.stopping = False  # each connection ends after its answer
        self._closing = threading.Event()  # none is accepted any more
        self._accepting = threading.Lock()
        bound = listener or listening.bound(settings.address, settings.port)
        self.kept = False
        self._woken, self._wake = socket.socketpair()
        super().__init__(bound.getsockname(), logRequests=False, bind_and_activate=False)
        self.socket.close()  # made, and not bound, by the standard library
        self.socket = bound
        try:
            self.server_activate()
        except OSError as error:
            self.server_close()
            raise listening.refusal(settings.address, settings.port, error) from None
        self.socket.setblocking(False)  # a connection may be gone before it is accepted
        self._waiting = select.poll()
        for each in (self.socket, self._woken):
            self._waiting.register(each, select.POLLIN)
        scheme = "http" if settings.tls is None else "https"
        self.url = f"{scheme}://{_peer((settings.address, self.server_address[1]))}"

    def serve_forever(self, poll_interval: float = 0.5) -> None:  # noqa: ARG002  # nothing is polled
        """Accept connections until another thread calls ``stop``."""
        troubled = False
        with self._accepting:
            while not self._closing.is_set():
                try:
                    self._waiting.poll()
                    self._serve(*self.get_request())
                except BlockingIOError:  # it is gone already, or the server stops
                    continue
                except (OSError, RuntimeError, MemoryError) as error:
                    self._cannot_accept(error, troubled)
                    troubled = True
                else:
                    if troubled:
                        logger.warning("connections are accepted again")
                    troubled = False

    def stop(
        self, grace: float, end_calls: Callable[[], None] = lambda: None, drain: float = 0.0
    ) -> None:
        """Accept no more connections, let calls under way finish, and close every connection.

        Who was accepted by then is served. Each answer from now on ends its connection.

        Args:
            grace: seconds that calls under way may take; then they are ended, and there is half
                a second to tell their callers and to break every connection.
            end_calls: ends what the calls under way wait for.
            drain: seconds before that in which connections are still accepted, for a load
                balancer that has to notice first.
        """
        self.stopping = True
        time.sleep(drain)
        deadline = time.monotonic() + grace
        self._closing.set()
        with contextlib.suppress(OSError):  # it was stopped before
            if not self.kept:
                self.socket.shutdown(socket.SHUT_RDWR)  # who comes now is refused at once
            self._wake.send(b"!")  # ends the wait for a connection
        if self._accepting.acquire(timeout=grace):  # what is accepted is in the table
            self._accepting.release()
        self.connections.drain(min(_SILENT, grace), min(_GREETED, grace))
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

    def server_close(self) -> None:
        """Close the listening socket; the stock name for it."""
        super().server_close()
        self._wake.close()
        self._woken.close()

    def renew(self, settings: ServerSettings, methods: Sequence[Method]) -> None:
        """Serve from now on like this; no connection and no call is broken.

        A connection that was made under another TLS context is closed after its next answer,
        which says so. Address and port stay, and so does whether TLS is spoken.
        """
        self.settings = settings
        self.room = Room(_BODIES * settings.max_request_size)
        self.dispatcher = Dispatcher(methods)
        self.connections.set_limit(settings.max_connections)

    def shutdown(self) -> None:
        """Stop at once; the stock name for it."""
        self.stop(0.0)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection; runs in its own thread."""
        ConnectionHandler(request, _peer(client_address), self).serve()

    def shutdown_request(self, request: Any) -> None:
        """Let the connection go; its thread ends here."""
        self.connections.remove(request)
        if next(self._ended) % _RECLAIM == 0:
            malloc.give_back()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  # stock
        """Log what no handler expected; the connection is closed, the others go on."""
        peer = _peer(client_address)
        logger.exception("%(peer)s: the connection is closed, this is a bug", {"peer": peer})

    def _cannot_accept(self, error: Exception, troubled: bool) -> None:
        """Wait a little where a descriptor, a thread or memory is lacking; log the first time."""
        if self._closing.is_set():
            return
        if not troubled:
            why = getattr(error, "strerror", None) or str(error) or "out of memory"
            logger.error("no connection can be accepted: %(reason)s", {"reason": why})
        self.connections.abort_longest_idle()  # gives a descriptor and a thread back
        self._closing.wait(_ACCEPT_PAUSE)

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


def _peer(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
