"""A byte stream over a socket or TLS that never waits past its deadline.

The socket does not block, and every wait is a ``poll`` until the deadline. The HTTP code above
sees an ``io.RawIOBase``, the same for plain sockets and for TLS.
"""

from __future__ import annotations

import contextlib
import io
import math
import select
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Callable, Optional, TypeVar

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from ovirt_scheduler.server.http.tls import TlsConnection, TlsContext

_T = TypeVar("_T")

_PIECE = 65536  # bytes at most in one call of the socket or of TLS
_TLS_HANDSHAKE = b"\x16"  # the first byte of a TLS connection (RFC 8446, 5.1)


class TlsError(ConnectionError):
    """The peer speaks no TLS, or none that this server speaks; the text is OpenSSL's reason."""


class Blocked(BlockingIOError):
    """TLS cannot go on before the socket is ready for ``event``, as ``poll`` names it."""

    def __init__(self, event: int) -> None:
        super().__init__()
        self.event = event


class ConnectionStream(io.RawIOBase):
    """One accepted connection as a raw stream, for one thread.

    Closing the stream leaves the socket open: it belongs to whoever made it.

    Attributes:
        deadline: seconds on the monotonic clock; to wait longer raises TimeoutError. What has come
            by then is still taken: a busy daemon may be late to read it.
        waits: whether the thread waits for the peer at this moment.
        speed: bytes a second since the first byte after ``measure`` was called.
    """

    def __init__(self, connection: socket.socket, deadline: float):
        super().__init__()
        connection.setblocking(False)
        self.deadline = deadline
        self.waits = False
        self.measure()
        self._socket = connection
        self._poll = select.poll()
        self._tls: Optional[TlsConnection] = None

    def measure(self) -> None:
        """Measure the speed anew, from the next byte on."""
        self._received, self._first_at = 0, time.monotonic()

    @property
    def speed(self) -> float:
        """See ``ConnectionStream``."""
        return self._received / max(time.monotonic() - self._first_at, 1e-6)

    def speaks_tls(self) -> Optional[bool]:
        """Wait for the peer's first byte: whether it opens TLS; None: the peer left.

        The byte stays unread.

        Raises:
            TimeoutError: no byte until the deadline.
            ConnectionError: the connection broke.
        """
        first = self._attempt(lambda: self._socket.recv(1, socket.MSG_PEEK), select.POLLIN)
        return first == _TLS_HANDSHAKE if first else None

    def start_tls(self, context: TlsContext) -> Optional[str]:
        """Shake hands as a TLS server; everything after goes through TLS.

        Returns:
            The subject name in the peer's certificate; None if it showed none.

        Raises:
            TimeoutError: not done until the deadline.
            TlsError: no TLS, no version that both speak, or a client that is refused.
            ConnectionError: the connection broke.
        """
        self._tls = tls = context(self._socket)
        try:
            self._attempt(tls.shake_hands, select.POLLIN)
        except TlsError as error:
            raise TlsError(tls.refusal() or str(error)) from None
        refusal = tls.refusal()
        if refusal:  # OpenSSL has ended the handshake then; whatever it does, nobody gets in
            raise TlsError(refusal)
        return tls.client()

    def readable(self) -> bool:
        """Yes; for ``io``."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read what there is, at least a byte; 0 at the end.

        Raises:
            TimeoutError: no byte until the deadline.
            ConnectionError: the connection broke.
        """
        piece = memoryview(buffer)[:_PIECE]
        source = self._tls or self._socket
        if self._tls is None or not self._tls.pending():  # next to nothing has come already
            self._wait(select.POLLIN)
        size = self._attempt(lambda: source.recv_into(piece), select.POLLIN)
        if not self._received:
            self._first_at = time.monotonic()
        self._received += size
        return size

    def send_all(self, data: bytes) -> None:
        """Write all of ``data``, without a buffer.

        Raises:
            TimeoutError: the peer has not taken all of it at the deadline.
            ConnectionError: the connection broke.
        """
        send = (self._tls or self._socket).send
        rest = memoryview(data)
        while rest:
            rest = rest[self._attempt(partial(send, rest[:_PIECE]), select.POLLOUT) :]

    def say_goodbye(self, patience: float) -> None:
        """End our direction; then discard what the peer still sends, ``patience`` seconds at most.

        If the socket were closed with unread bytes, the kernel would send a reset, which may
        overtake the last answer. Never raises.
        """
        with contextlib.suppress(OSError):
            if self._tls is not None:
                self._tls.shutdown()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self.deadline = time.monotonic() + patience
            while self._attempt(lambda: self._socket.recv(_PIECE), select.POLLIN):
                pass

    def _attempt(self, action: Callable[[], _T], event: int) -> _T:
        """Do ``action`` as soon as the socket is ready, before the deadline."""
        while True:
            try:
                return action()
            except Blocked as blocked:
                waited_for = blocked.event
            except BlockingIOError:
                waited_for = event
            self._wait(waited_for)

    def _wait(self, event: int) -> None:
        self._poll.register(self._socket, event)
        milliseconds = math.ceil((self.deadline - time.monotonic()) * 1000)
        self.waits = True
        is_ready = self._poll.poll(max(milliseconds, 0))
        self.waits = False
        if not is_ready:
            raise TimeoutError("the peer was not ready in time")
