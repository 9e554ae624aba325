"""How the daemon is at this moment, gathered from its parts.

No document is opened, and nobody waits, but a second at most for a plugin that has just changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_scheduler import __version__
from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.clusters.threads import ClusterThreads
from ovirt_scheduler.daemon.runtime import Runtime
from ovirt_scheduler.model.daemon_state import DaemonState, UnitState
from ovirt_scheduler.model.plugins import PluginCode, PropertySet


def observe(
    runtime: Runtime,
    drive: Optional[ClusterThreads],
    started: float,
    certificate_ends: Optional[float],
    reload_failed: Optional[float],
    stuck: str,
) -> DaemonState:
    """Gather it.

    Args:
        drive: what looks after clusters, if there are any to look after.
        started, certificate_ends, reload_failed: seconds since 1970.
        stuck: why calls of plugins do not work; empty where they do.
    """
    settings, inventory = runtime.services[:2]
    catalogue = runtime.registry.current()
    outdated = [each.fault for each in catalogue.outdated.values()]
    return DaemonState(
        version=__version__,
        started=started,
        plugins_path=":".join(map(str, settings.plugins_path)),
        units=tuple(_units(catalogue)),
        processes=runtime.executor.state(),
        faults=tuple(str(fault) for fault in catalogue.faults if fault not in outdated),
        certificate_ends=certificate_ends,
        engine=None if inventory is None else inventory.state(),
        clusters=() if drive is None else drive.state(),
        history=None
        if runtime.history is None or not settings.history
        else runtime.history.state(),
        reload_failed=reload_failed,
        stuck=stuck,
    )


def _units(catalogue: Catalogue) -> Iterator[UnitState]:
    """The policy units, then the drivers, in the order of their names."""
    for unit in sorted(catalogue.all_units.values(), key=lambda unit: (unit.name, unit.kind.value)):
        yield UnitState(
            unit.name, unit.kind.words, unit.plugin.modules[0].path, unit.checksum,
            unit.mode, unit.description, _properties(unit.properties),
            *_outdated(catalogue, unit.plugin),
        )  # fmt: skip
    for driver in sorted(catalogue.drivers.values(), key=lambda driver: driver.name):
        if driver.only_ours:
            continue
        yield UnitState(
            driver.name, driver.words, driver.plugin.modules[0].path, driver.checksum, "live",
            driver.description, _properties(driver.properties),
            *_outdated(catalogue, driver.plugin),
        )  # fmt: skip


def _outdated(
    catalogue: Catalogue, plugin: PluginCode
) -> tuple[Optional[float], Optional[float], str]:
    """Which former version answers, since when, and why; None where it is the one of the file."""
    found = catalogue.outdated.get(plugin.modules[0].path)
    return (None, None, "") if found is None else (found.version, found.since, found.because)


def _properties(properties: Optional[PropertySet]) -> tuple[tuple[str, str], ...]:
    every = () if properties is None else properties.properties
    return tuple({each.name: each.pattern for each in every}.items())
