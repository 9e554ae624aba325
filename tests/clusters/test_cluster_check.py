"""Clusters of scheduler.conf held to the schedulers that there are."""

from __future__ import annotations

import pytest

from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.clusters import check
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.plugins import Limits, PluginCode, Property, PropertySet
from ovirt_scheduler.model.requests import WantedUnit
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.settings.table import ClusterSettings

LIMITS = Limits(timeout=1.0, memory=1 << 20, cpu=1, open_files=16)


def driver(name, policies=(), declared=(), interfaces=("LoadBalancer",)):
    return DriverUnit(
        name=name,
        class_name=name.title(),
        id="",
        version="1",
        checksum="sha256:",
        description="",
        plugin=PluginCode(name, "/plugins", ()),
        limits=LIMITS,
        properties=PropertySet(name, declared),
        interfaces=interfaces,
        policies=policies,
    )


DRIVERS = {
    each.name: each
    for each in (
        driver("default", ("none", "power_saving"), (Property("high", "{1-100}", "80"),)),
        driver("plain"),
        driver("backups", interfaces=()),
    )
}


MARKS = (Property("low_utilization", "{0-99}", "20"), Property("high_utilization", "{1-100}", "80"))
DRIVERS["marks"] = driver("marks", declared=MARKS)
UNITS = {
    (kind, name): PolicyUnit(
        name,
        kind,
        "",
        PluginCode(name, "/plugins", ()),
        "sha256:",
        LIMITS,
        PropertySet(name, (Property("least", "[0-9]+"),)),
    )
    for kind, name in (
        (Kind.FILTER, "Roomy"),
        (Kind.COST_FUNCTION, "Quiet"),
        (Kind.BALANCE, "Even"),
    )
}
CATALOGUE = Catalogue(
    UNITS, drivers=DRIVERS, not_loaded={"Broken": "its file Broken.py does not load: line 3: why"}
)
LINES = {
    "scheduler": 3,
    "policy": 4,
    "properties": 5,
    "filters": 6,
    "cost_functions": 7,
    "balance": 8,
}


def section(scheduler="default", properties=None, filters=(), costs=(), balance=None):
    return ClusterSettings(
        "Default",
        scheduler=scheduler,
        properties=properties or {},
        timer_interval=0.0,
        filters=tuple(map(WantedUnit, filters)),
        cost_functions=tuple(map(WantedUnit, costs)),
        balance=None if balance is None else WantedUnit(balance),
        file="/etc/x.conf",
        lines=LINES,
    )


@pytest.mark.parametrize(
    ("scheduler", "properties"),
    [
        ("default", {}),
        ("default", {"policy": "power_saving", "high": "70"}),
        ("plain", {"its_own": "business"}),
        ("plain", {"low_utilization": "90", "high_utilization": "80"}),
        ("marks", {"low_utilization": "80"}),
    ],
)
def test_what_fits_is_no_problem(scheduler, properties):
    """Properties that a scheduler does not declare are passed on, and are its own business."""
    settings = section(scheduler, properties, ["Roomy"], ["Quiet"], "Even")
    assert check.problem(settings, CATALOGUE) is None


@pytest.mark.parametrize(
    ("scheduler", "properties", "problem"),
    [
        ("defualt", {}, "scheduler: there is no scheduler 'defualt'; write one of default, marks"),
        ("backups", {}, "scheduler: there is no scheduler 'backups'; write one of default, marks"),
        (
            "default",
            {"policy": "evenly"},
            "policy: 'evenly' is no policy of default; write one of none, power_saving",
        ),
        (
            "plain",
            {"policy": "none"},
            "policy: 'none' is no policy of plain; it has none: remove the key",
        ),
        ("default", {"high": "101"}, "properties: property high: "),
        (
            "marks",
            {"low_utilization": "81"},
            "properties: low_utilization is 81, and high_utilization 80; set the first to the",
        ),
        ("plain", {"least": "all"}, "properties: filter Roomy: property least: "),
    ],
)
def test_what_does_not_fit_is_told_with_what_to_write(scheduler, properties, problem):
    """File, line and key come first."""
    settings = section(scheduler, properties, ["Roomy"], ["Quiet"])
    told = str(check.problem(settings, CATALOGUE))
    line = LINES[problem.partition(":")[0]]
    assert told.startswith(f"/etc/x.conf:{line}: [clusters] [[Default]] {problem}")


@pytest.mark.parametrize(
    ("filters", "costs", "balance", "problem"),
    [
        (["Quiet"], [], None, "6: [clusters] [[Default]] filters: there is no filter 'Quiet'; write one"),
        ([], [], "Roomy", "8: [clusters] [[Default]] balance: there is no balance 'Roomy'; write"),
        ([], ["roomy"], None, "7: [clusters] [[Default]] cost_functions: there is no cost function"),
    ],
)  # fmt: skip
def test_a_unit_that_is_not_there_is_told(filters, costs, balance, problem):
    """One of another kind is none."""
    told = str(check.problem(section("default", {}, filters, costs, balance), CATALOGUE))
    assert told.startswith(f"/etc/x.conf:{problem}")


@pytest.mark.parametrize(
    "settings", [section("Broken"), section(filters=["Broken"]), section(balance="Broken")]
)
def test_of_one_that_did_not_load_it_is_told_why(settings):
    """The key in the settings is right then, and its plugin is what there is to mend."""
    told = str(check.problem(settings, CATALOGUE))
    assert told.endswith("'Broken'; its file Broken.py does not load: line 3: why")
