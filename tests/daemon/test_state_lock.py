"""Two daemons on one state folder, and settings that were read again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
from pathlib import Path

import pytest

from ovirt_scheduler.command import control_client
from ovirt_scheduler.daemon.assembly import Assembly
from ovirt_scheduler.daemon.watchdog import Notifier
from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security.state_folder import StateFolder
from ovirt_scheduler.settings import scheduler_conf
from tests.support.command import spawned
from tests.support.paths import PROJECT


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
    assert f"another daemon uses this state folder (process {first.pid}); stop it" in second
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


@pytest.mark.parametrize("gone", ["lock", "control", "all", "the folder"])
def test_an_emptied_state_folder_is_told_and_has_lock_and_socket_again(tmp_path, caplog, gone):
    """Else a second daemon could start on it, and no command would find this one."""
    conf, state = tmp_path / "scheduler.conf", tmp_path / "state"
    conf.write_text("listening_port = 0\nssl = false\n")
    made = Assembly(scheduler_conf.load(conf, {}), state, Notifier({}))
    made._start_control()
    try:
        made._line()
        assert "emptied" not in caplog.text
        if gone == "the folder":
            shutil.rmtree(state)
        for name in {"all": ["lock", "control"], "the folder": []}.get(gone, [gone]):
            (state / name).unlink()
        for _ in range(2):
            made._line()
        assert caplog.text.count(f"{state} was emptied: its lock and its socket are made anew") == 1
        assert control_client.ask(state, "status")["line"]
        with pytest.raises(ConfigError, match="another daemon uses this state folder"):
            StateFolder(state)
    finally:
        made.stop(0)


def test_a_state_folder_that_another_daemon_took_over_is_told(tmp_path, caplog):
    """And left to it."""
    conf, state = tmp_path / "scheduler.conf", tmp_path / "state"
    conf.write_text("listening_port = 0\nssl = false\n")
    made = Assembly(scheduler_conf.load(conf, {}), state, Notifier({}))
    try:
        shutil.rmtree(state)
        other = StateFolder(state)
        made._line()
        assert f"{state} was emptied: {state}: another daemon uses this state folder" in caplog.text
        assert not other.is_emptied
    finally:
        made.stop(0)
