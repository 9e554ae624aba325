"""A restart that nobody notices: the listening socket is kept by who started the daemon."""

from __future__ import annotations

import array
import socket
import time
from functools import partial
from pathlib import Path
from typing import Optional
from xmlrpc.client import ServerProxy

import pytest

from tests.support.clients import Clients
from tests.support.daemon import Daemon, reserved_port, under_manager
from tests.support.waiting import LONG, wait_until

CLIENTS = 16
KEEPS = "def do_filter(hosts, vm, properties):\n    return hosts[:1]\n"


class Manager:
    """Plays systemd's part: keeps the socket that the daemon hands over, and hands it on.

    Args:
        settings: further lines of scheduler.conf.
    """

    def __init__(self, folder: Path, settings: str = "") -> None:
        self.folder, self.kept = folder, None
        self.messages: list[bytes] = []
        self._settings, self.port = settings, 0
        (folder / "plugins").mkdir()
        (folder / "plugins" / "Keeps.py").write_text(KEEPS)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._socket.settimeout(LONG)
        self.daemon: Optional[Daemon] = None

    def start(self) -> str:
        """Start a daemon, and wait until it is ready; gives the URL that it tells."""
        given = [] if self.kept is None else [self.kept.fileno()]
        before = under_manager(self.folder / "notify", *given)
        settings = f"ssl = false\nlistening_address = 127.0.0.1\n{self._settings}"
        self.daemon = Daemon(
            self.folder, self.folder / "plugins", settings, [], before, self.port, given
        )
        while b"READY=1" not in self.receive():
            pass
        return self.daemon.url

    def receive(self) -> bytes:
        """The next message, and keep what comes with it."""
        room = array.array("i", [0])
        message, ancillary, _, _ = self._socket.recvmsg(4096, socket.CMSG_LEN(room.itemsize))
        self.messages.append(message)
        if b"FDSTOREREMOVE=1" in message and self.kept is not None:
            self.kept.close()
            self.kept = None
        for _, _, data in ancillary:
            room = array.array("i")
            room.frombytes(data[: room.itemsize])
            self.kept = socket.socket(fileno=room[0])
        return message

    def stop(self) -> None:
        assert self.daemon is not None
        assert self.daemon.stop() == 0

    def close(self) -> None:
        if self.daemon is not None:
            self.stop()
        self._socket.close()
        if self.kept is not None:
            self.kept.close()


@pytest.fixture
def manager(tmp_path):
    playing = Manager(tmp_path)
    yield playing
    playing.close()


class Callers(Clients):
    """Clients that call without a pause, half of them on a new connection each time."""

    def __init__(self, url: str) -> None:
        super().__init__([partial(self._call, number % 2 == 0) for number in range(CLIENTS)])
        self._url = url
        self.answered = 0
        self.failures: list[str] = []

    def _call(self, keeps: bool) -> None:
        while not self.stopped.is_set():
            with ServerProxy(f"{self._url}/design") as proxy:
                self._call_once(proxy)
                while keeps and not self.stopped.is_set():
                    self._call_once(proxy)

    def _call_once(self, proxy: ServerProxy) -> None:
        try:
            assert proxy.runFilters(["Keeps"], ["a", "b"], "vm", {}) == ["a"]
            self.answered += 1
        except Exception as error:  # noqa: BLE001  whatever it is, a caller would notice
            self.failures.append(repr(error))


@pytest.mark.parametrize("restarts", [1, pytest.param(20, marks=pytest.mark.long)])
def test_a_restart_refuses_and_loses_no_call(manager, restarts):
    """Whoever comes while no daemon runs waits for the next one."""
    url = manager.start()
    manager.port = int(url.rpartition(":")[2])
    with Callers(url) as callers:
        for _ in range(restarts):
            before = callers.answered
            wait_until(lambda before=before: callers.answered > before + CLIENTS)
            manager.stop()
            assert manager.start() == url
        before = callers.answered
        wait_until(lambda: callers.answered > before + CLIENTS)
    assert callers.failures == []


def test_a_socket_at_another_address_is_closed_and_told(manager):
    """Who moves the daemon finds it where scheduler.conf says."""
    url = manager.start()
    manager.stop()
    with reserved_port() as manager.port:
        assert manager.start() == f"http://127.0.0.1:{manager.port}"
    assert f"is at 127.0.0.1 port {url.rpartition(':')[2]}, which is not what" in manager.daemon.log
    assert manager.kept is not None
    assert manager.kept.getsockname() == ("127.0.0.1", manager.port)
    assert b"FDSTOREREMOVE=1\nFDNAME=listener" in manager.messages


def test_a_socket_whose_owner_is_told_nothing_stays_open_for_the_next_daemon(tmp_path):
    """It is the owner's, whom no message of the daemon's reaches."""
    (tmp_path / "Keeps.py").write_text(KEEPS)
    settings = "ssl = false\nlistening_address = 127.0.0.1"
    with socket.create_server(("127.0.0.1", 0)) as owned:
        port, descriptor = owned.getsockname()[1], owned.fileno()

        def start() -> Daemon:
            before = under_manager(None, descriptor)
            return Daemon(tmp_path, tmp_path, settings, [], before, port, [descriptor])

        assert start().stop() == 0
        with socket.create_connection(("127.0.0.1", port)) as waiting:
            daemon = start()
            waiting.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert waiting.recv(12) == b"HTTP/1.1 200"
        assert daemon.stop() == 0


def test_what_is_no_listening_socket_is_left_alone_and_nobody_stumbles(manager):
    """A descriptor that somebody else meant."""
    with (manager.folder / "file").open("w+b") as file:
        manager.kept = file
        url = manager.start()
    manager.kept = None if manager.kept is file else manager.kept
    with ServerProxy(f"{url}/design") as proxy:
        assert proxy.runFilters(["Keeps"], ["a", "b"], "vm", {}) == ["a"]


def test_without_a_manager_who_comes_while_the_daemon_stops_is_refused_at_once(manager):
    """Nobody would answer whoever waited."""
    with reserved_port() as manager.port:
        manager.start()
        manager.stop()
        manager.kept.close()
        manager.kept = None
        began = time.monotonic()
        with pytest.raises(ConnectionRefusedError), socket.socket() as client:
            client.connect(("127.0.0.1", manager.port))
        assert time.monotonic() - began < 5
