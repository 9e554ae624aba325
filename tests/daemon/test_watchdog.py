"""The real daemon under a manager: ready, alive while calls work, stopping."""

from __future__ import annotations

import os
import re
import signal
import socket
import time

import pytest

from tests.support.paths import PROJECT

pytestmark = pytest.mark.long

_LONG = 20.0  # seconds; what is awaited comes within one


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A socket as systemd binds it; a daemon started now tells it how it is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "notify"))
        bound.settimeout(_LONG)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        yield bound


def told(manager):
    """The next that the manager is told, but for the listening socket that it is to keep, and for
    the status alone, which comes with each look.
    """
    while (message := manager.recv(4096).decode()).startswith(("STATUS=", "FDSTORE")):
        pass
    return message


def fed(manager, seconds):
    """Whether the watchdog is fed within the time."""
    give_up = time.monotonic() + seconds
    try:
        while (left := give_up - time.monotonic()) > 0:
            manager.settimeout(left)
            if manager.recv(4096) == b"WATCHDOG=1":
                return True
    except socket.timeout:
        pass
    return False


def test_the_daemon_tells_how_it_is_from_start_to_end(manager, start_daemon):
    """READY once it listens, WATCHDOG again and again, STOPPING when it is told to stop."""
    daemon = start_daemon(PROJECT / "plugins")
    assert told(manager) == f"READY=1\nSTATUS=listening on {daemon.url}"
    for _ in range(3):
        assert manager.recv(4096) == b"WATCHDOG=1"
        assert re.fullmatch(rb"STATUS=\d+ units, all well", manager.recv(4096))
    daemon.process.send_signal(signal.SIGTERM)
    while (message := told(manager)) == "WATCHDOG=1":
        pass
    assert message.startswith("STOPPING=1")
    assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [("", ""), ("log_levle = debug", "; the last reload failed: ")],
)
def test_a_reload_is_told_from_its_beginning_to_its_end(manager, start_daemon, settings, outcome):
    """RELOADING with the time, then READY with what came of it (sd_notify(3))."""
    daemon = start_daemon(PROJECT / "plugins")
    states = (message for message in iter(lambda: told(manager), None) if message != "WATCHDOG=1")
    assert next(states).startswith("READY=1")
    with daemon.state.with_name("scheduler.conf").open("a") as file:
        file.write(f"{settings}\n")
    daemon.process.send_signal(signal.SIGHUP)
    assert next(states).startswith("RELOADING=1\nMONOTONIC_USEC=")
    ready = next(states)
    assert ready.startswith(f"READY=1\nSTATUS=listening on {daemon.url}{outcome}")
    assert ("log_levle" in ready) == bool(outcome)
    statuses = (message for message in iter(lambda: manager.recv(4096).decode(), None))
    last = next(message for message in statuses if message.startswith("STATUS="))
    assert (outcome or ", all well") in last


def test_the_watchdog_starves_while_calls_do_not_work(manager, start_daemon):
    """A stopped zygote forks nothing; when it goes on, the daemon is fed again."""
    daemon = start_daemon(PROJECT / "plugins")
    assert told(manager).startswith("READY=1")
    assert manager.recv(4096) == b"WATCHDOG=1"
    zygote = daemon.zygote
    os.kill(zygote, signal.SIGSTOP)
    try:
        fed(manager, 1.0)  # one that was under way
        assert not fed(manager, 3.0)
    finally:
        os.kill(zygote, signal.SIGCONT)
    assert fed(manager, _LONG)


def test_plugins_do_not_get_the_managers_socket(manager, start_daemon):
    """So none of them can feed the watchdog."""
    looks = (
        "import os\n\n\ndef do_filter(hosts, vm, properties):\n"
        "    return hosts[:1] if 'NOTIFY_SOCKET' in os.environ else hosts[1:]\n"
    )
    daemon = start_daemon({"Looks": looks})
    assert daemon.design.runFilters(["Looks"], ["a", "b"], "vm", {}) == ["b"]
