"""A snapshot of the policy units and drivers, and which of them a request names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from ovirt_scheduler.errors import BadParameters, PluginError, UnknownUnit
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.plugins import Limits, PluginCode
from ovirt_scheduler.model.requests import WantedUnit
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.model.values import spelling

_MOST_HINTS = 4  # unknown names of a call for which the nearest is looked for

Key = tuple[Kind, str]


class Chosen(NamedTuple):
    """The units of one kind for a request: those to call, and what is wrong with others.

    Attributes:
        named: the named units, each once, without those in shadow.
        calls: of those that are loaded.
        errors: what is wrong with the others, by name.
        rejected: whether a filter is missing that then accepts no host (contract 4.2).
        shadows: a call of each unit in shadow. One that the request names has its factor and the
            properties of the request, any other one the factor 1 and its defaults.
    """

    named: tuple[WantedUnit, ...]
    calls: tuple[UnitCall, ...]
    errors: dict[str, tuple[str, ...]]
    rejected: bool
    shadows: tuple[UnitCall, ...]


class Outdated(NamedTuple):
    """Why the former version of a plugin answers: its file does not load any more.

    Times are in seconds since 1970.
    """

    version: float  # when the former version was first loaded
    since: float  # when the file first failed to load
    because: str  # the line, and what is wrong there
    fault: PluginError  # the same, as one of the catalogue's faults


class CatalogueSource(Protocol):
    """The source of policy units and drivers: the registry, or a fixed catalogue."""

    def refresh(self) -> Catalogue:
        """Look for changed files, load them, and wait for that."""

    def current(self) -> Catalogue:
        """The catalogue without waiting long; it may be a second old."""


@dataclass(frozen=True)
class Catalogue:
    """All policy units and drivers at one moment, and what could not be loaded.

    It does not change once it is made. So it can be a ``CatalogueSource``, which gives itself.
    """

    units: dict[Key, PolicyUnit] = field(default_factory=dict)
    faults: list[PluginError] = field(default_factory=list)
    drivers: dict[str, DriverUnit] = field(default_factory=dict)  # by name
    topics: dict[str, DriverUnit] = field(default_factory=dict)  # by topic
    warnings: list[PluginError] = field(default_factory=list)  # what is left out or not checked
    unused: tuple[Path, ...] = ()  # files that have nothing to call and belong to no plugin
    missed: dict[str, str] = field(default_factory=dict)  # filters that should be: why not
    not_loaded: dict[str, str] = field(default_factory=dict)  # names of units: why not
    outdated: dict[str, Outdated] = field(default_factory=dict)  # by the plugin's file
    shadows: dict[Key, PolicyUnit] = field(default_factory=dict)  # that only look on

    def refresh(self) -> Catalogue:
        """This one."""
        return self

    current = refresh

    @property
    def all_units(self) -> Mapping[Key, PolicyUnit]:
        """The policy units, those in shadow too."""
        return {**self.units, **self.shadows}

    @property
    def plugins(self) -> tuple[tuple[PluginCode, Limits], ...]:
        """The code and the limits of each plugin that callers may wait for, each once."""
        code_and_limits = [(unit.plugin, unit.limits) for unit in self.all_units.values()]
        code_and_limits += [(driver.plugin, driver.limits) for driver in self.drivers.values()]
        return tuple({id(plugin): (plugin, limits) for plugin, limits in code_and_limits}.values())

    @property
    def empty(self) -> bool:
        """Whether there is nothing to call except the package's own plugins."""
        return not self.all_units and all(driver.shipped for driver in self.drivers.values())

    def has(self, kind: Kind, name: str) -> bool:
        """Whether there is a unit of that kind and name, maybe in shadow."""
        return (kind, name) in self.units or (kind, name) in self.shadows

    def unit(self, kind: Kind, name: str, hint: bool = True) -> PolicyUnit:
        """The unit of that kind and name.

        Args:
            hint: whether to look for a name that may be meant, which takes time.

        Raises:
            UnknownUnit: there is none. The text says what the name is instead, why its file does
                not load, or which name may be meant.
        """
        unit = self.units.get((kind, name))
        if unit is None:
            kinds = " and ".join(f"a {kind.label}" for kind in self.kinds_of(name))
            reasons = (f"it is {kinds}" if kinds else "", self.not_loaded.get(name))
            more = "; ".join(filter(None, reasons)) or self._hint(kind, name if hint else "")
            raise UnknownUnit(f"there is no {kind.label} named {name!r:.160}; {more}")
        return unit

    def _hint(self, kind: Kind, name: str) -> str:
        meant = spelling.nearest(name, (other for its, other in self.units if its is kind))
        if meant is not None:
            return f"did you mean {meant}?"
        return "discover lists what there is, ovirt-scheduler check what is not loaded"

    def choose(
        self,
        kind: Kind,
        requested: Sequence[WantedUnit],
        properties: Mapping[str, str],
        strict: bool,
    ) -> Chosen:
        """The units to call, in shadow or not, and what is wrong (contract 4.2 to 4.3, 10.4).

        Raises:
            BadParameters: a name occurs twice, and the form is strict.
            UnknownUnit: there is no unit of a name, and the form is strict.
        """
        in_shadow = {name: unit for (its, name), unit in self.shadows.items() if its is kind}
        looking = {
            request.name: request for request in reversed(requested) if request.name in in_shadow
        }
        calls: list[UnitCall] = []
        errors: dict[str, tuple[str, ...]] = {}
        rejected = False
        named: dict[str, WantedUnit] = {}
        for request in requested:
            if (
                request.name not in looking
                and named.setdefault(request.name, request) is not request
            ):
                repeated = f"the {kind.label} {request.name!r:.160} is named more than once"
                if strict:
                    raise BadParameters(f"{repeated}; name it once")
                errors[request.name] = (f"{repeated}; the first counts",)
        functions = len(named)
        for request in named.values():
            try:
                unit = self.unit(kind, request.name, len(errors) < _MOST_HINTS)
                calls.append(UnitCall(unit, properties, request.factor, functions))
            except UnknownUnit as error:
                if strict:
                    raise
                missed = self.missed.get(request.name) if kind is Kind.FILTER else None
                errors[request.name] = (missed or str(error),)
                rejected = rejected or missed is not None
        shadows = tuple(
            UnitCall(unit, properties, looking[name].factor, functions + 1)
            if name in looking
            else UnitCall(unit, {}, functions=functions + 1)
            for name, unit in in_shadow.items()
        )
        return Chosen(tuple(named.values()), tuple(calls), errors, rejected, shadows)

    def kinds_of(self, name: str) -> tuple[Kind, ...]:
        """The kinds of unit that bear this name."""
        return tuple(kind for kind in Kind if (kind, name) in self.units)
