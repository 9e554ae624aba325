"""Checks a cluster's section of scheduler.conf against the schedulers and units that are loaded."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Optional, Union

from ovirt_scheduler.catalogue.catalogue import Catalogue, unknown_properties
from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.model.drivers import POLICY, DriverUnit
from ovirt_scheduler.model.plugins import PropertySet
from ovirt_scheduler.model.results import CallOutcome
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.model.values import properties, spelling
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings.table import ClusterSettings

_LOW, _HIGH = "low_utilization", "high_utilization"
_MATCH_SECONDS = 60.0  # for the values of all properties, with all that they are matched with


class SectionCheck:
    """Holds one cluster's section to what is loaded, again and again. For one thread.

    The values of properties are matched in processes of the plugins that declare them, and only
    when one of these plugins declares others than at the time before.

    Args:
        executor: has the processes.
    """

    def __init__(self, cluster: ClusterSettings, executor: Executor) -> None:
        self._cluster = cluster
        self._executor = executor
        self._matched: tuple[Optional[PropertySet], ...] = ()  # with the values, at the latest time
        self._refusal = ""  # what came of it

    def problem(self, catalogue: Catalogue) -> Optional[ConfigError]:
        """What is wrong in the section, and what to do; None if nothing is.

        Raises:
            Overloaded, ExecutorUnavailable: the values cannot be matched now.
        """
        cluster = self._cluster
        mistakes = [*_mistakes(cluster, catalogue)]
        if mistakes:
            return ConfigError.together(mistakes)
        scheduler = catalogue.drivers[cluster.scheduler]
        refusal = self._refused([*_owners(cluster, catalogue)])
        if refusal:
            return cluster.mistake("properties", refusal)
        return _mistake_in_marks(cluster, scheduler)

    def _refused(self, owners: Sequence[Union[PolicyUnit, DriverUnit]]) -> str:
        """Why one of these does not take a value of the section; empty if all do."""
        declared = tuple(owner.properties for owner in owners)
        if declared != self._matched:
            values, deadline = self._cluster.properties, time.monotonic() + _MATCH_SECONDS
            result = self._executor.match(owners, values, deadline)
            if result is not None and result.outcome is not CallOutcome.REFUSED:
                return f"cannot be matched with what {result.unit} declares: {result.message}"
            self._matched, self._refusal = declared, "" if result is None else result.message
        return self._refusal


def unread_properties(cluster: ClusterSettings, catalogue: Catalogue) -> Iterator[str]:
    """A sentence about each property of a section without mistakes that nothing in it knows."""
    return unknown_properties(cluster.properties, _owners(cluster, catalogue))


def _owners(
    cluster: ClusterSettings, catalogue: Catalogue
) -> Iterator[Union[PolicyUnit, DriverUnit]]:
    """The scheduler and the units of a section, which get its properties."""
    yield catalogue.drivers[cluster.scheduler]
    yield from (catalogue.all_units[key] for _, key in _named(cluster))


def _mistakes(cluster: ClusterSettings, catalogue: Catalogue) -> Iterator[ConfigError]:
    """What is named in the section, and is not there."""
    drivers, units = catalogue.drivers, catalogue.all_units
    scheduler = drivers.get(cluster.scheduler)
    if scheduler is None or not scheduler.interfaces:
        schedulers = [name for name in drivers if drivers[name].interfaces]
        no = _missing("scheduler", cluster.scheduler, schedulers, catalogue)
        yield cluster.mistake("scheduler", no)
        return
    policy = cluster.properties.get(POLICY)
    if policy is not None and policy not in scheduler.policies:
        there = ", ".join(scheduler.policies)
        remedy = f"write one of {there}" if there else "it has none: remove the key"
        yield cluster.mistake(
            "policy", f"{policy!r:.160} is no policy of {scheduler.name}; {remedy}"
        )
    for key, (kind, name) in _named(cluster):
        if (kind, name) not in units:
            names = [name for its_kind, name in units if its_kind is kind]
            yield cluster.mistake(key, _missing(kind.label, name, names, catalogue))


def _named(cluster: ClusterSettings) -> Iterator[tuple[str, tuple[Kind, str]]]:
    """The policy units that the section names, each with the key that names it."""
    balance = () if cluster.balance is None else (cluster.balance,)
    for key, kind, units in (
        ("filters", Kind.FILTER, cluster.filters),
        ("cost_functions", Kind.COST_FUNCTION, cluster.cost_functions),
        ("balance", Kind.BALANCE, balance),
    ):
        for unit in units:
            yield key, (kind, unit.name)


def _mistake_in_marks(cluster: ClusterSettings, scheduler: DriverUnit) -> Optional[ConfigError]:
    """The mistake of a low mark that is above the high one."""
    if not {_LOW, _HIGH} <= {each.name for each in scheduler.properties.properties}:
        return None
    values = properties.fill(scheduler.properties, cluster.properties)
    low, high = values.get(_LOW, ""), values.get(_HIGH, "")
    if not (low.isdecimal() and high.isdecimal() and int(low) > int(high)):
        return None
    words = f"{_LOW} is {low}, and {_HIGH} {high}; set the first to the second at most"
    return cluster.mistake("properties", words)


def _missing(what: str, name: str, there: Collection[str], catalogue: Catalogue) -> str:
    """Why something that is named cannot be called, and what to do."""
    remedy = (
        f"write one of {', '.join(sorted(there))}{spelling.hint(name, there)}"
        if there
        else "there are none: remove the key"
    )
    return f"there is no {what} {name!r:.160}; {catalogue.not_loaded.get(name) or remedy}"
