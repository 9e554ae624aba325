"""The calling side, made to cost next to nothing: raw sockets, and requests that are ready bytes.

One client waits in ``recv``; many are one thread with one selector. Answers are compared with
the first one, which was decoded and checked, as bytes. Nothing is encoded or decoded while time
is taken, and there is one process for however many clients.
"""

from __future__ import annotations

import re
import selectors
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import Callable, Optional

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_PIECE = 1 << 18
_PATIENCE = 120.0  # seconds for an answer

Address = tuple[str, int]
Check = Callable[[bytes], bool]


def request(body: bytes) -> bytes:
    """The HTTP request that carries a call."""
    head = (
        "POST /design HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/xml\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Reply:
    """An HTTP answer, as far as it has come."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._whole: Optional[int] = None  # bytes, known with the headers
        self._body = 0

    def feed(self, data: bytes) -> bool:
        """True when it is complete.

        Raises:
            ConnectionError: the connection ended before.
        """
        if not data:
            raise ConnectionError("the connection ended")
        self._data += data
        if self._whole is None:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return False
            found = _LENGTH.search(self._data, 0, end + 2)
            if found is None:
                raise ConnectionError("an answer without a length")
            self._body = end + 4
            self._whole = self._body + int(found[1])
        return len(self._data) >= self._whole

    @property
    def body(self) -> bytes:
        """The body of a 200, else nothing."""
        return bytes(self._data[self._body :]) if self._data.startswith(b"HTTP/1.1 200") else b""


class Connection:
    """One kept connection.

    Args:
        trust: makes it TLS.
        session: of an earlier connection, to be resumed.
    """

    def __init__(
        self,
        address: Address,
        trust: Optional[ssl.SSLContext] = None,
        session: Optional[ssl.SSLSession] = None,
    ) -> None:
        self.socket = socket.create_connection(address, _PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if trust is not None:
            self.socket = trust.wrap_socket(
                self.socket, server_hostname="localhost", session=session
            )

    def ask(self, wanted: bytes) -> bytes:
        """Send a request and give the body of its answer.

        Raises:
            OSError: the connection broke, or no answer came.
        """
        self.socket.sendall(wanted)
        reply = _Reply()
        while not reply.feed(self.socket.recv(_PIECE)):
            pass
        return reply.body

    @property
    def session(self) -> Optional[ssl.SSLSession]:
        """What a later connection may resume; with TLS 1.3, known after the first answer."""
        return self.socket.session if isinstance(self.socket, ssl.SSLSocket) else None

    @property
    def resumed(self) -> bool:
        return isinstance(self.socket, ssl.SSLSocket) and bool(self.socket.session_reused)

    def close(self) -> None:
        self.socket.close()


def call_maker(
    address: Address,
    trust: Optional[ssl.SSLContext],
    wanted: bytes,
    *,
    resumed: Optional[bool],
) -> Callable[[bytes], bytes]:
    """What makes one call: on a kept connection, or on one of its own."""
    first = Connection(address, trust)
    first.ask(wanted)
    if resumed is None:
        return first.ask
    session = first.session if resumed and trust is not None else None

    def call(data: bytes) -> bytes:
        connection = Connection(address, trust, session)
        try:
            answer = connection.ask(data)
            if connection.resumed != (session is not None):
                raise ConnectionError("the session was not resumed")
            return answer
        finally:
            connection.close()

    return call


@dataclass
class Load:
    """What many calls came to."""

    times: list[float] = field(default_factory=list)  # seconds, of the good ones
    failed: int = 0
    seconds: float = 0.0  # from the first request to the last answer


class _Caller:
    """One of many clients: sends its request again and again."""

    def __init__(self, connection: socket.socket, wanted: bytes) -> None:
        self.socket = connection
        self._wanted = memoryview(wanted)
        self.begin()

    def begin(self) -> None:
        self._left = self._wanted
        self._reply = _Reply()
        self.started = time.perf_counter()

    def write(self) -> bool:
        """Send what the socket takes; True when all is sent."""
        self._left = self._left[self.socket.send(self._left) :]
        return not self._left

    def read(self) -> bool:
        return self._reply.feed(self.socket.recv(_PIECE))

    @property
    def body(self) -> bytes:
        return self._reply.body


def many(address: Address, wanted: bytes, good: Check, clients: int, seconds: float) -> Load:
    """Have so many clients call at once, each again as soon as it is answered.

    Calls begin for so many seconds; all are waited for.
    """
    load = Load()
    with selectors.EpollSelector() as selector:
        started = time.perf_counter()
        for _ in range(clients):
            connection = Connection(address).socket
            connection.setblocking(False)
            caller = _Caller(connection, wanted)
            selector.register(connection, selectors.EVENT_WRITE, caller)
        while selector.get_map():
            ready = selector.select(_PATIENCE)
            if not ready:
                load.failed += len(selector.get_map())
                break
            for key, _ in ready:
                _step(selector, key, good, load, time.perf_counter() < started + seconds)
        load.seconds = time.perf_counter() - started
        for key in list(selector.get_map().values()):
            key.data.socket.close()
    return load


def _step(
    selector: selectors.EpollSelector,
    key: selectors.SelectorKey,
    good: Check,
    load: Load,
    again: bool,
) -> None:
    caller: _Caller = key.data
    try:
        if key.events == selectors.EVENT_WRITE:
            if caller.write():
                selector.modify(caller.socket, selectors.EVENT_READ, caller)
            return
        if not caller.read():
            return
    except OSError:
        load.failed += 1
        again = False
    else:
        if good(caller.body):
            load.times.append(time.perf_counter() - caller.started)
        else:
            load.failed += 1
    if again:
        caller.begin()
        selector.modify(caller.socket, selectors.EVENT_WRITE, caller)
    else:
        selector.unregister(caller.socket)
        caller.socket.close()
