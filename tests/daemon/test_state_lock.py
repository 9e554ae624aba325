"""Two daemons on one state folder, and settings that were read again."""

from __future__ import annotations

import os
import pwd
import signal
from pathlib import Path

import pytest

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
