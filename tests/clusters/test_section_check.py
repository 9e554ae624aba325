"""Clusters of scheduler.conf held to the schedulers that there are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

import pytest

from ovirt_scheduler.catalogue.catalogue import Catalogue
from ovirt_scheduler.clusters.section_check import SectionCheck
from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.plugins import Limits, PluginCode, Property, PropertySet
from ovirt_scheduler.model.requests import RequestedUnit
from ovirt_scheduler.model.results import CallOutcome, CallResult
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.processes.loading import patterns
from ovirt_scheduler.settings.table import ClusterSettings
from tests.support.place import versions
from tests.support.waiting import LONG

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
        filters=tuple(map(RequestedUnit, filters)),
        cost_functions=tuple(map(RequestedUnit, costs)),
        balance=None if balance is None else RequestedUnit(balance),
        file="/etc/x.conf",
        lines=LINES,
    )


class Matching:
    """Matches values here, as an executor has its processes do it, and counts how often."""

    def __init__(self, trouble: Optional[CallResult] = None) -> None:
        self.times = 0
        self.trouble = trouble

    def match(
        self, owners: Sequence[DriverUnit], values: Mapping[str, str], *_: Any
    ) -> Optional[CallResult]:
        self.times += 1
        if self.trouble is not None:
            return self.trouble
        for owner in owners:
            for prop in owner.properties.properties:
                why = patterns.refusal(prop, values.get(prop.name))
                if why:
                    told = f"{owner.label} {owner.name}: property {prop.name}: {why}"
                    return CallResult(owner.name, CallOutcome.REFUSED, message=told)
        return None


def problem_of(settings: ClusterSettings) -> Optional[ConfigError]:
    return SectionCheck(settings, Matching()).problem(CATALOGUE)


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
    assert problem_of(settings) is None


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
        ("default", {"high": "101"}, "properties: scheduler default: property high: "),
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
    told = str(problem_of(settings))
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
    told = str(problem_of(section("default", {}, filters, costs, balance)))
    assert told.startswith(f"/etc/x.conf:{problem}")


@pytest.mark.parametrize(
    "settings", [section("Broken"), section(filters=["Broken"]), section(balance="Broken")]
)
def test_of_one_that_did_not_load_it_is_told_why(settings):
    """The key in the settings is right then, and its plugin is what there is to mend."""
    told = str(problem_of(settings))
    assert told.endswith("'Broken'; its file Broken.py does not load: line 3: why")


def test_values_are_matched_again_only_when_others_are_declared():
    """A cluster is looked at every few seconds, and a process is asked each time."""
    matching = Matching()
    check = SectionCheck(section("default", {"high": "101"}, ["Roomy"]), matching)
    for _ in range(3):
        assert check.problem(replace(CATALOGUE)) is not None
    assert matching.times == 1
    wider = PropertySet("default", (Property("high", "{1-200}", "80"),))
    drivers = {**DRIVERS, "default": DRIVERS["default"]._replace(properties=wider)}
    for _ in range(3):
        assert check.problem(replace(CATALOGUE, drivers=drivers)) is None
    assert matching.times == 2


def test_values_that_cannot_be_matched_now_are_matched_at_the_next_look():
    matching = Matching(CallResult("Roomy", CallOutcome.KILLED, message="died by SIGSEGV"))
    check = SectionCheck(section("default", {}, ["Roomy"]), matching)
    told = "properties: cannot be matched with what Roomy declares: died by SIGSEGV"
    assert str(check.problem(CATALOGUE)).endswith(told)
    matching.trouble = None
    assert check.problem(CATALOGUE) is None
    assert matching.times == 2


FILTER = (
    "class {name}:\n    properties_validation = '{patterns}'\n"
    "    def do_filter(self, hosts, vm, args): return hosts\n"
)


def test_values_are_matched_in_processes_of_their_plugins_within_their_time(place, executor):
    """One on which a pattern backtracks is told by its owner and its name."""
    place.write("Slow", FILTER.format(name="Slow", patterns="p=(a+)+b;least=[0-9]+"))
    place.write("Fast", FILTER.format(name="Fast", patterns="p=.*"))
    place.write("Plain", "def do_filter(hosts, vm, properties): return hosts\n")
    catalogue = place.registry.refresh()
    assert len(versions(catalogue)) == 3
    fast, plain, slow = (catalogue.units[Kind.FILTER, name] for name in ("Fast", "Plain", "Slow"))
    slow = replace(slow, limits=replace(slow.limits, timeout=0.2))
    tries = {"p": f"{'a' * 40}c"}

    def matched(values: Mapping[str, str]) -> Optional[CallResult]:
        return executor.match([fast, plain, slow], values, time.monotonic() + LONG)

    assert matched({"p": "aab", "least": "7", "other": "x"}) is None
    assert matched({"least": "x"}).message.startswith("filter Slow: property least: 'x' is not all")
    result = matched(tries)
    assert (result.unit, result.outcome) == ("Slow", CallOutcome.REFUSED)
    assert result.message.startswith("filter Slow: property p: its regex was not done with the val")


def test_all_names_that_are_not_there_are_told_at_once():
    """Each with its line."""
    mistake = problem_of(section(filters=["Roomi"], costs=["Quite"]))
    assert mistake is not None
    assert [each.line for each in mistake.mistakes] == [6, 7]
    assert "; line 7: [clusters] [[Default]] cost_functions: there is no cost" in str(mistake)
