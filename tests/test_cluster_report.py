"""Clusters of scheduler.conf held to the schedulers that there are."""

from __future__ import annotations

import pytest

from ovirt_scheduler import cluster_report
from ovirt_scheduler.config import ClusterSettings
from ovirt_scheduler.drivers import DriverUnit
from ovirt_scheduler.model import Limits, PluginCode, Property, PropertySet

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


@pytest.mark.parametrize(
    ("scheduler", "properties"),
    [
        ("default", {}),
        ("default", {"policy": "power_saving", "high": "70"}),
        ("plain", {"its_own": "business"}),
    ],
)
def test_what_fits_is_no_problem(scheduler, properties):
    """Properties that a scheduler does not declare are passed on, and are its own business."""
    settings = ClusterSettings("Default", scheduler, properties, 60.0, 0.0)
    assert cluster_report.problem(settings, DRIVERS) is None


@pytest.mark.parametrize(
    ("scheduler", "properties", "problem"),
    [
        ("defualt", {}, "scheduler: there is no scheduler 'defualt'; write one of default, plain"),
        ("backups", {}, "scheduler: there is no scheduler 'backups'; write one of default, plain"),
        (
            "default",
            {"policy": "evenly"},
            "policy: 'evenly' is no policy of default; write one of none, power_saving",
        ),
        (
            "plain",
            {"policy": "none"},
            "policy: 'none' is no policy of plain; it has none: take the key out",
        ),
        ("default", {"high": "101"}, "properties: property high: "),
    ],
)
def test_what_does_not_fit_is_told_with_what_to_write(scheduler, properties, problem):
    """The key comes first."""
    settings = ClusterSettings("Default", scheduler, properties, 60.0, 0.0)
    assert cluster_report.problem(settings, DRIVERS).startswith(problem)
