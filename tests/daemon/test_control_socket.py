"""The control socket: one line of JSON comes, one goes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import socketserver
import stat
import time

import pytest

from ovirt_scheduler import __version__
from ovirt_scheduler.daemon.control_socket import ControlSocket, short_name
from ovirt_scheduler.errors import BadParameters
from tests.support.command import script
from tests.support.waiting import LONG


def refuse(asked, user):
    raise BadParameters(f"not {asked['what']}")


@pytest.fixture
def path(tmp_path):
    """Of a socket that answers; its name is longer than that of a socket may be."""
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    commands = {"who": lambda _asked, user: {"user": user}, "refuse": refuse}
    control = ControlSocket(folder / "control", commands)
    control.start()
    yield folder / "control"
    control.close()
    assert not (folder / "control").exists()


def ask(path, line):
    with socket.socket(socket.AF_UNIX) as channel, short_name(path) as name:
        channel.settimeout(LONG)
        channel.connect(name)
        channel.sendall(line)
        with channel.makefile() as file:
            reply = json.loads(file.readline())
    assert reply.pop("version") == __version__
    return reply


def test_a_question_is_answered(path):
    """With who asked, as the kernel says it; the socket is its owner's alone."""
    assert ask(path, b'{"command": "who"}\n') == {"answer": {"user": os.geteuid()}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "line", [b"\n", b"who\n", b"[]\n", b'{"command": "other"}\n', b'{"command": []}\n',
             b"[" * 60_000 + b"\n", b'{"command": "who"' + b" " * 70_000],
)  # fmt: skip
def test_what_is_no_question_is_told(path, line):
    """And what there is to ask."""
    expected = "expected a line of JSON with a command, one of refuse, who"
    assert ask(path, line) == {"error": expected}


def test_a_question_that_comes_byte_by_byte_has_one_time_for_all_of_it(tmp_path):
    """Else it would keep a thread for as long as it likes."""
    control = ControlSocket(tmp_path / "control", {}, seconds=0.5)
    control.start()
    with contextlib.ExitStack() as stack:
        stack.callback(control.close)
        channel = stack.enter_context(socket.socket(socket.AF_UNIX))
        name = stack.enter_context(short_name(tmp_path / "control"))
        channel.settimeout(0.05)
        channel.connect(name)
        give_up = time.monotonic() + LONG
        while time.monotonic() < give_up:
            try:
                channel.sendall(b" ")
                assert channel.recv(1) == b""
            except socket.timeout:
                continue
            except ConnectionError:
                pass
            return
    pytest.fail("it is still read")


def test_a_refusal_is_told(path):
    """With its reason, and the next question is answered."""
    assert ask(path, b'{"command": "refuse", "what": "now"}\n') == {"error": "not now"}
    assert "answer" in ask(path, b'{"command": "who"}\n')


def test_a_failure_is_told_and_its_reason_logged(path, caplog):
    """Who gets no answer would take the daemon for ended."""
    assert ask(path, b'{"command": "refuse"}\n') == {  # which lacks what it asks for
        "error": "the daemon failed to answer; its log says why"
    }
    assert "this is a bug" in caplog.text
    assert "KeyError: 'what'" in caplog.text
    assert "answer" in ask(path, b'{"command": "who"}\n')


def test_a_socket_that_a_killed_daemon_left_is_in_nobodys_way(tmp_path):
    """Another one takes its place."""
    with socket.socket(socket.AF_UNIX) as left, short_name(tmp_path / "control") as name:
        left.bind(name)
    control = ControlSocket(tmp_path / "control", {"who": lambda _asked, user: user})
    control.start()
    assert ask(tmp_path / "control", b'{"command": "who"}\n') == {"answer": os.geteuid()}
    control.close()


def test_many_may_ask_at_once(tmp_path):
    """More than five, which is where the standard library's servers refuse."""
    control = ControlSocket(tmp_path / "control", {"who": lambda _asked, user: user})
    with contextlib.ExitStack() as stack:
        channels = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(40)]
        for channel in channels:
            channel.settimeout(LONG)
            channel.connect(str(tmp_path / "control"))
            channel.sendall(b'{"command": "who"}\n')
        control.start()
        stack.callback(control.close)
        expected = b'{"answer": %d, "version": "%s"}\n' % (os.geteuid(), __version__.encode())
        assert [channel.recv(100) for channel in channels] == [expected] * 40


def test_a_lack_of_descriptors_keeps_no_processor_busy(path, monkeypatch):
    """It is tried again after a pause, until there is one."""
    tries = []
    accept = socketserver.UnixStreamServer.get_request

    def refuse(server):
        tries.append(time.monotonic())
        if len(tries) < 4:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(server)

    monkeypatch.setattr(socketserver.UnixStreamServer, "get_request", refuse)
    assert "answer" in ask(path, b'{"command": "who"}\n')
    assert tries[3] - tries[0] > 0.5


ANOTHER = """
import os, socket, sys
channel = socket.socket(socket.AF_UNIX)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
channel.connect("control")
channel.sendall(b'{"command": "who"}\\n')
sys.stdout.write(channel.makefile().readline())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_user_is_refused_even_where_the_socket_lets_him_in(path):
    """The kernel says who asks."""
    path.parent.chmod(0o755)
    path.chmod(0o666)
    told = json.loads(script(ANOTHER, cwd=path.parent).stdout)["error"]
    assert told == "only root and the daemon's user may ask here"
