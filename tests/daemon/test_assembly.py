"""SIGHUP: what a running daemon takes from changed settings, and what it refuses."""

from __future__ import annotations

import http.client
import signal
import threading
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from ovirt_scheduler.security.certificates import ensure
from tests.support.certificates import write_pair
from tests.support.command import executed, spawned
from tests.support.daemon import Daemon
from tests.support.processes import offspring, title
from tests.support.waiting import LONG, wait_until

IDS = ["host-1", "host-2"]
CALL = xmlrpc.client.dumps((["plain"], IDS, "vm-1", {}), "runFilters").encode()
PLAIN = "def do_filter(hosts, vm, properties): return hosts\n"
WAITS = (
    "import pathlib, time\n"
    "def do_filter(hosts, vm, properties):\n"
    "    pathlib.Path(properties['touch']).touch()\n"
    "    while pathlib.Path(properties['touch']).exists(): time.sleep(0.01)\n"
    "    return hosts\n"
)
SLEEPS = "import time\ndef do_filter(hosts, vm, properties): time.sleep(60)\n"


class Settled:
    """A daemon whose settings are changed while it runs."""

    def __init__(self, folder: Path, settings: str) -> None:
        self.folder = folder
        (folder / "plugins").mkdir()
        (folder / "plugins" / "plain.py").write_text(PLAIN)
        self.daemon = Daemon(folder, folder / "plugins", settings, [])

    def write(self, settings: str) -> None:
        (self.folder / "scheduler.conf").write_text(f"listening_port = 0\n{settings}\n")

    def hang_up(self) -> str:
        """Send SIGHUP, and give the line that tells how it went."""
        before = self.daemon.log.count("SIGHUP: ")
        self.daemon.process.send_signal(signal.SIGHUP)
        return self.wait_for(lambda: self.daemon.log.split("SIGHUP: ")[before + 1 :])[0]

    def wait_for(self, look):
        return wait_until(look, lambda: self.daemon.log)

    def connect(self) -> http.client.HTTPSConnection:
        port = int(self.daemon.url.rpartition(":")[2])
        return http.client.HTTPSConnection(
            "localhost", port, context=self.daemon.trust, timeout=LONG
        )


def ask(connection: http.client.HTTPSConnection) -> http.client.HTTPResponse:
    """One call on an open connection, answered well."""
    connection.request("POST", "/design", CALL)
    answer = connection.getresponse()
    ((kept,), _) = xmlrpc.client.loads(answer.read())
    assert kept == IDS
    return answer


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settled]:
    made = Settled(tmp_path_factory.mktemp("settled"), "")
    yield made
    assert made.daemon.stop() == 0


@pytest.fixture
def settled(running: Settled) -> Iterator[Settled]:
    """One daemon for these tests; it has its first settings again when a test is done."""
    yield running
    running.write("")
    running.hang_up()


def test_a_new_certificate_is_for_new_connections(settled):
    """One that is open is answered, told to come again, and ends in good order."""
    connection = settled.connect()
    assert ask(connection).headers["Connection"] is None
    other = ensure(settled.folder / "other")
    for old, new in zip(("certificate.pem", "key.pem"), other):
        new.replace(settled.daemon.certificate.with_name(old))
    assert settled.hang_up().startswith("settings, certificates and plugins are read again")
    assert ask(connection).headers["Connection"] == "close"
    with settled.daemon.proxy() as proxy:  # trusts the new certificate alone
        assert proxy.runFilters(["plain"], IDS, "vm-1", {}) == IDS


def test_a_call_under_way_is_answered(settled):
    """Though everything is read anew meanwhile."""
    (settled.folder / "plugins" / "waits.py").write_text(WAITS)
    touched = settled.folder / "touched"
    answers = []

    def call():
        answers.append(
            settled.daemon.design.runFilters(["waits"], IDS, "vm", {"touch": str(touched)})
        )

    assert "waits" in settled.daemon.design.discover()
    thread = threading.Thread(target=call)
    thread.start()
    settled.wait_for(touched.exists)
    settled.hang_up()
    assert answers == []
    touched.unlink()
    thread.join(LONG)
    assert answers == [IDS]


def test_as_many_processes_are_kept_as_the_settings_say_now(settled):
    """The process of a plugin that is in use ends where none is to be kept, and comes again."""

    def has_process() -> bool:
        below = offspring(settled.daemon.pid)
        return "ovirt-scheduler: plugin plain" in map(title, below)

    settled.wait_for(has_process)
    for kept in (0, 1):
        settled.write(f"kept_processes = {kept}")
        assert settled.hang_up().startswith("settings, certificates and plugins are read again")
        settled.wait_for(lambda kept=kept: has_process() == bool(kept))


def test_settings_of_calls_answers_and_plugins_take_effect(settled):
    """The answer form, the limits, the folders' conf files, the log's level and place."""
    confs, log = settled.folder / "confs", settled.folder / "log of its own"
    confs.mkdir()
    (confs / "plain.conf").write_text("customProperties = a=b\n")
    (settled.folder / "plugins" / "sleeps.py").write_text(SLEEPS)
    with settled.daemon.proxy("/") as proxy:
        assert isinstance(proxy.discover(), str)
    settled.write(
        f"root_api = engine\nplugin_timeout = 0.3\nplugins_conf_path = {confs}\n"
        f"max_request_size = 1 KiB\nlog_file = {log}\nlog_level = debug"
    )
    settled.daemon.process.send_signal(signal.SIGHUP)
    settled.wait_for(lambda: log.exists() and "are read again" in log.read_text())
    with settled.daemon.proxy("/") as proxy:
        assert proxy.discover()["filters"]["plain"] == ["", "a=b"]
        answer = proxy.runFilters(["sleeps"], IDS, "vm-1", {})
        assert "its timeout is 0.3 s" in answer["plugin_errors"]["sleeps"][0]
    with pytest.raises(xmlrpc.client.ProtocolError) as caught, settled.daemon.proxy() as proxy:
        proxy.runFilters(["x" * 2000], IDS, "vm-1", {})
    assert caught.value.errcode == 413
    settled.wait_for(lambda: "DEBUG" in log.read_text())


def test_settings_take_effect_for_the_last_version_that_loads(settled):
    """The plugin's file has a mistake meanwhile."""
    plain = settled.folder / "plugins" / "plain.py"
    plain.write_text("def do_filter(hosts, vm, properties): raise ValueError\n")
    with settled.daemon.proxy() as proxy:
        proxy.discover()
        assert proxy.runFilters(["plain"], IDS, "vm-1", {}) == IDS
        assert "ValueError" in settled.daemon.log
        plain.write_text("def do_filter(:\n")
        settled.wait_for(lambda: "cannot be loaded" in settled.daemon.log)
        settled.write("on_failure = reject\nplugin_timeout = 5")
        assert "are read again" in settled.hang_up()
        proxy.discover()
        assert proxy.runFilters(["plain"], IDS, "vm-1", {}) == []


BAD = {
    "an unknown key": ("plugin_timout = 3", "did you mean plugin_timeout?"),
    "two mistakes": ("log_level = loud\n[engin]\nurl = x", "; line 4: [engin]: there is no such"),
    "a missing certificate": (
        "ssl_certificate = /nowhere/c.pem\nssl_key = /nowhere/k.pem",
        "/nowhere/c.pem: cannot be read",
    ),
    "a missing folder of the log": ("log_file = /nowhere/log", "the log cannot be written"),
    "another address": (
        "listening_address = 0.0.0.0\nallow_unauthenticated = true",
        "listening_address cannot change without a restart",
    ),
    "no TLS": ("ssl = false", "ssl cannot change without a restart"),
    "more calls": ("max_parallel_calls = 77", "max_parallel_calls cannot change"),
    "more waiting": ("max_waiting = 7", "max_waiting cannot change"),
    "another port": ("listening_port = 1", "listening_port cannot change"),
}


@pytest.mark.parametrize("which", BAD)
def test_bad_settings_are_refused_as_a_whole(settled, which, request):
    """The log says why, and the former settings go on, on every connection."""
    lines, reason = BAD[which]
    connection = settled.connect()
    request.addfinalizer(connection.close)
    ask(connection)
    port = "" if "listening_port" in lines else "listening_port = 0\n"
    (settled.folder / "scheduler.conf").write_text(f"root_api = engine\n{port}{lines}\n")
    told = settled.hang_up()
    assert told.startswith("the settings are refused, the former settings stay in use: ")
    assert reason in told
    assert ask(connection).headers["Connection"] is None
    with settled.daemon.proxy("/") as proxy:
        assert isinstance(proxy.discover(), str)


def test_a_certificate_that_is_refused_is_not_told_as_the_one_in_use(settled, request):
    """A new one with the former key: what the daemon tells of its certificate stays."""
    connection = settled.connect()
    request.addfinalizer(connection.close)

    def expiry() -> bytes:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().splitlines()
        (told,) = (line for line in lines if b"_certificate_expiry_" in line and line[:1] != b"#")
        return told

    before = expiry()
    new, old = (write_pair(settled.folder / name, 5) for name in ("new", "old"))
    settled.write(f"ssl_certificate = {new.certificate}\nssl_key = {old.key}")
    assert "the former settings stay in use" in settled.hang_up()
    assert expiry() == before


def test_who_is_let_in_no_more_is_refused(tmp_path, request):
    """On a connection that was open, after one more answer."""
    executed(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-subj", "/CN=caller", "-days", "2", "-keyout", "caller.key", "-out", "caller.pem",
        cwd=tmp_path, check=True,
    )  # fmt: skip
    authority = f"ssl_client_ca = {tmp_path}/caller.pem\nssl_allowed_clients = "
    running = Settled(tmp_path, f"{authority}caller")
    try:
        trust = running.daemon.trust
        trust.load_cert_chain(tmp_path / "caller.pem", tmp_path / "caller.key")
        port = int(running.daemon.url.rpartition(":")[2])
        connection = http.client.HTTPSConnection("localhost", port, context=trust, timeout=LONG)
        request.addfinalizer(connection.close)
        ask(connection)
        running.write(f"{authority}somebody else")
        running.hang_up()
        assert ask(connection).headers["Connection"] == "close"
        with pytest.raises(OSError):
            ask(connection)  # which connects anew
        running.wait_for(lambda: "client CN=caller is refused: it is not in" in running.daemon.log)
    finally:
        assert running.daemon.stop() == 0


def test_a_door_that_is_open_to_everybody_is_told(tmp_path):
    """Said outright in the settings, and warned of in the log."""
    running = Settled(tmp_path, "listening_address = 0.0.0.0\nallow_unauthenticated = true")
    assert "whoever reaches 0.0.0.0 may call: allow_unauthenticated = true" in running.daemon.log
    assert running.daemon.stop() == 0


def test_a_key_of_its_own_making_that_others_may_read_stops_the_start(tmp_path):
    """Exit status 78, and the command that mends it."""
    files = ensure(tmp_path / "state" / "certificate")
    files.key.chmod(0o644)
    conf = tmp_path / "scheduler.conf"
    conf.write_text("listening_port = 0\n")
    status, _, said = spawned(tmp_path, "serve", "--config", conf)
    assert status == 78
    assert f"{files.key}: can be read by everybody; mend it: chmod 600 {files.key}" in said


def test_a_password_that_cannot_be_read_is_told_at_the_start(tmp_path, start_daemon):
    """Not only when the engine is first asked; the daemon goes on, as the file may come later."""
    settings = (
        "ssl = false\n[engine]\nurl = https://localhost:1/ovirt-engine/api\n"
        f"username = a@internal\npassword_file = {tmp_path}/password"
    )
    log = start_daemon(settings=settings).log
    told = f"WARNING the engine cannot be asked: {tmp_path}/password: cannot be read: No such file"
    assert log.count(told) == 1
