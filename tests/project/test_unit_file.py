"""The files for systemd, read by systemd's own tools."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import stat
import subprocess

import pytest

from tests.support.command import executed
from tests.support.paths import PROJECT

PAGES = ("security", "operations", "reliability")
UNIT = PROJECT / "systemd" / "ovirt-scheduler.service"
FOLDERS = PROJECT / "systemd" / "tmpfiles.d" / "ovirt-scheduler.conf"
USERS = PROJECT / "systemd" / "sysusers.d" / "ovirt-scheduler.conf"

analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here"
)


def run(*command):
    return executed(*command, stdin=subprocess.DEVNULL)


@pytest.fixture
def installed(tmp_path):
    """The unit with a program that is there, whatever is installed here."""
    copy = tmp_path / UNIT.name
    text, changed = re.subn("(?m)^ExecStart=.*", "ExecStart=/bin/sh -c true", UNIT.read_text())
    assert changed == 1
    copy.write_text(text)
    return copy


@analyze
def test_the_unit_is_one_that_systemd_understands(installed):
    """Every key and value, without a word."""
    ended = run("systemd-analyze", "verify", str(installed))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@analyze
def test_the_unit_is_closed_as_far_as_plugins_allow(installed):
    """At most 2.0 of 10 (systemd-analyze security)."""
    ended = run(
        "systemd-analyze",
        "security",
        "--offline=true",
        "--threshold=20",
        "--no-pager",
        str(installed),
    )
    if "--offline" in ended.stderr or "unrecognized option" in ended.stderr:
        pytest.skip("systemd-analyze before version 250")
    assert ended.returncode == 0, ended.stdout


@analyze
def test_the_drop_in_for_plugin_user_opens_no_more_than_it_says(installed):
    """Understood without a word; at most 2.5 of 10 then."""
    page = (PROJECT / "docs" / "security.md").read_text()
    block = re.search(r"(?m)^    \[Service\]\n(?:    .+\n)+", page).group(0)
    folder = installed.with_name(f"{installed.name}.d")
    folder.mkdir()
    (folder / "plugin-user.conf").write_text(re.sub("(?m)^    ", "", block))
    ended = run("systemd-analyze", "verify", str(installed))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    ended = run(
        "systemd-analyze",
        "security",
        "--offline=true",
        "--threshold=25",
        "--no-pager",
        str(installed),
    )
    if "--offline" in ended.stderr or "unrecognized option" in ended.stderr:
        pytest.skip("systemd-analyze before version 250")
    assert "Service runs as root user" in ended.stdout
    assert ended.returncode == 0, ended.stdout


def test_the_unit_says_what_the_daemon_relies_on():
    """Readiness, watchdog, exit status 78, order, the old proxy's name."""
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) >= 30  # a probe may take as long as an analysis
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "78"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["KillMode"] == "mixed"
    assert unit["Unit"]["Before"] == "ovirt-engine.service"
    assert unit["Install"]["Alias"] == "ovirt-scheduler-proxy.service"
    assert "MemoryDenyWriteExecute" not in service


def test_the_unit_has_each_line_that_the_manual_tells_of():
    """What bounds plugins, above all."""
    pages = [(PROJECT / "docs" / f"{name}.md").read_text("utf-8") for name in PAGES]
    told = set(re.findall("`([A-Z][a-z]+[A-Za-z]*=[^`]+)`", "".join(pages)))
    assert {"PrivateIPC=yes", "MemoryMax=75%"} <= told
    assert told - {*UNIT.read_text("utf-8").splitlines()} == set()


def test_the_units_user_is_made_by_sysusers():
    """One name in both files."""
    user = re.search("(?m)^User=(.+)$", UNIT.read_text()).group(1)
    assert re.search(f"(?m)^u {user} ", USERS.read_text())


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not here")
def test_sysusers_takes_the_file(tmp_path):
    """In a root of its own: it would make the user."""
    (tmp_path / "etc").mkdir()
    ended = run("systemd-sysusers", f"--root={tmp_path}", "--dry-run", str(USERS))
    assert ended.returncode == 0, ended.stderr
    assert "ovirt-scheduler" in ended.stderr + ended.stdout


@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="systemd-tmpfiles is not here")
def test_tmpfiles_makes_the_folders(tmp_path):
    """In a root of its own, where the user is whoever runs the tests."""
    (tmp_path / "etc").mkdir()
    name = "ovirt-scheduler:x:%d:"
    (tmp_path / "etc" / "passwd").write_text(f"{name % os.getuid()}{os.getgid()}::/:/bin/false\n")
    (tmp_path / "etc" / "group").write_text(f"{name % os.getgid()}\n")
    text = FOLDERS.read_text().replace("root root", "ovirt-scheduler ovirt-scheduler")
    (tmp_path / "folders.conf").write_text(text)
    ended = run(
        "systemd-tmpfiles", f"--root={tmp_path}", "--create", str(tmp_path / "folders.conf")
    )
    assert ended.returncode == 0, ended.stderr
    modes = {
        "etc/ovirt/scheduler/plugins": 0o755,
        "var/lib/ovirt-scheduler": 0o700,
        "var/log/ovirt-scheduler": 0o750,
    }
    for folder, mode in modes.items():
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == mode


def test_tmpfiles_and_the_unit_agree_on_the_folders():
    """Whoever comes first makes them the same."""
    unit = UNIT.read_text()
    made = dict(re.findall(r"(?m)^d (\S+) (\d+) ", FOLDERS.read_text()))
    for kind, above in (("State", "/var/lib"), ("Logs", "/var/log"), ("Configuration", "/etc")):
        for folder in re.search(f"(?m)^{kind}Directory=(.+)$", unit).group(1).split():
            mode = re.search(f"(?m)^{kind}DirectoryMode=(.+)$", unit)
            assert made.pop(f"{above}/{folder}") == (mode.group(1) if mode else "0755")
    assert made == {"/etc/ovirt": "0755"}  # which the unit makes on its way
