"""Two daemons behind the HAProxy of the manual, and clients that call them without a pause."""

from __future__ import annotations

import contextlib
import csv
import ipaddress
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import xmlrpc.client
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import NamedTuple, Optional

from tests.support.certificates import PEM, made, write_pair
from tests.support.clients import Clients
from tests.support.daemon import Daemon, under_manager
from tests.support.paths import PROJECT
from tests.support.waiting import LONG, wait_until

HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
PORT = 18781

CLIENTS = 16
CONNECT_SECONDS = 0.1  # as the engine: it gives up then
ENOUGH = 5 * CLIENTS  # calls, after which a change is one for all clients
VM = "8a6e5b90-3f27-4d1c-8e44-91b7c05d2b01"

PLUGINS = {
    # keeps the host that is named as the daemon is
    "Where": "def do_filter(hosts, vm, properties):\n    return [{name!r}]\n",
    "Waits": (
        "import pathlib, time\n"
        "def do_filter(hosts, vm, properties):\n"
        "    pathlib.Path(properties['begun']).touch()\n"
        "    time.sleep(60)\n"
    ),
    "Chooses": (
        "from ovirt_scheduler.plugin import Scheduler\n"
        "class Chooses(Scheduler):\n"
        "    name = 'chooses'\n"
        "    def select_host(self, hosts, vm, properties):\n"
        "        return {name!r}\n"
    ),
}


class Twins:
    """Daemons ``a`` and ``b``, each with plugins that tell its name, and HAProxy before them.

    They have addresses of their own in 127.0.0.0/8, so that the manual's ports are free.

    Args:
        settings: further lines of scheduler.conf.
        keeps: keep the listening sockets while no daemon runs, as systemd does.
    """

    def __init__(self, folder: Path, settings: str, keeps: bool = False) -> None:
        self.folder, self._settings = folder, settings
        self._kept: dict[str, socket.socket] = {}
        if keeps:
            for name in "ab":
                self._kept[name] = socket.create_server((self.address(name), PORT), backlog=1024)
            self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._notified.bind(str(folder / "notify"))
            threading.Thread(target=self._listen, daemon=True).start()
        self.daemons: dict[str, Daemon] = {}
        root = made(["root"], authority=True)
        (folder / "ca.pem").write_bytes(root.certificate.public_bytes(PEM))
        self._engine = made(["engine"], root).write(folder, "engine")
        made(["haproxy"], root).write(folder, "check")
        for name in "ab":
            (folder / name / "plugins").mkdir(parents=True)
            for plugin, text in PLUGINS.items():
                file = folder / name / "plugins" / f"{plugin}.py"
                file.write_text(text.replace("{name!r}", repr(name)))
            state = folder / name / "state"
            state.mkdir(0o700)
            write_pair(state / "certificate", 30, ("localhost",), subject=f"scheduler-{name}")
            self.start(name)
        certificates = [self.daemons[name].certificate.read_text() for name in "ab"]
        (folder / "schedulers.pem").write_text("".join(certificates))
        self._haproxy = self._start_haproxy()

    def address(self, name: str) -> str:
        """One that no other program uses."""
        return str(ipaddress.ip_address("127.0.0.0") + 4 * os.getpid() + " ab".index(name))

    def start(self, name: str) -> None:
        settings = (
            f"listening_address = {self.address(name)}\nssl_client_ca = {self.folder}/ca.pem\n"
            f"log_level = info\n{self._settings}"
        )
        folder, kept = self.folder / name, self._kept.get(name)
        given = [] if kept is None else [kept.fileno()]
        before = under_manager(self.folder / "notify", *given) if given else ()
        self.daemons[name] = Daemon(folder, folder / "plugins", settings, [], before, PORT, given)

    def _listen(self) -> None:
        """Take what the daemons tell systemd."""
        with contextlib.suppress(OSError):
            while self._notified.recv(4096):
                pass

    def _start_haproxy(self) -> subprocess.Popen[bytes]:
        manual = (PROJECT / "docs" / "operations.md").read_text("utf-8")
        found = re.search(r"^```haproxy\n(.*?)^```$", manual, re.MULTILINE | re.DOTALL)
        assert found
        text = found[1].replace("127.0.0.1:", f"{self.address(' ')}:")
        text = text.replace("/etc/haproxy/", f"{self.folder}/")
        for name in "ab":
            text = text.replace(f"scheduler-{name}.example.org", self.address(name))
        config = self.folder / "haproxy.cfg"
        config.write_text(f"global\n    stats socket {self.folder}/stats mode 600\n{text}")
        with (self.folder / "haproxy.log").open("wb") as log:
            assert HAPROXY is not None
            haproxy = subprocess.Popen([HAPROXY, "-db", "-f", str(config)], stderr=log)
        wait_until((self.folder / "stats").exists, self.told)
        return haproxy

    def told(self) -> str:
        return (self.folder / "haproxy.log").read_text()

    def is_up(self, name: str) -> bool:
        """Whether HAProxy has asked the daemon, and would give it a connection."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(self.folder / "stats"))
            asking.sendall(b"show stat\n")
            with asking.makefile() as answer:
                rows = list(csv.DictReader(answer))
        (row,) = (row for row in rows if row["svname"] == name)
        return (row["status"], row["check_status"]) == ("UP", "L7OK")

    def trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.folder / "schedulers.pem"))
        context.load_cert_chain(self._engine)
        return context

    def connect(self, context: ssl.SSLContext) -> HTTPConnection:
        """A connection to one of the two, of which nobody says which."""
        plain = socket.create_connection((self.address(" "), PORT), CONNECT_SECONDS)
        plain.settimeout(LONG)
        connection = HTTPSConnection("localhost", context=context)
        try:
            connection.sock = context.wrap_socket(plain, server_hostname="localhost")
        except BaseException:
            plain.close()
            raise
        return connection

    def call(self, method: str, *parameters: object) -> object:
        with contextlib.closing(self.connect(self.trust())) as connection:
            return call(connection, method, *parameters)

    def close(self) -> None:
        self._haproxy.terminate()
        self._haproxy.wait(LONG)
        for daemon in self.daemons.values():
            daemon.stop(signal.SIGKILL)
        for kept in self._kept.values():
            kept.close()


def call(connection: HTTPConnection, method: str, *parameters: object) -> object:
    body = xmlrpc.client.dumps(parameters, method)
    connection.request("POST", "/design", body, {"Content-Type": "text/xml"})
    ((answer,), _) = xmlrpc.client.loads(connection.getresponse().read())
    return answer


class Outcome(NamedTuple):
    begun: float  # on the monotonic clock
    ended: float
    daemon: str  # that answered; empty: the call failed
    error: str = ""


class Callers(Clients):
    """Clients that call without a pause, half of them on a new connection each time."""

    def __init__(self, twins: Twins) -> None:
        super().__init__([partial(self._call, number % 2 == 0) for number in range(CLIENTS)])
        self._twins = twins
        self.outcomes: list[Outcome] = []

    def wait_for(self, daemon: str) -> None:
        """Until it has answered so many calls that were begun from now on."""
        now = time.monotonic()
        wait_until(
            lambda: sum(each.daemon == daemon and each.begun > now for each in self.outcomes),
            lambda: f"{self.failures[-3:]}\n{self._twins.told()}",
            suits=lambda answered: answered >= ENOUGH,
        )

    @property
    def failures(self) -> list[Outcome]:
        return [each for each in self.outcomes if not each.daemon]

    def _call(self, keeps: bool) -> None:
        context = self._twins.trust()
        connection: Optional[HTTPConnection] = None
        while not self.stopped.is_set():
            begun, daemon, error = time.monotonic(), "", ""
            kept = connection is not None
            try:
                connection = connection or self._twins.connect(context)
                (daemon,) = call(connection, "runFilters", ["Where"], ["a", "b"], VM, {})  # type: ignore[misc]
            except Exception as failure:  # noqa: BLE001  whatever it is, a caller would notice
                error = repr(failure)
            if connection is not None and (error or not keeps or connection.sock is None):
                connection.close()
                connection = None
            # A kept connection may be closed while it is idle: whoever keeps one opens another.
            if not (error and kept):
                self.outcomes.append(Outcome(begun, time.monotonic(), daemon, error))
        if connection is not None:
            connection.close()
