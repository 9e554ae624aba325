"""A byte stream over a socket or TLS that never waits past its deadline.

pyOpenSSL's connections have no ``makefile`` and answer time limits with WantReadError, so
the socket does not block, and every wait is a ``poll`` until the deadline. The HTTP code above
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
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Optional, TypeVar

from OpenSSL import SSL

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security import certificates, clients
from ovirt_scheduler.security.clients import Clients

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_T = TypeVar("_T")

_PIECE = 65536  # bytes at most in one call of the socket or of TLS
_TLS_HANDSHAKE = b"\x16"  # the first byte of a TLS connection (RFC 8446, 5.1)

# Not named by pyOpenSSL before 23; the number is OpenSSL's own since 1.1.0.
_OP_NO_RENEGOTIATION = getattr(SSL, "OP_NO_RENEGOTIATION", 1 << 30)


class TlsError(ConnectionError):
    """The peer speaks no TLS, or none that this server speaks; the text is OpenSSL's reason."""


def tls_context(certificate: Path, key: Path, admitted: Optional[Clients] = None) -> SSL.Context:
    """Make the context for a server's connections (contract 1.1).

    A context in use may not be changed: for new files make a new one.

    Args:
        certificate: a PEM file, the server's certificate first, then its chain if any.
        key: a PEM file with the private key, not encrypted.
        admitted: the clients whose certificates are accepted; None: no client needs one.

    Raises:
        ConfigError: one of the files cannot be used.
    """
    certificates.check(certificate, key)
    if admitted is not None:
        certificates.describe(admitted.authorities)
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_options(SSL.OP_NO_COMPRESSION | _OP_NO_RENEGOTIATION)
    context.set_cipher_list(_ciphers())
    try:
        context.use_certificate_chain_file(str(certificate))
        context.use_privatekey_file(str(key))
    except SSL.Error as error:
        message = f"OpenSSL cannot use it with the key {key}: {_reason(error)}"
        raise ConfigError(message, str(certificate)) from None
    if admitted is not None:
        admitted.admit(context)
    return context


def _ciphers() -> bytes:
    """The suites that the machine's policy allows for TLS 1.2, without CBC with SHA-1.

    The suites of TLS 1.3 are set elsewhere, and have no CBC.
    """
    names = SSL.Connection(SSL.Context(SSL.TLS_SERVER_METHOD)).get_cipher_list()
    left = (name for name in names if not name.endswith("-SHA") and not name.startswith("TLS_"))
    return ":".join(left).encode("ascii")


class Stream(io.RawIOBase):
    """One accepted connection as a raw stream, for one thread.

    Closing the stream leaves the socket open: it belongs to whoever made it.

    Attributes:
        deadline: seconds on the monotonic clock; what takes longer raises TimeoutError.
        stall_timeout: seconds that one write may wait for the peer to take anything.
    """

    def __init__(self, connection: socket.socket, deadline: float, stall_timeout: float):
        super().__init__()
        connection.setblocking(False)
        self.deadline = deadline
        self.stall_timeout = stall_timeout
        self._socket = connection
        self._poll = select.poll()
        self._tls: Optional[SSL.Connection] = None

    def speaks_tls(self) -> Optional[bool]:
        """Wait for the peer's first byte: whether it opens TLS; None: the peer left.

        The byte stays unread.

        Raises:
            TimeoutError: no byte until the deadline.
            ConnectionError: the connection broke.
        """
        first = self._attempt(lambda: self._socket.recv(1, socket.MSG_PEEK), select.POLLIN)
        return first == _TLS_HANDSHAKE if first else None

    def start_tls(self, context: SSL.Context) -> None:
        """Shake hands as a TLS server; everything after goes through TLS.

        Raises:
            TimeoutError: not done until the deadline.
            TlsError: no TLS, no version that both speak, or a client that is refused.
            ConnectionError: the connection broke.
        """
        self._tls = SSL.Connection(context, self._socket)
        self._tls.set_accept_state()
        try:
            self._attempt(self._tls.do_handshake, select.POLLIN)
        except TlsError as error:
            raise TlsError(clients.refusal(self._tls) or str(error)) from None
        refusal = clients.refusal(self._tls)
        if refusal:  # OpenSSL has ended the handshake then; whatever it does, nobody gets in
            raise TlsError(refusal)

    @property
    def client(self) -> Optional[str]:
        """The subject name in the peer's certificate; None if it showed none."""
        certificate = self._tls and self._tls.get_peer_certificate()
        return clients.subject_of(certificate) if certificate else None

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
            self._wait(select.POLLIN, self.deadline)
        try:
            return self._attempt(lambda: source.recv_into(piece), select.POLLIN)
        except SSL.ZeroReturnError:
            return 0

    def send_all(self, data: bytes) -> None:
        """Write all of ``data``, without a buffer.

        Raises:
            TimeoutError: the peer took nothing for ``stall_timeout``, or the deadline is over.
            ConnectionError: the connection broke.
        """
        send = (self._tls or self._socket).send
        rest = memoryview(data)
        while rest:
            limit = min(self.deadline, time.monotonic() + self.stall_timeout)
            rest = rest[self._attempt(partial(send, rest[:_PIECE]), select.POLLOUT, limit) :]

    def say_goodbye(self, patience: float) -> None:
        """End our direction; then discard what the peer still sends, ``patience`` seconds at most.

        If the socket were closed with unread bytes, the kernel would send a reset, which may
        overtake the last answer. Never raises.
        """
        with contextlib.suppress(OSError, SSL.Error):
            if self._tls is not None:
                self._tls.shutdown()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self.deadline = time.monotonic() + patience
            while self._attempt(lambda: self._socket.recv(_PIECE), select.POLLIN):
                pass

    def _attempt(self, action: Callable[[], _T], event: int, limit: Optional[float] = None) -> _T:
        """Do ``action`` as soon as the socket is ready, before the limit and the deadline."""
        while True:
            try:
                return action()
            except BlockingIOError:
                waited_for = event
            except SSL.WantReadError:
                waited_for = select.POLLIN
            except SSL.WantWriteError:
                waited_for = select.POLLOUT
            except SSL.ZeroReturnError:
                raise
            except SSL.SysCallError as error:
                raise ConnectionResetError(*error.args) from None
            except SSL.Error as error:
                raise TlsError(_reason(error)) from None
            self._wait(waited_for, self.deadline if limit is None else limit)

    def _wait(self, event: int, limit: float) -> None:
        self._poll.register(self._socket, event)
        milliseconds = math.ceil((limit - time.monotonic()) * 1000)
        if not self._poll.poll(max(milliseconds, 0)):
            raise TimeoutError("the peer was not ready in time")


def _reason(error: SSL.Error) -> str:
    """The words of OpenSSL's error queue: ``no shared cipher``."""
    queue = error.args[0] if error.args else ()
    return ", ".join(entry[-1] for entry in queue) or "no reason given"
