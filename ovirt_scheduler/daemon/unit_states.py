"""The units and drivers of a catalogue, as the status and the pages tell of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.model.daemon_state import UnitState
from ovirt_scheduler.model.plugins import PluginCode, PropertySet


def of(catalogue: Catalogue) -> Iterator[UnitState]:
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
