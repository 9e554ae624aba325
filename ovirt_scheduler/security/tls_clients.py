"""Which clients may call over TLS: those with a certificate of an authority in ssl_client_ca.

OpenSSL verifies certificates. The reason why it refuses one is kept with the connection, so that
one line of the log can say who was refused, and why.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional, cast

from cryptography.x509.oid import NameOID
from OpenSSL import SSL, crypto
from OpenSSL._util import ffi, lib

from ovirt_scheduler.security.certificates import UNREADABLE

# The errors of X509_verify_cert_error_string(3), in an administrator's words.
_UNKNOWN = "its certificate is signed by no authority in ssl_client_ca"
_REASONS = {
    **dict.fromkeys((2, 18, 19, 20, 21), _UNKNOWN),
    7: "the signature of its certificate is wrong",
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    **dict.fromkeys((24, 79), "its certificate is signed by one that is no authority"),
    26: "its certificate is not for clients (extended key usage)",
}

_MODE = SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT
_PARTIAL_CHAIN = 0x80000  # X509_V_FLAG_PARTIAL_CHAIN, which pyOpenSSL names from version 22 on
_REJECTED = 28  # X509_V_ERR_CERT_REJECTED: the alert "bad certificate"


@dataclass(frozen=True)
class Clients:
    """The clients that may call."""

    authorities: Path  # a PEM file
    allowed: tuple[str, ...] = ()  # subject names or common names; empty: all certificates

    def admit(self, context: SSL.Context) -> None:
        """Make a server's context accept only these clients.

        Raises:
            SSL.Error: the authorities cannot be used.
        """
        context.load_verify_locations(os.fsencode(self.authorities))
        context.load_client_ca(os.fsencode(self.authorities))  # tells clients what to send
        store = context.get_cert_store()
        assert store is not None  # noqa: S101  a server's context has one
        # Each certificate of the file is trusted by itself: an intermediate one needs no root.
        store.set_flags(_PARTIAL_CHAIN)
        # The certificate of a resumed session would not be verified again.
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.set_options(SSL.OP_NO_TICKET)
        context.set_verify(_MODE, self._verified)
        _keep_error(context)

    def _verified(
        self, connection: SSL.Connection, certificate: crypto.X509, error: int, depth: int, ok: int
    ) -> bool:
        """OpenSSL's callback for each certificate of the chain; the client's own comes last.

        A fault in the chain is kept until then, because only then the client's name is known.
        """
        reason = connection.get_app_data()
        if not ok and reason is None:
            reason = _REASONS.get(error, f"OpenSSL does not verify its certificate, error {error}")
        if depth == 0:
            subject = subject_of(certificate)
            if reason is None and not self._allows(certificate, subject):
                reason = "it is not in ssl_allowed_clients"
            if reason is not None:
                reason = f"client {subject:.200} is refused: {reason}"
        connection.set_app_data(reason)
        return reason is None or depth > 0

    def _allows(self, certificate: crypto.X509, subject: str) -> bool:
        if not self.allowed or subject in self.allowed:
            return True
        try:
            name = certificate.to_cryptography().subject
        except UNREADABLE:
            return False
        common = [str(each.value) for each in name.get_attributes_for_oid(NameOID.COMMON_NAME)]
        # A common name with a = in it may be the subject name of another client.
        return len(common) == 1 and "=" not in common[0] and common[0] in self.allowed


def _keep_error(context: SSL.Context) -> None:
    """Leave the reason of a refusal to OpenSSL, which tells it to the client in an alert.

    pyOpenSSL lets its callback set no error. Where a fault in the chain was passed over until the
    client's own certificate, or where that is not on the list, the alert said "internal error".
    """
    verified = cast("Callable[[int, object], int]", context._verify_callback)  # noqa: SLF001
    passed_over: dict[object, int] = {}  # the first error, by the chain that is verified

    def verify(ok: int, chain: object) -> int:
        error = lib.X509_STORE_CTX_get_error(chain)
        goes_on = verified(ok, chain)
        if not goes_on:
            lib.X509_STORE_CTX_set_error(chain, passed_over.pop(chain, error) or _REJECTED)
        elif not ok:
            passed_over.setdefault(chain, error)
        return goes_on

    callback = ffi.callback("int (*)(int, X509_STORE_CTX *)", verify)
    lib.SSL_CTX_set_verify(context._context, _MODE, callback)  # noqa: SLF001
    context.set_app_data(callback)  # as long as the context may call it


def refusal(connection: SSL.Connection) -> Optional[str]:
    """Why the client was refused, with its name; None if it showed no certificate."""
    reason = connection.get_app_data()
    return reason if isinstance(reason, str) else None


def subject_of(certificate: crypto.X509) -> str:
    """A certificate's subject name on one line, as RFC 4514 has it: ``CN=engine,O=Example``."""
    try:
        name = certificate.to_cryptography().subject.rfc4514_string()
    except UNREADABLE:
        return "with a subject name that cannot be read"
    shown = "".join(
        letter if letter.isprintable() else "".join(f"\\{byte:02x}" for byte in letter.encode())
        for letter in name
    )
    return shown or "without a subject name"
