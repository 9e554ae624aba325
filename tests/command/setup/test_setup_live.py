"""``ovirt-scheduler setup`` on a machine that runs systemd, which here is a script."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import threading
from pathlib import Path

import pytest

from ovirt_scheduler import __version__
from ovirt_scheduler.command import control_client
from ovirt_scheduler.command.setup import installation
from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.daemon.control_socket import FILE, short_name
from ovirt_scheduler.errors import StepFailed
from ovirt_scheduler.security import certificates, trust
from tests.support import setup_root
from tests.support.setup_root import OLDER, STATE, at, became


@pytest.fixture
def root(tmp_path):
    return setup_root.made(tmp_path)


class Live:
    """A machine that runs systemd, whose systemctl is a script that keeps what it was told."""

    SYSTEMCTL = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
  *is-enabled*) [ -e "$here/enabled" ] ;;
  *is-active*) [ -e "$here/enabled" ] ;;
  *show*) if [ -e "$here/enabled" ]; then echo ActiveState=active; else echo ActiveState=inactive; fi ;;
  *) echo "$*" | sed 's/--root=[^ ]* //' >> "$here/told"
     case "$*" in
       *disable*proxy*) ;;
       *enable\\ *) touch "$here/enabled" ;;
       *disable\\ *) rm "$here/enabled" ;;
     esac ;;
esac
"""

    def __init__(self, root: Path, tools: Path) -> None:
        self.root = root
        self._tools = tools
        tools.mkdir()
        (tools / "systemctl").write_text(self.SYSTEMCTL)
        (tools / "systemctl").chmod(0o755)
        at(root, "/run/systemd/system").mkdir(parents=True)

    def systemctl(self) -> list:
        """What it was told since the last time."""
        told = self._tools / "told"
        lines = told.read_text().splitlines() if told.exists() else []
        told.write_text("")
        return lines

    def install(self) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert installation.install(Machine(self.root, live=True)) == 0
        return out.getvalue()

    def remove(self) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            installation.remove(Machine(self.root, live=True))
        return out.getvalue()


@pytest.fixture
def live(root, tmp_path, monkeypatch):
    machine = Live(root, tmp_path / "tools")
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{os.environ['PATH']}")
    return machine


def test_the_unit_is_enabled_started_and_stopped_again(live):
    """Only what is needed: nothing on a second run, a restart when a file has changed."""
    live.install()
    assert live.systemctl() == ["daemon-reload", "enable --now ovirt-scheduler.service"]
    live.install()
    assert live.systemctl() == []
    became(live.root, OLDER)
    live.install()
    assert live.systemctl() == ["restart ovirt-scheduler.service"]
    live.remove()
    assert live.systemctl() == [
        "stop ovirt-scheduler.service", "disable ovirt-scheduler.service", "daemon-reload",
    ]  # fmt: skip


DRIBBLES = "a byte now and then"


@pytest.fixture
def running_version(live):
    """A daemon that says it is of this version; the test may change it."""
    version = [__version__]
    at(live.root, STATE).mkdir(parents=True)
    server = socket.socket(socket.AF_UNIX)
    with short_name(at(live.root, STATE) / FILE) as name:
        server.bind(name)
    server.listen()

    def serve():
        with contextlib.suppress(OSError):  # the test has ended
            while True:
                caller, _ = server.accept()
                with caller, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    caller.recv(1 << 16)
                    while version[0] == DRIBBLES:
                        caller.sendall(b"x")
                        threading.Event().wait(0.01)
                    caller.sendall(json.dumps({"version": version[0], "error": "?"}).encode())

    thread = threading.Thread(target=serve)
    thread.start()
    yield version
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def test_what_comes_next_is_said_at_the_end(live):
    assert live.install().endswith(
        "next:\n"
        "  see how the daemon is: ovirt-scheduler status\n"
        "  have the engine call it, on the engine's machine: ovirt-scheduler setup --engine\n"
    )


def test_a_daemon_of_another_version_is_restarted_and_that_is_said(live, running_version):
    """As after an upgrade with pip, which changes no file of setup's."""
    live.install()
    assert "already so: ovirt-scheduler.service is enabled and runs" in live.install()
    live.systemctl()
    running_version[0] = "0.9\x1b[2J" + "9" * 1000
    told = live.install()
    assert live.systemctl() == ["restart ovirt-scheduler.service"]
    (line,) = [line for line in told.splitlines() if "restart" in line]
    assert line.startswith("run systemctl restart ovirt-scheduler.service, as version 0.9")
    assert line.endswith(f" runs, and {__version__} is installed")
    assert "\x1b" not in line
    assert len(line) < 150
    running_version[0] = __version__
    live.install()
    assert live.systemctl() == []


def test_a_daemon_that_dribbles_its_answer_holds_up_nobody(live, running_version, monkeypatch):
    """Its user, whose plugins run there, may answer as he likes: a byte now and then, for ever."""
    monkeypatch.setattr(control_client, "_SECONDS", 0.2)
    live.install()
    running_version[0] = DRIBBLES
    assert "already so: ovirt-scheduler.service is enabled and runs" in live.install()


def test_the_old_proxy_makes_room_and_comes_back(live):
    """It has the same port."""
    unit = at(live.root, "/usr/lib/systemd/system/ovirt-scheduler-proxy.service")
    unit.parent.mkdir(parents=True)
    unit.touch()
    (live._tools / "enabled").touch()
    live.install()
    assert "disable --now ovirt-scheduler-proxy.service" in live.systemctl()
    (live._tools / "enabled").unlink()
    live.install()
    live.systemctl()
    live.remove()
    assert "enable --now ovirt-scheduler-proxy.service" in live.systemctl()


def test_the_certificate_is_made_for_the_daemons_user_and_removed(live):
    """On a live machine; one that somebody has put there since stays."""
    live.install()
    made = certificates.files_in(at(live.root, STATE) / "certificate")
    assert trust.exposure(made.key) is None
    assert "already so: the certificate in" in live.install()
    live.remove()
    assert not made.key.exists()
    live.install()
    made.certificate.write_text("another")
    assert "kept: /var/lib/ovirt-scheduler/certificate, which setup did not make" in live.remove()
    assert made.key.exists()


def test_a_program_that_is_not_installed_is_told(live):
    """The unit could not start it."""
    at(live.root, "/usr/bin/ovirt-scheduler").unlink()
    with pytest.raises(StepFailed, match="install the package first"):
        live.install()
