"""The units and drivers of a catalogue, as the status and the pages tell of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.model.daemon_state import UnitState
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.units import PolicyUnit


def of(catalogue: Catalogue) -> Iterator[UnitState]:
    """The policy units, then the drivers, in the order of their names."""
    for unit in sorted(catalogue.all_units.values(), key=lambda unit: (unit.name, unit.kind.value)):
        yield _state(unit, unit.kind.words, unit.mode, catalogue)
    for driver in sorted(catalogue.drivers.values(), key=lambda driver: driver.name):
        if not driver.only_ours:
            yield _state(driver, driver.words, "live", catalogue)


def _state(
    unit: Union[PolicyUnit, DriverUnit], words: str, mode: str, catalogue: Catalogue
) -> UnitState:
    file = unit.plugin.modules[0].path
    properties = unit.properties.properties if unit.properties else ()
    patterns = tuple({each.name: each.pattern for each in properties}.items())
    state = UnitState(unit.name, words, file, unit.checksum, mode, unit.description, patterns)
    old = catalogue.outdated.get(file)
    if old is None:
        return state
    return state._replace(old_version=old.version, old_since=old.since, old_because=old.because)
