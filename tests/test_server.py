"""The server as clients see it: real sockets, real TLS, slow, hostile and many."""

from __future__ import annotations

import contextlib
import errno
import gzip
import http.client
import logging
import re
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
import xmlrpc.client
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Callable, Iterator, Optional

import pytest
from OpenSSL import SSL

from ovirt_scheduler.certificates import CertificateFiles, ensure
from ovirt_scheduler.errors import BadParameters, ConfigError
from ovirt_scheduler.model import AnswerForm, Caller, Method
from ovirt_scheduler.server import SchedulerServer, ServerSettings
from ovirt_scheduler.streams import tls_context

WIRE = Path(__file__).resolve().parents[2] / "shared" / "data" / "wire"
SETTINGS = ServerSettings(port=0)
HASTY = replace(SETTINGS, connection_timeout=0.2, idle_timeout=0.2)
CALL = xmlrpc.client.dumps((), "form").encode()


class Gate:
    """A method that stands still until the test lets it go on."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go_on = threading.Event()

    def run(self, _caller: Caller, _parameters: tuple[object, ...]) -> object:
        self.entered.release()
        self.go_on.wait(30)
        return "done"


def methods(gate: Gate) -> list[Method]:
    def refuse(_caller: Caller, _parameters: tuple[object, ...]) -> object:
        raise BadParameters("hosts: expected an array")

    runs: dict[str, Callable[[Caller, tuple[object, ...]], object]] = {
        "form": lambda caller, _: caller.form.value,
        "peer": lambda caller, _: caller.peer,
        "echo": lambda _, parameters: list(parameters),
        "length": lambda _, parameters: len(parameters[0]),  # type: ignore[arg-type]
        "repeat": lambda _, parameters: parameters[0] * parameters[1],  # type: ignore[operator]
        "fail": lambda *_: 1 // 0,
        "refuse": refuse,
        "gate": gate.run,
    }
    return [Method(name, name, (("string",),), run) for name, run in runs.items()]


class Running:
    """A server in a thread of its own, with what a test needs to talk to it."""

    def __init__(self, settings: ServerSettings, files: Optional[CertificateFiles] = None):
        self.gate = Gate()
        self.server = SchedulerServer(settings, methods(self.gate))
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.port = self.server.server_address[1]
        self.files = files
        self.open = contextlib.ExitStack()

    def trust(self) -> Optional[ssl.SSLContext]:
        return (
            ssl.create_default_context(cafile=str(self.files.certificate)) if self.files else None
        )

    def raw(self) -> socket.socket:
        """A connection below TLS."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        return self.open.enter_context(connection)

    def connect(self) -> socket.socket:
        connection, trust = self.raw(), self.trust()
        if trust is None:
            return connection
        return self.open.enter_context(trust.wrap_socket(connection, server_hostname="localhost"))

    def client(self) -> http.client.HTTPConnection:
        trust = self.trust()
        client = (
            http.client.HTTPConnection("localhost", self.port, timeout=30)
            if trust is None
            else http.client.HTTPSConnection("localhost", self.port, timeout=30, context=trust)
        )
        self.open.callback(client.close)
        return client

    def proxy(self, path: str = "/") -> xmlrpc.client.ServerProxy:
        proxy = xmlrpc.client.ServerProxy(self.server.url + path, context=self.trust())
        return self.open.enter_context(proxy)

    def end(self) -> None:
        self.gate.go_on.set()
        self.open.close()
        self.server.stop(30)
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure(tmp_path_factory.mktemp("server") / "tls")


@pytest.fixture(scope="module")
def context(files: CertificateFiles) -> SSL.Context:
    return tls_context(*files)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start servers that end with the test, and leave no thread behind."""
    before = threading.active_count()
    started: list[Running] = []

    def run(
        settings: ServerSettings = SETTINGS, files: Optional[CertificateFiles] = None
    ) -> Running:
        started.append(Running(settings, files))
        return started[-1]

    yield run
    for running in started:
        running.end()
    assert threading.active_count() == before


@pytest.fixture
def plain(start: Callable[..., Running]) -> Running:
    return start()


@pytest.fixture
def hasty(start: Callable[..., Running]) -> Running:
    """A server with little patience."""
    return start(HASTY)


@pytest.fixture
def secure(start: Callable[..., Running], context: SSL.Context, files: CertificateFiles) -> Running:
    return start(replace(SETTINGS, tls=context), files)


@pytest.fixture(params=["plain", "secure"])
def running(request: pytest.FixtureRequest) -> Running:
    server: Running = request.getfixturevalue(request.param)
    return server


def post(body: bytes = CALL, path: str = "/", **headers: str) -> bytes:
    """A whole request; a header's name has ``_`` for ``-``."""
    headers = {"Content_Length": str(len(body)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode() + body


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
    connection = running.connect()
    connection.sendall(request)
    return Reply(connection, verb)


def at_end(connection: socket.socket) -> bool:
    """Whether the server closes the connection, without a reset."""
    return connection.recv(1) == b""


# Calls and answers


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/design", "design"),
        ("/engine", "engine"),
        ("/", "engine"),
        ("/RPC2", "engine"),
        ("//RPC2", "engine"),
        ("/design?x=1", "design"),
        ("http://localhost:18781/design", "design"),
    ],
)
def test_the_path_names_the_answer_form(
    start: Callable[..., Running], path: str, form: str
) -> None:
    """Two paths have a form of their own, two the one that is configured (contract 1.3)."""
    running = start(replace(SETTINGS, root_form=AnswerForm.ENGINE))
    assert ask(running, post(path=path)).value == form


def test_a_client_of_the_standard_library_is_served(running: Running) -> None:
    """Values go there and back; over TLS the certificate is verified."""
    with running.proxy("/engine") as proxy:
        assert proxy.form() == "engine"
        assert proxy.echo("h\u00e9", 1, [2.5, {"k": True}]) == ["h\u00e9", 1, [2.5, {"k": True}]]
        assert "echo" in proxy.system.listMethods()
        with pytest.raises(xmlrpc.client.Fault) as caught:
            proxy.refuse()
        assert (caught.value.faultCode, caught.value.faultString) == (
            -32602,
            "hosts: expected an array",
        )
        with pytest.raises(xmlrpc.client.Fault) as caught:
            proxy.fail()
        assert caught.value.faultCode == -32603
        assert "ZeroDivision" not in caught.value.faultString


@pytest.mark.parametrize("sample", sorted(WIRE.glob("*.http")), ids=lambda path: path.stem)
def test_the_engines_requests_are_answered(running: Running, sample: Path) -> None:
    """Whole requests as the engine's client writes them get an XML-RPC answer."""
    reply = ask(running, sample.read_bytes())
    assert reply.status == 200
    with pytest.raises(xmlrpc.client.Fault, match=f"no method {sample.stem}"):
        xmlrpc.client.loads(reply.body)


def test_curl_is_served(secure: Running, tmp_path: Path) -> None:
    """curl verifies the certificate, posts in chunks after 100 Continue, and reads the answer."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("needs curl")
    (tmp_path / "body").write_bytes(xmlrpc.client.dumps(("x" * 100_000,), "length").encode())
    assert secure.files is not None
    options = f"""
        cacert = {secure.files.certificate}
        data-binary = @{tmp_path / "body"}
        header = "Content-Type: text/xml"
        header = "Transfer-Encoding: chunked"
        header = "Expect: 100-continue"
        compressed
        max-time = 30
        """
    done = subprocess.run(
        [curl, "--silent", "--show-error", "--config", "-", f"{secure.server.url}/engine"],
        input=options.encode(),
        check=True,
        capture_output=True,
    )
    assert xmlrpc.client.loads(done.stdout) == ((100_000,), None)


def test_openssl_is_served(secure: Running) -> None:
    """openssl's client verifies the certificate and gets its answer."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command")
    assert secure.files is not None
    trust = ["-CAfile", str(secure.files.certificate), "-verify_return_error"]
    name = ["-verify_hostname", "localhost"]
    done = subprocess.run(
        [openssl, "s_client", "-quiet", "-connect", f"127.0.0.1:{secure.port}", *trust, *name],
        input=post(Connection="close"),
        check=True,
        capture_output=True,
        timeout=30,
    )
    assert b"HTTP/1.1 200" in done.stdout
    assert b"design" in done.stdout


def test_large_calls_and_answers_pass(running: Running) -> None:
    """Megabytes in a call, and in an answer, arrive whole."""
    document = "<host id='x'/>\n" * 250_000
    with running.proxy() as proxy:
        assert proxy.length(document) == len(document)
        assert proxy.repeat("abc", 1_000_000) == "abc" * 1_000_000


def test_the_peer_is_told_to_the_method(plain: Running) -> None:
    """Address and port, as the log has them."""
    connection = plain.connect()
    connection.sendall(post(xmlrpc.client.dumps((), "peer").encode()))
    assert Reply(connection).value == f"127.0.0.1:{connection.getsockname()[1]}"


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"", -32700), (b"hello", -32700), (xmlrpc.client.dumps((), "nothing").encode(), -32601)],
)
def test_a_bad_call_is_a_fault_on_an_open_connection(
    running: Running, body: bytes, code: int
) -> None:
    """Faults come with HTTP 200, and the connection stays."""
    connection = running.connect()
    connection.sendall(post(body))
    reply = Reply(connection)
    assert reply.status == 200
    with pytest.raises(xmlrpc.client.Fault) as caught:
        xmlrpc.client.loads(reply.body)
    assert caught.value.faultCode == code
    connection.sendall(post())
    assert Reply(connection).value == "design"


# HTTP


def test_a_connection_is_kept(running: Running) -> None:
    """Several calls go over one connection, one after the other."""
    client = running.client()
    ports = set()
    for _ in range(5):
        client.request("POST", "/", xmlrpc.client.dumps((), "peer"))
        ((peer,), _) = xmlrpc.client.loads(client.getresponse().read())
        ports.add(peer)
    assert len(ports) == 1


def test_requests_may_be_sent_ahead(running: Running) -> None:
    """Pipelined requests are answered in their order."""
    connection = running.connect()
    calls = [post(xmlrpc.client.dumps((number,), "echo").encode()) for number in range(20)]
    connection.sendall(b"".join(calls))
    assert [reply.value for reply in replies(connection, 20)] == [[number] for number in range(20)]


def test_an_empty_line_between_requests_is_passed_over(plain: Running) -> None:
    """Some clients end a body with one more line end."""
    connection = plain.connect()
    connection.sendall(post() + b"\r\n" + post())
    assert [reply.value for reply in replies(connection, 2)] == ["design", "design"]


def test_a_half_closed_connection_gets_its_answer(plain: Running) -> None:
    """A client that has said all it wants to say is still answered."""
    connection = plain.connect()
    connection.sendall(post())
    connection.shutdown(socket.SHUT_WR)
    assert Reply(connection).value == "design"
    assert at_end(connection)


def test_a_client_may_ask_to_close(running: Running) -> None:
    """Connection: close ends it after the answer, cleanly."""
    connection = running.connect()
    connection.sendall(post(Connection="close"))
    reply = Reply(connection)
    assert reply.headers["Connection"] == "close"
    assert at_end(connection)


def test_old_http_is_spoken(plain: Running) -> None:
    """HTTP/1.0 ends the connection, unless the client asks to keep it."""
    connection = plain.connect()
    old = post(Connection="keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0")
    connection.sendall(old)
    assert Reply(connection).headers["Connection"] == "keep-alive"
    connection.sendall(post().replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert Reply(connection).value == "design"
    assert at_end(connection)


def chunked(body: bytes, **headers: str) -> bytes:
    coded = b"%x;extension=1\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (len(body), body)
    return post(b"", Content_Length="", Transfer_Encoding="chunked", **headers) + coded


@pytest.mark.parametrize(
    "request_bytes",
    [
        chunked(CALL),
        chunked(gzip.compress(CALL), Content_Encoding="gzip"),
        post(gzip.compress(CALL), Content_Encoding="x-gzip"),
    ],
    ids=["chunked", "chunked-gzip", "gzip"],
)
def test_a_body_may_be_sent_in_any_way(running: Running, request_bytes: bytes) -> None:
    """Chunks and gzip work, and the connection goes on after them."""
    connection = running.connect()
    connection.sendall(request_bytes + post())
    assert [reply.value for reply in replies(connection, 2)] == ["design", "design"]


def test_the_client_is_told_to_go_on(running: Running) -> None:
    """Expect: 100-continue is answered before the body is sent."""
    connection = running.connect()
    connection.sendall(post(Expect="100-continue")[: -len(CALL)])
    expected = b"HTTP/1.1 100 Continue\r\n\r\n"
    received = b""
    while len(received) < len(expected):
        received += connection.recv(len(expected) - len(received))
    assert received == expected
    connection.sendall(CALL)
    assert Reply(connection).value == "design"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (post(path="/x", Expect="100-continue"), 404),
        (post(Content_Length="999999999", Expect="100-continue"), 413),
    ],
)
def test_a_client_is_not_told_to_go_on_in_vain(
    plain: Running, request_bytes: bytes, status: int
) -> None:
    """What would be refused anyway is refused before the body."""
    reply = ask(plain, request_bytes[: -len(CALL)])
    assert reply.status == status


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("", False),
        ("br;q=.", False),
    ],
)
def test_large_answers_are_packed_for_who_can_unpack(
    plain: Running, accepted: str, packed: bool
) -> None:
    """Only an answer that is large, and only for a client that accepts gzip."""
    body = xmlrpc.client.dumps(("abc", 100_000), "repeat").encode()
    reply = ask(plain, post(body, Accept_Encoding=accepted))
    assert (reply.headers["Content-Encoding"] == "gzip") is packed
    document = gzip.decompress(reply.body) if packed else reply.body
    assert xmlrpc.client.loads(document)[0] == ("abc" * 100_000,)
    assert ask(plain, post(Accept_Encoding=accepted)).headers["Content-Encoding"] is None


@pytest.mark.parametrize("path", ["/x", "/engine/", "/RPC3", "/../", "/%2f", "*", "/a" * 200])
def test_other_paths_are_not_found(running: Running, path: str) -> None:
    """404, with the paths that there are, whatever the verb."""
    for verb in ("POST", "GET"):
        reply = ask(running, post(path=path).replace(b"POST", verb.encode()))
        assert reply.status == 404
        assert "/design, /engine" in reply.text


@pytest.mark.parametrize(
    "verb", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "post", "X-Y"]
)
@pytest.mark.parametrize("path", ["/", "/RPC2", "/design", "/engine"])
def test_other_verbs_are_not_allowed(plain: Running, verb: str, path: str) -> None:
    """405 with what is allowed, for verbs known and unknown (contract 1.3)."""
    reply = ask(plain, f"{verb} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), verb)
    assert reply.status == 405
    assert reply.headers["Allow"] == "POST"
    assert bool(reply.body) is (verb != "HEAD")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (post(Content_Length=""), 411),
        (post(Content_Length="x"), 400),
        (post(Content_Length="-1"), 400),
        (post(Transfer_Encoding="chunked"), 400),
        (post(Content_Length="5\r\nContent-Length: 6"), 400),
        (post(Content_Encoding="br"), 415),
        (post(Content_Encoding="gzip"), 400),
        (post(b"x\r\n", Content_Length="", Transfer_Encoding="chunked"), 400),
        (post(b"", Content_Length="", Transfer_Encoding="gzip"), 501),
        (post(Content_Length="5 \r\nNo Header Line"), 400),
        (post(**{"Content-Length ": "5"}), 400),
        (post(path="http://["), 404),
        (b"hello\r\n\r\n", 400),
        (b"\x00\xff\r\n\r\n", 400),
        (b"POST /\r\n\r\n", 400),
        (b"POST / HTTP/x.y\r\n\r\n", 400),
        (b"POST / HTTP/2.0\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"POST / / HTTP/1.1\r\n\r\n", 400),
        (b"POST /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (post(X="x" * 70_000), 431),
        (post(**{f"X{number}": "x" for number in range(200)}), 431),
    ],
)
def test_a_bad_request_is_refused_in_plain_text(
    plain: Running, request_bytes: bytes, status: int
) -> None:
    """The status fits, a short text says what is wrong, and the connection is closed cleanly."""
    connection = plain.connect()
    connection.sendall(request_bytes)
    reply = Reply(connection)
    assert reply.status == status
    assert reply.headers["Content-Type"].startswith("text/plain")
    assert 10 < len(reply.text) < 300
    assert reply.headers["Connection"] == "close"
    assert at_end(connection)


@pytest.mark.parametrize("coding", ["length", "chunked", "gzip", "chunked-gzip"])
def test_a_body_past_the_limit_is_refused(
    start: Callable[..., Running],
    context: SSL.Context,
    files: CertificateFiles,
    coding: str,
) -> None:
    """413 reaches even a client that sends all of its body before it reads."""
    body = b"x" * 20_000_000
    limited = replace(SETTINGS, max_request_size=10_000)
    for running in (start(limited), start(replace(limited, tls=context), files)):
        connection = running.connect()
        if coding == "length":
            connection.sendall(post(body))
        elif coding == "chunked":
            connection.sendall(chunked(body))
        else:
            packed = gzip.compress(body, 1)
            way = post if coding == "gzip" else chunked
            connection.sendall(way(packed, Content_Encoding="gzip"))
        reply = Reply(connection)
        assert reply.status == 413
        assert "max_request_size" in reply.text
        assert at_end(connection)


def test_a_body_that_ends_early_is_told(plain: Running) -> None:
    """A client that stops in the middle, and still reads, gets a reason."""
    connection = plain.connect()
    connection.sendall(post()[:-10])
    connection.shutdown(socket.SHUT_WR)
    reply = Reply(connection)
    assert reply.status == 400
    assert "10 bytes before" in reply.text


# TLS and plain


def messages(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


def test_plain_http_to_the_tls_port_is_told(
    secure: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets a readable 400, the log one line."""
    connection = secure.raw()
    connection.sendall(post())
    reply = Reply(connection)
    assert reply.status == 400
    assert "https" in reply.text
    assert at_end(connection)
    (line,) = messages(caplog)
    assert "speaks no TLS" in line


def test_tls_to_the_plain_port_is_told(plain: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The handshake fails, and the log has one line."""
    with pytest.raises(OSError):
        ssl.create_default_context().wrap_socket(plain.raw(), server_hostname="localhost")
    (line,) = messages(caplog)
    assert "speaks TLS" in line


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x00\x05hello", b"\x16" + b"\x00" * 500])
def test_garbage_in_the_handshake_is_one_line(
    secure: Running, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    """No traceback, and the server goes on."""
    connection = secure.raw()
    connection.sendall(garbage)
    connection.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionError):
        while connection.recv(4096):
            pass
    (line,) = messages(caplog)
    assert "no TLS handshake" in line
    with secure.proxy() as proxy:
        assert proxy.form() == "design"


def test_a_client_that_does_not_trust_us_is_one_line(
    secure: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """An engine without our certificate in its trust store shows in the log."""
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(secure.raw(), server_hostname="localhost")
    secure.end()
    assert all("TLS" in line for line in messages(caplog))


def test_a_new_context_is_for_new_connections(
    secure: Running, tmp_path: Path, files: CertificateFiles
) -> None:
    """A reload replaces the certificate; connections that are open go on."""
    connection = secure.connect()
    other = ensure(tmp_path / "other")
    secure.server.tls = tls_context(*other)
    connection.sendall(post())
    assert Reply(connection).value == "design"
    secure.files = other
    assert ask(secure, post()).value == "design"


# Time


def test_a_silent_connection_is_cut(hasty: Running) -> None:
    """Who connects and says nothing is let go."""
    assert at_end(hasty.connect())


def test_a_silent_handshake_is_cut(
    start: Callable[..., Running], context: SSL.Context, files: CertificateFiles
) -> None:
    """A client that stops before, or within, its handshake is let go, and delays nobody."""
    running = start(replace(HASTY, tls=context, idle_timeout=30), files)
    silent, stuck = running.raw(), running.raw()
    stuck.sendall(b"\x16\x03\x01\x02\x00")
    assert ask(running, post()).value == "design"
    assert at_end(silent)
    assert at_end(stuck)


def test_an_idle_connection_is_cut(hasty: Running) -> None:
    """A kept connection is closed when no other request comes."""
    connection = hasty.connect()
    connection.sendall(post())
    assert Reply(connection).value == "design"
    assert at_end(connection)


def test_a_kept_connection_may_idle_longer_than_a_request_may_take(
    start: Callable[..., Running],
) -> None:
    """The two times are apart."""
    running = start(replace(HASTY, idle_timeout=30))
    connection = running.connect()
    connection.sendall(post())
    assert Reply(connection).value == "design"
    connection.settimeout(3 * HASTY.connection_timeout)
    with pytest.raises(OSError):
        connection.recv(1)
    connection.settimeout(30)
    connection.sendall(post())
    assert Reply(connection).value == "design"


@pytest.mark.parametrize("sent", [b"P", b"POST / HTTP/1.1\r\nX: ", post()[:-1], post()[:-50]])
def test_a_request_that_stops_is_cut(hasty: Running, sent: bytes) -> None:
    """408 tells a client that its request did not arrive in time."""
    connection = hasty.connect()
    connection.sendall(sent)
    reply = Reply(connection)
    assert reply.status == 408
    assert at_end(connection)


def test_a_request_byte_by_byte_is_cut(hasty: Running) -> None:
    """The time is for the whole request, so that a trickle does not hold a thread."""
    connection = hasty.connect()
    stop = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            for byte in b"POST / HTTP/1.1\r\nX: " + b"x" * 100_000:
                if stop.wait(0.01):
                    return
                connection.sendall(bytes([byte]))

    thread = threading.Thread(target=trickle)
    thread.start()
    reply = Reply(connection)
    stop.set()
    thread.join(30)
    assert reply.status == 408


def test_a_client_that_does_not_read_is_cut(hasty: Running) -> None:
    """An answer that nobody takes does not hold its thread."""
    connection = hasty.raw()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(post(xmlrpc.client.dumps(("abc", 10_000_000), "repeat").encode()))
    assert connection.recv(1) == b"H"  # the answer has begun
    assert hasty.server.connections.wait_until_idle(time.monotonic() + 30)


def test_a_reset_is_no_error(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """A client that breaks the connection, before or during its call, is not worth a warning."""
    for sent in (b"", b"PO", post()[:-5], post(xmlrpc.client.dumps((), "gate").encode())):
        connection = running.connect()
        connection.sendall(sent)
        if b"gate" in sent:
            assert running.gate.entered.acquire(timeout=30)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    running.end()
    assert messages(caplog) == []


# Many


def test_128_clients_at_once_are_served(running: Running) -> None:
    """Nobody is turned away or waits for a connection to be tried again."""
    barrier = threading.Barrier(128)

    def call(number: int) -> Any:
        barrier.wait(30)
        connection = running.connect()
        connection.sendall(post(xmlrpc.client.dumps((number,), "echo").encode()))
        return Reply(connection).value

    with ThreadPoolExecutor(128) as pool:
        assert list(pool.map(call, range(128))) == [[number] for number in range(128)]


def test_calls_run_side_by_side(running: Running) -> None:
    """A call that takes long delays no other connection."""
    slow = running.connect()
    slow.sendall(post(xmlrpc.client.dumps((), "gate").encode()))
    assert running.gate.entered.acquire(timeout=30)
    assert ask(running, post()).value == "design"
    running.gate.go_on.set()
    assert Reply(slow).value == "done"


def test_the_longest_idle_connection_makes_room(start: Callable[..., Running]) -> None:
    """With all connections taken a new one is served in place of the longest idle."""
    running = start(replace(SETTINGS, max_connections=2))
    first, second = running.connect(), running.connect()
    for connection in (first, second):
        connection.sendall(post())
        assert Reply(connection).value == "design"
        assert running.server.connections.wait_until_idle(time.monotonic() + 30)
    assert ask(running, post()).value == "design"
    assert at_end(first)
    second.sendall(post())
    assert Reply(second).value == "design"


def test_silent_connections_do_not_keep_others_out(start: Callable[..., Running]) -> None:
    """Who has never asked for anything makes room as well."""
    running = start(replace(SETTINGS, max_connections=4))
    silent = [running.connect() for _ in range(12)]
    assert ask(running, post()).value == "design"
    assert at_end(silent[0])


def test_busy_connections_make_others_wait(start: Callable[..., Running]) -> None:
    """With every connection in a call the next waits, and is served afterwards."""
    running = start(replace(SETTINGS, max_connections=1))
    busy = running.connect()
    busy.sendall(post(xmlrpc.client.dumps((), "gate").encode(), Connection="close"))
    assert running.gate.entered.acquire(timeout=30)
    waiting = running.connect()
    waiting.sendall(post())
    waiting.settimeout(0.2)
    with pytest.raises(OSError):
        waiting.recv(1)
    waiting.settimeout(30)
    running.gate.go_on.set()
    assert Reply(busy).value == "done"
    assert Reply(waiting).value == "design"


def test_a_lack_of_descriptors_is_survived(
    plain: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged once, an idle connection gives its descriptor back, and accepting goes on."""
    idle = plain.connect()
    idle.sendall(post())
    assert Reply(idle).value == "design"
    refusals: list[int] = []
    accept = plain.server.get_request

    def refuse() -> Any:
        accepted = accept()
        if refusals:
            accepted[0].close()
            raise OSError(refusals.pop(), "Too many open files")
        return accepted

    monkeypatch.setattr(plain.server, "get_request", refuse)
    assert ask(plain, post()).value == "design"  # maybe by an accept that waited already
    refusals += [errno.EMFILE, errno.ENFILE, errno.EMFILE]
    for _ in range(3):
        assert at_end(plain.connect())
    assert ask(plain, post()).value == "design"
    assert at_end(idle)
    (line,) = messages(caplog)
    assert "Too many open files" in line


# Start and stop


def test_the_url_has_the_real_port(plain: Running, secure: Running) -> None:
    """Scheme, name as configured, and the port that the kernel chose."""
    assert plain.server.url == f"http://localhost:{plain.port}"
    assert secure.server.url == f"https://localhost:{secure.port}"
    assert plain.port


def test_localhost_is_the_address_that_java_takes(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the name has two addresses, the server listens on 127.0.0.1."""
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)
        running = start()
    assert running.server.server_address[0] == "127.0.0.1"


def test_ipv6_is_served(start: Callable[..., Running]) -> None:
    """An IPv6 address is listened on, and in brackets in the URL."""
    try:
        running = start(replace(SETTINGS, address="::1"))
    except ConfigError:
        pytest.skip("no IPv6 here")
    assert running.server.url == f"http://[::1]:{running.port}"
    with running.proxy() as proxy:
        assert re.fullmatch(r"\[::1\]:\d+", str(proxy.peer()))


def test_a_port_in_use_is_told(plain: Running) -> None:
    """The error says which port of which address, and which setting to change."""
    taken = replace(SETTINGS, port=plain.port)
    with pytest.raises(ConfigError, match=f"port {plain.port} of localhost.*listening_port"):
        SchedulerServer(taken, [])


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "no-such-host.invalid", "", "a" * 70, "bad..name"]
)
def test_an_address_that_is_not_ours_is_told(address: str) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigError, match="listening_address"):
        SchedulerServer(replace(SETTINGS, address=address), [])


def test_a_port_is_free_again_at_once(start: Callable[..., Running]) -> None:
    """A restart does not wait for the old connections to be forgotten."""
    first = start()
    assert ask(first, post(Connection="close")).value == "design"
    first.end()
    again = start(replace(SETTINGS, port=first.port))
    assert ask(again, post()).value == "design"


def test_stopping_waits_for_calls_under_way(running: Running) -> None:
    """The call is answered, others get fault 104, new connections are refused; then all end."""
    under_way, idle = running.connect(), running.connect()
    idle.sendall(post())
    assert Reply(idle).value == "design"
    under_way.sendall(post(xmlrpc.client.dumps((), "gate").encode()))
    assert running.gate.entered.acquire(timeout=30)
    stopping = threading.Thread(target=running.server.stop, args=[30])
    stopping.start()
    running.thread.join(30)  # nothing is accepted any more
    with pytest.raises(OSError):
        running.raw()
    idle.sendall(post())
    reply = Reply(idle)
    assert reply.headers["Connection"] == "close"
    with pytest.raises(xmlrpc.client.Fault) as caught:
        xmlrpc.client.loads(reply.body)
    assert caught.value.faultCode == 104
    running.gate.go_on.set()
    assert Reply(under_way).value == "done"
    stopping.join(30)
    assert not stopping.is_alive()


def test_stopping_cuts_what_takes_too_long(
    plain: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """After its grace a call's connection is broken, and the log says so."""
    connection = plain.connect()
    connection.sendall(post(xmlrpc.client.dumps((), "gate").encode()))
    assert plain.gate.entered.acquire(timeout=30)
    plain.server.stop(0.1)
    assert at_end(connection)
    assert any("cut off" in line for line in messages(caplog))


def test_stopping_does_not_wait_for_idle_connections(running: Running) -> None:
    """Connections without a request, fresh or kept, end at once."""
    kept, _fresh, _raw = running.connect(), running.connect(), running.raw()
    kept.sendall(post())
    assert Reply(kept).value == "design"
    started = time.monotonic()
    running.server.stop(60)
    assert time.monotonic() - started < 30
    assert at_end(kept)


def test_stopping_a_server_that_never_served_ends() -> None:
    """Made and stopped, it leaves nothing behind."""
    server = SchedulerServer(SETTINGS, [])
    server.stop(0)
    server.serve_forever()
    assert server.socket.fileno() == -1


# The log


def test_requests_are_logged(plain: Running, caplog: pytest.LogCaptureFixture) -> None:
    """One line for each, refused ones too, with an id of its own; bodies are not in it."""
    caplog.set_level(logging.INFO)
    connection = plain.connect()
    for _ in range(2):
        connection.sendall(post(xmlrpc.client.dumps(("secret",), "echo").encode()))
        Reply(connection)
    assert ask(plain, post(path="/x\x1b[31m")).status == 404
    lines = messages(caplog, logging.INFO)
    assert len(lines) == 3
    ids = {re.match("request ([0-9a-f]{8}) ", line)[1] for line in lines}  # type: ignore[index]
    assert len(ids) == 3
    assert "HTTP 404" in lines[2]
    assert "\x1b" not in "".join(lines)
    assert "secret" not in caplog.text


def test_nothing_is_printed(plain: Running, capfd: pytest.CaptureFixture[str]) -> None:
    """The standard server's own messages to standard error are off."""
    ask(plain, post())
    ask(plain, b"hello\r\n\r\n")
    ask(plain, post(xmlrpc.client.dumps((), "fail").encode()))
    plain.end()
    assert capfd.readouterr() == ("", "")
