"""The steps that install files of the package: the unit, scheduler.conf, the plugins' conf files.

A file that nobody edited is replaced. One that was edited stays, and the new one goes beside it.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.command.setup.step import SetupRecord, SetupStep, StepPlan, checksum
from ovirt_scheduler.errors import StepFailed
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.settings.conf_file import ConfFile

UNIT = "ovirt-scheduler.service"
CONF_FOLDER = "/etc/ovirt/scheduler"
CONF = f"{CONF_FOLDER}/scheduler.conf"
PACKAGES = ("/usr/lib", "/lib")  # a package has there the files that setup puts into /etc

# The unit hides these from the daemon (ProtectHome, PrivateTmp).
_HIDDEN = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # noqa: S108

_REASONS = {  # why setup sets a key
    "root_api": "the engine calls / and expects its own form of answer there",
    "ssl": "no Java of the engine's is found here that could be made to trust a certificate",
    "plugins_path": "the plugins of the old proxy are called beside the samples",
}


def shipped(name: str) -> Path:
    """The path of a file or folder that the package brings; in a checkout it is beside it."""
    package = Path(__file__).resolve().parents[2]
    within = package / name
    return within if within.exists() else package.parent / name


@dataclass
class ShippedFile(SetupStep):
    """Installs a file. One that was edited stays, and the new one goes beside it."""

    name: str  # the machine's name of the file
    data: bytes  # the content that it is to have
    plain: bytes  # the content as shipped, without the keys and paths of this machine
    changed: bool = False  # whether this step wrote it

    @property
    def _beside(self) -> str:
        """The name of the new file beside one that was edited."""
        return f"{self.name}.new"

    @property
    def _ours(self) -> list[str]:
        """The checksums of what setup wrote as this file, or beside it."""
        return self.record.files.get(self.name, [])

    @property
    def edited(self) -> bool:
        """Whether the file holds neither what is shipped nor what setup ever wrote."""
        present = self.machine.read(self.name)
        unedited = {*self._ours, checksum(self.plain), checksum(self.data)}
        return present is not None and checksum(present) not in unedited

    def plan(self) -> StepPlan:
        """Plan to write the file, or to put it beside one that was edited."""
        present = self.machine.read(self.name)
        if present == self.data:
            return StepPlan(f"already so: {self.name}")
        if not self.edited:
            existed = present is not None and not self._ours
            verb = "write" if present is None else "replace"
            former = self.plain if present is None else present
            words = f"{verb} {self.name}{self._difference(former)}"
            return StepPlan(words, self._write, noted=self._noted(existed))
        written_before = checksum(self.data) in self._ours
        if written_before or self.machine.read(self._beside) == self.data:
            return StepPlan(f"kept: {self.name}, which was edited")
        return StepPlan(
            f"keep {self.name}, which was edited, and put the new one beside it: {self._beside}",
            lambda: self.machine.write(self._beside, self.data),
            noted=self._noted(False),
        )

    def _difference(self, former: bytes) -> str:
        """The lines that change, each on a line of its own."""
        old, new = (data.decode("utf-8", "replace").splitlines() for data in (former, self.data))
        lines = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]  # without file names
        return "".join(f"\n    {line}" for line in lines if not line.startswith("@"))

    def _noted(self, existed: bool) -> dict[str, object]:
        ours = list(dict.fromkeys([*self._ours, checksum(self.data)]))
        return {
            "existing_files": [*self.record.existing_files, *[self.name] * existed],
            "files": {**self.record.files, self.name: ours},
        }

    def _write(self) -> None:
        self.machine.write(self.name, self.data)
        self.changed = True

    def plan_removal(self) -> StepPlan:
        """Plan to remove the file if it was not edited, or the new one beside it."""
        present = self.machine.read(self.name)
        beside = self.machine.read(self._beside)
        if beside is not None and checksum(beside) in self._ours:
            return StepPlan(
                f"keep {self.name}, which was edited, and remove {self._beside}",
                partial(self.machine.remove, self._beside),
                removes=self._beside,
            )
        if present is None:
            return StepPlan(f"nothing to undo: no {self.name}")
        if not self._ours:
            return StepPlan(f"kept: {self.name}, which was there before")
        if checksum(present) not in self._ours:
            return StepPlan(f"kept: {self.name}, which was edited")
        if self.name in self.record.existing_files:
            write = partial(self.machine.write, self.name, self.plain)
            return StepPlan(f"restore {self.name}", write)
        return StepPlan(f"remove {self.name}", self._unlink, removes=self.name)

    def _unlink(self) -> None:
        self.machine.remove(self.name)


class SchedulerConf(ShippedFile):
    """Installs scheduler.conf as it is shipped, with some keys set."""

    def __init__(self, machine: Machine, record: SetupRecord, keys: dict[str, str]) -> None:
        """Make the step.

        Args:
            keys: of the part above the sections, with their values. The record keeps them for
                the next run.
        """
        self._keys = keys
        plain = shipped("etc/scheduler.conf").read_bytes()
        super().__init__(machine, record, CONF, _with_keys(plain, keys), plain)

    def plan(self) -> StepPlan:
        """Plan as for any file. The administrator has to set the keys in one that was edited."""
        plan = super().plan()
        missing = self.missing()
        if not missing:
            set_anew = [key for key in self._keys if plan.act and not self.edited]
            why = "".join(f"\n    {key}: {_REASONS[key]}" for key in set_anew)
            return plan._replace(words=plan.words + why)
        lines = " and ".join(f"'{key} = {value}'" for key, value in missing.items())
        return plan._replace(words=f"{plan.words}; add {lines} to it yourself", by_hand=True)

    def missing(self) -> dict[str, str]:
        """The keys that have another value in an edited file, with the needed values."""
        if not self.edited:
            return {}
        present, needed = self._present(), self._parsed(self.data)
        return {key: value for key, value in self._keys.items() if present[key] != needed[key]}

    def values(self) -> dict[str, Any]:
        """The settings after this step, and after what it leaves to the administrator.

        So the steps after it fit what this one says.

        Raises:
            ConfigError: the file was edited, and is wrong.
        """
        needed = self._parsed(self.data)
        return {**self._present().values, **{key: needed[key] for key in self._keys}}

    def _present(self) -> ConfFile:
        edited = self.machine.read(self.name) if self.edited else None
        return self._parsed(self.data if edited is None else edited)

    def _parsed(self, data: bytes) -> ConfFile:
        return scheduler_conf.parse(data, self.machine.path(self.name))

    def _noted(self, existed: bool) -> dict[str, object]:
        return {**super()._noted(existed), "conf_keys": self._keys}


def _with_keys(plain: bytes, keys: dict[str, str]) -> bytes:
    """Replace the comment that shows a key's default by the key's line."""
    lines = plain.decode().splitlines()
    for key, value in keys.items():
        (place,) = [at for at, line in enumerate(lines) if line.startswith(f"#{key} =")]
        lines[place] = f"{key} = {value}"
    return "\n".join([*lines, ""]).encode()


class UnitFile(ShippedFile):
    """Installs the unit with the path of the program in it, and has systemd read it."""

    def __init__(self, machine: Machine, record: SetupRecord) -> None:
        file = f"systemd/system/{UNIT}"
        plain = shipped(f"systemd/{UNIT}").read_bytes()
        self._program = machine.program()
        start = f"ExecStart={self._program or '/usr/bin/ovirt-scheduler'}"
        unit = re.sub(r"(?m)^ExecStart=\S+", lambda _: start, plain.decode()).encode()
        super().__init__(machine, record, f"/etc/{file}", unit, plain)
        self._packaged = [f"{folder}/{file}" for folder in PACKAGES]

    def plan(self) -> StepPlan:
        """Plan as for any file; nothing if a package has the unit.

        Raises:
            StepFailed: the program is missing, or the daemon could not see it.
        """
        for other in self._packaged:
            if self.name not in self.record.files and self.machine.path(other).exists():
                return StepPlan(f"already so: {other}, of a package")
        plan = super().plan()
        if not plan.act:
            return plan
        if self._program is None:
            within = "" if self.machine.live else f" in {self.machine.root}, from within it"
            raise StepFailed(
                f"the program ovirt-scheduler is not installed; install the package first{within}: "
                "python3 -m venv /opt/ovirt-scheduler && /opt/ovirt-scheduler/bin/pip install ."
            )
        interpreter = self._interpreter(self._program)
        # A link counts as there: it may lead to another folder of the machine.
        if interpreter and not os.path.lexists(self.machine.path(interpreter)):
            raise StepFailed(
                f"{self._program}: is run by {interpreter}, which is not in "
                f"{self.machine.root}: a virtual environment is made where it is to be used; "
                f"make it from within, with chroot {self.machine.root}"
            )
        needed = [self._program]
        if interpreter:
            with contextlib.suppress(ValueError):  # a link out of an image's folder
                needed.append(self.machine.name(self.machine.path(interpreter).resolve()))
        hidden = [each for each in needed if each.startswith(_HIDDEN)]
        if hidden:
            raise StepFailed(
                f"{hidden[0]}: the unit hides this folder from the daemon; install the package "
                "elsewhere, such as in /opt/ovirt-scheduler with the system's python3"
            )
        return plan

    def _interpreter(self, program: str) -> str:
        """The Python that a program's first line names, or an empty text."""
        first = b""
        with contextlib.suppress(StepFailed):  # a link on the way, which is not ours to judge
            first = (self.machine.read(program) or b"").partition(b"\n")[0]
        return os.fsdecode(first[2:].split()[0]) if first.startswith(b"#!/") else ""

    def _write(self) -> None:
        super()._write()
        self._reload()

    def _unlink(self) -> None:
        super()._unlink()
        self._reload()

    def _reload(self) -> None:
        if self.machine.runs_systemd:
            self.machine.run(["systemctl", "daemon-reload"])


def conf_files(machine: Machine, record: SetupRecord) -> Iterator[ShippedFile]:
    """The conf files of the sample plugins, and logrotate's for the daemon's log."""
    places = dict.fromkeys(shipped("etc/plugins").glob("*.conf"), f"{CONF_FOLDER}/plugins")
    places[shipped("etc/logrotate.d/ovirt-scheduler")] = "/etc/logrotate.d"
    for file, folder in sorted(places.items()):
        content = file.read_bytes()
        yield ShippedFile(machine, record, f"{folder}/{file.name}", content, content)
