"""The steps for the engine: its trust store and settings, and the old proxy's plugins.

docs/engine.md describes ``engine-config`` and the Java that the engine uses.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Optional

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.command.setup.machine_steps import USER, Certificate
from ovirt_scheduler.command.setup.shipped_files import CONF_FOLDER, SchedulerConf
from ovirt_scheduler.command.setup.step import SetupStep, StepPlan
from ovirt_scheduler.errors import ConfigError, StepFailed
from ovirt_scheduler.model import manual
from ovirt_scheduler.security import certificates, trust
from ovirt_scheduler.security.addresses import url_host

OLD_PLUGINS = "/usr/share/ovirt-scheduler-proxy/plugins"
ADOPTED = f"{CONF_FOLDER}/old-plugins"

_ENGINE_CONFIG = "/usr/bin/engine-config"
_JAVA_HOME = "/usr/share/ovirt-engine/bin/java-home"  # prints which Java the engine runs on
_ENABLED = "ExternalSchedulerEnabled"
ENGINE_KEYS = ("ExternalSchedulerServiceURL", _ENABLED)  # have the engine call this scheduler
_COMPILED = (".pyc", ".pyo")
_ALIAS = "ovirt-scheduler"
_TLS_SECONDS = 10.0  # for a connection to the daemon
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
    java_paths = Java(home / "bin/keytool", home / "lib/security/cacerts")
    return java_paths if java_paths.keytool.exists() and java_paths.store.exists() else None


def check_engine(machine: Machine) -> None:
    """Check that the machine to connect is the engine's; of an image that cannot be told.

    Raises:
        StepFailed: no engine is installed on it.
    """
    tool = machine.path(_ENGINE_CONFIG)
    if machine.live and not tool.exists():
        raise StepFailed(
            f"no engine is installed here, as there is no {tool}; run setup --engine on the "
            f"engine's machine, or connect it by hand: {manual.page('engine.md')}"
        )


def keytool(java_paths: Java, action: str, suffix: str = "") -> list[str]:
    """The beginning of a command on the certificate in a trust store.

    Args:
        suffix: of its name in the store, for a second certificate.
    """
    return [str(java_paths.keytool), action, "-alias", f"{_ALIAS}{suffix}", "-storepass", _PASSWORD,
            "-keystore", str(java_paths.store)]  # fmt: skip


@dataclass
class TrustStore(SetupStep):
    """Has the engine's Java trust the daemon's certificate."""

    conf: SchedulerConf

    def plan(self) -> StepPlan:
        """Plan to import the certificate that the daemon serves, and to replace a former one."""
        java_paths = java(self.machine)
        if java_paths is None:  # the step of scheduler.conf turns TLS off
            return StepPlan("not needed: without TLS the engine has no certificate to trust")
        configured, stored = self._configured(), self._stored(java_paths)
        if configured and configured in stored:
            return StepPlan(f"already so: {java_paths.store} trusts the certificate")
        commands = [keytool(java_paths, "-delete")] if stored else []
        commands.append([*keytool(java_paths, "-importcert"), "-noprompt"])
        words = "; ".join(" ".join(["run", *command]) for command in commands)
        stores = {*self.record.trust_stores, self.machine.name(java_paths.store)}
        return StepPlan(
            f"{words}, with the certificate that the daemon serves",
            partial(self._import, commands),
            noted={"trust_stores": sorted(stores)},
        )

    def _import(self, commands: list[list[str]]) -> None:
        # Not from a file: the daemon's user might put another one there meanwhile.
        certificate = self._served().public_bytes(Encoding.PEM).decode()
        for command in commands:
            self.machine.run(command, certificate)

    def _served(self) -> x509.Certificate:
        """The certificate that the daemon serves.

        Raises:
            StepFailed: it is not the one in the settings, or it is a CA's.
        """
        values = self.conf.values()
        address = url_host(values["listening_address"]).strip("[]"), values["listening_port"]
        where = f"{address[0]}, port {address[1]}"
        try:
            served = _served_at(address)
        except (OSError, *certificates.UNREADABLE) as error:
            raise StepFailed(
                f"the certificate that the daemon serves cannot be had of {where}: {error}; "
                "start the daemon, then run setup --engine again"
            ) from None
        if _fingerprint(served) != self._configured():
            raise StepFailed(
                f"what listens at {where} does not serve the certificate in {self._file()}; "
                "systemctl restart ovirt-scheduler, then run setup --engine again"
            )
        if not _is_for_servers_alone(served):
            raise StepFailed(
                f"{self._file()}: does not say CA:FALSE, so the engine's Java might trust whatever "
                "its key signs; take another certificate (ovirt-scheduler cert renew makes one)"
            )
        return served

    def plan_removal(self) -> StepPlan:
        """Plan to delete the certificate from the store."""
        stores = self.record.trust_stores
        java_paths = java(self.machine) if stores else None
        if not stores:
            return StepPlan("nothing to undo: setup put the certificate into no trust store")
        if java_paths is None or self.machine.name(java_paths.store) not in stores:
            unused = f"in {', '.join(stores)}, which the engine's Java does not use now"
            return StepPlan(f"kept: the certificate {_ALIAS} {unused}")
        if not self._stored(java_paths):
            return StepPlan(f"already so: {java_paths.store} has no {_ALIAS}")
        command = keytool(java_paths, "-delete")
        return StepPlan(" ".join(["run", *command]), partial(self.machine.run, command))

    def _file(self) -> str:
        return str(self.conf.values()["ssl_certificate"] or Certificate.file)

    def _configured(self) -> str:
        """The fingerprint of the certificate in the file; empty if it cannot be read."""
        with contextlib.suppress(StepFailed, ConfigError, *certificates.UNREADABLE):
            if self._file() != Certificate.file:
                return certificates.describe(self.machine.path(self._file())).fingerprint
            # The daemon's user owns the folder of this one.
            data = self.machine.read(self._file(), self.machine.owner(USER))
            return "" if data is None else _fingerprint(x509.load_pem_x509_certificate(data))
        return ""

    def _stored(self, java_paths: Java) -> str:
        """The text of keytool about the certificate under our alias, with its fingerprints."""
        try:
            return self.machine.run([*keytool(java_paths, "-list"), "-v"])
        except StepFailed:  # there is none, or the import will say what is wrong
            return ""


def _served_at(address: tuple[str, int]) -> x509.Certificate:
    """The certificate that a server shows to whoever connects."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with contextlib.ExitStack() as opened:
        connection = opened.enter_context(socket.create_connection(address, _TLS_SECONDS))
        channel = opened.enter_context(trusting.wrap_socket(connection))
        return x509.load_der_x509_certificate(channel.getpeercert(True) or b"")


def _fingerprint(certificate: x509.Certificate) -> str:
    """The SHA-256 fingerprint as keytool shows it: ``AB:CD:…``."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _is_for_servers_alone(certificate: x509.Certificate) -> bool:
    """Whether a certificate states CA:FALSE."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except (x509.ExtensionNotFound, *certificates.UNREADABLE):
        return False
    return not constraints.value.ca


@dataclass
class EngineSetting(SetupStep):
    """Sets a value of the engine's configuration, which the engine reads when it starts."""

    key: str  # of ENGINE_KEYS
    conf: SchedulerConf

    def plan(self) -> StepPlan:
        """Plan to set the value with ``engine-config``."""
        value = "true" if self.key == _ENABLED else self._url()
        command = f"engine-config -s {self.key}={value}"
        if not self._has_tool():
            return StepPlan(f"left to you, on the engine's machine: {command}", by_hand=True)
        former = self._present()
        if former == value:
            return StepPlan(f"already so: {self.key} is {value}")
        # The value before the first run: later runs find the one that setup has set.
        values = {self.key: former, **self.record.engine_config}
        return StepPlan(
            f"run {command}", partial(self._set, value), noted={"engine_config": values}
        )

    def _url(self) -> str:
        values = self.conf.values()
        host = url_host(values["listening_address"])
        return f"http{'s' * values['ssl']}://{host}:{values['listening_port']}/"

    def _set(self, value: str) -> None:
        tool = str(self.machine.path(_ENGINE_CONFIG))
        self.machine.run([tool, "-s", f"{self.key}={value}"])

    def plan_removal(self) -> StepPlan:
        """Plan to set the former value again."""
        former = self.record.engine_config.get(self.key)
        if former is None:
            return StepPlan(f"kept: the engine's {self.key}, which setup did not set")
        command = f"engine-config -s {self.key}={former}"
        if not self._has_tool():
            return StepPlan(f"left to you, on the engine's machine: {command}", by_hand=True)
        return StepPlan(f"run {command}", partial(self._set, former))

    def _has_tool(self) -> bool:
        """Whether the engine is on this machine; of an image nothing is run."""
        return self.machine.live and self.machine.path(_ENGINE_CONFIG).exists()

    def _present(self) -> str:
        """The value that ``engine-config -g`` shows, as ``KEY: VALUE version: VERSION``."""
        output = self.machine.run([str(self.machine.path(_ENGINE_CONFIG)), "-g", self.key])
        lines = [line for line in output.splitlines() if line.startswith(f"{self.key}:")]
        if not lines:
            raise StepFailed(f"engine-config -g {self.key} gives no value: {output.strip()}")
        return lines[0].partition(":")[2].rpartition(" version:")[0].strip()


class OldPlugins(SetupStep):
    """Copies the old proxy's plugins, so that they stay when its package is removed."""

    @staticmethod
    def names(machine: Machine) -> list[str]:
        """The files and links in the old proxy's folder and below, if there are plugins in it."""
        folder = machine.path(OLD_PLUGINS)
        if not any(folder.glob("*.py")):
            return []
        paths = [
            Path(place, name)
            for place, folders, files in os.walk(folder)
            for name in (*files, *(each for each in folders if Path(place, each).is_symlink()))
        ]
        return sorted(
            str(path.relative_to(folder)) for path in paths if path.suffix not in _COMPILED
        )

    def plan(self) -> StepPlan:
        """Plan to copy the files that are not copied yet; a link's target may be anything.

        Raises:
            StepFailed: others could have changed one of the files.
        """
        machine = self.machine
        missing = [
            name for name in self.names(machine) if machine.status(f"{ADOPTED}/{name}") is None
        ]
        links = [name for name in missing if machine.link_target(f"{OLD_PLUGINS}/{name}")]
        files = [name for name in missing if name not in links]
        if not missing and machine.status(ADOPTED) is None:
            return StepPlan(f"skipped: there are no plugins in {OLD_PLUGINS}")
        for name in files:
            file = machine.path(f"{OLD_PLUGINS}/{name}")
            problem = trust.tampering(file)
            if problem:
                raise StepFailed(f"{file}: {problem}; look at what is in it first")
        plan = StepPlan(f"already so: the plugins of {OLD_PLUGINS} are in {ADOPTED}")
        if files:
            words = f"copy {', '.join(files)} from {OLD_PLUGINS} to {ADOPTED}"
            plan = StepPlan(words, partial(self._copy, files))
        if links:
            words = f"{plan.words}; copy yourself what is a link there: {', '.join(links)}"
            plan = plan._replace(words=words, by_hand=True)
        return plan

    def _copy(self, files: list[str]) -> None:
        for name in files:
            data = self.machine.read(f"{OLD_PLUGINS}/{name}")
            if data is not None:
                self.machine.write(f"{ADOPTED}/{name}", data)

    def plan_removal(self) -> StepPlan:
        """Plan nothing: the copies are the administrator's."""
        if self.machine.status(ADOPTED) is None:
            return StepPlan("nothing to undo: no plugins of the old proxy")
        return StepPlan(f"kept: your plugins in {ADOPTED}")
