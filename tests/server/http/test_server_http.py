"""What the server understands of HTTP, and what it refuses."""

from __future__ import annotations

import gzip
import socket
import xmlrpc.client
from dataclasses import replace
from typing import Callable

import pytest

from ovirt_scheduler.security.certificates import CertificateFiles
from ovirt_scheduler.server.http.routes import Response
from ovirt_scheduler.server.http.tls import TlsContext
from tests.support.served import (
    CALL,
    HASTY,
    SETTINGS,
    Reply,
    Running,
    ask,
    at_end,
    messages,
    post,
    replies,
)
from tests.support.waiting import LONG

_TEXT = {"Content-Type": "text/plain"}

# HTTP


def test_requests_may_be_sent_ahead(running: Running) -> None:
    """Pipelined requests are answered in their order."""
    connection = running.connect()
    calls = [post(xmlrpc.client.dumps((number,), "echo").encode()) for number in range(20)]
    connection.sendall(b"".join(calls))
    assert [reply.value for reply in replies(connection, 20)] == [*range(20)]


def test_an_empty_line_between_requests_is_passed_over(plain: Running) -> None:
    """Some clients end a body with one more line end."""
    connection = plain.sent(post() + b"\r\n" + post())
    assert [reply.value for reply in replies(connection, 2)] == ["design", "design"]


def test_a_client_that_goes_has_made_no_request(
    plain: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither before its first one nor after it: no answer, and no warning."""
    for connection in (plain.connect(), plain.kept()):
        connection.shutdown(socket.SHUT_WR)
        assert at_end(connection)
    plain.end()
    assert messages(caplog) == []


def test_a_half_closed_connection_gets_its_answer(plain: Running) -> None:
    """A client that has said all it wants to say is still answered."""
    connection = plain.sent(post())
    connection.shutdown(socket.SHUT_WR)
    assert Reply(connection).value == "design"
    assert at_end(connection)


@pytest.mark.parametrize(
    "asked",
    ["close", "Close", "TE, close", "close,x", "keep-alive ,\tclose", "TE\r\nConnection: close"],
)
def test_a_client_may_ask_to_close(running: Running, asked: str) -> None:
    """Connection is a list, and close in it ends the connection after the answer, cleanly."""
    connection = running.sent(post(Connection=asked))
    reply = Reply(connection)
    assert reply.value == "design"
    assert reply.headers["Connection"] == "close"
    assert at_end(connection)


def test_old_http_ends_the_connection(plain: Running) -> None:
    """A client of HTTP/1.0 is served, and its connection ends after the answer."""
    old = post(Connection="keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0")
    connection = plain.sent(old)
    reply = Reply(connection)
    assert (reply.value, reply.headers["Connection"]) == ("design", "close")
    assert at_end(connection)


def chunked(body: bytes, **headers: str) -> bytes:
    coded = b"%x;extension=1\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (len(body), body)
    return post(b"", Content_Length="", Transfer_Encoding="chunked", **headers) + coded


def test_the_client_is_told_to_go_on(running: Running) -> None:
    """Expect: 100-continue is answered before the body is sent."""
    connection = running.sent(post(Expect="100-continue")[: -len(CALL)])
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


@pytest.mark.parametrize("path", ["/x", "/engine/", "/RPC3", "/../", "/%2f", "*", "/a" * 200])
def test_other_paths_are_not_found(running: Running, path: str) -> None:
    """404, with the paths that there are, whatever the verb."""
    for verb in ("POST", "GET"):
        reply = ask(running, post(path=path).replace(b"POST", verb.encode()))
        assert reply.status == 404
        assert "/design, /engine" in reply.text


def test_a_route_answers_the_paths_that_begin_with_its_name(start: Callable[..., Running]) -> None:
    """With and without an ending, in place of calls; it gets no other verb than GET and HEAD."""
    routes = {"notes": lambda path, query, *_: Response(200, f"{path}?{query}".encode(), _TEXT)}
    running = start(replace(SETTINGS, routes=routes))
    for path in ("/notes", "/notes.json", "/notes/1"):
        reply = ask(running, f"GET {path}?a=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode(), "GET")
        assert (reply.status, reply.text) == (200, f"{path}?a=1")
        refusal = ask(running, post(path=path))
        assert (refusal.status, refusal.headers["Allow"]) == (405, "GET, HEAD")
    assert ask(running, post(path="/note")).status == 404
    assert ask(running, post()).status == 200


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
        (post(Transfer_Encoding="chunked"), 400),
        (post(Content_Length="5\r\nContent-Length: 6"), 400),
        (post(b"", Content_Length="", Transfer_Encoding="gzip"), 501),
        (post(Content_Length="5 \r\nNo Header Line"), 400),
        (post(**{"Content-Length ": "5"}), 400),
        (post().replace(b"\r\n", b"\n"), 400),
        (post().replace(b"\r\nHost", b"\nHost"), 400),
        (post().replace(b"\r\n\r\n", b"\n\r\n"), 400),
        (post().replace(b"\r\n\r\n", b"\r\n\n"), 400),
        (b"\n" + post(), 400),
        (b" " + post(), 400),
        (post(X="a\rb"), 400),
        (post(X="a\0b"), 400),
        (post(X="a\x0bb"), 400),
        (post(X="a\x7fb"), 400),
        (post(X="a\r\n folded"), 400),
        (post(X="a\r\n\tfolded"), 400),
        (post(**{" X": "first"}), 400),
        (post(**{"X\x0b": "x"}), 400),
        (post(**{"": "x"}), 400),
        (post().replace(b"/1.1", b"/1.10"), 400),
        (post().replace(b"/1.1", b"/01.1"), 400),
        (post().replace(b"/1.1", b"/1.1 "), 400),
        (post().replace(b"POST /", b"POST  /"), 400),
        (post().replace(b"POST /", b"POST\t/"), 400),
        (post(path="/\x7f"), 400),
        (post().replace(b"/1.1", b"/0.9"), 505),
        *[
            (chunked(CALL).replace(b"Encoding: chunked", b"Encoding" + odd), status)
            for odd, status in (
                (b" : chunked", 400),
                (b": \x0bchunked", 400),
                (b": chunked\x0c", 400),
                (b": chunked\xa0", 501),
                (b": \x85chunked", 501),
                (b": chun ked", 501),
                (b": ", 501),
                (b": ,chunked", 501),
                (b":\r\n chunked", 400),
                (b": chunked\r", 400),
            )
        ],
        (chunked(CALL, X=f"x\r\nContent-Length: {len(CALL)}"), 400),
        (chunked(CALL).replace(b"HTTP/1.1", b"HTTP/1.0"), 400),
        (chunked(CALL).replace(b";extension=1", b";extension=\r1"), 400),
        (chunked(CALL).replace(b";extension=1", b"\x0b"), 400),
        (chunked(CALL).replace(b";extension=1\r", b";extension=1"), 400),
        (chunked(CALL).replace(b"Trailer: x", b"Trailer: \0"), 400),
        (post(Content_Length=f"{len(CALL)}\xa0"), 400),
        (post(Content_Length=f"{len(CALL)}, {len(CALL)}"), 400),
        (post(b"", Content_Length="", Transfer_Encoding="chunked, chunked"), 501),
        (post(Origin="http://localhost:18781"), 403),
        (post(Origin="null"), 403),
        (post(Origin=" "), 403),
        (post().replace(b"Host: localhost", b"Host: localhost\r\nhost: localhost"), 400),
        (post(path="/design#there"), 400),
        (post(path="http://["), 404),
        (post(path="ftp://localhost/design"), 404),
        (b"hello\r\n\r\n", 400),
        (b"\x00\xff\r\n\r\n", 400),
        (b"POST /\r\n\r\n", 400),
        (b"POST / HTTP/x.y\r\n\r\n", 400),
        (b"POST / HTTP/2.0\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"POST / / HTTP/1.1\r\n\r\n", 400),
        (b"POST /\r\nHost: x\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"POST /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (post(X="x" * 70_000), 431),
        (post(X="x" * 40_000, Y="y" * 40_000), 431),
        (post(**{f"X{number}": "x" for number in range(99)}), 431),
    ],
)
def test_a_bad_request_is_refused_in_plain_text(
    plain: Running, request_bytes: bytes, status: int
) -> None:
    """The status fits, a short text says what is wrong, and the connection is closed cleanly.

    What follows is not taken for a request.
    """
    connection = plain.sent(request_bytes + post())
    reply = Reply(connection)
    assert reply.status == status
    assert reply.headers["Content-Type"].startswith("text/plain")
    assert 10 < len(reply.text) < 300
    assert reply.headers["Connection"] == "close"
    assert at_end(connection)


@pytest.mark.parametrize("way", [post, chunked])
def test_a_body_past_the_limit_is_refused(
    start: Callable[..., Running],
    context: TlsContext,
    files: CertificateFiles,
    way: Callable[[bytes], bytes],
) -> None:
    """413 reaches even a client that sends all of its body before it reads."""
    limited = replace(SETTINGS, max_request_size=10_000)
    for running in (start(limited), start(replace(limited, tls=context), files)):
        connection = running.sent(way(b"x" * 20_000_000))
        reply = Reply(connection)
        assert reply.status == 413
        assert "max_request_size" in reply.text
        assert at_end(connection)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_there_is_room_for_so_many_large_bodies_at_one_time(
    start: Callable[..., Running], pack: Callable[[bytes], bytes]
) -> None:
    """503 beyond it; the room is given back with the answers."""
    running = start(replace(SETTINGS, max_request_size=1024))
    coding = {"Content_Encoding": "gzip"} if pack is gzip.compress else {}
    large = post(pack(xmlrpc.client.dumps((), "gate").encode().ljust(1024)), **coding)
    connections = [running.connect() for _ in range(16)]
    for connection in connections:
        connection.sendall(large)
        assert running.gate.entered.acquire(timeout=LONG)
    reply = ask(running, large)
    assert reply.status == 503
    assert "try it later" in reply.text
    running.gate.go_on.set()
    for connection in connections:
        assert Reply(connection).value == "done"
        connection.sendall(large)
        assert Reply(connection).value == "done"
    assert ask(running, large).value == "done"


@pytest.mark.parametrize(
    ("request_bytes", "is_cut", "status"),
    [
        (post(b" " * 1000, Content_Length="1100"), True, 400),
        (chunked(b" " * 1000)[:-5], True, 400),
        (chunked(b" " * 1000).replace(b"\r\n0\r\n", b"\r\n40\r\n"), True, 400),
        (chunked(b" " * 1000)[:-5], False, 408),
        (post(gzip.compress(bytes(1000))[:-4], Content_Encoding="gzip"), False, 400),
        (chunked(b" " * 1101), False, 413),
        (post(b"<methodCall>".ljust(1000)), False, 200),
    ],
    ids=["cut", "cut before the last chunk", "cut in a chunk", "late", "gzip", "large", "no call"],
)
def test_the_room_of_a_body_that_is_cut_or_refused_is_given_back(
    start: Callable[..., Running], request_bytes: bytes, is_cut: bool, status: int
) -> None:
    running = start(replace(HASTY, max_request_size=1100))
    for _ in range(3):  # 36 bodies; there is room for 16
        connections = [running.sent(request_bytes) for _ in range(12)]
        for connection in connections:
            if is_cut:
                connection.shutdown(socket.SHUT_WR)
            assert Reply(connection).status == status
    assert ask(running, post(CALL.ljust(1100))).value == "design"


@pytest.mark.parametrize(
    "request_bytes",
    [
        chunked(CALL),
        chunked(gzip.compress(CALL), Content_Encoding="gzip"),
        post(gzip.compress(CALL), Content_Encoding="x-gzip"),
        post(X="\t a\tb \xe9 "),
        post(**{"content-LENGTH": f" \t{len(CALL)}\t ", "Content_Length": ""}),
        post(Transfer_Encoding="\t Chunked ", Content_Length="").replace(
            CALL, b"%X \t\r\n%s\r\n0\r\n\r\n" % (len(CALL), CALL)
        ),
        post().replace(b"HTTP/1.1", b"HTTP/1.7"),
        post().replace(b"Host: localhost", b"Host:"),
        post().replace(b"Host: localhost\r\n", b""),
        post(path="HTTP://localhost:18781/design?a=http://b"),
        post(path="//design"),
        post(**{f"X{number}": "x" for number in range(98)}),
    ],
)
def test_what_http_allows_is_taken(running: Running, request_bytes: bytes) -> None:
    """Chunks, gzip, spaces and tabs, any case, whole addresses, HTTP/1.7, 100 headers."""
    connection = running.sent(request_bytes + post())
    assert [reply.value for reply in replies(connection, 2)] == ["design", "design"]


@pytest.mark.parametrize("sent", [b"POST / HTTP/1.1", b"POST / HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_ends_early_is_told(plain: Running, sent: bytes) -> None:
    """It is no whole head, so nothing is done for it."""
    connection = plain.sent(sent)
    connection.shutdown(socket.SHUT_WR)
    assert Reply(connection).status == 400
    assert at_end(connection)


def test_a_body_that_ends_early_is_told(plain: Running) -> None:
    """A client that stops in the middle, and still reads, gets a reason."""
    connection = plain.sent(post()[:-10])
    connection.shutdown(socket.SHUT_WR)
    reply = Reply(connection)
    assert reply.status == 400
    assert "10 bytes before" in reply.text
