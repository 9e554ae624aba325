"""A snapshot of the policy units and drivers, and which of them a request names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, Union

from ovirt_scheduler.errors import BadParameters, PluginError, UnknownUnit
from ovirt_scheduler.model.drivers import COST_FUNCTIONS, FILTERS, POLICY, DriverUnit
from ovirt_scheduler.model.jobs import Job, Request
from ovirt_scheduler.model.plugins import Limits, PluginCode
from ovirt_scheduler.model.requests import RequestedUnit
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.model.values import properties, spelling

_MOST_HINTS = 4  # unknown names of a call for which the nearest is looked for
_WHERE_LISTED = "discover lists what there is, ovirt-scheduler check what is not loaded"

UnitKey = tuple[Kind, str]


class Outdated(NamedTuple):
    """Why the former version of a plugin answers: its file does not load any more.

    Times are in seconds since 1970.
    """

    version: float  # when the former version was first loaded
    since: float  # when the file first failed to load
    because: str  # the line, and what is wrong there
    fault: PluginError  # the same, as one of the catalogue's faults


class FileInUse(NamedTuple):
    """A plugin's file of which something is in use."""

    checksum: str
    contents: tuple[str, ...]  # its units and drivers, in words


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

    units: dict[UnitKey, PolicyUnit] = field(default_factory=dict)
    faults: list[PluginError] = field(default_factory=list)
    drivers: dict[str, DriverUnit] = field(default_factory=dict)  # by name
    topics: dict[str, DriverUnit] = field(default_factory=dict)  # by topic
    warnings: list[PluginError] = field(default_factory=list)  # what is left out or not checked
    unused: tuple[Path, ...] = ()  # files that have nothing to call and belong to no plugin
    missed: dict[str, str] = field(default_factory=dict)  # filters that should be: why not
    not_loaded: dict[str, str] = field(default_factory=dict)  # names of units: why not
    outdated: dict[str, Outdated] = field(default_factory=dict)  # by the plugin's file
    shadows: dict[UnitKey, PolicyUnit] = field(default_factory=dict)  # that only look on

    def refresh(self) -> Catalogue:
        """This one."""
        return self

    current = refresh

    @property
    def all_units(self) -> Mapping[UnitKey, PolicyUnit]:
        """The policy units, those in shadow too."""
        return {**self.units, **self.shadows}

    @property
    def plugins(self) -> tuple[tuple[PluginCode, Limits], ...]:
        """The code and the limits of each plugin that callers may wait for, each once."""
        code_and_limits = [(unit.plugin, unit.limits) for unit in self.all_units.values()]
        code_and_limits += [(driver.plugin, driver.limits) for driver in self.drivers.values()]
        return tuple({id(plugin): (plugin, limits) for plugin, limits in code_and_limits}.values())

    @property
    def files(self) -> dict[str, FileInUse]:
        """The files that the units and drivers are of."""
        called: list[tuple[Union[PolicyUnit, DriverUnit], str]] = [
            (unit, " ".join(filter(None, (unit.label, unit.class_name))))
            for unit in self.all_units.values()
        ]
        called += [(driver, f"{driver.label} {driver.name}") for driver in self.drivers.values()]
        files: dict[str, FileInUse] = {}
        for unit, words in called:
            path = unit.plugin.modules[0].path
            others = files[path].contents if path in files else ()
            files[path] = FileInUse(unit.checksum, (*others, words))
        return files

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
            more = "".join(f"; {reason}" for reason in reasons if reason)
            if hint and not more:
                more = spelling.hint(name, (other for its, other in self.units if its is kind))
            more = more or f"; {_WHERE_LISTED}"
            raise UnknownUnit(f"there is no {kind.label} named {name!r:.160}{more}")
        return unit

    def job(self, request: Request, deadline: float) -> Job:
        """What to call for a request, in shadow or not, and what is wrong (contract 4.2 to 4.3).

        Args:
            deadline: seconds on the monotonic clock.

        Returns:
            The job. Its request names each unit once, and none in shadow.

        Raises:
            BadParameters: a name occurs twice, and the form is strict.
            UnknownUnit: there is no unit of a name, and the form is strict.
        """
        job = Job(request._replace(units={}), deadline)
        for kind, requested in request.units.items():
            if requested or request.driver_call is None:  # before a driver none need be named
                job = self._with_units(job, kind, requested)
        return job

    def _with_units(self, job: Job, kind: Kind, requested: Sequence[RequestedUnit]) -> Job:
        """The job with the calls of the requested units of a kind, and of those in shadow."""
        request, strict, errors = job.request, job.request.strict, {}
        shadows = {name: unit for (its, name), unit in self.shadows.items() if its is kind}
        units: dict[str, RequestedUnit] = {}
        in_shadow: dict[str, RequestedUnit] = {}
        for unit in requested:
            if unit.name in shadows:
                in_shadow.setdefault(unit.name, unit)
            elif units.setdefault(unit.name, unit) is not unit:
                repeated = f"the {kind.label} {unit.name!r:.160} is named more than once"
                if strict:
                    raise BadParameters(f"{repeated}; name it once")
                errors[unit.name] = (f"{repeated}; the first counts",)
        calls, rejected, functions = [*job.calls], job.rejected, len(units)
        for name, factor in units.values():
            try:
                loaded = self.unit(kind, name, len(errors) < _MOST_HINTS)
                calls.append(UnitCall(loaded, request.properties, factor, functions))
            except UnknownUnit as error:
                if strict:
                    raise
                missed = self.missed.get(name) if kind is Kind.FILTER else None
                errors[name] = (missed or str(error),)
                rejected = rejected or missed is not None
        of_shadows = [*job.shadows]
        for name, shadow in shadows.items():
            named = in_shadow.get(name)
            properties, factor = ({}, 1) if named is None else (request.properties, named.factor)
            of_shadows.append(UnitCall(shadow, properties, factor, functions + 1))
        return job._replace(
            request=request._replace(units={**request.units, kind: tuple(units.values())}),
            calls=tuple(calls),
            errors={**job.errors, kind: errors},
            rejected=rejected,
            shadows=tuple(of_shadows),
        )

    def kinds_of(self, name: str) -> tuple[Kind, ...]:
        """The kinds of unit that bear this name."""
        return tuple(kind for kind in Kind if (kind, name) in self.units)


def unknown_properties(
    names: Collection[str], owners: Iterable[Union[PolicyUnit, DriverUnit]]
) -> Iterator[str]:
    """A sentence about each property that no owner declares, and that the code of none has."""
    name_sets = []
    for owner in owners:
        declared = () if owner.properties is None else owner.properties.properties
        name_sets.append([each.name for each in declared])
        if isinstance(owner, DriverUnit) and owner.interfaces:
            name_sets.append([POLICY, FILTERS, COST_FUNCTIONS])
        name_sets.append([name for name in names if owner.plugin.mentions(name)])
    return properties.unknown(names, name_sets)
