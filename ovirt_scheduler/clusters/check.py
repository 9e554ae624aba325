"""Checks a cluster's section of scheduler.conf against the schedulers and units that are loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Optional

from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.model.drivers import POLICY, DriverUnit
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values import properties
from ovirt_scheduler.settings.table import ClusterSettings

_LOW, _HIGH = "low_utilization", "high_utilization"


def problem(cluster: ClusterSettings, catalogue: Catalogue) -> Optional[ConfigError]:
    """The first mistake in the cluster's section, and what to do; None if there is none."""
    return next(_problems(cluster, catalogue), None)


def _problems(cluster: ClusterSettings, catalogue: Catalogue) -> Iterator[ConfigError]:
    drivers = catalogue.drivers
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
    refused = properties.first_refusal(scheduler.properties, cluster.properties)
    if refused:
        yield cluster.mistake("properties", refused)
    else:
        yield from _of_marks(cluster, scheduler)
    yield from _of_units(cluster, catalogue)


def _of_marks(cluster: ClusterSettings, scheduler: DriverUnit) -> Iterator[ConfigError]:
    """Check that the low mark is not above the high one."""
    if not {_LOW, _HIGH} <= {each.name for each in scheduler.properties.properties}:
        return
    values = properties.fill(scheduler.properties, cluster.properties)
    low, high = values.get(_LOW, ""), values.get(_HIGH, "")
    if low.isdecimal() and high.isdecimal() and int(low) > int(high):
        words = f"{_LOW} is {low}, and {_HIGH} {high}; set the first to the second at most"
        yield cluster.mistake("properties", words)


def _of_units(cluster: ClusterSettings, catalogue: Catalogue) -> Iterator[ConfigError]:
    units = catalogue.all_units
    for key, kind, wanted in (
        ("filters", Kind.FILTER, cluster.filters),
        ("cost_functions", Kind.COST_FUNCTION, cluster.cost_functions),
        ("balance", Kind.BALANCE, () if cluster.balance is None else (cluster.balance,)),
    ):
        for each in wanted:
            unit = units.get((kind, each.name))
            if unit is None:
                there = [name for its_kind, name in units if its_kind is kind]
                yield cluster.mistake(key, _missing(kind.words, each.name, there, catalogue))
            elif unit.properties is not None:
                refused = properties.first_refusal(unit.properties, cluster.properties)
                if refused:
                    yield cluster.mistake("properties", f"{kind.words} {unit.name}: {refused}")


def _missing(what: str, name: str, there: Collection[str], catalogue: Catalogue) -> str:
    """Why something that is named cannot be called, and what to do."""
    remedy = (
        f"write one of {', '.join(sorted(there))}" if there else "there are none: remove the key"
    )
    return f"there is no {what} {name!r:.160}; {catalogue.not_loaded.get(name) or remedy}"
