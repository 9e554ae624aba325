"""The state of each plugin's file, and the catalogue made from all of them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from ovirt_scheduler.catalogue.catalogue import Catalogue, Outdated
from ovirt_scheduler.catalogue.loader import LoadedPlugin, PluginText
from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.units import Kind, OnFailure
from ovirt_scheduler.model.values.text import one_line

REJECTS = "its filter accepts no host (on_failure = reject)"

NameClaim = tuple[str, str]  # what one plugin alone may have: filter, driver, topic …; its name


@dataclass(frozen=True)
class FileState:
    """The state of one plugin's file: the version in use, and what is wrong with it now."""

    text: Optional[PluginText]  # what was read last; None: it is to be loaded in any case
    steady: bool  # whether its files had not changed for a while when they were read
    good: Optional[LoadedPlugin]  # in use
    latest: Optional[LoadedPlugin] = None  # that loaded, and was not switched off
    fault: Optional[PluginError] = None
    fault_since: float = 0.0  # seconds since 1970
    missed: tuple[str, ...] = ()  # filters that do not load, and so accept no host
    made_at: float = field(default_factory=time.monotonic)
    good_since: float = 0.0  # of a fault: when the good version was first loaded
    slow: bool = False  # of a fault: it took long, as an import that hangs does

    def retries(self, at_once: bool, seconds: float) -> bool:
        """Whether to load a file again that has a fault, though it has not changed.

        Args:
            at_once: not only now and then, unless that takes long.
            seconds: after which it is loaded again in any case.
        """
        due = (at_once and not self.slow) or time.monotonic() > self.made_at + seconds
        return self.fault is not None and due


def bug(path: Path, error: Exception) -> PluginError:
    """The fault of a file that the daemon cannot cope with."""
    *_, last = traceback.extract_tb(error.__traceback__)
    place = f"{Path(last.filename).name}:{last.lineno}"
    what = one_line(f"{type(error).__name__}: {error}")
    return PluginError(
        f"cannot be looked at, which is a bug of the daemon ({what}, in {place}); report it, and "
        "take the file away until then",
        str(path),
    )


def merged(
    states: Mapping[Path, FileState],
    orphaned: Mapping[Path, FileState],
    problems: Iterable[PluginError],
) -> Catalogue:
    """The catalogue of some files; if several want a name, the first file has it.

    Args:
        states: by the plugin's file, in their order.
        orphaned: by the conf file that has no plugin.
        problems: with the folders.
    """
    making = _Making(states, problems)
    for path, state in (*states.items(), *orphaned.items()):
        if state.fault is not None:
            making.add_fault(path, state.fault, state)
        if state.good is not None and not state.good.enabled:
            reason = f"{path.stem}.conf says enabled = false"
            making.catalogue.not_loaded.setdefault(path.stem, reason)  # a fault says more
        if state.good is not None and making.add_units(path, state.good):
            for driver in state.good.drivers:
                making.add_driver(path, driver)
    return making.catalogue


class _Making:
    """A catalogue that is being made."""

    def __init__(self, states: Mapping[Path, FileState], problems: Iterable[PluginError]) -> None:
        self.catalogue = Catalogue(faults=[*problems], unused=tuple(_unused(states)))
        self._states = states
        self._owners: dict[NameClaim, str] = {}  # in words

    def add_fault(self, path: Path, fault: PluginError, state: FileState) -> None:
        """A file that does not load; the version before it may still be in use."""
        if state.good is not None and state.good.can_be_called:
            because = _place_and_message(path, fault)
            in_use = f"the last version that loaded stays in use ({state.good.checksum:.19})"
            fault = PluginError(f"{fault.message}; {in_use}", fault.file, fault.line)
            self.catalogue.outdated[str(path)] = Outdated(
                state.good_since, state.fault_since, because, fault
            )
        self.catalogue.faults.append(fault)
        self.catalogue.missed.update(dict.fromkeys(state.missed, str(fault)))
        if path in self._states:
            self.catalogue.not_loaded.setdefault(path.stem, _why_not_loaded(path, fault))

    def add_units(self, path: Path, plugin: LoadedPlugin) -> bool:
        """The units of a file: all of them, or none if one of their names is taken."""
        claims = [(unit.kind.label, unit.name) for unit in plugin.units]
        problem = self._why_taken(claims)
        if problem:
            fault = PluginError(problem, str(path))
            self.catalogue.faults.append(fault)
            for unit in plugin.units:
                self.catalogue.not_loaded[unit.name] = _why_not_loaded(path, fault)
                if unit.kind is Kind.FILTER and unit.on_failure is OnFailure.REJECT:
                    self.catalogue.missed[unit.name] = f"{fault}; {REJECTS}"
            return False
        logged = set(map(str, self.catalogue.warnings))  # one about a helper is each importer's
        self.catalogue.warnings.extend(each for each in plugin.warnings if str(each) not in logged)
        for unit in plugin.units:
            units = self.catalogue.shadows if unit.shadow else self.catalogue.units
            units[unit.kind, unit.name] = unit
        self._owners.update(dict.fromkeys(claims, str(path)))
        return True

    def add_driver(self, path: Path, driver: DriverUnit) -> None:
        """A driver; if its name or topic is taken, only this driver is left out."""
        if driver.shipped and driver.name in self.catalogue.drivers:
            return
        if driver.shipped and driver.topic in self.catalogue.topics:
            driver = driver._replace(topic=None)
        claims = _driver_claims(driver)
        why = self._why_taken(claims)
        if why:
            problem = f"the {driver.label} {driver.name} is left out: {why}"
            self.catalogue.faults.append(PluginError(problem, str(path), driver.line))
            return
        self._owners.update(dict.fromkeys(claims, f"{driver.class_name} in {path}"))
        self.catalogue.drivers[driver.name] = driver
        if driver.topic is not None:
            self.catalogue.topics[driver.topic] = driver

    def _why_taken(self, claims: Iterable[NameClaim]) -> str:
        """Which file has one of these already, and what to do; empty if none has."""
        for claim in claims:
            if claim in self._owners:
                has = f"{self._owners[claim]} has the {claim[0]} {claim[1]} already"
                return f"{has}; rename one of them"
        return ""


def _why_not_loaded(path: Path, fault: PluginError) -> str:
    """Why a unit is missing, for a caller who names it: the fault in its plugin's file."""
    return f"its file {path.name} does not load: {_place_and_message(path, fault)}"


def _place_and_message(path: Path, fault: PluginError) -> str:
    """The place and the message, without the folder, which does not concern callers."""
    other = Path(fault.file).name if fault.file and fault.file != str(path) else ""
    line = f"line {fault.line}" if fault.line else ""
    where = ", ".join(filter(None, (other, line)))
    return f"{where}{': ' if where else ''}{fault.message}"


def _unused(states: Mapping[Path, FileState]) -> Iterator[Path]:
    """Files without units that no plugin imports, and not named like helpers or tests."""
    plugins = {path: state.good for path, state in states.items() if state.good is not None}
    called = {path: good for path, good in plugins.items() if good.units or good.drivers}
    imported = {Path(source.path) for good in called.values() for source in good.sources}
    for path, good in plugins.items():
        if good.enabled and path not in imported and not path.name.startswith(("_", "test_")):
            yield path


def _driver_claims(driver: DriverUnit) -> list[NameClaim]:
    """A driver's name and topic; a driver that comes with the package gives way."""
    claims = (("driver", driver.name), ("topic", driver.topic))
    return [] if driver.shipped else [(what, name) for what, name in claims if name is not None]
