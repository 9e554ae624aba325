"""A server with made methods, in a thread of its own, and what a test needs to talk to it."""

from __future__ import annotations

import contextlib
import http.client
import logging
import socket
import ssl
import threading
import xmlrpc.client
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO, Callable, Optional

import pytest

from ovirt_scheduler.errors import BadParameters
from ovirt_scheduler.model.requests import Caller
from ovirt_scheduler.security.certificates import CertificateFiles, ensure
from ovirt_scheduler.server.dispatch import Method
from ovirt_scheduler.server.http.server import SchedulerServer, ServerSettings
from ovirt_scheduler.server.http.tls import TlsContext, tls_context
from tests.support.waiting import LONG

SETTINGS = ServerSettings(port=0)
HASTY = replace(SETTINGS, connection_timeout=0.2, idle_timeout=0.2)
CALL = xmlrpc.client.dumps((), "form").encode()


class Gate:
    """A method that stands still until the test lets it go on."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.answer = "done"

    def run(self, _caller: Caller, _parameters: tuple[object, ...]) -> object:
        self.entered.release()
        self.go_on.wait(LONG)
        return self.answer


def methods(gate: Gate) -> list[Method]:
    def refuse(_caller: Caller, _parameters: tuple[object, ...]) -> object:
        raise BadParameters("hosts: expected an array")

    runs: dict[str, tuple[int, Callable[[Caller, tuple[object, ...]], object]]] = {
        "form": (0, lambda caller, _: caller.form.value),
        "peer": (0, lambda caller, _: caller.peer),
        "echo": (1, lambda _, parameters: parameters[0]),
        "length": (1, lambda _, parameters: len(parameters[0])),  # type: ignore[arg-type]
        "repeat": (2, lambda _, parameters: parameters[0] * parameters[1]),  # type: ignore[operator]
        "fail": (0, lambda *_: 1 // 0),
        "refuse": (0, refuse),
        "gate": (0, gate.run),
    }
    names = ("first", "second")
    return [
        Method(name, names[:count], ("string",), "", run) for name, (count, run) in runs.items()
    ]


class Running:
    """A server in a thread of its own, with what a test needs to talk to it."""

    def __init__(self, settings: ServerSettings, files: Optional[CertificateFiles] = None):
        self.gate = Gate()
        self.server = SchedulerServer(settings, methods(self.gate))
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.port = self.server.socket.getsockname()[1]
        self.files = files
        self.open = contextlib.ExitStack()

    def trust(self) -> Optional[ssl.SSLContext]:
        return (
            ssl.create_default_context(cafile=str(self.files.certificate)) if self.files else None
        )

    def raw(self) -> socket.socket:
        """A connection below TLS."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=LONG)
        return self.open.enter_context(connection)

    def connect(self) -> socket.socket:
        connection, trust = self.raw(), self.trust()
        if trust is None:
            return connection
        return self.open.enter_context(trust.wrap_socket(connection, server_hostname="localhost"))

    def sent(self, request: bytes) -> socket.socket:
        """A connection on which this was sent."""
        connection = self.connect()
        connection.sendall(request)
        return connection

    def kept(self) -> socket.socket:
        """A connection that has had an answer."""
        connection = self.sent(post())
        assert Reply(connection).value == "design"
        return connection

    def held(self) -> socket.socket:
        """A connection whose call stands at the gate."""
        connection = self.sent(post(xmlrpc.client.dumps((), "gate").encode()))
        assert self.gate.entered.acquire(timeout=LONG)
        return connection

    def proxy(self, path: str = "/") -> xmlrpc.client.ServerProxy:
        proxy = xmlrpc.client.ServerProxy(self.server.url + path, context=self.trust())
        return self.open.enter_context(proxy)

    def end(self) -> None:
        self.gate.go_on.set()
        self.open.close()
        self.server.stop(30)
        self.thread.join(LONG)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure(tmp_path_factory.mktemp("server") / "tls")


@pytest.fixture(scope="module")
def context(files: CertificateFiles) -> TlsContext:
    return tls_context(*files)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start servers that end with the test, and leave no thread behind."""
    before = {*threading.enumerate()}
    started: list[Running] = []

    def run(
        settings: ServerSettings = SETTINGS, files: Optional[CertificateFiles] = None
    ) -> Running:
        started.append(Running(settings, files))
        return started[-1]

    yield run
    for running in started:
        running.end()
    assert {*threading.enumerate()} <= before


@pytest.fixture
def plain(start: Callable[..., Running]) -> Running:
    return start()


@pytest.fixture
def hasty(start: Callable[..., Running]) -> Running:
    """A server with little patience."""
    return start(HASTY)


@pytest.fixture
def secure(start: Callable[..., Running], context: TlsContext, files: CertificateFiles) -> Running:
    return start(replace(SETTINGS, tls=context), files)


@pytest.fixture(params=["plain", "secure"])
def running(request: pytest.FixtureRequest) -> Running:
    server: Running = request.getfixturevalue(request.param)
    return server


def post(body: bytes = CALL, path: str = "/", **headers: str) -> bytes:
    """A whole request; a header's name has ``_`` for ``-``."""
    headers = {"Content_Length": str(len(body)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
    return (
        "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode(
            "iso-8859-1"
        )
        + body
    )


class Reply:
    """One answer, read to its end and no further."""

    def __init__(self, source: socket.socket | BinaryIO, verb: str = "POST"):
        with contextlib.ExitStack() as opened:
            if isinstance(source, socket.socket):
                source = opened.enter_context(source.makefile("rb"))
            version, status, _ = source.readline().split(b" ", 2)
            assert version == b"HTTP/1.1"
            self.status = int(status)
            self.headers = http.client.parse_headers(source)
            length = int(self.headers["Content-Length"])
            self.body = b"" if verb == "HEAD" else source.read(length)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def value(self) -> Any:
        ((value,), _) = xmlrpc.client.loads(self.body)
        return value


def replies(connection: socket.socket, count: int) -> list[Reply]:
    with connection.makefile("rb") as source:
        return [Reply(source) for _ in range(count)]


def ask(running: Running, request: bytes, verb: str = "POST") -> Reply:
    return Reply(running.sent(request), verb)


def at_end(connection: socket.socket) -> bool:
    """Whether the server closes the connection, without a reset."""
    return connection.recv(1) == b""


def messages(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]
