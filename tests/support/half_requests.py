"""Requests and handshakes that begin, and do not go on."""

from __future__ import annotations

import contextlib
import ssl

HEAD = b"POST /engine HTTP/1.1\r\nHo"
BODY = b"POST /engine HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n<?xml"


def client_hello() -> bytes:
    """The first message of a TLS client, whole."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()
