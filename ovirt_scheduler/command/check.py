"""``ovirt-scheduler check``: finds what is wrong with settings, certificates and plugins."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import ssl
import time
import xmlrpc.client
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional, Union

from ovirt_scheduler.catalogue.catalogue import Catalogue
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.clusters import cluster_marks, engine_side
from ovirt_scheduler.clusters.section_check import SectionCheck, unread_properties
from ovirt_scheduler.command import arguments, control_client, tables
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import certificate_report, runtime
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import ConfigError, EngineUnavailable, PluginError
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.units import PolicyUnit
from ovirt_scheduler.processes import interpreter
from ovirt_scheduler.security import certificates, state_folder, trust
from ovirt_scheduler.server.http import listening
from ovirt_scheduler.settings.table import Settings
from ovirt_scheduler.settings.value_types import Drive

_READ_SECONDS = 60.0  # for all files
_ENGINE_SECONDS = 20.0  # for all that is asked of the engine
_PORT_SECONDS = 5.0  # for whoever has the port to answer
_MOST_BYTES = 1 << 16  # of its answer
_REQUEST = xmlrpc.client.dumps((), "system.listMethods").encode()
_LOGS, _ROTATED = Path("/var/log/ovirt-scheduler"), (".log", ".json")  # etc/logrotate.d
_METHOD = b"<string>selectHost</string>"  # a method that the old proxy does not have

# The attributes that -o json shows of each.
_OF_UNIT = ("name", "mode", "checksum", "description")
_OF_DRIVER = ("name", "id", "version", "topic", "interfaces", "checksum", "description")


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    arguments.add_command(to, "check", _run, settings=("config", "plugins"))


def _run(options: argparse.Namespace) -> Shown:
    """Find what is wrong with settings, certificates and plugins.

    Check settings and certificates, bind the port unless the daemon has it, log in to the engine of
    [engine], load every plugin as the daemon does, and list the policy units. Each thing that is
    wrong is shown with its file, its line, and what to do.

    examples:
      check
      check --plugins plugins
      check -o json
    """
    state = arguments.state()
    other = _other_user(state)
    settings = arguments.settings(options, for_daemon=other is None)
    reports = certificate_report.report(settings, state)
    certificate = certificate_report.server_files(settings, state).certificate
    port = _listening(settings, certificate)
    with runtime.started(settings) as running:
        catalogue, remarks = _plugins(running.registry)
        checks = [SectionCheck(cluster, running.executor) for cluster in settings.clusters]
        of_clusters = [check.problem(catalogue) for check in checks]
        unread = [
            f"[[{cluster.name}]] properties: {text}"
            for cluster, problem in zip(settings.clusters, of_clusters)
            for text in (() if problem else unread_properties(cluster, catalogue))
        ]
        of_settings = (
            *problems(settings, running.services.inventory),
            *(str(each) for whole in of_clusters if whole for each in whole.mistakes),
            *_of_state(state, other),
        )
        conflicts = list(_conflicts(settings, running.services.inventory))
    mend = (*of_settings, *catalogue.faults, *remarks)
    wrong = len(mend) + bool(port["problem"]) + sum(bool(each.problem) for each in reports)
    old_versions = list(control_client.old_versions(state))
    fields = {
        "ok": not wrong, "certificates": [each.fields() for each in reports],
        **_fields(catalogue), "listening": port,
        "settings": (*filter(None, [port["problem"]]), *of_settings),
        "remarks": list(map(_located, remarks)), "old_versions": old_versions,
        "conflicts": conflicts,
    }  # fmt: skip
    port_line = f"port {port['port']} of {port['address']}: "
    port_line += "the daemon listens" if port["daemon"] else "free"
    lines = [*(each.line() for each in reports), f"{port['problem'] or port_line}\n"]
    notes = (
        *old_versions,
        *conflicts,
        *unread,
        *_drive_notes(settings),
        *_user_note(other),
        *_rotation_note(settings.log_file),
    )
    lines += (f"note: {note}\n" for note in notes)
    lines += _lines(settings, catalogue, mend)
    warned = bool(catalogue.warnings or old_versions or conflicts)
    well = "nothing to mend, but see above\n" if warned else "all is well\n"
    lines.append(f"{wrong} to mend\n" if wrong else well)
    return Shown("".join(lines), fields, not wrong)


def _other_user(state: Path) -> Optional[str]:
    """For root: the daemon's user, unless that is root, too."""
    owner = state.stat().st_uid if os.geteuid() == 0 and state.exists() else 0
    return trust.user_name(owner) if owner != 0 else None


def _of_state(state: Path, other: Optional[str]) -> Iterator[str]:
    """Why the daemon would not use its state folder, as far as this user can tell."""
    try:
        if other is None:
            state_folder.check(state.absolute())
    except ConfigError as error:
        yield str(error)
    except OSError:  # it is not there yet, or not this user's
        pass


def _user_note(other: Optional[str]) -> Iterator[str]:
    """A note that the daemon's user should check instead of root, who may read every file."""
    if other is not None:
        yield (
            f"root may read every file; to see what the daemon's user {other} may not read: "
            f"sudo -u {other} ovirt-scheduler check"
        )


def _drive_notes(settings: Settings) -> Iterator[str]:
    """A note for each cluster of a section that does nothing yet."""
    if settings.drive is Drive.OFF:
        for cluster in settings.clusters:
            yield f"drive = off: cluster {cluster.name} is not looked after"


def _rotation_note(log_file: Optional[Path]) -> Iterator[str]:
    """A note that the log lies where the logrotate file of the package does not look."""
    if log_file is None or (log_file.parent == _LOGS and log_file.suffix in _ROTATED):
        return
    rotated = " and ".join(f"*{suffix}" for suffix in _ROTATED)
    yield (
        f"nothing that comes with the package rotates {log_file}: /etc/logrotate.d/ovirt-scheduler "
        f"names {rotated} in {_LOGS}"
    )


def _plugins(registry: Registry) -> tuple[Catalogue, Sequence[PluginError]]:
    """The units and drivers in the plugins' files, and what is wrong with them."""
    catalogue = registry.refresh()
    remarks: Sequence[PluginError] = ()
    unread: Sequence[PluginError] = ()
    try:
        remarks = _remarks(catalogue)
    except (OSError, ValueError) as error:
        unread = [PluginError(f"the names in the plugins' files are not looked at: {error}")]
    others = (each for each in catalogue.warnings if str(each) not in map(str, remarks))
    # A fault in a helper is one of each plugin that imports it.
    faults = {str(each): each for each in catalogue.faults}
    return replace(catalogue, warnings=[*others, *unread], faults=[*faults.values()]), remarks


def _remarks(catalogue: Catalogue) -> Sequence[PluginError]:
    """Remarks on Python 2 and on undefined names in the plugins' files.

    Raises:
        OSError, ValueError: the files cannot be read for it.
    """
    plugins = [unit.plugin for unit in catalogue.all_units.values()]
    plugins += [driver.plugin for driver in catalogue.drivers.values() if not driver.shipped]
    files = {module.path for plugin in plugins for module in plugin.modules}
    faulty = (fault.file or "" for fault in catalogue.faults)
    files.update(file for file in faulty if file.endswith(".py") and Path(file).is_file())
    faulty_lines = {(fault.file, fault.line) for fault in catalogue.faults}
    file_names = json.dumps(sorted(files))
    remarks = json.loads(interpreter.run_main("processes.loading.lint", file_names, _READ_SECONDS))
    return [
        PluginError(message, file, line)
        for file, line, message in remarks
        if (file, line) not in faulty_lines
    ]


def _located(problem: PluginError) -> dict[str, object]:
    return {"file": problem.file, "line": problem.line, "message": problem.message}


def _units(catalogue: Catalogue) -> list[PolicyUnit]:
    return sorted(catalogue.all_units.values(), key=lambda unit: (unit.name, unit.kind.value))


def _drivers(catalogue: Catalogue) -> list[DriverUnit]:
    return [catalogue.drivers[name] for name in sorted(catalogue.drivers)]


def _file(unit: Union[PolicyUnit, DriverUnit]) -> str:
    return unit.plugin.modules[0].path


def _described(
    unit: Union[PolicyUnit, DriverUnit], names: Iterable[str], **more: object
) -> dict[str, object]:
    return {**{name: getattr(unit, name) for name in names}, "file": _file(unit), **more}


def _fields(catalogue: Catalogue) -> dict[str, object]:
    return {
        "units": [_described(unit, _OF_UNIT, kind=unit.kind.label) for unit in _units(catalogue)],
        "drivers": [
            _described(
                driver, _OF_DRIVER, methods=[each.name + each.signature for each in driver.methods]
            )
            for driver in _drivers(catalogue)
        ],
        "warnings": [str(warning) for warning in catalogue.warnings],
        "unused": [str(path) for path in catalogue.unused],
        "faults": list(map(_located, catalogue.faults)),
    }


def _lines(settings: Settings, catalogue: Catalogue, mend: Sequence[object]) -> Iterator[str]:
    """Lines about units and drivers, files in which nothing is called, and mistakes."""
    units = [(unit.name, unit.label, _file(unit), unit.description) for unit in _units(catalogue)]
    yield tables.table(("UNIT", "KIND", "FILE", "DESCRIPTION"), units)
    drivers = [
        (
            driver.name,
            driver.topic,
            ", ".join(driver.interfaces),
            "(our own)" if driver.shipped else _file(driver),
            driver.description,
        )
        for driver in _drivers(catalogue)
    ]
    yield tables.table(("DRIVER", "TOPIC", "INTERFACES", "FILE", "DESCRIPTION"), drivers)
    if catalogue.empty:
        paths = settings.plugins_path
        looked = (f"{path}{'' if path.exists() else ' (not there)'}" for path in paths)
        folders = ", ".join(looked) or "no folder: set plugins_path"
        yield f"no plugins but our own; looked in {folders}\n"
    for warning in catalogue.warnings:
        yield f"warning: {warning}\n"
    for path in catalogue.unused:
        yield (
            f"{path}: nothing in it is called, and no plugin that loads imports it; a unit has "
            "do_filter, do_score or do_balance\n"
        )
    yield from (f"{problem}\n" for problem in mend)


def _conflicts(settings: Settings, inventory: Optional[Inventory]) -> Iterator[str]:
    """A sentence for each cluster that the engine balances, too, as far as it says so."""
    if inventory is None:
        return
    with contextlib.suppress(EngineUnavailable):  # that has been said
        for section in settings.clusters:
            marks = cluster_marks.of_cluster(inventory, section.name)
            policy = cluster_marks.policy_of(inventory, marks.policy)
            problem = engine_side.conflict(section, policy)
            if problem:
                yield f"cluster {section.name}: {problem}"


def problems(settings: Settings, inventory: Optional[Inventory]) -> Iterator[str]:
    """A sentence for each file that the daemon cannot use, and for an engine. Changes nothing.

    Its own certificates are left to ``certificate_report``, plugins to the loader.

    Args:
        inventory: logs in to the engine; None if none is configured.
    """
    if settings.log_file is not None:
        reason = arguments.unwritable(settings.log_file)
        if reason:
            yield f"{settings.log_file}: {reason}; mend log_file"
    if inventory is None:
        return
    try:
        if inventory.settings.ca_file is not None:
            certificates.describe(inventory.settings.ca_file)
        inventory.access(time.monotonic() + _ENGINE_SECONDS)
    except ConfigError as error:
        yield f"{error}; mend ca_file"
    except EngineUnavailable as error:
        yield f"[engine] {error}"


def _listening(settings: Settings, certificate: Path) -> dict[str, Any]:
    """Bind the address for a moment, as the daemon does. Nobody can connect meanwhile.

    Args:
        settings: for the address.
        certificate: of the daemon; it need not exist.

    Returns:
        address and port; whether a daemon listens there already; the problem, or None.
    """
    address, port = settings.listening_address, settings.listening_port
    report = {"address": address, "port": port, "daemon": False, "problem": None}
    try:
        listening.bound(address, port).close()
    except ConfigError as error:
        report["problem"] = str(error)
        with contextlib.suppress(ConfigError):
            places = listening.resolve(address, port)
            if any(_is_daemon(each, settings, certificate) for each in places):
                report.update(daemon=True, problem=None)
    return report


def _is_daemon(place: listening.SocketAddress, settings: Settings, certificate: Path) -> bool:
    """Whether a daemon listens there: one with this certificate's key, or with its methods."""
    host, port, *_ = place.target
    connection = http.client.HTTPConnection(host, port, timeout=_PORT_SECONDS)
    if settings.ssl:
        # Nothing is checked: we send the other side no secret, and trust no answer.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=_PORT_SECONDS, context=context)
    try:
        with contextlib.closing(connection):
            connection.connect()
            if isinstance(connection.sock, ssl.SSLSocket):
                presented = hashlib.sha256(connection.sock.getpeercert(binary_form=True) or b"")
                with contextlib.suppress(ConfigError):  # ours may not be there
                    ours = certificates.describe(certificate).fingerprint.replace(":", "")
                    if presented.hexdigest() == ours.lower():
                        return True  # if clients need a certificate, it answers us nothing
            connection.request("POST", "/", _REQUEST, {"Content-Type": "text/xml"})
            with connection.getresponse() as response:
                return _METHOD in response.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException):
        return False
