"""One call of a driver's method: its class is made anew, and forgotten with its process."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Tuple

from ovirtsdk4 import types

from ovirt_scheduler import call, driver_frames, interfaces, plugin, plugin_modules, properties
from ovirt_scheduler.answers import BadAnswer, one_line
from ovirt_scheduler.driver_answers import READERS
from ovirt_scheduler.drivers import DriverAnswer, DriverJob
from ovirt_scheduler.model import CallResult, Outcome


@dataclass(frozen=True)
class DriverGiven:
    """What a driver's method is called with, beside the arguments that are plain values."""

    hosts: Mapping[str, types.Host]  # those that are left, by id
    vms: Mapping[str, types.Vm]
    vm: Optional[types.Vm]
    host: Optional[types.Host]
    costs: Mapping[str, int]


def run(job: DriverJob, given: DriverGiven) -> bytes:
    """Load the driver's plugin from the registry's code and call the method.

    Returns:
        A message: how it ended, with its answer.
    """
    code = job.driver.plugin
    answer: DriverAnswer = None
    try:
        call.enter_folder(code.folder)
        plugin.provide(job.engine)
        plugin_modules.finder_of(code).install(code.folder)
        driver = getattr(importlib.import_module(code.name), job.driver.class_name)()
        if isinstance(driver, interfaces.HostSelector):
            driver.costs = given.costs
            driver.selected = job.selected
        if job.driver.interfaces:
            driver.destinations = job.destinations
        returned = _called(driver, job, given)
        result, answer = _answered(job, returned)
    except BaseException as error:  # noqa: BLE001  a plugin may raise anything
        result = call.raised(code, job.driver.name, error)
    return driver_frames.pack_driver(result, answer)


def _called(driver: object, job: DriverJob, given: DriverGiven) -> object:
    defined = job.driver.defines(job.method)
    if defined is None:
        return getattr(driver, job.method)(**job.arguments)
    arguments = _arguments(job, given)
    method = job.method
    if method == "select_host" and isinstance(driver, interfaces.HostSelector):
        method = _selecting(driver)
    return getattr(driver, method)(*(arguments[name] for name in defined.parameters))


def _selecting(driver: interfaces.HostSelector) -> str:
    """The one of the two methods that its class defines; select_host where it has both."""
    own = type(driver).select_host is not interfaces.HostSelector.select_host
    return "select_host" if own else "candidates"


def _arguments(job: DriverJob, given: DriverGiven) -> Dict[str, object]:
    return {
        **job.arguments,
        "hosts": list(given.hosts.values()),
        "vms": list(given.vms.values()),
        "vm": given.vm,
        "host": given.host,
        "properties": properties.fill(job.driver.properties, job.properties),
    }


def _answered(job: DriverJob, returned: object) -> Tuple[CallResult, DriverAnswer]:
    name = job.driver.name
    try:
        return CallResult(name, Outcome.OK), READERS[job.returns](returned)
    except BadAnswer as error:
        message = one_line(f"{job.method} {error}")
        return CallResult(name, Outcome.BAD_ANSWER, message=message), None
