"""TLS over a socket that does not block, by OpenSSL.

Loaded only where TLS is spoken: pyOpenSSL and cryptography take 10 MB. pyOpenSSL's connections
have no ``makefile``, and answer time limits with exceptions of their own; the stream knows these
as ``Blocked`` and ``TlsError``.
"""

from __future__ import annotations

import select
import socket
from functools import partial
from pathlib import Path
from typing import Callable, Optional, TypeVar

from OpenSSL import SSL

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security import certificates, tls_clients
from ovirt_scheduler.security.tls_clients import Clients
from ovirt_scheduler.server.http.stream import Blocked, TlsError

_T = TypeVar("_T")

# Not named by pyOpenSSL before 23; the number is OpenSSL's own since 1.1.0.
_OP_NO_RENEGOTIATION = getattr(SSL, "OP_NO_RENEGOTIATION", 1 << 30)


def tls_context(certificate: Path, key: Path, admitted: Optional[Clients] = None) -> TlsContext:
    """Make what opens TLS on a server's connections (contract 1.1).

    Its context may not be changed while it is in use: for new files make a new one.

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
    return partial(TlsConnection, context)


def _ciphers() -> bytes:
    """The suites that the machine's policy allows for TLS 1.2, without CBC with SHA-1.

    The suites of TLS 1.3 are set elsewhere, and have no CBC.
    """
    names = SSL.Connection(SSL.Context(SSL.TLS_SERVER_METHOD)).get_cipher_list()
    suites = (name for name in names if not name.endswith("-SHA") and not name.startswith("TLS_"))
    return ":".join(suites).encode("ascii")


class TlsConnection:
    """The server's end of TLS over a socket that does not block.

    Its methods raise Blocked, TlsError, or ConnectionResetError where the connection broke.
    """

    def __init__(self, context: SSL.Context, connection: socket.socket) -> None:
        self._tls = SSL.Connection(context, connection)
        self._tls.set_accept_state()
        self.pending = self._tls.pending  # bytes that can be read without the socket

    def shake_hands(self) -> None:
        """Do the next part of the handshake."""
        _raising(self._tls.do_handshake)

    def refusal(self) -> Optional[str]:
        """Why the client was refused, with its name; None if it showed no certificate."""
        return tls_clients.refusal(self._tls)

    def client(self) -> Optional[str]:
        """The subject name in the peer's certificate; None if it showed none."""
        certificate = self._tls.get_peer_certificate()
        return tls_clients.subject_of(certificate) if certificate else None

    def recv_into(self, buffer: memoryview) -> int:
        """Read what there is, at least a byte; 0 at the end."""

        def receive() -> int:
            try:
                return self._tls.recv_into(buffer)
            except SSL.ZeroReturnError:
                return 0

        return _raising(receive)

    def send(self, data: memoryview) -> int:
        """Write some bytes; returns how many."""
        return _raising(lambda: self._tls.send(data))

    def shutdown(self) -> None:
        """Tell the peer that nothing follows."""
        _raising(self._tls.shutdown)


TlsContext = partial[TlsConnection]  # called with the connection


def _raising(action: Callable[[], _T]) -> _T:
    """Do what raises errors of OpenSSL; it raises the stream's instead."""
    try:
        return action()
    except SSL.WantReadError:
        raise Blocked(select.POLLIN) from None
    except SSL.WantWriteError:
        raise Blocked(select.POLLOUT) from None
    except SSL.SysCallError as error:
        raise ConnectionResetError(*error.args) from None
    except SSL.Error as error:
        raise TlsError(_reason(error)) from None


def _reason(error: SSL.Error) -> str:
    """The words of OpenSSL's error queue: ``no shared cipher``."""
    queue = error.args[0] if error.args else ()
    return ", ".join(entry[-1] for entry in queue) or "no reason given"
