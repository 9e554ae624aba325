"""Makes drivers of what the analysis of a plugin's file says of its classes, and checks that."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Optional

from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.analysis import FoundDriver
from ovirt_scheduler.model.drivers import COST_FUNCTIONS, FILTERS, POLICY, DriverUnit
from ovirt_scheduler.model.plugins import Limits, PluginCode, Property, PropertySet
from ovirt_scheduler.model.units import LONGEST_NAME
from ovirt_scheduler.model.values import properties
from ovirt_scheduler.settings.table import PluginConf

_NAMESPACE = uuid.UUID("3c2f6f0e-5a52-4c8b-9d3e-7f1c0c3c9a41")
_TOPIC = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")
_VERSION_DIGITS = 12  # of the checksum


def make_driver(
    driver: FoundDriver, plugin: PluginCode, conf: PluginConf, checksum: str, limits: Limits
) -> DriverUnit:
    """A driver that can be called.

    Raises:
        PluginError: without a file; the text says what is wrong with its properties.
    """
    values = {name: value for name, value in vars(driver).items() if name in DriverUnit._fields}
    values["version"] = driver.version or checksum.rpartition(":")[2][:_VERSION_DIGITS]
    values["properties"] = _driver_properties(driver, conf)
    values["id"] = str(uuid.uuid5(_NAMESPACE, driver.name))
    return DriverUnit(**values, plugin=plugin, checksum=checksum, limits=limits)


def check_drivers(drivers: Sequence[FoundDriver], path: str) -> None:
    """Check the names, topics and versions of a file's drivers.

    Raises:
        PluginError: with the line of the driver.
    """
    for driver in drivers:
        problem = _driver_problem(driver)
        if problem:
            message = f"the driver {driver.class_name!r:.160}: {problem}"
            raise PluginError(message, path, driver.line)


def _driver_problem(driver: FoundDriver) -> Optional[str]:
    """What is wrong with a driver's name, topic or version; None if nothing is."""
    topic, written_for, policies = driver.topic, driver.written_for, driver.policies
    name = f"at most {LONGEST_NAME} printable characters"
    problems = (
        (not is_name(driver.name), f"name: expected {name}"),
        (not is_name(driver.class_name), f"its class: expected a name of {name}"),
        (not all(is_name(each.name) for each in driver.methods),
         f"methods: expected names of {name}"),
        (topic is not None and not _TOPIC.fullmatch(topic),
         "topic: expected letters, digits, _, - and . (at most 128)"),
        (len(driver.version or "") > LONGEST_NAME,
         f"version: expected at most {LONGEST_NAME} characters"),
        (written_for is not None and not _VERSION.fullmatch(written_for),
         "written_for: expected a version, such as 4.5"),
        (len(set(policies)) < len(policies), "policies: one occurs twice"),
        (not all(map(is_name, policies)), f"policies: expected names of {name}"),
    )  # fmt: skip
    return next((problem for is_wrong, problem in problems if is_wrong), None)


def is_name(text: str) -> bool:
    """Whether a unit or a driver may have this name."""
    return text.isprintable() and 0 < len(text) <= LONGEST_NAME


def too_new(driver: DriverUnit, engine_version: Optional[str]) -> bool:
    """Whether a driver was written for a newer oVirt than there is; 4.5 holds for all 4.5.x."""
    if driver.written_for is None or engine_version is None:
        return False
    there = _numbers(engine_version)
    return _numbers(driver.written_for)[: len(there)] > there


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _driver_properties(driver: FoundDriver, conf: PluginConf) -> PropertySet:
    """Those declared, and the one that names a policy where there are policies."""
    texts = (conf.name, conf.custom_properties, conf.default_values)
    if not conf.custom_properties:
        texts = (driver.name, driver.properties, driver.default_values)
    declared = properties.parse(*texts)
    names = {each.name for each in declared.properties}
    if driver.interfaces and names & {FILTERS, COST_FUNCTIONS}:
        own_names = f"{FILTERS} and {COST_FUNCTIONS} are the daemon's own"
        raise PluginError(f"{driver.name}: the properties {own_names}; call yours something else")
    if not driver.policies:
        return declared
    if POLICY in names:
        raise PluginError(f"{driver.name}: policies make the property {POLICY}; do not declare it")
    allowed = "|".join(map(re.escape, driver.policies))
    policy = Property(POLICY, allowed, driver.policies[0])
    return PropertySet(declared.name, (*declared.properties, policy))
