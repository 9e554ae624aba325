"""The command for Enterprise Linux 8, with a dnf that only writes down what it is told."""

from __future__ import annotations

import shutil

import pytest

from tests.support import overlay
from tests.support.overlay import Overlay
from tests.support.paths import PROJECT
from tests.support.wheels import write_wheels

pytestmark = pytest.mark.long

PACKED = ("ovirt_scheduler", "plugins", "etc", "systemd", "completion", "demo", "docs", "packaging")


@pytest.fixture
def machine(tmp_path):
    """With the tests' Python as the one of AppStream, and the project in /srv/project."""
    if why := overlay.missing():
        pytest.skip(why)
    files = Overlay(tmp_path / "machine")
    files.write_program("dnf", '#!/bin/sh\necho "$@" >> /dnf\n')
    files.write_program("python3.12", f'#!/bin/sh\nexec {overlay.INTERPRETER}/bin/python3 "$@"\n')
    write_wheels(files.root / "wheels")
    project = files.root / "srv/project"
    for folder in PACKED:
        shutil.copytree(PROJECT / folder, project / folder, ignore=shutil.ignore_patterns("*.pyc"))
    for file in (*PROJECT.glob("*.md"), *PROJECT.glob("*.toml"), PROJECT / "setup.py"):
        shutil.copy(file, project)
    yield files
    files.end()


def test_one_command_installs_and_sets_up_the_daemon(machine):
    """dnf gets packages of AppStream alone; run again, as for an upgrade, it changes nothing."""
    machine.run("/srv/project/packaging/enterprise-linux-8")
    assert (machine.root / "dnf").read_text().startswith("install -y python3.12 python3.12-devel ")
    assert "all is well" in machine.run("/usr/local/bin/ovirt-scheduler", "check")
    assert (machine.root / "etc/systemd/system/ovirt-scheduler.service").exists()
    told = machine.run("/srv/project/packaging/enterprise-linux-8")
    assert "already so: /etc/systemd/system/ovirt-scheduler.service" in told
