"""The state folder is checked once, before the daemon makes anything in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security import certificates
from ovirt_scheduler.security.state_folder import StateFolder
from tests.support.command import run, spawned
from tests.support.paths import PROJECT
from tests.support.processes import STRANGER

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")

# What the daemon reads and writes there.
NAMES = [
    "history.sqlite", "history.sqlite-wal", "lock", "control", "clusters.json", ".clusters.json.new",
    "plugins", "plugins/MaxVms-0.json", "certificate", "certificate/key.pem", "certificate-next",
]  # fmt: skip


def put(state: Path, name: str, make: Callable[[Path], object]) -> Path:
    place = state / name
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    make(place)
    return place


def refusal(state: Path) -> str:
    before = sorted(state.rglob("*"))
    with pytest.raises(ConfigError) as refused:
        StateFolder(state)
    assert sorted(state.rglob("*")) == before
    return str(refused.value)


@as_root
@pytest.mark.parametrize("name", NAMES)
def test_what_another_user_has_put_there_is_not_used(tmp_path, name):
    """A file is changed by its owner, and a link leads wherever that one likes."""
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    elsewhere.write_text("as it was")
    place = put(state, name, lambda path: path.symlink_to(elsewhere))
    os.chown(place, STRANGER, STRANGER, follow_symlinks=False)
    told = f"{place}: is a link that the user {STRANGER} made; remove it: rm {place}"
    assert refusal(state) == told
    place.unlink()
    place.touch(0o600)
    os.chown(place, STRANGER, STRANGER)
    assert f"{place}: belongs to {STRANGER}, not root; mend it: chown root" in refusal(state)
    os.chown(place, 0, 0)
    StateFolder(state)
    assert elsewhere.read_text() == "as it was"


@pytest.mark.parametrize("name", ["", *NAMES])
def test_what_others_may_write_is_not_used(tmp_path, name):
    state = tmp_path / "state"
    place = put(state, name, lambda path: path.mkdir(mode=0o700, exist_ok=True))
    place.chmod(0o777)
    assert refusal(state) == (f"{place}: can be written by everybody; mend it: chmod o-w {place}")


def test_links_of_our_own_are_followed(tmp_path):
    """An administrator may have the certificate on another disk."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    put(tmp_path / "state", "certificate", lambda path: path.symlink_to(elsewhere))
    put(tmp_path / "state", "gone", lambda path: path.symlink_to("nowhere"))
    StateFolder(tmp_path / "state")
    elsewhere.chmod(0o777)
    assert f"can be written by everybody; mend it: chmod o-w {elsewhere}" in refusal(
        tmp_path / "state"
    )


def test_a_daemon_does_not_start_on_a_folder_that_others_may_write(tmp_path):
    """Whatever it would write first: no file of it leads elsewhere."""
    (tmp_path / "scheduler.conf").write_text("ssl = false\nlistening_port = 0\n")
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    state.mkdir()
    state.chmod(0o777)
    put(state, "history.sqlite", lambda path: path.symlink_to(elsewhere))
    conf = ("--config", tmp_path / "scheduler.conf", "--plugins", PROJECT / "plugins")
    status, _, said = spawned(tmp_path, "serve", *conf)
    assert status == 78
    assert f"{state}: can be written by everybody; mend it: chmod o-w {state}" in said
    assert [each.name for each in state.iterdir()] == ["history.sqlite"]
    assert not elsewhere.exists()


def test_check_tells_why_a_daemon_would_not_start_on_its_state_folder(tmp_path):
    (tmp_path / "scheduler.conf").write_text("ssl = false\nlistening_port = 0\n")
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    status, out, _ = run(
        tmp_path, "check", "--config", str(tmp_path / "scheduler.conf"),
        "--plugins", str(PROJECT / "plugins"),
    )  # fmt: skip
    assert status == 1
    assert f"{tmp_path}/state: can be written by everybody; mend it: chmod o-w {tmp_path}" in out


@as_root
def test_no_certificate_is_made_where_another_user_has_put_a_link(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    place = put(tmp_path / "state", "certificate", lambda path: path.symlink_to(elsewhere))
    os.chown(place, STRANGER, STRANGER, follow_symlinks=False)
    status, _, said = run(tmp_path, "cert", "make")
    assert status == 78
    assert f"{place}: is a link that the user {STRANGER} made" in said
    assert list(elsewhere.iterdir()) == []


def test_an_emptied_folder_is_noticed_and_locked_anew(tmp_path):
    """By whoever looks; a folder that is gone is made anew."""
    state = StateFolder(tmp_path / "state")
    assert not state.is_emptied
    (state / "lock").unlink()
    assert state.is_emptied
    state.open()
    assert not state.is_emptied
    shutil.rmtree(state.path)
    assert state.is_emptied
    state.open()
    assert not state.is_emptied
    with pytest.raises(ConfigError, match="another daemon uses this state folder"):
        StateFolder(state.path)


def test_a_folder_that_another_daemon_took_meanwhile_is_left_to_it(tmp_path):
    state = StateFolder(tmp_path / "state")
    (state / "lock").unlink()
    other = StateFolder(state.path)
    with pytest.raises(ConfigError, match="another daemon uses this state folder"):
        state.open()
    assert not other.is_emptied
    assert state.is_emptied


def test_what_the_daemon_itself_makes_there_is_good(tmp_path):
    certificates.ensure(tmp_path / "state" / "certificate")
    certificates.ensure(certificates.next_to(tmp_path / "state" / "certificate"))
    assert not StateFolder(tmp_path / "state").is_emptied
