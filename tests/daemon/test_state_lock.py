"""Two daemons on one state folder, and settings that were read again."""

from __future__ import annotations

import os
import pwd
import signal
from pathlib import Path

import pytest

from tests.support.command import program, spawned
from tests.support.paths import PROJECT
from tests.support.waiting import wait_until


def refused(folder: Path, state: Path) -> str:
    """What a daemon says that does not start, as its settings are wrong."""
    conf = folder / "scheduler.conf"
    told = ("--config", conf, "--plugins", PROJECT / "plugins")
    status, _, said = spawned(state.parent, "serve", *told)
    assert status == 78
    return said


def test_a_second_daemon_on_a_state_folder_does_not_start(tmp_path, start_daemon):
    """It says so; when the first has been killed, it does."""
    first = start_daemon(settings="ssl = false", folder=tmp_path)
    second = refused(tmp_path, first.state)
    assert f"{first.state}: another daemon uses this state folder; stop it" in second
    first.stop(signal.SIGKILL)
    assert start_daemon(settings="ssl = false", folder=tmp_path).stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
def test_root_does_not_serve_with_the_state_of_another_user(tmp_path):
    """Nothing is left there that this user's daemon could not write."""
    (tmp_path / "scheduler.conf").write_text("ssl = false\nlistening_port = 0\n")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    nobody = pwd.getpwnam("nobody").pw_uid
    os.chown(state, nobody, -1)
    assert f"{state}: is the state folder of the user nobody" in refused(tmp_path, state)
    assert list(state.iterdir()) == []


def test_a_conf_file_that_lost_its_end_is_told(tmp_path, start_daemon):
    """It reads well, and other plugins are loaded."""
    (tmp_path / "plugins").mkdir()
    whole = f"ssl = false\nlistening_port = 0\nplugins_path = {tmp_path}/plugins\n"
    conf = tmp_path / "whole.conf"
    conf.write_text(whole)
    log = tmp_path / "log"
    serve = (tmp_path / "state", "serve", "--config", conf)
    with log.open("w") as written, program(*serve, stderr=written) as process:
        try:
            wait_until(lambda: "listening on" in log.read_text())
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: log.read_text().count("are read again") == 1)
            assert "WARNING SIGHUP" not in log.read_text()
            conf.write_text(whole.rpartition("plugins_path")[0])
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: "is the end of the file missing?" in log.read_text())
        finally:
            process.kill()
