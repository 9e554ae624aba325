"""The steps for the machine itself: user, folders, links, certificate, service."""

from __future__ import annotations

import contextlib
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Optional

from ovirt_scheduler import __version__
from ovirt_scheduler.command import control_client
from ovirt_scheduler.command.setup.machine import Machine, Owner, acting_as
from ovirt_scheduler.command.setup.shipped_files import (
    PACKAGES,
    UNIT,
    SchedulerConf,
    ShippedFile,
    shipped,
)
from ovirt_scheduler.command.setup.step import SetupRecord, SetupStep, StepPlan, checksum
from ovirt_scheduler.errors import StepFailed
from ovirt_scheduler.model import manual
from ovirt_scheduler.security import certificates

USER = "ovirt-scheduler"
OLD_UNIT = "ovirt-scheduler-proxy.service"
STATE_FOLDER = "/var/lib/ovirt-scheduler"

_UNITS = "/etc/systemd/system"
_LOCAL = Path("/usr/local")
_ON_THE_WAY = tuple(map(Path, ("/usr/bin", "/bin", "/usr/local/bin")))  # where shells look
_SHOWN = (
    "bin/ovirt-scheduler",
    "share/man/man1/ovirt-scheduler.1",
    "share/man/man5/ovirt-scheduler.conf.5",
    "share/bash-completion/completions/ovirt-scheduler",
    "share/zsh/site-functions/_ovirt-scheduler",
    manual.FOLDER,
)
# What the daemon writes there: last good plugins, state of clusters, lock, history. A removal
# deletes it.
_DAEMONS_OWN = {STATE_FOLDER: ("plugins", "clusters.json", "lock", "control", "history.sqlite*")}


class User(SetupStep):
    """Makes the user of the daemon and the plugins."""

    def plan(self) -> StepPlan:
        """Plan to make the user."""
        if self.machine.owner(USER):
            return StepPlan(f"already so: the user {USER}")
        return StepPlan(f"make the user {USER}", self._make, noted={"user": True})

    def _make(self) -> None:
        machine = self.machine
        machine.check_accounts()
        command = [
            "useradd", *machine.root_option("--prefix"), "--system", "--user-group",
            "--no-create-home", "--home-dir", STATE_FOLDER, "--shell", "/usr/sbin/nologin", USER,
        ]  # fmt: skip
        if machine.tool("systemd-sysusers"):  # it uses a group of that name, if there is one
            users = shipped("systemd/sysusers.d/ovirt-scheduler.conf")
            command = ["systemd-sysusers", f"--root={machine.root}", str(users)]
        try:
            machine.run(command)
        finally:  # a failed run may have made it; a user that was made by hand must stay
            self.record.user = self.machine.owner(USER) is not None

    def plan_removal(self) -> StepPlan:
        """Plan to remove the user if setup made it and it owns no folder."""
        owner = self.machine.owner(USER)
        if not owner:
            return StepPlan(f"nothing to undo: no user {USER}")
        if not self.record.user:
            return StepPlan(f"kept: the user {USER}, who was there before")
        remaining = [each for each in folders(self.machine, self.record) if each.is_of(owner)]
        if remaining:
            names = " and ".join(each.name for each in remaining)
            return StepPlan(f"kept: the user {USER}, who owns {names}")
        return StepPlan(f"remove the user {USER}", self._remove)

    def _remove(self) -> None:
        self.machine.check_accounts()
        self.machine.run(["userdel", *self.machine.root_option("--prefix"), USER])


@dataclass
class Folder(SetupStep):
    """Makes a folder of root's, or of the daemon's user, that only its owner may write."""

    name: str  # the machine's name of the folder
    mode: int
    user: str  # the owner

    def plan(self) -> StepPlan:
        """Plan to make the folder, or to take the permission to write from others.

        Raises:
            StepFailed: it is a link, or belongs to somebody else.
        """
        try:
            with self.machine.opened(self.name, self._owner()) as place:
                mode = place.stat().st_mode
        except FileNotFoundError:
            words = f"make the folder {self.name}, mode {self.mode:04o}, of {self.user}"
            folder_names = sorted({*self.record.folders, self.name})
            return StepPlan(words, self._make, noted={"folders": folder_names})
        if mode & 0o022:
            words = f"close the folder {self.name} to other writers, mode {self.mode:04o}"
            return StepPlan(words, self._close)
        return StepPlan(f"already so: the folder {self.name}")

    def _owner(self) -> Optional[Owner]:
        return self.machine.owner(USER) if self.user == USER else Owner(0, 0)

    def is_of(self, owner: Owner) -> bool:
        """Whether the folder exists and belongs to a user, or is a link, maybe to one."""
        status = self.machine.status(self.name)
        if status is None or self.name in self.machine.gone:
            return False
        return status.st_uid == owner.uid or stat.S_ISLNK(status.st_mode)

    def _make(self) -> None:
        owner = self._owner()
        if owner is None:
            raise StepFailed(f"{self.name}: there is no user {self.user} to give it to")
        self.machine.make_folder(self.name, self.mode, owner)

    def _close(self) -> None:
        with self.machine.opened(self.name, self._owner()) as place:
            place.chmod(self.mode)

    def plan_removal(self) -> StepPlan:
        """Plan to remove the folder if setup made it and it holds nothing but the daemon's own."""
        machine = self.machine
        target = machine.link_target(self.name)
        if target is None:
            return StepPlan(f"nothing to undo: no folder {self.name}")
        if target:
            return StepPlan(f"kept: {self.name}, which is a link now")
        if self.name not in self.record.folders:
            return StepPlan(f"kept: the folder {self.name}, which was there before")
        with machine.opened(self.name, self._owner()) as place:
            others = sorted(
                entry.name
                for entry in place.iterdir()
                if f"{self.name}/{entry.name}" not in machine.gone
                and not any(map(entry.match, _DAEMONS_OWN.get(self.name, ())))
            )
        if others:
            return StepPlan(f"kept: the folder {self.name}, which holds {', '.join(others)}")
        remove = partial(machine.remove, self.name)
        return StepPlan(f"remove the folder {self.name}", remove, removes=self.name)


def folders(machine: Machine, record: SetupRecord) -> Iterator[Folder]:
    """The folders that ``tmpfiles.d`` lists."""
    for line in shipped("systemd/tmpfiles.d/ovirt-scheduler.conf").read_text().splitlines():
        if line.startswith("d "):
            _, name, mode, user, _group, _age = line.split()
            yield Folder(machine, record, name, int(mode, 8), user)


@dataclass
class Link(SetupStep):
    """Makes a link where the shell or man(1) looks, to a file of a virtual environment."""

    name: str
    target: str

    def plan(self) -> StepPlan:
        """Plan to make the link, unless the name is taken."""
        try:
            current_target = self.machine.link_target(self.name)
        except StepFailed as error:  # the daemon does without
            return StepPlan(f"skipped: {self.name}, as {error}")
        if current_target == self.target:
            return StepPlan(f"already so: {self.name} leads to {self.target}")
        if current_target is not None and current_target != self.record.links.get(self.name):
            return StepPlan(f"kept: {self.name}, which was there before")
        recorded_links = {**self.record.links, self.name: self.target}
        make = partial(self.machine.link, self.name, self.target)
        return StepPlan(f"link {self.name} to {self.target}", make, noted={"links": recorded_links})

    def plan_removal(self) -> StepPlan:
        """Plan to remove the link if it still has the target that setup gave it."""
        current_target = self.machine.link_target(self.name)
        if current_target is None:
            return StepPlan(f"nothing to undo: no link {self.name}")
        if current_target != self.record.links.get(self.name):
            return StepPlan(f"kept: {self.name}, which setup did not make")
        remove = partial(self.machine.remove, self.name)
        return StepPlan(f"remove {self.name}", remove, removes=self.name)


def links(machine: Machine, record: SetupRecord) -> Iterator[Link]:
    """The links to the program, its completion and its manual in a virtual environment."""
    targets = dict(record.links)
    program = machine.program()
    if program and Path(program).parent not in _ON_THE_WAY:
        prefix = Path(program).parents[1]
        present = [each for each in _SHOWN if machine.path(str(prefix / each)).exists()]
        targets.update((str(_LOCAL / each), str(prefix / each)) for each in present)
    for name, target in targets.items():
        yield Link(machine, record, name, target)


@dataclass
class Certificate(SetupStep):
    """Makes the certificate that the daemon would otherwise make at its first start."""

    conf: SchedulerConf
    name: ClassVar[str] = f"{STATE_FOLDER}/certificate"
    file: ClassVar[str] = str(certificates.files_in(Path(name)).certificate)

    def plan(self) -> StepPlan:
        """Plan to make the certificate, as the daemon's user."""
        values = self.conf.values()
        if not values["ssl"] or values["ssl_certificate"] is not None:
            return StepPlan("already so: scheduler.conf needs no certificate to be made")
        if certificates.files_in(self.machine.path(self.name)).certificate.exists():
            return StepPlan(f"already so: the certificate in {self.name}")
        if not self.machine.live:
            return StepPlan(
                "left to the daemon: the certificate, made on the machine's first start"
            )
        address = values["listening_address"]
        return StepPlan(f"make a certificate in {self.name}", lambda: self._make(address))

    def _make(self, address: str) -> None:
        owner = self.machine.owner(USER)
        if owner is None:
            raise StepFailed(f"{self.name}: there is no user {USER} to give it to")
        with acting_as(owner):
            pair = certificates.ensure(self.machine.path(self.name), address)
        # Its checksum is known now; without one in the record, a removal leaves the certificate.
        self.record.certificate = checksum(pair.certificate.read_bytes())

    def plan_removal(self) -> StepPlan:
        """Plan to remove the certificate if it is the one that setup made."""
        machine, owner = self.machine, self.machine.owner(USER)
        try:
            if machine.link_target(self.name, owner) is None:
                return StepPlan("nothing to undo: no certificate")
            present = machine.read(self.file, owner)
        except StepFailed as error:
            return StepPlan(f"kept: {self.name}; {error}")
        if present is None or self.record.certificate != checksum(present):
            return StepPlan(f"kept: {self.name}, which setup did not make")
        remove = partial(machine.remove, self.name, owner)
        return StepPlan(f"remove the certificate in {self.name}", remove, removes=self.name)


@dataclass
class Service(SetupStep):
    """Enables and starts the unit. It stops the old proxy's, which has the same port."""

    files: Sequence[ShippedFile]

    def plan(self) -> StepPlan:
        """Plan to enable and start the unit.

        It is started again if it ended, if a file changed, or if it runs another version.
        """
        machine, record, commands, why = self.machine, self.record, [], ""
        if not machine.tool("systemctl"):
            return StepPlan("skipped: the unit, as there is no systemctl here")
        if machine.live and not machine.runs_systemd:
            return StepPlan(
                "skipped: the unit, as systemd does not run; start ovirt-scheduler serve"
            )
        disables = self._has_old_unit() and self._is("enabled", OLD_UNIT)
        enables = not self._is("enabled")
        if disables:
            commands.append(["disable", *self._now(), OLD_UNIT])
        if enables:
            commands.append(["enable", *self._now(), UNIT])
        elif machine.live:
            why = self._other_version()
            if why or any(file.changed for file in self.files) or not self._is("active"):
                commands.append(["restart", UNIT])  # which starts it, too
        if not commands:
            return StepPlan(f"already so: {UNIT} is enabled{' and runs' * machine.live}")
        noted = {"enabled": record.enabled or enables, "old_proxy": record.old_proxy or disables}
        plan = self._planned(commands)
        return plan._replace(words=plan.words + why, noted=noted)

    def _other_version(self) -> str:
        """A note that the running daemon has another version than this command; else empty."""
        version = control_client.running_version(self.machine.path(STATE_FOLDER))
        if version in (None, __version__):
            return ""
        return f", as version {version} runs, and {__version__} is installed"

    def _planned(self, commands: list[list[str]]) -> StepPlan:
        words = "; ".join(" ".join(["run systemctl", *command]) for command in commands)
        return StepPlan(words, partial(self._run, commands))

    def _systemctl(self, *words: str) -> str:
        if not self.machine.live:  # systemctl follows links there, to folders outside of the image
            for folder in (_UNITS, f"{_UNITS}/multi-user.target.wants"):
                with contextlib.suppress(FileNotFoundError), self.machine.opened(folder):
                    pass
        return self.machine.run(["systemctl", *self.machine.root_option("--root"), *words])

    def _is(self, state: str, unit: str = UNIT) -> bool:
        """Whether a unit is enabled, or active."""
        try:
            self._systemctl(f"is-{state}", "-q", unit)
        except StepFailed:
            return False
        return True

    def plan_removal(self) -> StepPlan:
        """Plan to stop and disable the unit, and to start the old proxy's again."""
        if not self.machine.tool("systemctl"):
            return StepPlan("nothing to undo: there is no systemctl here")
        commands = []
        if self._is_up():  # whoever started it: its files are about to go
            commands.append(["stop", UNIT])
        ours = self.record.enabled or f"{_UNITS}/{UNIT}" in self.record.files
        if ours and self._is("enabled"):
            commands.append(["disable", UNIT])
        if self.record.old_proxy:
            commands.append(["enable", *self._now(), OLD_UNIT])
        if not commands:
            return StepPlan(f"nothing to undo: {UNIT} was not enabled by setup")
        return self._planned(commands)

    def _is_up(self) -> bool:
        """Whether the unit runs, or systemd is about to start it again."""
        if not self.machine.runs_systemd:
            return False
        state = self._systemctl("show", "--property=ActiveState", UNIT)
        return state.strip().partition("=")[2] not in ("inactive", "failed")

    def _run(self, commands: list[list[str]]) -> None:
        for command in commands:
            begun = time.time()
            try:
                self._systemctl(*command)
            except StepFailed as error:
                raise StepFailed(f"{error}{self._last_line(begun)}") from None

    def _last_line(self, begun: float) -> str:
        """The daemon's last line in the journal, if there is one."""
        if not self.machine.runs_systemd:
            return ""
        only = [f"--since=@{begun:.6f}", f"_SYSTEMD_UNIT={UNIT}"]
        try:
            self.machine.run(["journalctl", "--sync"])
            line = self.machine.run(
                ["journalctl", "--quiet", "--reverse", "--lines=1", "--output=cat", *only]
            )
        except StepFailed:
            return ""
        return f"\nthe daemon's last line: {line.strip()}" if line.strip() else ""

    def _has_old_unit(self) -> bool:
        """Whether the old proxy has a unit; our alias of the same name does not count."""
        if self.machine.path(f"{_UNITS}/{OLD_UNIT}").is_symlink():
            return False
        names = [f"{folder}/systemd/system/{OLD_UNIT}" for folder in PACKAGES]
        return any(self.machine.path(name).exists() for name in names)

    def _now(self) -> list[str]:
        return ["--now"] * self.machine.runs_systemd
