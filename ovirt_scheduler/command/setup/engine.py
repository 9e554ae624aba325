"""The steps for the engine: its trust store and settings, and the old proxy's plugins.

docs/engine.md describes ``engine-config`` and the Java that the engine uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Optional

from ovirt_scheduler import manual
from ovirt_scheduler.command.setup.files import CONF, CONF_FOLDER, SchedulerConf
from ovirt_scheduler.command.setup.machine import MOST_BYTES, Machine
from ovirt_scheduler.command.setup.step import Plan, Step
from ovirt_scheduler.command.setup.steps import Certificate
from ovirt_scheduler.errors import StepFailed
from ovirt_scheduler.security import certificates, trust
from ovirt_scheduler.security.addresses import url_host
from ovirt_scheduler.security.atomic_file import read_whole

OLD_PLUGINS = "/usr/share/ovirt-scheduler-proxy/plugins"
ADOPTED = f"{CONF_FOLDER}/old-plugins"

_ENGINE_CONFIG = "/usr/bin/engine-config"
_JAVA_HOME = "/usr/share/ovirt-engine/bin/java-home"  # prints which Java the engine runs on
_ENABLED = "ExternalSchedulerEnabled"
ENGINE_KEYS = ("ExternalSchedulerServiceURL", _ENABLED)  # have the engine call this scheduler
_COMPILED = (".pyc", ".pyo")
_ALIAS = "ovirt-scheduler"
_PASSWORD = "changeit"  # noqa: S105  every Java's; the store holds certificates alone


class Java(NamedTuple):
    """The tool and the trust store of the engine's Java, as paths of this process."""

    keytool: Path
    store: Path


def java(machine: Machine) -> Optional[Java]:
    """Find the trust store that the engine's Java uses, and the tool for it; not in an image."""
    java_home = machine.path(_JAVA_HOME)
    if not machine.live or not java_home.exists():
        return None
    home = machine.path(machine.run([str(java_home)]).strip())
    found = Java(home / "bin/keytool", home / "lib/security/cacerts")
    return found if found.keytool.exists() and found.store.exists() else None


def keytool(found: Java, action: str, suffix: str = "") -> list[str]:
    """The beginning of a command on the certificate in a trust store.

    Args:
        suffix: of its name in the store, for a second certificate.
    """
    return [str(found.keytool), action, "-alias", f"{_ALIAS}{suffix}", "-storepass", _PASSWORD,
            "-keystore", str(found.store)]  # fmt: skip


@dataclass
class TrustStore(Step):
    """Has the engine's Java trust the daemon's certificate."""

    conf: SchedulerConf

    def plan(self) -> Plan:
        """Plan to import the certificate, and to replace a former one."""
        if not self.conf.values()["ssl"]:
            return Plan("already so: ssl = false, so the engine needs to trust no certificate")
        found = java(self.machine)
        if found is None:
            page = manual.page("engine.md")
            words = f"have the engine's Java trust the certificate ({page}), or set ssl = false"
            return Plan(f"left to you: {words} in {CONF}", left=True)
        wanted = self._certificate()
        stored = self._stored(found)
        if wanted.exists() and certificates.describe(wanted).fingerprint in stored:
            return Plan(f"already so: {found.store} trusts the certificate")
        commands = [keytool(found, "-delete")] if stored else []
        commands.append([*keytool(found, "-importcert"), "-noprompt", "-file", str(wanted)])
        words = "; ".join(" ".join(["run", *command]) for command in commands)
        stores = {*self.record.trust_stores, self.machine.name(found.store)}
        run = self.machine.run
        return Plan(words, lambda: [*map(run, commands)], noted={"trust_stores": sorted(stores)})

    def plan_removal(self) -> Plan:
        """Plan to delete the certificate from the store."""
        found = java(self.machine) if self.record.trust_stores else None
        if found is None or self.machine.name(found.store) not in self.record.trust_stores:
            return Plan("nothing to undo: setup put the certificate into no trust store")
        if not self._stored(found):
            return Plan(f"already so: {found.store} has no {_ALIAS}")
        command = keytool(found, "-delete")
        return Plan(" ".join(["run", *command]), partial(self.machine.run, command))

    def _certificate(self) -> Path:
        own = self.conf.values()["ssl_certificate"]
        folder = self.machine.path(Certificate.name)
        return self.machine.path(str(own)) if own else certificates.files_in(folder).certificate

    def _stored(self, found: Java) -> str:
        """What keytool tells of the certificate under our alias: its fingerprints, too."""
        try:
            return self.machine.run([*keytool(found, "-list"), "-v"])
        except StepFailed:  # there is none, or the import will say what is wrong
            return ""


@dataclass
class EngineSetting(Step):
    """Sets a value of the engine's configuration, which the engine reads when it starts."""

    key: str  # of ENGINE_KEYS
    conf: SchedulerConf

    def plan(self) -> Plan:
        """Plan to set the value with ``engine-config``."""
        value = "true" if self.key == _ENABLED else self._url()
        command = f"engine-config -s {self.key}={value}"
        if not self.machine.path(_ENGINE_CONFIG).exists():
            return Plan(f"left to you, on the engine's machine: {command}", left=True)
        former = self._present()
        if former == value:
            return Plan(f"already so: {self.key} is {value}")
        # Of several runs the first one's, as what later ones find is setup's.
        values = {self.key: former, **self.record.engine_config}
        return Plan(f"run {command}", partial(self._set, value), noted={"engine_config": values})

    def _url(self) -> str:
        values = self.conf.values()
        host = url_host(values["listening_address"])
        return f"http{'s' * values['ssl']}://{host}:{values['listening_port']}/"

    def _set(self, value: str) -> None:
        tool = str(self.machine.path(_ENGINE_CONFIG))
        self.machine.run([tool, "-s", f"{self.key}={value}"])

    def plan_removal(self) -> Plan:
        """Plan to set the former value again."""
        former = self.record.engine_config.get(self.key)
        if former is None or not self.machine.path(_ENGINE_CONFIG).exists():
            return Plan(f"nothing to undo: {self.key} was not set by setup")
        return Plan(f"run engine-config -s {self.key}={former}", partial(self._set, former))

    def _present(self) -> str:
        """The value that ``engine-config -g`` shows, as ``KEY: VALUE version: VERSION``."""
        output = self.machine.run([str(self.machine.path(_ENGINE_CONFIG)), "-g", self.key])
        lines = [line for line in output.splitlines() if line.startswith(f"{self.key}:")]
        if not lines:
            raise StepFailed(f"engine-config -g {self.key} gives no value: {output.strip()}")
        return lines[0].partition(":")[2].rpartition(" version:")[0].strip()


class OldPlugins(Step):
    """Copies the old proxy's plugins, so that they stay when its package is removed."""

    @staticmethod
    def found(machine: Machine) -> list[str]:
        """The files in the old proxy's folder and below, if there are plugins in it."""
        folder = machine.path(OLD_PLUGINS)
        if not any(folder.glob("*.py")):
            return []
        files = (each for each in sorted(folder.rglob("*")) if each.is_file())
        return [str(each.relative_to(folder)) for each in files if each.suffix not in _COMPILED]

    def plan(self) -> Plan:
        """Plan to copy what was not copied yet.

        Raises:
            StepFailed: others could have changed one of the files.
        """
        folder = self.machine.path(ADOPTED)
        missing = [each for each in self.found(self.machine) if not (folder / each).exists()]
        if not missing and not folder.exists():
            return Plan(f"skipped: there are no plugins in {OLD_PLUGINS}")
        if not missing:
            return Plan(f"already so: the plugins of {OLD_PLUGINS} are in {ADOPTED}")
        for each in missing:
            file = self.machine.path(f"{OLD_PLUGINS}/{each}")
            problem = trust.tampering(file)
            if problem:
                raise StepFailed(f"{file}: {problem}; look at what is in it first")
        words = f"copy {', '.join(missing)} from {OLD_PLUGINS} to {ADOPTED}"
        return Plan(words, lambda: self._copy(missing))

    def _copy(self, files: list[str]) -> None:
        for each in files:
            data = read_whole(self.machine.path(f"{OLD_PLUGINS}/{each}"), MOST_BYTES)
            self.machine.write(f"{ADOPTED}/{each}", data)

    def plan_removal(self) -> Plan:
        """Plan nothing: the copies are the administrator's."""
        if not self.machine.path(ADOPTED).exists():
            return Plan("nothing to undo: no plugins of the old proxy")
        return Plan(f"kept: your plugins in {ADOPTED}")
