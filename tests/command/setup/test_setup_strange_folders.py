"""``ovirt-scheduler setup`` where somebody has put links and folders of his own in its way."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ovirt_scheduler.command.setup import step
from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.command.setup.machine_steps import Service, User
from ovirt_scheduler.errors import StepFailed
from tests.support import setup_root
from tests.support.setup_root import CONF, STATE, at

OLD = "/usr/share/ovirt-scheduler-proxy/plugins"
ADOPTED = "/etc/ovirt/scheduler/old-plugins"

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="takes root")


@pytest.fixture
def root(tmp_path):
    return setup_root.made(tmp_path)


@pytest.fixture
def outside(tmp_path):
    """A folder of the machine that runs setup, open to everybody; nothing of it may change."""
    folder = tmp_path / "outside"
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["/etc/ovirt", "/etc/ovirt/scheduler/plugins", STATE, "/var/log", "/etc/systemd"]
)
@pytest.mark.parametrize("options", [["--dry-run"], []])
def test_a_folder_that_leads_elsewhere_is_told_and_neither_written_nor_closed(
    root, setup, outside, name, options
):
    """Its mode stays, too: chmod follows a link."""
    at(root, name).parent.mkdir(parents=True, exist_ok=True)
    at(root, name).symlink_to(outside)
    status, told = setup(*options)
    assert status == 1
    assert f"{root}{name}: is a link to {outside}, and setup follows none" in told


@root_only
@pytest.mark.parametrize("name", ["/etc/ovirt/scheduler", STATE, "/etc/logrotate.d", "/var"])
def test_a_folder_of_somebody_else_is_told_and_not_written(root, setup, name):
    """He could have put links there, or could do so later."""
    at(root, name).mkdir(parents=True)
    os.chown(at(root, name), 65534, 65534)
    status, told = setup()
    assert status == 1
    assert f"{root}{name}: belongs to nobody, and not to root, so nobody could change" in told
    assert "chown" not in told
    assert list(at(root, name).iterdir()) == []


def test_nothing_is_written_where_everybody_may_write(root, setup):
    """Whatever lies there may be another's the next moment; it is told how to mend it."""
    units = at(root, "/etc/systemd/system")
    units.mkdir(parents=True)
    units.chmod(0o777)
    status, told = setup()
    assert status == 1
    assert f"{units}: can be written by everybody; mend it: chmod o-w {units}" in told
    assert list(units.iterdir()) == []


def test_a_file_that_is_a_link_is_neither_read_nor_replaced(root, setup, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("root's own\n")
    at(root, CONF).parent.mkdir(parents=True)
    at(root, CONF).symlink_to(secret)
    status, told = setup()
    assert status == 1
    assert f"{root}{CONF}: is not a plain file" in told
    assert "root's own" not in told
    assert secret.read_text() == "root's own\n"


def test_links_to_the_program_are_left_out_where_their_folder_is_a_link(
    root, setup, outside, monkeypatch
):
    """The daemon does without them."""
    program = at(root, "/opt/scheduler/bin/ovirt-scheduler")
    program.parent.mkdir(parents=True)
    program.touch()
    at(root, "/usr/local").symlink_to(outside)
    monkeypatch.setattr("sys.argv", [str(program)])
    status, told = setup()
    assert status == 0, told
    assert "skipped: /usr/local/bin/ovirt-scheduler, as " in told


def test_of_the_old_plugins_no_target_of_a_link_is_copied(root, setup, tmp_path):
    """It may be any file of this machine's; the links are told."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.py").write_text("key\n")
    folder = at(root, OLD)
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text("class mine: pass\n")
    (folder / "key.py").symlink_to(secret / "key.py")
    (folder / "helpers").symlink_to(secret)
    status, told = setup("--adopt")
    assert status == 1
    assert f"copy mine.py from {OLD} to {ADOPTED}; copy yourself what is a link there: " in told
    assert "is a link there: helpers, key.py\n" in told
    assert [path.name for path in at(root, ADOPTED).rglob("*")] == ["mine.py"]


def test_an_old_folder_that_leads_elsewhere_is_not_copied(root, setup, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key.py").write_text("key\n")
    at(root, OLD).parent.mkdir(parents=True)
    at(root, OLD).symlink_to(tmp_path / "secret")
    status, told = setup("--adopt")
    assert status == 1
    assert f"{root}{OLD}: is a link to " in told
    assert not at(root, ADOPTED).exists()


@pytest.mark.parametrize("name", ["/etc/passwd", "/etc/group", "/etc/shadow"])
def test_an_image_whose_accounts_are_links_keeps_them(root, tmp_path, name):
    """Programs that make users would edit those of this machine."""
    other = tmp_path / "accounts"
    other.write_text("root:x:0:0::/:/bin/sh\n")
    at(root, "/etc/passwd").unlink()
    at(root, name).symlink_to(other)
    machine = Machine(root, live=False)
    with pytest.raises(StepFailed, match=r"is a link|is not a plain file"):
        User(machine, step.SetupRecord()).plan().act()
    with pytest.raises(StepFailed, match=f"{name}: is a link; put a file in its place"):
        machine.check_accounts()
    assert other.read_text() == "root:x:0:0::/:/bin/sh\n"


def test_a_unit_is_not_enabled_through_a_link_of_an_image(root, outside):
    """systemctl would make its link in a folder of this machine."""
    machine = Machine(root, live=False)
    if not machine.tool("systemctl"):
        pytest.skip("systemctl is not here")
    wants = Path("/etc/systemd/system/multi-user.target.wants")
    at(root, str(wants)).parent.mkdir(parents=True)
    at(root, str(wants)).symlink_to(outside)
    at(root, f"{wants.parent}/ovirt-scheduler.service").write_text(
        "[Install]\nWantedBy=multi-user.target\n"
    )
    with pytest.raises(StepFailed, match=f"{wants}: is a link to "):
        Service(machine, step.SetupRecord(), ()).plan().act()
