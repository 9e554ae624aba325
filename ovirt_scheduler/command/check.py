"""``ovirt-scheduler check``: finds what is wrong with settings, certificates and plugins."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Union

from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.clusters import check as cluster_report
from ovirt_scheduler.command import arguments, control, settings_check, tables
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import certificate_report, runtime
from ovirt_scheduler.daemon.certificate_report import CertificateReport
from ovirt_scheduler.daemon.runtime import Services
from ovirt_scheduler.errors import EngineUnavailable, PluginError
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.units import PolicyUnit
from ovirt_scheduler.processes import interpreter
from ovirt_scheduler.security import trust
from ovirt_scheduler.settings.config import Settings

_READ_SECONDS = 60.0  # for all files
_ENGINE_SECONDS = 20.0  # for all that is asked of the engine

_Certificates = tuple[CertificateReport, ...]


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
    return check(arguments.settings(options, for_daemon=True), arguments.state())


class _Plugins(NamedTuple):
    """What there is in the plugins' files, and what is wrong with them."""

    catalogue: Catalogue
    remarks: tuple[PluginError, ...]  # on those that load
    unread: str  # why there are no remarks

    @property
    def wrong(self) -> int:
        """How many things are to be mended."""
        return len(self.catalogue.faults) + len(self.remarks)


def check(settings: Settings, state: Path) -> Shown:
    """Do what the daemon does at its start, as far as it changes nothing.

    Args:
        state: the state folder; it is read only.

    Raises:
        ExecutorUnavailable: no process can be started to load plugins in.
    """
    certificates = certificate_report.report(settings, state)
    certificate = certificate_report.server_files(settings, state).certificate
    listening = settings_check.listening_report(settings, certificate)
    with runtime.started(settings) as running:
        plugins = _plugins(running.registry)
        problems = (
            *filter(None, [listening.problem]),
            *settings_check.problems(settings),
            *_engine_problems(running.services),
            *_cluster_problems(settings, plugins.catalogue),
        )
    wrong = plugins.wrong + sum(bool(each.problem) for each in certificates) + len(problems)
    fields = {"ok": not wrong, **_fields(plugins.catalogue, certificates)}
    fields.update(listening=listening.fields(), settings=problems)
    fields["remarks"] = list(map(_located, plugins.remarks))
    old_versions = fields["old_versions"] = list(control.old_versions(state))
    lines = [*(each.line() for each in certificates), listening.line()]
    lines += (f"note: {each}\n" for each in (*old_versions, *_seen_as(state)))
    lines += _lines(settings, plugins, problems, wrong)
    return Shown("".join(lines), fields, not wrong)


def _seen_as(state: Path) -> Iterator[str]:
    """Who should check instead of root: the daemon's user, who may not read every file."""
    if os.geteuid() != 0:  # and may be kept out of the folder
        return
    with contextlib.suppress(FileNotFoundError):
        owner = state.stat().st_uid
        if owner != 0:
            name = trust.user_name(owner)
            yield (
                f"root may read every file; what {name} may not, who runs the daemon, is found by "
                f"sudo -u {name} ovirt-scheduler check"
            )


def check_plugins(settings: Settings) -> Shown:
    """Load every plugin as the daemon does.

    Raises:
        ExecutorUnavailable: no process can be started to load plugins in.
    """
    with runtime.started(settings) as running:
        plugins = _plugins(running.registry)
    text = "".join(_lines(settings, plugins, (), plugins.wrong))
    return Shown(text, well=not plugins.wrong)


def _plugins(registry: Registry) -> _Plugins:
    catalogue = registry.refresh()
    remarks, unread = _remarks(catalogue)
    others = [each for each in catalogue.warnings if str(each) not in map(str, remarks)]
    return _Plugins(replace(catalogue, warnings=tuple(others)), remarks, unread)


def _engine_problems(services: Services) -> Iterator[str]:
    """Why the engine's login fails; nothing if a file of ``[engine]`` has a problem already."""
    engine, inventory = services.settings.engine, services.inventory
    if engine is None or inventory is None or any(settings_check.engine_problems(engine)):
        return
    try:
        inventory.access(time.monotonic() + _ENGINE_SECONDS)
    except EngineUnavailable as error:
        yield f"[engine] {error}"


def _cluster_problems(settings: Settings, catalogue: Catalogue) -> Iterator[str]:
    for cluster in settings.clusters:
        problem = cluster_report.problem(cluster, catalogue)
        if problem:
            yield str(problem)


def _remarks(catalogue: Catalogue) -> tuple[tuple[PluginError, ...], str]:
    """Remarks on Python 2 in the plugins' files, and on names that nobody defines.

    If the files cannot be read for it, there are none, and a warning that says why.
    """
    plugins = [unit.plugin for unit in catalogue.all_units.values()]
    plugins += [driver.plugin for driver in catalogue.drivers.values() if not driver.shipped]
    files = {module.path for plugin in plugins for module in plugin.modules}
    faulty = (fault.file or "" for fault in catalogue.faults)
    files.update(file for file in faulty if file.endswith(".py"))
    faulty_lines = {(fault.file, fault.line) for fault in catalogue.faults}
    try:
        found = json.loads(
            interpreter.run_main("processes.loading.lint", json.dumps(sorted(files)), _READ_SECONDS)
        )
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return (), f"warning: the names in the plugins' files are not looked at: {error}\n"
    return tuple(
        PluginError(message, file, line)
        for file, line, message in found
        if (file, line) not in faulty_lines
    ), ""


def _located(problem: PluginError) -> dict[str, object]:
    return {"file": problem.file, "line": problem.line, "message": problem.message}


def _units(catalogue: Catalogue) -> list[PolicyUnit]:
    return sorted(catalogue.all_units.values(), key=lambda unit: (unit.name, unit.kind.value))


def _drivers(catalogue: Catalogue) -> list[DriverUnit]:
    return [catalogue.drivers[name] for name in sorted(catalogue.drivers)]


def _file(unit: Union[PolicyUnit, DriverUnit]) -> str:
    return unit.plugin.modules[0].path


def _fields(catalogue: Catalogue, certificates: _Certificates) -> dict[str, object]:
    return {
        "certificates": [each.fields() for each in certificates],
        "units": [
            {
                "name": unit.name,
                "kind": unit.kind.value,
                "mode": unit.mode,
                "file": _file(unit),
                "checksum": unit.checksum,
                "description": unit.description,
            }
            for unit in _units(catalogue)
        ],
        "drivers": [
            {
                "name": driver.name,
                "id": driver.id,
                "version": driver.version,
                "topic": driver.topic,
                "interfaces": list(driver.interfaces),
                "methods": [f"{each.name}{each.signature}" for each in driver.methods],
                "file": _file(driver),
                "checksum": driver.checksum,
                "description": driver.description,
            }
            for driver in _drivers(catalogue)
        ],
        "warnings": [str(warning) for warning in catalogue.warnings],
        "unused": [str(path) for path in catalogue.unused],
        "faults": list(map(_located, catalogue.faults)),
    }


def _lines(
    settings: Settings, plugins: _Plugins, problems: Sequence[str], wrong: int
) -> Iterator[str]:
    """What there is to call, what may be meant as such and is not called, and what is to mend."""
    catalogue = plugins.catalogue
    units = [(unit.name, unit.words, _file(unit), unit.description) for unit in _units(catalogue)]
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
        folders = ", ".join(map(str, settings.plugins_path)) or "no folder: set plugins_path"
        yield f"no plugins but our own; looked in {folders}\n"
    for warning in catalogue.warnings:
        yield f"warning: {warning}\n"
    for path in catalogue.unused:
        yield (
            f"{path}: nothing in it is called, and no plugin that loads imports it; a unit has "
            "do_filter, do_score or do_balance\n"
        )
    yield plugins.unread
    for problem in (*problems, *catalogue.faults, *plugins.remarks):
        yield f"{problem}\n"
    yield f"{wrong} to mend\n" if wrong else "all is well\n"
