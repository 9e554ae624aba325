"""``ovirt-scheduler setup`` on machines that are folders, and its undoing."""

from __future__ import annotations

import os
import re
import resource
import shutil
import stat
from functools import partial
from pathlib import Path

import pytest

from ovirt_scheduler.command import cli
from ovirt_scheduler.command.setup import step
from ovirt_scheduler.command.setup.machine import Machine, Owner, acting_as
from ovirt_scheduler.command.setup.machine_steps import User
from ovirt_scheduler.command.setup.step import StepPlan
from ovirt_scheduler.security import trust
from ovirt_scheduler.settings import scheduler_conf
from tests.support import setup_root
from tests.support.command import spawned
from tests.support.paths import PROJECT
from tests.support.processes import open_folder
from tests.support.setup_root import CONF, OLDER, SHIPPED, STATE, UNIT, at, became, refused, tree

EDITED = "connection_timeout = 5\n"

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="takes root")


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_a_dry_run_tells_each_step_and_leaves_no_trace(root, setup):
    """And what it tells is what the run then does."""
    before = tree(root)
    status, told = setup("--dry-run")
    assert status == 0
    assert tree(root) == before
    _, done = setup()
    steps = [line[len("would ") :] for line in told.splitlines() if line.startswith("would ")]
    assert len(steps) > 10
    assert [
        line
        for line in done.splitlines()
        if not line.startswith(("already so", "left", "next:", "  "))
    ] == steps


@root_only
def test_a_dry_run_of_a_user_who_may_not_look_says_who_may(setup):
    """The state folder of a machine that is set up is open to its owner and root alone."""
    with open_folder() as folder:
        root = setup_root.made(folder)
        setup(root=root)
        with acting_as(Owner(65534, 65534)):
            status, told = setup("--dry-run", root=root)
    assert status == 1
    assert told.endswith(": Permission denied; run setup as root\n")


def test_the_first_run_puts_every_file_in_its_place(root, setup):
    """As it is shipped, with modes and owners that the daemon trusts."""
    status, told = setup()
    assert status == 0, told
    places = {
        CONF: "etc/scheduler.conf",
        "/etc/ovirt/scheduler/plugins/Memory.conf": "etc/plugins/Memory.conf",
        "/etc/logrotate.d/ovirt-scheduler": "etc/logrotate.d/ovirt-scheduler",
        UNIT: "systemd/ovirt-scheduler.service",
    }
    for place, source in places.items():
        assert at(root, place).read_bytes() == (PROJECT / source).read_bytes()
        assert stat.S_IMODE(at(root, place).stat().st_mode) == 0o644
        assert trust.tampering(at(root, place)) is None
    modes = {STATE: 0o700, "/var/log/ovirt-scheduler": 0o750, "/etc/ovirt/scheduler/plugins": 0o755}
    for folder, mode in modes.items():
        assert stat.S_IMODE(at(root, folder).stat().st_mode) == mode
    assert scheduler_conf.load(at(root, CONF), {}).listening_port == 18781
    assert trust.tampering(at(root, step.FILE)) is None


def test_a_second_run_finds_all_as_it_should_be(root, setup):
    """Nothing is written, not even again."""
    setup()
    before = tree(root)
    status, told = setup()
    assert status == 0
    assert all(
        line.startswith(("already so: ", "left to the daemon: ", "skipped: ", "next:", "  "))
        for line in told.splitlines()
    )
    assert tree(root) == before


def test_a_file_that_was_taken_away_comes_back(root, setup):
    """Where it was edited before or not."""
    setup()
    at(root, UNIT).unlink()
    assert f"write {UNIT}\n" in setup()[1]
    assert at(root, UNIT).exists()


def test_what_nobody_edited_is_replaced_by_a_later_version(root, setup):
    """The record knows what the earlier one had written."""
    setup()
    became(root, OLDER)
    assert f"replace {CONF}\n    -{OLDER}    +" in setup()[1]
    assert at(root, CONF).read_text("utf-8") == SHIPPED


def test_what_was_edited_stays_and_the_later_version_goes_beside_it(root, setup):
    """Once: the next run has nothing to do."""
    setup()
    became(root, OLDER)
    at(root, CONF).write_text(OLDER + EDITED, "utf-8")
    status, told = setup()
    assert status == 0
    assert f"keep {CONF}, which was edited, and put the new one beside it: {CONF}.new\n" in told
    assert at(root, CONF).read_text("utf-8") == OLDER + EDITED
    assert at(root, f"{CONF}.new").read_text("utf-8") == SHIPPED
    before = tree(root)
    assert f"kept: {CONF}, which was edited\n" in setup()[1]
    assert tree(root) == before


def test_an_edited_file_has_no_copy_beside_it_while_there_is_no_news(root, setup):
    """Only a version that the administrator has not seen is put there."""
    setup()
    at(root, CONF).write_text(EDITED + SHIPPED, "utf-8")
    assert f"kept: {CONF}, which was edited\n" in setup()[1]
    assert not at(root, f"{CONF}.new").exists()


def test_remove_leaves_what_there_was_before(root, setup):
    """Every file and folder of setup's is gone."""
    before = files(root)
    setup()
    dry = setup("--remove", "--dry-run")
    assert dry[0] == 0
    assert at(root, CONF).exists()
    status, told = setup("--remove")
    assert status == 0, told
    assert dry[1].replace("would ", "") == told
    assert files(root) == before
    assert not at(root, "/etc/ovirt").exists()
    assert not at(root, STATE).exists()
    assert setup("--remove") == (0, f"nothing to undo: there is no {at(root, step.FILE)}\n")


def test_remove_keeps_what_is_somebody_elses(root, setup):
    """Edited files, a conf file of a plugin of one's own, logs, and folders that were there."""
    at(root, "/var/log/ovirt-scheduler").mkdir(parents=True)
    setup()
    own_names = [f"Mine{number}.conf" for number in range(5)]
    for name in own_names:
        at(root, f"/etc/ovirt/scheduler/plugins/{name}").write_text("timeout = 3\n")
    own = f"/etc/ovirt/scheduler/plugins/{own_names[0]}"
    became(root, OLDER)
    at(root, CONF).write_text(EDITED, "utf-8")
    setup()
    at(root, UNIT).write_text("[Service]\n")
    (at(root, STATE) / "plugins").mkdir()  # the daemon's last good versions
    for file in ("clusters.json", "lock", "history.sqlite", "history.sqlite-wal"):
        (at(root, STATE) / file).touch()
    (at(root, STATE) / "history.sqlite.version-2").touch()
    dry = setup("--remove", "--dry-run")[1]
    status, told = setup("--remove")
    assert status == 0
    assert dry.replace("would ", "") == told
    assert f"keep {CONF}, which was edited, and remove {CONF}.new\n" in told
    assert at(root, CONF).read_text("utf-8") == EDITED
    assert not at(root, f"{CONF}.new").exists()
    assert f"kept: {UNIT}, which was edited\n" in told
    assert at(root, UNIT).read_text("utf-8") == "[Service]\n"
    assert at(root, own).exists()
    (kept,) = [
        line for line in told.splitlines() if "the folder /etc/ovirt/scheduler/plugins" in line
    ]
    assert kept == f"kept: the folder {Path(own).parent}, which holds {', '.join(own_names)}"
    assert at(root, "/var/log/ovirt-scheduler").is_dir()
    assert not at(root, STATE).exists()


def test_a_folder_that_became_a_link_stays_with_what_it_leads_to(root, setup, tmp_path):
    """On removal; another run refuses one that systemd would not give to the daemon."""
    setup()
    elsewhere = root / "srv"
    elsewhere.mkdir()
    (elsewhere / "history.sqlite").touch()
    at(root, STATE).rmdir()
    at(root, STATE).symlink_to("../../srv")
    assert f"{STATE}: is a link to ../../srv, and setup follows none" in refused(setup)
    status, told = setup("--remove")
    assert status == 0
    assert f"kept: {STATE}, which is a link now\n" in told
    assert at(root, STATE).is_symlink()
    assert (elsewhere / "history.sqlite").exists()


def test_the_user_is_found_among_others(root, setup):
    """Whatever alphabet their names are in, and however many fields they have."""
    passwd = at(root, "/etc/passwd")
    passwd.write_bytes(
        b"j\xf6rg:x:7:7:J\xf6rg:/:/bin/sh\novirt-scheduler-2\n" + passwd.read_bytes()
    )
    assert "already so: the user ovirt-scheduler\n" in setup("--dry-run")[1]


def test_a_file_that_is_far_too_long_is_not_read(root, setup):
    """Somebody has put a disk's image in the place of scheduler.conf."""
    setup()
    os.truncate(at(root, CONF), 1 << 30)
    assert "scheduler.conf: cannot be read: it is longer than 16 MiB" in refused(setup)


def test_a_certificate_that_is_a_pipe_holds_up_nobody(root, setup):
    """The daemon's user, who could make one, is not waited for."""
    setup()
    folder = at(root, STATE) / "certificate"
    folder.mkdir()
    os.mkfifo(folder / "certificate.pem")
    status, told = setup("--remove")
    assert status == 0
    assert "certificate.pem: is not a plain file" in told
    assert (folder / "certificate.pem").is_fifo()


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_folder_that_others_may_write_is_closed(root, setup, mode):
    """To its group and to everybody; once."""
    name = "/etc/ovirt/scheduler/plugins"
    setup()
    at(root, name).chmod(mode)
    assert f"close the folder {name} to other writers, mode 0755\n" in setup()[1]
    assert stat.S_IMODE(at(root, name).stat().st_mode) == 0o755
    assert f"already so: the folder {name}\n" in setup()[1]


def test_what_a_package_brought_is_not_brought_again(root, setup):
    """The unit of a package is not shadowed, its configuration not taken for an edited one."""
    packaged = "/usr/lib/systemd/system/ovirt-scheduler.service"
    for name, source in (
        (packaged, "systemd/ovirt-scheduler.service"),
        (CONF, "etc/scheduler.conf"),
    ):
        at(root, name).parent.mkdir(parents=True)
        shutil.copy(PROJECT / source, at(root, name))
    status, told = setup()
    assert status == 0
    assert f"already so: {packaged}, of a package\n" in told
    assert f"already so: {CONF}\n" in told
    assert not at(root, UNIT).is_file()
    setup("--remove")
    assert at(root, packaged).exists()
    assert at(root, CONF).read_text("utf-8") == SHIPPED


@root_only
@pytest.mark.parametrize("tools", [("systemd-sysusers", "userdel"), ("useradd", "userdel")])
def test_the_user_is_made_and_removed(tmp_path, tools):
    """By systemd-sysusers, or by useradd where there is none; in the machine's own files."""
    missing = [tool for tool in tools if not Machine(tmp_path, live=False).tool(tool)]
    if missing:
        pytest.skip(f"{missing[0]} is not here")

    class Of(Machine):
        """A machine with these tools alone."""

        def tool(self, name):
            return super().tool(name) if name in tools else None

    (tmp_path / "etc").mkdir()
    machine, record = Of(tmp_path, live=False), step.SetupRecord()
    user = User(machine, record)
    user.plan().act()
    assert machine.owner("ovirt-scheduler").uid < 1000
    assert user.plan() == StepPlan("already so: the user ovirt-scheduler")
    user.plan_removal().act()
    assert machine.owner("ovirt-scheduler") is None


@root_only
def test_the_user_is_made_where_its_group_is_left(tmp_path):
    """userdel leaves the group on a machine that has no /etc/login.defs."""
    machine = Machine(tmp_path, live=False)
    if not machine.tool("systemd-sysusers"):
        pytest.skip("systemd-sysusers is not here")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/group").write_text("ovirt-scheduler:x:900:\n")
    User(machine, step.SetupRecord()).plan().act()
    assert machine.owner("ovirt-scheduler").gid == 900


def test_a_link_that_leads_out_of_the_root_is_not_followed(root, setup, tmp_path):
    """With --root nothing outside of it is written."""
    (tmp_path / "outside").mkdir()
    (root / "var").symlink_to(tmp_path / "outside")
    assert f"{root}/var: is a link to {tmp_path}/outside, and setup follows none" in refused(setup)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_step_that_fails_tells_why_and_the_next_run_goes_on(root, setup):
    """What was done before it is recorded."""
    conf = "/etc/ovirt/scheduler/plugins/Memory.conf"
    at(root, conf).mkdir(parents=True)
    status, told = setup()
    assert status == 1
    assert told.splitlines()[-1].startswith(f"ovirt-scheduler: {at(root, conf)}: is not a plain")
    at(root, conf).rmdir()
    status, told = setup()
    assert status == 0
    assert f"already so: {CONF}\n" in told
    setup("--remove")
    assert not at(root, CONF).exists()


def test_a_disk_that_is_full_is_told(tmp_path, root):
    """With the file that was to be written."""
    no_room = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    status, _, err = spawned(tmp_path, "setup", "--root", root, preexec_fn=no_room)
    assert status == 1
    assert re.fullmatch(
        rf"ovirt-scheduler: {root}/.*: cannot be written: File too large; .*\n", err
    )


@pytest.mark.parametrize("options", [["--dry-run"], []])
def test_a_reader_that_goes_away_is_no_failure(tmp_path, root, options):
    """As with head: a run does the rest untold."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        words = ("setup", "--root", root, *options)
        ended = spawned(tmp_path, *words, stdout=closed, env={"PYTHONUNBUFFERED": ""})
    assert ended == (0, None, "")
    assert at(root, "/etc/ovirt/scheduler/plugins/VmBalance.conf").exists() == (not options)


@pytest.mark.parametrize("rubbish", ["{", "[]", '{"files": []}', '{"user": 1}', '{"more": 1}'])
def test_a_record_that_cannot_be_read_is_told(root, setup, rubbish):
    """With what to do about it."""
    setup()
    at(root, step.FILE).write_text(rubbish)
    assert "remove it, and setup looks at everything again" in refused(setup)


def test_a_record_that_is_out_of_reach_is_not_to_be_removed(root, setup):
    """It is good, and without it nothing could be undone."""
    (root / "var").mkdir()
    (root / "var/lib").write_text("in the way")
    status, told = setup("--dry-run")
    assert status == 1
    assert told == f"ovirt-scheduler: {at(root, step.FILE)}: cannot be read: Not a directory\n"


def test_remove_is_for_all_of_it(setup):
    """Wrong usage is exit status 2."""
    assert setup("--remove", "--engine")[0] == 2


@root_only
def test_only_root_sets_this_machine_up(capsys):
    """Exit status 77, and what anybody may do instead."""
    os.seteuid(65534)
    try:
        assert cli.main(["setup"]) == os.EX_NOPERM
    finally:
        os.seteuid(0)
    assert "--dry-run" in capsys.readouterr().err
