"""Which policy units and drivers there are at one moment, and which of them a request names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

from ovirt_scheduler.errors import BadParameters, PluginError, UnknownUnit
from ovirt_scheduler.model import near
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.plugins import Limits, PluginCode
from ovirt_scheduler.model.requests import WantedUnit
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall

_MOST_HINTS = 4  # unknown names of a call for which the nearest is looked for

Key = Tuple[Kind, str]

UnitCalls = List[Tuple[WantedUnit, UnitCall]]


class Chosen(NamedTuple):
    """What becomes of the units that a request names."""

    calls: UnitCalls
    errors: Dict[str, Tuple[str, ...]]  # what is wrong with the others, by name
    rejected: bool = False  # a filter is among these that accepts no host then (contract 4.2)


class Units(Protocol):
    """Where policy units and drivers come from: the registry, or one file that is tried."""

    def look(self) -> Catalogue: ...
    def glance(self) -> Catalogue: ...


@dataclass(frozen=True)
class Catalogue:
    """The policy units and drivers at one moment, and what could not be loaded."""

    units: Mapping[Key, PolicyUnit] = field(default_factory=dict)
    faults: Tuple[PluginError, ...] = ()
    drivers: Mapping[str, DriverUnit] = field(default_factory=dict)  # by name
    topics: Mapping[str, DriverUnit] = field(default_factory=dict)  # by topic
    warnings: Tuple[PluginError, ...] = ()  # what was left out or is not checked, and why
    unused: Tuple[Path, ...] = ()  # files that have nothing to call and belong to no plugin
    missed: Mapping[str, str] = field(default_factory=dict)  # filters that should be: why not

    @property
    def plugins(self) -> Tuple[Tuple[PluginCode, Limits], ...]:
        """The code of each plugin once, with its limits."""
        found = [(unit.plugin, unit.limits) for unit in self.units.values()]
        found += [(driver.plugin, driver.limits) for driver in self.drivers.values()]
        return tuple({id(plugin): (plugin, limits) for plugin, limits in found}.values())

    @property
    def empty(self) -> bool:
        """Whether there is nothing to call but what the package brings."""
        return not self.units and all(driver.shipped for driver in self.drivers.values())

    def unit(self, kind: Kind, name: str) -> Optional[PolicyUnit]:
        return self.units.get((kind, name))

    def wanted(self, kind: Kind, name: str, hint: bool = True) -> PolicyUnit:
        """
        Args:
            hint: whether a name that may be meant is looked for, which takes its time.

        Raises:
            UnknownUnit: there is none of that kind; the text tells the kinds that there are.
        """
        unit = self.unit(kind, name)
        if unit is None:
            kinds = " and ".join(f"a {kind.words}" for kind in self.kinds_of(name))
            told = f"it is {kinds}" if kinds else self._hint(kind, name if hint else "")
            raise UnknownUnit(f"there is no {kind.words} named {name!r:.160}; {told}")
        return unit

    def _hint(self, kind: Kind, name: str) -> str:
        meant = near.nearest(name, (other for its, other in self.units if its is kind))
        if meant is not None:
            return f"did you mean {meant}?"
        return "discover lists what there is, ovirt-scheduler check what is not loaded"

    def calls(
        self,
        kind: Kind,
        wanted: Sequence[WantedUnit],
        properties: Mapping[str, str],
        strict: bool,
    ) -> Chosen:
        """The units to call, and what is wrong with the others (contract 4.2 to 4.3).

        Raises:
            BadParameters: a name is there twice, where that is strict.
            UnknownUnit: there is none of a name, where that is strict.
        """
        calls: UnitCalls = []
        errors: Dict[str, Tuple[str, ...]] = {}
        rejected = False
        named: Dict[str, WantedUnit] = {}
        for each in wanted:
            if named.setdefault(each.name, each) is not each:
                repeated = f"the {kind.words} {each.name!r:.160} is named more than once"
                if strict:
                    raise BadParameters(f"{repeated}; name it once")
                errors[each.name] = (f"{repeated}; the first counts",)
        for each in named.values():
            try:
                unit = self.wanted(kind, each.name, len(errors) < _MOST_HINTS)
                calls.append((each, UnitCall(unit, properties)))
            except UnknownUnit as error:
                if strict:
                    raise
                missed = self.missed.get(each.name) if kind is Kind.FILTER else None
                errors[each.name] = (missed or str(error),)
                rejected = rejected or missed is not None
        return Chosen(calls, errors, rejected)

    def kinds_of(self, name: str) -> Tuple[Kind, ...]:
        """The kinds of unit that bear this name."""
        return tuple(kind for kind in Kind if (kind, name) in self.units)
