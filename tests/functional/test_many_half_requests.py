"""3,000 requests or handshakes that begin and do not go on, beside callers who mean it."""

from __future__ import annotations

import contextlib
import resource
import socket
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.half_requests import BODY, HEAD, client_hello
from tests.support.served import Reply, post
from tests.support.waiting import LONG

pytestmark = pytest.mark.long

COUNT = 3000
BACKLOG = Path("/proc/sys/net/core/somaxconn")
CONNECT = 0.9  # seconds: after one, the kernel tries a connection again that was refused
UPLOAD = 64 << 20  # bytes, max_request_size


@pytest.fixture(scope="module", autouse=True)
def _descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 2 * COUNT or int(BACKLOG.read_text()) < COUNT:
        pytest.skip("too few descriptors, or too short a queue of the kernel")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture(scope="module")
def plugins(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "Keeps.py").write_text(
        "def do_filter(hosts, vm, properties):\n    return hosts[:1]\n"
    )
    return folder


def connect(daemon: Daemon) -> socket.socket:
    port = int(daemon.url.rpartition(":")[2])
    connection = socket.create_connection(("127.0.0.1", port), timeout=CONNECT)
    connection.settimeout(LONG)
    return connection


def secured(daemon: Daemon) -> socket.socket:
    connection, trust = connect(daemon), daemon.trust
    if trust is None:
        return connection
    return trust.wrap_socket(connection, server_hostname="localhost")


def keeps(daemon: Daemon) -> list[str]:
    """The answer of a filter on a new connection."""
    call = xmlrpc.client.dumps((["Keeps"], ["host-1", "host-2"], "vm-1", {}), "runFilters")
    with secured(daemon) as connection:
        connection.sendall(post(call.encode(), path="/design"))
        answer: list[str] = Reply(connection).value
    return answer


def begin_upload(daemon: Daemon) -> tuple[socket.socket, memoryview]:
    """A connection on which the first half of an upload was sent, and its second half."""
    rest = UPLOAD - len(xmlrpc.client.dumps(("",), "system.methodHelp"))
    request = memoryview(post(xmlrpc.client.dumps(("x" * rest,), "system.methodHelp").encode()))
    connection = secured(daemon)
    connection.sendall(request[: UPLOAD // 2])
    return connection, request[UPLOAD // 2 :]


@pytest.mark.parametrize(
    ("ssl", "half"),
    [("false", HEAD), ("false", BODY), ("true", client_hello()), ("true", client_hello()[:9])],
    ids=["heads", "bodies", "greetings", "parts of greetings"],
)
def test_good_calls_and_a_large_upload_come_through(start_daemon, plugins, ssl, half):
    daemon = start_daemon(plugins, f"ssl = {ssl}\nconnection_timeout = 120")  # of a busy machine
    with contextlib.ExitStack() as connections:
        upload, rest = begin_upload(daemon)
        connections.enter_context(upload)
        for number in range(COUNT):
            connections.enter_context(connect(daemon)).sendall(half)
            if number % (COUNT // 10) == 0:
                upload.sendall(rest[: UPLOAD // 20])
                rest = rest[UPLOAD // 20 :]
        for _ in range(10):
            assert keeps(daemon) == ["host-1"]
        upload.sendall(rest)
        reply = Reply(upload)
        assert reply.status == 200
        assert b"there is no method" in reply.body
    assert "closed for new ones before their requests had come" in daemon.log
