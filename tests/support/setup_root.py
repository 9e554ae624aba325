"""A folder that stands for the machine that ``ovirt-scheduler setup`` sets up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable

from ovirt_scheduler.command.setup import step
from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.command.setup.step import checksum
from tests.support.paths import PROJECT

CONF = "/etc/ovirt/scheduler/scheduler.conf"
UNIT = "/etc/systemd/system/ovirt-scheduler.service"
STATE = "/var/lib/ovirt-scheduler"
SHIPPED = (PROJECT / "etc" / "scheduler.conf").read_text("utf-8")
OLDER = "# scheduler.conf of an earlier version\n"


def made(tmp_path: Path) -> Path:
    """One that has the user already, so that nothing depends on who runs the tests."""
    for folder in ("etc", "usr/bin"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    (tmp_path / "root/usr/bin/ovirt-scheduler").touch()
    user = f"ovirt-scheduler:x:{os.geteuid()}:{os.getegid()}::{STATE}:/usr/sbin/nologin\n"
    (tmp_path / "root" / "etc" / "passwd").write_text(user)
    return tmp_path / "root"


def at(root: Path, name: str) -> Path:
    return root / name.lstrip("/")


def became(root: Path, version: str) -> None:
    """Have the machine look as though an earlier version of setup had written scheduler.conf."""
    machine = Machine(root, live=False)
    record = step.load(machine)
    record.files[CONF] = [checksum(version.encode())]
    step.save(machine, record)
    at(root, CONF).write_text(version, "utf-8")


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """All that there is below a folder, with what would show that it was touched."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes(),
        )
        for path in sorted(root.rglob("*"))
    }


def refused(setup: Callable[..., tuple[int, str]], *options: str) -> str:
    """What is told by a run that fails."""
    status, told = setup(*options)
    assert status == 1
    return told
