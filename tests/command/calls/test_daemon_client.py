"""Calls to servers that are no daemon, do not answer, or cannot be trusted."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

import pytest

from ovirt_scheduler.command.calls import commands
from ovirt_scheduler.command.calls.daemon_client import Daemon
from ovirt_scheduler.errors import BadInput, BadUsage, NoAnswer
from ovirt_scheduler.model.requests import AnswerForm
from tests.support.certificates import write_pair
from tests.support.command import run
from tests.support.waiting import LONG


class AnyPath(SimpleXMLRPCRequestHandler):
    """Answers at every path."""

    rpc_paths = ()


class Always:
    """Gives the same answer to every call."""

    def __init__(self, answer):
        self.answer = answer

    def _dispatch(self, _method, _parameters):
        return self.answer


def test_a_certificate_that_has_expired_is_told(tmp_path):
    """No --ca helps then."""
    files = write_pair(tmp_path / "tls", -1, ["localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)

    def shake_hands():
        accepted, _ = listening.accept()
        with contextlib.suppress(OSError), context.wrap_socket(accepted, server_side=True):
            pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=shake_hands)
        thread.start()
        url = f"https://localhost:{listening.getsockname()[1]}"
        with pytest.raises(NoAnswer, match="has expired; ovirt-scheduler cert renew") as caught:
            commands.discover(Daemon(url, files.certificate))
        thread.join()
    assert "--ca" not in str(caught.value)


def test_nobody_there_is_told():
    """With what to do."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NoAnswer, match="is the daemon running"):
            commands.discover(Daemon(url, None, seconds=0.2))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("localhost:18781", "begin it with https://"),
        ("https://", "then the host"),
        ("https://[::1", "Invalid IPv6 URL"),
        ("https://two..dots", "(idna|label)"),
        ("https://localhost:port", "port"),
    ],
)
def test_a_url_that_is_none_is_wrong_usage(url, told):
    """Nobody is asked."""
    with pytest.raises(BadUsage, match=f"--url .*{told}"):
        Daemon(url, None)


@pytest.mark.parametrize(
    "answer", ["<p>welcome</p>", "<params></params>", "<value><int>many</int></value>", "hello"]
)
def test_a_server_that_is_no_daemon_is_told(answer):
    """Whatever it answers to the call."""
    header = f"HTTP/1.0 200 OK\r\nContent-Type: text/xml\r\nContent-Length: {len(answer)}\r\n\r\n"

    def serve():
        caller, _ = server.accept()
        with caller:
            caller.recv(1 << 16)
            caller.sendall((header + answer).encode())

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(NoAnswer, match="is no ovirt-sched"):
            commands.discover(Daemon(url, None, seconds=0.2))
        thread.join()


OF_DAEMON = (
    "discover", "filter A --hosts demo/hosts.xml", "score A=2 --hosts demo/hosts.xml",
    "balance A --hosts demo/hosts.xml", "schedulers", "select A --hosts demo/hosts.xml", "topics",
    "schedule A b", "why web", "why --decision 1f", "decisions", "decisions -o names",
)  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    [
        "text",
        1,
        [[1]],
        [{"id": 5}],
        {"result": {"a": 1}, "plugin_errors": [1]},
        "<a><b><c/></b></a>",
    ],
)
def test_an_answer_that_is_none_of_a_daemon_is_told(tmp_path, answer):
    """Where it came from, to which call it came, and what it is."""
    with SimpleXMLRPCServer(("127.0.0.1", 0), AnyPath, logRequests=False) as server:
        server.register_instance(Always(answer))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        ended = [run(tmp_path, *words.split(), "--url", url) for words in OF_DAEMON]
        server.shutdown()
        thread.join()
    told = re.compile(rf"ovirt-scheduler: {url}: answers \w+ with .+, as no ovirt-.*; mend --url\n")
    for words, (status, out, err) in zip(OF_DAEMON, ended):
        assert (words, status, out) == (words, 69, "")
        assert told.fullmatch(err), err


def test_a_password_in_the_url_is_refused_and_not_repeated(tmp_path):
    """No daemon knows it."""
    for url in ("http://ada:se/cret@127.0.0.1:1", "http://ada:secret@127.0.0.1:1", "ada:secret@a"):
        told = "ovirt-scheduler: --url: leave out user and password; the daemon asks for none\n"
        assert run(tmp_path, "discover", "--url", url) == (2, "", told)


def test_somebody_who_never_answers_is_not_waited_for_for_good():
    """The connection is taken, and then there is nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for scheme in ("http", "https"):
            url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(NoAnswer, match="timed out; is the daemon running"):
                commands.discover(Daemon(url, None, seconds=0.2))


def test_an_answer_without_an_end_is_not_read_to_it():
    """Somebody else listens there, and sends for as long as they are read."""

    def send_on(listening):
        accepted, _ = listening.accept()
        with accepted, contextlib.suppress(OSError):
            accepted.sendall(b"HTTP/1.0 200 OK\r\n\r\n<methodResponse>")
            while True:
                accepted.sendall(b" " * 65536)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = threading.Thread(target=send_on, args=(listening,))
        sender.start()
        with pytest.raises(NoAnswer, match="what answers there is no ovirt-scheduler"):
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            commands.discover(Daemon(url, None, most_bytes=1 << 20))
        sender.join(LONG)


def test_a_certificate_that_cannot_be_read_is_named(tmp_path):
    """Missing, or something else."""
    for content, told in ((None, "is it running"), ("text", "no PEM certificate")):
        if content:
            (tmp_path / "ca.pem").write_text(content)
        with pytest.raises(BadInput, match=rf"ca\.pem: .*{told}"):
            Daemon("https://localhost:1", tmp_path / "ca.pem")
    with pytest.raises(
        BadInput, match="cannot be read: Is a directory; sudo ovirt-scheduler cert "
    ):
        Daemon("https://localhost:1", tmp_path)
    with pytest.raises(BadInput, match="/dev/zero: cannot be read: it is not a plain file"):
        Daemon("https://localhost:1", Path("/dev/zero"))


def test_a_refused_answer_keeps_no_connection():
    """Nor does the error, which has the daemon's words."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as aside:

        def refuse() -> None:
            channel, _ = server.accept()
            with channel:
                channel.settimeout(LONG)
                channel.recv(1 << 16)
                channel.sendall(
                    b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 10\r\n"
                    b"Content-Type: text/plain\r\n\r\nwait\n\x1bmore"
                )
                while channel.recv(1 << 16):  # until the client has ended it
                    pass

        refused = aside.submit(refuse)
        daemon = Daemon(f"http://127.0.0.1:{server.getsockname()[1]}", None)
        with pytest.raises(NoAnswer, match=r"HTTP 503 Busy: wait \ufffdmore$") as caught:
            daemon(AnswerForm.DESIGN, "discover")
        refused.result(LONG)
        assert caught.value
