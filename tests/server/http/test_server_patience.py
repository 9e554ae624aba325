"""Clients that do not speak as expected, or are slow, silent or gone: TLS, plain text, time."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import struct
import threading
import time
import xmlrpc.client
from dataclasses import replace
from pathlib import Path
from typing import Callable

import pytest

from ovirt_scheduler.security.certificates import CertificateFiles, ensure
from ovirt_scheduler.server.http.request_reader import Room
from ovirt_scheduler.server.http.tls import TlsContext, tls_context
from ovirt_scheduler.server.pages.daemon_state import UnloadedFile
from tests.support.served import HASTY, SETTINGS, Reply, Running, ask, at_end, messages, post
from tests.support.site import MadeSite
from tests.support.waiting import LONG, wait_until

PATIENT = replace(HASTY, connection_timeout=1)  # a busy machine may take 0.2 s to send a request

# TLS and plain


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
    (line,) = wait_until(lambda: messages(caplog))
    assert "no TLS handshake: " in line


def test_a_new_context_is_for_new_connections(
    secure: Running, tmp_path: Path, files: CertificateFiles
) -> None:
    """A reload replaces the certificate; connections that are open go on."""
    connection = secure.connect()
    other = ensure(tmp_path / "other")
    secure.server.settings = replace(secure.server.settings, tls=tls_context(*other))
    connection.sendall(post())
    assert Reply(connection).value == "design"
    secure.files = other
    assert ask(secure, post()).value == "design"


# Time


def test_a_silent_connection_is_cut(hasty: Running) -> None:
    """Who connects and says nothing is let go."""
    assert at_end(hasty.connect())


def test_a_silent_handshake_is_cut(
    start: Callable[..., Running], context: TlsContext, files: CertificateFiles
) -> None:
    """A client that stops before, or within, its handshake is let go, and delays nobody."""
    running = start(replace(HASTY, tls=context, connection_timeout=2, idle_timeout=30), files)
    silent, stuck = running.raw(), running.raw()
    stuck.sendall(b"\x16\x03\x01\x02\x00")
    assert ask(running, post()).value == "design"
    assert at_end(silent)
    assert at_end(stuck)


def test_an_idle_connection_is_cut_when_its_time_is_over(start: Callable[..., Running]) -> None:
    """And not at some later time: each holds a thread."""
    running = start(replace(SETTINGS, idle_timeout=2))
    connection = running.kept()
    connection.settimeout(12)
    assert at_end(connection)


@pytest.mark.long
def test_a_large_answer_arrives_after_a_long_call(start: Callable[..., Running]) -> None:
    """The call's time is not the answer's: it may last longer than a request may take to arrive."""
    running = start(replace(SETTINGS, connection_timeout=2))
    running.gate.answer = "long" * 5_000_000
    connection = running.held()
    connection.settimeout(2.2)
    with pytest.raises(OSError):
        connection.recv(1)
    connection.settimeout(LONG)
    running.gate.go_on.set()
    assert Reply(connection).value == running.gate.answer


def test_a_kept_connection_may_idle_longer_than_a_request_may_take(
    start: Callable[..., Running],
) -> None:
    """The two times are apart."""
    running = start(replace(PATIENT, idle_timeout=30))
    connection = running.kept()
    connection.settimeout(1.5 * PATIENT.connection_timeout)
    with pytest.raises(OSError):
        connection.recv(1)
    connection.settimeout(LONG)
    connection.sendall(post())
    assert Reply(connection).value == "design"


@pytest.mark.parametrize("sent", [b"P", b"POST / HTTP/1.1\r\nX: ", post()[:-1], post()[:-50]])
def test_a_request_that_stops_is_cut(hasty: Running, sent: bytes) -> None:
    """408 tells a client that its request did not arrive in time."""
    connection = hasty.sent(sent)
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
    thread.join(LONG)
    assert reply.status == 408


def test_a_client_that_does_not_read_is_cut(start: Callable[..., Running]) -> None:
    """An answer that nobody takes does not hold its thread."""
    running = start(replace(SETTINGS, answer_timeout=1))
    connection = running.raw()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(post(xmlrpc.client.dumps(("abc", 10_000_000), "repeat").encode()))
    assert connection.recv(1) == b"H"  # the answer has begun
    assert running.server.connections.wait_until_idle(time.monotonic() + 30)


def test_a_page_that_nobody_takes_is_cut(
    start: Callable[..., Running], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log does not say that the request, which came in time, did not."""
    caplog.set_level(logging.INFO)
    site = MadeSite(tmp_path, unloaded=(UnloadedFile("x.py", "x" * 20_000_000),)).site
    running = start(replace(SETTINGS, answer_timeout=1, routes=site.routes()))
    connection = running.raw()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert connection.recv(1) == b"H"  # the answer has begun
    assert running.server.connections.wait_until_idle(time.monotonic() + 30)
    running.end()
    assert messages(caplog, logging.INFO) == []


def test_a_reset_is_no_error(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """A client that breaks the connection, before or during its call, is not worth a warning."""
    for sent in (b"", b"PO", post()[:-5], post(xmlrpc.client.dumps((), "gate").encode())):
        connection = running.sent(sent)
        if b"gate" in sent:
            assert running.gate.entered.acquire(timeout=LONG)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    running.end()
    assert messages(caplog) == []


@pytest.mark.parametrize("error", [OSError("no"), ZeroDivisionError("no")])
def test_a_page_that_cannot_be_made_is_answered(
    start: Callable[..., Running],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    """With 500; the log has the error under the request's id."""

    def fail() -> str:
        raise error

    running = start(replace(SETTINGS, routes=replace(MadeSite(tmp_path).site, stuck=fail).routes()))
    reply = ask(running, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (reply.status, reply.text) == (500, "internal error; the daemon's log has more\n")
    assert messages(caplog) == [f"request {reply.headers['X-Request-Id']} failed, this is a bug"]


def test_large_answers_that_nobody_takes_are_bounded_in_sum(start: Callable[..., Running]) -> None:
    """A further one is refused; small ones are answered; who takes an answer makes room again."""
    size = 10_000_000  # characters of an answer, more than the kernel holds
    running = start(SETTINGS)
    running.server.answers = Room(2 * size)
    call = post(xmlrpc.client.dumps(("x", size), "repeat").encode())
    first = running.sent(call)
    assert first.recv(1) == b"H"  # the answer has begun
    refused = ask(running, call)
    assert (refused.status, refused.text.partition(",")[0]) == (
        503,
        "large answers are not taken yet",
    )
    assert ask(running, post()).value == "design"
    assert len(first.makefile("rb").read(size)) == size
    wait_until(lambda: ask(running, call).status == 200)
