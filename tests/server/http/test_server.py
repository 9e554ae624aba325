"""The server as clients see it: calls, many at once, start and stop, and the log of it."""

from __future__ import annotations

import logging
import re
import resource
import select
import shutil
import socket
import socketserver
import threading
import time
import xmlrpc.client
import xmlrpc.server
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.model.requests import AnswerForm
from ovirt_scheduler.server.dispatch import Method
from ovirt_scheduler.server.http.server import SchedulerServer
from tests.support.command import executed
from tests.support.paths import WIRE
from tests.support.served import (
    CALL,
    SETTINGS,
    Reply,
    Running,
    ask,
    at_end,
    messages,
    methods,
    post,
)
from tests.support.waiting import LONG, wait_until

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
        assert proxy.echo(["h\u00e9", 1, [2.5, {"k": True}]]) == ["h\u00e9", 1, [2.5, {"k": True}]]
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
    head, _, body = sample.read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
    # What recorded them left of the client's line ends no more than LF.
    reply = ask(running, head.replace(b"\n", b"\r\n") + b"\r\n\r\n" + body)
    assert reply.status == 200
    with pytest.raises(xmlrpc.client.Fault, match=f"no method .{sample.stem}"):
        xmlrpc.client.loads(reply.body)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_is_served(secure: Running, tmp_path: Path) -> None:
    """curl verifies the certificate, posts in chunks after 100 Continue, and reads the answer."""
    (tmp_path / "body").write_bytes(xmlrpc.client.dumps(("x" * 100_000,), "length").encode())
    assert secure.files is not None
    options = f"""
        cacert = {secure.files.certificate}
        data-binary = @{tmp_path / "body"}
        header = "Content-Type: text/xml"
        header = "Transfer-Encoding: chunked"
        header = "Expect: 100-continue"
        max-time = 30
        """
    words = ("--silent", "--show-error", "--config", "-", f"{secure.server.url}/engine")
    done = executed("curl", *words, input=options, check=True)
    assert xmlrpc.client.loads(done.stdout) == ((100_000,), None)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_is_served(secure: Running) -> None:
    """openssl's client verifies the certificate and gets its answer."""
    assert secure.files is not None
    trust = ["-CAfile", secure.files.certificate, "-verify_return_error"]
    words = ["-quiet", "-connect", f"127.0.0.1:{secure.port}", "-verify_hostname", "localhost"]
    request = post(Connection="close")
    done = executed("openssl", "s_client", *words, *trust, input=request, text=False, check=True)
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
    connection = plain.sent(post(xmlrpc.client.dumps((), "peer").encode()))
    assert Reply(connection).value == f"127.0.0.1:{connection.getsockname()[1]}"


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"", -32700), (b"hello", -32700), (xmlrpc.client.dumps((), "nothing").encode(), -32601)],
)
def test_a_bad_call_is_a_fault_on_an_open_connection(
    running: Running, body: bytes, code: int
) -> None:
    """Faults come with HTTP 200, and the connection stays."""
    connection = running.sent(post(body))
    reply = Reply(connection)
    assert reply.status == 200
    with pytest.raises(xmlrpc.client.Fault) as caught:
        xmlrpc.client.loads(reply.body)
    assert caught.value.faultCode == code
    connection.sendall(post())
    assert Reply(connection).value == "design"


# Many


def test_128_clients_at_once_are_served(running: Running) -> None:
    """Nobody is turned away or waits for a connection to be tried again."""
    barrier = threading.Barrier(128)

    def call(number: int) -> Any:
        barrier.wait(LONG)
        connection = running.sent(post(xmlrpc.client.dumps((number,), "echo").encode()))
        return Reply(connection).value

    with ThreadPoolExecutor(128) as pool:
        assert list(pool.map(call, range(128))) == [*range(128)]


def test_calls_run_side_by_side(running: Running) -> None:
    """A call that takes long delays no other connection."""
    slow = running.held()
    assert ask(running, post()).value == "design"
    running.gate.go_on.set()
    assert Reply(slow).value == "done"


def test_the_longest_idle_connection_makes_room(start: Callable[..., Running]) -> None:
    """With all connections taken a new one is served in place of the longest idle."""
    running = start(replace(SETTINGS, max_connections=2))
    first = running.kept()
    assert running.server.connections.wait_until_idle(time.monotonic() + 30)
    second = running.kept()
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
    busy = running.sent(post(xmlrpc.client.dumps((), "gate").encode(), Connection="close"))
    assert running.gate.entered.acquire(timeout=LONG)
    waiting = running.sent(post())
    waiting.settimeout(0.2)
    with pytest.raises(OSError):
        waiting.recv(1)
    waiting.settimeout(LONG)
    running.gate.go_on.set()
    assert Reply(busy).value == "done"
    assert Reply(waiting).value == "design"


def test_a_lack_of_descriptors_is_survived(
    plain: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """An idle connection gives its descriptor back, and accepting goes on; the log has one line."""
    idle = [plain.kept() for _ in range(2)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as first, socket.socket() as second, Path("/dev/null").open() as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, limits[1]))
        try:
            for new, former in zip((first, second), idle):
                new.settimeout(LONG)
                new.connect(("127.0.0.1", plain.port))
                new.sendall(post())
                assert at_end(former)
                assert Reply(new).value == "design"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
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
    assert running.server.socket.getsockname()[0] == "127.0.0.1"


def test_ipv6_is_served(start: Callable[..., Running]) -> None:
    """An IPv6 address is listened on, and in brackets in the URL."""
    try:
        running = start(replace(SETTINGS, address="::1"))
    except ConfigError:
        pytest.skip("no IPv6 here")
    assert running.server.url == f"http://[::1]:{running.port}"
    with running.proxy() as proxy:
        assert re.fullmatch(r"\[::1\]:\d+", str(proxy.peer()))


def test_a_method_can_be_registered_with_the_server(plain: Running) -> None:
    """As with every SimpleXMLRPCServer."""
    plain.server.register_function(Method("added", (), ("string",), "", lambda *_: "here"))
    with plain.proxy() as proxy:
        assert proxy.added() == "here"


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
    """The call is answered, idle connections end, new ones are refused; then all end."""
    idle, under_way = running.kept(), running.held()
    stopping = threading.Thread(target=running.server.stop, args=[30])
    stopping.start()
    running.thread.join(LONG)  # nothing is accepted any more
    with pytest.raises(OSError):
        running.raw()
    assert at_end(idle)
    running.gate.go_on.set()
    reply = Reply(under_way)
    assert reply.headers["Connection"] == "close"
    assert reply.value == "done"
    stopping.join(LONG)
    assert not stopping.is_alive()


def test_stopping_ends_what_takes_too_long_and_its_caller_is_answered(
    plain: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """After the grace; the log says so."""
    connection = plain.held()
    plain.server.stop(0.1, end_calls=plain.gate.go_on.set)
    assert Reply(connection).value == "done"
    assert any("cut off" in line for line in messages(caplog))


def test_stopping_breaks_the_connection_of_what_cannot_be_ended(
    plain: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is waited for without end."""
    connection = plain.held()
    plain.server.stop(0.1)
    assert at_end(connection)
    assert any("left behind" in line for line in messages(caplog))


def test_stopping_does_not_wait_for_idle_connections(running: Running) -> None:
    """Connections without a request, fresh or kept, end at once."""
    kept, _fresh, _raw = running.kept(), running.connect(), running.raw()
    started = time.monotonic()
    running.server.stop(60)
    assert time.monotonic() - started < 30
    assert at_end(kept)


def test_what_is_accepted_last_has_only_the_rest_of_the_grace(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for the last client that finds no room is part of the grace."""
    running = start(replace(SETTINGS, max_connections=1))
    running.held()
    running.raw()
    wait_until(lambda: not select.select([running.server.socket], [], [], 0)[0])  # it is accepted
    seconds_left: list[float] = []

    def drain(*deadlines: float) -> None:
        seconds_left.append(max(deadlines) - time.monotonic())

    monkeypatch.setattr(running.server.connections, "drain", drain)
    running.server.stop(0.1, end_calls=running.gate.go_on.set)
    assert seconds_left[0] <= 0


def test_it_is_a_server_of_the_standard_library() -> None:
    """Programs that embed it find the stock names: ``serve_forever``, ``shutdown``."""
    stock = (socketserver.ThreadingMixIn, xmlrpc.server.SimpleXMLRPCServer)
    assert SchedulerServer.__mro__[1] is stock[0]
    assert issubclass(SchedulerServer, stock[1])
    server = SchedulerServer(SETTINGS, [])
    server.shutdown()
    assert server.socket.fileno() == -1


def test_stopping_a_server_that_never_served_ends() -> None:
    """At once, as no load balancer has to notice; and it leaves nothing behind."""
    server = SchedulerServer(SETTINGS, [])
    stopping = threading.Thread(target=server.stop, args=[0], kwargs={"drain": 2 * LONG})
    stopping.daemon = True
    stopping.start()
    stopping.join(LONG)
    assert not stopping.is_alive()
    server.serve_forever()
    assert server.socket.fileno() == -1


def test_new_settings_have_room_for_their_own_largest_bodies(start: Callable[..., Running]) -> None:
    """One that alone is larger than all that there was room for before."""
    running = start(replace(SETTINGS, max_request_size=1024))
    largest = 64 << 10
    running.server.renew(replace(SETTINGS, max_request_size=largest), methods(running.gate))
    assert ask(running, post(CALL.ljust(largest))).value == "design"


# The log


def test_requests_are_logged(plain: Running, caplog: pytest.LogCaptureFixture) -> None:
    """One line for each, refused ones too, with an id of its own; bodies are not in it."""
    caplog.set_level(logging.INFO)
    connection = plain.connect()
    for _ in range(2):
        connection.sendall(post(xmlrpc.client.dumps(("secret",), "echo").encode()))
        Reply(connection)
    assert ask(plain, post(path="/x")).status == 404
    assert ask(plain, post(path="/x\x1b[31m")).status == 400
    lines = messages(caplog, logging.INFO)
    assert len(lines) == 4
    ids = {re.match("request ([0-9a-f]{16}) ", line)[1] for line in lines}  # type: ignore[index]
    assert len(ids) == 4
    assert "'POST /x', 127.0.0.1" in lines[2]
    assert "HTTP 404" in lines[2]
    assert "HTTP 400" in lines[3]
    assert "\x1b" not in "".join(lines)
    assert "secret" not in caplog.text


def test_nothing_is_printed(plain: Running, capfd: pytest.CaptureFixture[str]) -> None:
    """The standard server's own messages to standard error are off."""
    ask(plain, post())
    ask(plain, b"hello\r\n\r\n")
    ask(plain, post(xmlrpc.client.dumps((), "fail").encode()))
    plain.end()
    assert capfd.readouterr() == ("", "")
