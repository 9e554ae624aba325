"""Streams over sockets and TLS: bytes, deadlines, ends; and what the TLS context allows."""

from __future__ import annotations

import io
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import pytest

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security.certificates import CertificateFiles, ensure
from ovirt_scheduler.server.http.stream import ConnectionStream, TlsError
from ovirt_scheduler.server.http.tls import TlsContext, tls_context
from tests.support.command import executed
from tests.support.waiting import LONG

SHORT = 0.1


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure(tmp_path_factory.mktemp("streams") / "tls")


def client_context(files: CertificateFiles) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files.certificate))


class Pair:
    """Our stream, and the client's socket at the other end."""

    def __init__(self) -> None:
        self.socket, self.client = socket.socketpair()
        self.client.settimeout(LONG)
        self.stream = ConnectionStream(self.socket, time.monotonic() + 30)

    def close(self) -> None:
        self.client.close()
        self.stream.close()
        self.socket.close()


@pytest.fixture
def plain() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def in_thread(action: Callable[[], Any]) -> Callable[[], Any]:
    """Start the action; the result is waited for by calling what is returned."""
    begun = ThreadPoolExecutor(1).submit(action)
    return lambda: begun.result(LONG)


def shake_hands(pair: Pair, context: TlsContext, theirs: ssl.SSLContext) -> None:
    raw = pair.client
    secured = in_thread(lambda: theirs.wrap_socket(raw, server_hostname="localhost"))
    pair.stream.start_tls(context)
    pair.client = secured()


@pytest.fixture(params=["plain", "tls"])
def pair(
    request: pytest.FixtureRequest, plain: Pair, context: TlsContext, files: CertificateFiles
) -> Pair:
    if request.param == "tls":
        shake_hands(plain, context, client_context(files))
    return plain


def test_bytes_go_both_ways(pair: Pair) -> None:
    """Megabytes arrive whole, read and written through the standard buffers."""
    data = bytes(range(256)) * 20_000
    client = pair.client

    def echo() -> None:
        with client.makefile("rwb") as file:
            file.write(file.read(len(data)))

    done = in_thread(echo)
    pair.stream.send_all(data)
    reader = io.BufferedReader(pair.stream)
    assert reader.read(len(data)) == data
    assert done() is None


def test_reading_stops_at_the_deadline(pair: Pair) -> None:
    """Nothing to read until the deadline is a TimeoutError; more time, and it goes on."""
    pair.stream.deadline = time.monotonic() + SHORT
    with pytest.raises(TimeoutError):
        pair.stream.read(1)
    pair.client.sendall(b"x")
    pair.stream.deadline = time.monotonic() + 30
    assert pair.stream.read(1) == b"x"


def test_a_slow_sender_does_not_move_the_deadline(pair: Pair) -> None:
    """One byte at a time, the whole still has to arrive in time."""
    stop = threading.Event()
    client = pair.client

    def drip() -> None:
        while not stop.wait(SHORT / 10):
            client.sendall(b"x")

    done = in_thread(drip)
    pair.stream.deadline = time.monotonic() + SHORT
    with pytest.raises(TimeoutError):
        io.BufferedReader(pair.stream).read(10_000_000)
    stop.set()
    assert done() is None


def test_writing_to_one_who_does_not_read_stops(pair: Pair) -> None:
    """A full socket until the deadline is a TimeoutError."""
    pair.stream.deadline = time.monotonic() + SHORT
    with pytest.raises(TimeoutError):
        while True:
            pair.stream.send_all(b"x" * 65536)


def test_the_end_of_the_peers_bytes_is_an_end(pair: Pair) -> None:
    """A proper end reads as nothing."""
    pair.client.sendall(b"last")
    if isinstance(pair.client, ssl.SSLSocket):
        client = pair.client
        unwrapped = in_thread(client.unwrap)
    else:
        pair.client.shutdown(socket.SHUT_WR)
    assert pair.stream.read(10) == b"last"
    assert pair.stream.read(10) == b""
    pair.stream.say_goodbye(0)
    if isinstance(pair.client, ssl.SSLSocket):
        unwrapped()


def test_a_torn_tls_connection_is_an_error(
    plain: Pair, context: TlsContext, files: CertificateFiles
) -> None:
    """An end without TLS's own goodbye could be an attacker's cut, and is no end."""
    shake_hands(plain, context, client_context(files))
    socket.socket.shutdown(plain.client, socket.SHUT_RDWR)
    with pytest.raises(ConnectionError):
        plain.stream.read(1)


def test_our_goodbye_is_seen(pair: Pair) -> None:
    """The peer reads the last bytes and then a clean end, and what it sends is discarded."""
    pair.stream.send_all(b"last")
    client = pair.client

    def read_all() -> tuple[bytes, bytes]:
        client.sendall(b"x" * 3_000_000)
        last = client.recv(10), client.recv(10)
        client.close()
        return last

    read = in_thread(read_all)
    pair.stream.say_goodbye(30)
    assert read() == (b"last", b"")


def test_a_goodbye_does_not_wait_for_ever(pair: Pair) -> None:
    """A peer that neither sends nor leaves is not waited for past the patience."""
    started = time.monotonic()
    pair.stream.say_goodbye(SHORT)
    assert time.monotonic() - started < 10


def test_a_goodbye_to_one_who_is_gone_is_quiet(pair: Pair) -> None:
    """Nothing is raised for a peer that broke the connection, and it is not waited for."""
    pair.client.close()
    started = time.monotonic()
    pair.stream.say_goodbye(30)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("sent", "answer"), [(b"\x16\x03\x01", True), (b"POST", False), (b"\x00", False)]
)
def test_the_first_byte_tells_tls(plain: Pair, sent: bytes, answer: bool) -> None:
    """It stays to be read."""
    plain.client.sendall(sent)
    assert plain.stream.speaks_tls() is answer
    assert plain.stream.read(10) == sent


def test_a_peer_may_leave_without_a_byte(plain: Pair) -> None:
    """A connection that only knocked is told apart."""
    plain.client.close()
    assert plain.stream.speaks_tls() is None


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00"])
def test_a_handshake_has_its_deadline(plain: Pair, context: TlsContext, sent: bytes) -> None:
    """A peer that stops before or in its first message is given up."""
    plain.client.sendall(sent)
    plain.stream.deadline = time.monotonic() + SHORT
    with pytest.raises(TimeoutError):
        plain.stream.start_tls(context)


@pytest.mark.parametrize(
    "sent", [b"POST / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x00" * 99]
)
def test_what_is_no_handshake_is_told(plain: Pair, context: TlsContext, sent: bytes) -> None:
    """The error has a reason in words."""
    plain.client.sendall(sent)
    with pytest.raises(TlsError, match=r"[a-z]{3}"):
        plain.stream.start_tls(context)


def offer(pair: Pair, context: TlsContext, theirs: ssl.SSLContext) -> str:
    """What the two agree on; the server's error where they do not."""
    raw = pair.client

    def connect() -> str:
        try:
            with theirs.wrap_socket(raw, server_hostname="localhost") as client:
                return client.version() or ""
        except OSError as error:
            return str(error)

    agreed = in_thread(connect)
    pair.stream.start_tls(context)
    return str(agreed())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_current_versions_are_spoken(
    plain: Pair, context: TlsContext, files: CertificateFiles, version: ssl.TLSVersion
) -> None:
    """TLS 1.2 and 1.3 both work (contract 1.1)."""
    theirs = client_context(files)
    theirs.minimum_version = theirs.maximum_version = version
    assert offer(plain, context, theirs) == version.name.replace("_", ".")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_old_versions_are_not_spoken(plain: Pair, files: CertificateFiles) -> None:
    """TLS 1.1 is refused even where OpenSSL would allow it at both ends."""
    context = tls_context(*files)
    context.args[0].set_cipher_list(b"DEFAULT:@SECLEVEL=0")
    theirs = client_context(files)
    theirs.set_ciphers("DEFAULT:@SECLEVEL=0")
    theirs.minimum_version = theirs.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(TlsError, match="protocol"):
        offer(plain, context, theirs)


def test_suites_of_cbc_with_sha1_are_not_spoken(plain: Pair, files: CertificateFiles) -> None:
    """Though OpenSSL has them for TLS 1.2; those with GCM are."""
    theirs = client_context(files)
    theirs.maximum_version = ssl.TLSVersion.TLSv1_2
    theirs.set_ciphers("ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA")
    with pytest.raises(TlsError, match="no shared cipher"):
        offer(plain, tls_context(*files), theirs)
    theirs.set_ciphers("ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES128-GCM-SHA256")
    pair = Pair()
    assert offer(pair, tls_context(*files), theirs) == "TLSv1.2"
    pair.close()


def test_a_session_is_resumed(context: TlsContext, files: CertificateFiles) -> None:
    """A client that comes back with its session need not do the whole handshake."""
    theirs = client_context(files)
    theirs.maximum_version = ssl.TLSVersion.TLSv1_2
    session = None
    for _ in range(2):
        pair = Pair()
        raw, known = pair.client, session
        secured = in_thread(
            lambda raw=raw, known=known: theirs.wrap_socket(
                raw, server_hostname="localhost", session=known
            )
        )
        pair.stream.start_tls(context)
        pair.client = secured()
        session, resumed = pair.client.session, pair.client.session_reused
        pair.close()
    assert resumed


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_a_client_cannot_renegotiate(context: TlsContext) -> None:
    """A second handshake in a connection, which costs us more than the client, is refused."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        client = subprocess.Popen(
            ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        connection, _ = listener.accept()
    with connection, client:
        stream = ConnectionStream(connection, time.monotonic() + 30)
        stream.start_tls(context)
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"R\n")
        client.stdin.flush()
        with pytest.raises(ConnectionError):
            stream.read(1)
        stream.say_goodbye(0)
        connection.close()
        assert b"no renegotiation" in client.stdout.read()


def test_files_that_do_not_fit_are_told(files: CertificateFiles, tmp_path: Path) -> None:
    """The context is not made from a pair that the check refuses."""
    other = ensure(tmp_path / "other")
    with pytest.raises(ConfigError, match="not the key"):
        tls_context(files.certificate, other.key)


def test_a_certificate_too_weak_for_openssl_is_told(tmp_path: Path) -> None:
    """What OpenSSL itself refuses is the administrator's to mend, with OpenSSL's reason."""
    subject = ["-subj", "/CN=localhost", "-days", "9"]
    outputs = ["-keyout", tmp_path / "key", "-out", tmp_path / "certificate"]
    weak = ["-newkey", "rsa:512", "-nodes"]
    made = executed("openssl", "req", "-x509", *weak, *subject, *outputs, text=False)
    if made.returncode:
        pytest.skip("this openssl makes no weak certificate")
    with pytest.raises(ConfigError):
        tls_context(tmp_path / "certificate", tmp_path / "key")
