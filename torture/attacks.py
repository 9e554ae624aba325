"""What comes over the network from those who are no good clients.

Each attack is one attempt, which ends by itself. None may cost the daemon more than one connection
for a bounded time: the good clients would notice.
"""

from __future__ import annotations

import contextlib
import gzip
import random
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from typing import Callable, Protocol

from bench import client, documents
from bench.client import Address
from torture.clients import IDS
from torture.subject import MOST_BYTES, SECONDS
from torture.tally import Tally

_PATIENCE = 20.0  # seconds until the daemon must have let go of a connection
_CALL = client.request(documents.call("runFilters", ["Half"], IDS, documents.VM_ID, {}))

_QUERY = client.request(documents.call("decisions", {"limit": 1000}))

_NOT_CALLS = (
    b"",
    b"hello",
    b"<methodCall>",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]><methodCall/>",
    b"<methodCall><methodName>discover</methodName><params>" + b"<param><value><array><data>" * 500,
    documents.call("system.multicall", []),
    documents.call("runFilters", "Half", 7, None or "", {}),
    documents.call("runFilters", ["nobody"], IDS, documents.VM_ID, {}),
    documents.call("runFilters", ["Half"], "<hosts><host", documents.VM_ID, {}),
    documents.call("runFilters", ["Half"], "<hosts>" + "<a>" * 5000, documents.VM_ID, {}),
    documents.call("runCostFunctions", [["Half", 10**9]], IDS, documents.VM, {}),
)
_NOT_HTTP = (
    b"\r\n" * 100,
    b"GET / HTTP/1.1\r\n\r\n",
    b"POST /elsewhere HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
    b"POST /design HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"POST /design HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"POST /design HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /design HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n",
    b"P" * 100_000,
)

_HALF_GREETING = b"\x16\x03\x01\x02\x00\x01"  # a client's first message in TLS
_MANY = 50  # handshakes or requests that begin at once

_BOMB = gzip.compress(b" " * (64 * MOST_BYTES), 9)

Attack = Callable[["Attacker"], None]


class Target(Protocol):
    """What is attacked."""

    address: Address

    def trust(self) -> ssl.SSLContext:
        """Whom to trust there."""


class Attacker:
    """Attacks in one way, again and again, until it is told to stop."""

    def __init__(
        self, attack: Attack, subject: Target, tally: Tally, chosen: random.Random
    ) -> None:
        self._attack = attack
        self._address = subject.address
        self._trust = subject.trust()
        self._tally = tally
        self.chosen = chosen
        self.stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        self.stop = stop
        while not stop.is_set():
            try:
                self._attack(self)
            except socket.timeout:
                if not stop.is_set():
                    self._tally.find(f"{self._attack.__name__}: held for {_PATIENCE:g} s")
            except (OSError, ssl.SSLError):
                pass  # the daemon has cut it off, as it should
            self._tally.count("bad inputs tried")
            self._tally.count(f"attack: {self._attack.__name__.replace('_', ' ')}")
            stop.wait(self.chosen.uniform(0.2, 2.0))

    @contextlib.contextmanager
    def plain(self) -> Iterator[socket.socket]:
        with socket.create_connection(self._address, _PATIENCE) as connection:
            yield connection

    @contextlib.contextmanager
    def secure(self) -> Iterator[ssl.SSLSocket]:
        with (
            self.plain() as connection,
            self._trust.wrap_socket(connection, server_hostname="localhost") as wrapped,
        ):
            yield wrapped


def _await_end(connection: socket.socket) -> None:
    """Take what comes until the daemon lets go.

    Raises:
        socket.timeout: it does not.
    """
    while connection.recv(1 << 16):
        pass


def says_nothing(attacker: Attacker) -> None:
    with attacker.plain() as connection:
        _await_end(connection)


def says_nothing_in_tls(attacker: Attacker) -> None:
    with attacker.secure():
        attacker.stop.wait(attacker.chosen.uniform(0, SECONDS))


def stops_in_the_handshake(attacker: Attacker) -> None:
    with attacker.plain() as connection:
        connection.sendall(_HALF_GREETING)
        _await_end(connection)


def begins_many_handshakes(attacker: Attacker) -> None:
    """More, with those of other attackers, than there are connections."""
    with contextlib.ExitStack() as opened:
        for _ in range(_MANY):
            connection = opened.enter_context(attacker.plain())
            connection.sendall(_HALF_GREETING)
        _await_end(connection)


def begins_many_requests(attacker: Attacker) -> None:
    """As many, whose heads never end."""
    with contextlib.ExitStack() as opened:
        for _ in range(_MANY):
            connection = opened.enter_context(attacker.secure())
            connection.sendall(_CALL[: attacker.chosen.randrange(1, 30)])
        _await_end(connection)


def asks_for_many_records(attacker: Attacker) -> None:
    """At once, and reads what comes only when all have been sent."""
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(attacker.secure()) for _ in range(_MANY // 5)]
        for connection in connections:
            connection.sendall(_QUERY)
        for connection in connections:
            connection.recv(1 << 16)


def sends_byte_by_byte(attacker: Attacker) -> None:
    with attacker.secure() as connection:
        for byte in _CALL:
            connection.sendall(bytes([byte]))
            if attacker.stop.wait(0.05):
                return
        _await_end(connection)


def reads_nothing(attacker: Attacker) -> None:
    """Asks for large answers, one after another, and takes none of them."""
    with attacker.secure() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asked = client.request(documents.call("discover"))
        with contextlib.suppress(socket.timeout):
            connection.settimeout(1)
            for _ in range(50):
                connection.sendall(asked)
        attacker.stop.wait(SECONDS)


def sends_random_bytes(attacker: Attacker) -> None:
    with attacker.plain() as connection:
        connection.sendall(attacker.chosen.randbytes(attacker.chosen.randrange(1, 3000)))
        _await_end(connection)


def sends_random_bytes_as_tls(attacker: Attacker) -> None:
    with attacker.plain() as connection:
        size = attacker.chosen.randrange(1, 2000)
        record = b"\x16\x03\x03" + struct.pack("!H", size) + attacker.chosen.randbytes(size)
        connection.sendall(record)
        _await_end(connection)


def sends_no_http(attacker: Attacker) -> None:
    with attacker.secure() as connection:
        connection.sendall(attacker.chosen.choice(_NOT_HTTP))
        connection.settimeout(1)
        with contextlib.suppress(socket.timeout):  # a part of a request may yet become a whole
            _await_end(connection)


def speaks_plain_http(attacker: Attacker) -> None:
    with attacker.plain() as connection:
        connection.sendall(_CALL)
        _await_end(connection)


def sends_no_call(attacker: Attacker) -> None:
    """Mistakes of a caller, each a fault."""
    with attacker.secure() as connection:
        connection.sendall(client.request(attacker.chosen.choice(_NOT_CALLS)))
        connection.recv(1 << 16)


def sends_a_damaged_call(attacker: Attacker) -> None:
    with attacker.secure() as connection:
        body = bytearray(documents.call("runFilters", ["Half"], IDS, documents.VM_ID, {}))
        for _ in range(attacker.chosen.randrange(1, 6)):
            body[attacker.chosen.randrange(len(body))] = attacker.chosen.randrange(256)
        connection.sendall(client.request(bytes(body)))
        connection.recv(1 << 16)


def sends_too_much(attacker: Attacker) -> None:
    """A body as large as may be, one byte more, one without end, and a bomb."""
    kind = attacker.chosen.randrange(4)
    with attacker.secure() as connection:
        if kind < 2:
            connection.sendall(client.request(b" " * (MOST_BYTES + kind)))
        elif kind == 2:
            connection.sendall(b"POST /design HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(40):
                connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        else:
            head = (
                f"POST /design HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: {len(_BOMB)}"
            )
            connection.sendall(head.encode() + b"\r\n\r\n" + _BOMB)
        connection.recv(1 << 16)


def half_closes(attacker: Attacker) -> None:
    with attacker.plain() as connection:
        connection.sendall(_CALL[: attacker.chosen.randrange(len(_CALL))])
        connection.shutdown(socket.SHUT_WR)
        _await_end(connection)


def calls_and_resets(attacker: Attacker) -> None:
    """Leaves without a goodbye while its call is under way."""
    with attacker.secure() as connection:
        connection.sendall(_CALL)
        attacker.stop.wait(attacker.chosen.random() * 0.02)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


ATTACKS: tuple[Attack, ...] = (
    says_nothing, says_nothing_in_tls, stops_in_the_handshake, begins_many_handshakes,
    begins_many_requests, asks_for_many_records, sends_byte_by_byte, reads_nothing,
    sends_random_bytes, sends_random_bytes_as_tls, sends_no_http,
    speaks_plain_http, sends_no_call, sends_a_damaged_call, sends_too_much, half_closes,
    calls_and_resets,
)  # fmt: skip
