"""Turns XML-RPC parameters into a DriverRequest, and a DriverDecision into the answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ovirt_scheduler.errors import BadParameters
from ovirt_scheduler.model.drivers import (
    COST_FUNCTIONS,
    FILTERS,
    DriverDecision,
    DriverRequest,
    DriverUnit,
    Subjects,
)
from ovirt_scheduler.model.requests import Caller, WantedUnit
from ovirt_scheduler.model.tasks import Returns
from ovirt_scheduler.server import values

_FACTOR = re.compile(r"-?[0-9]{1,10}")


def request(
    caller: Caller, driver: DriverUnit, method: str, arguments: Mapping[str, object]
) -> DriverRequest:
    """A call of a driver's method, its arguments by name.

    Those of the interfaces get hosts and VMs as all calls have them (contract 1.4); a driver's
    own methods get plain values.

    Raises:
        BadParameters: an argument is missing, unknown or of a wrong type.
    """
    published = driver.method(method)
    if published is None:
        raise BadParameters(f"method: {driver.name} publishes no {method!r:.80}")
    whole = f"{method}{published.signature}"
    missing = [name for name in published.required if name not in arguments]
    if missing:
        raise BadParameters(f"arguments: {', '.join(missing)} missing; it is {whole}")
    known = {*published.required, *published.optional}
    unknown = [f"{name!r:.80}" for name in arguments if name not in known]
    if unknown:
        raise BadParameters(f"arguments: {', '.join(unknown)[:200]} unknown; it is {whole}")
    defined = driver.defines(method)
    if defined is None:
        return DriverRequest(caller, driver, method, arguments=arguments)
    properties = dict(values.properties(arguments.get("properties")))
    filters: tuple[WantedUnit, ...] = ()
    cost_functions: tuple[WantedUnit, ...] = ()
    if defined.interface == "HostSelector":
        filters = tuple(map(WantedUnit, _names(properties.pop(FILTERS, ""))))
        cost_functions = tuple(map(_factor, _names(properties.pop(COST_FUNCTIONS, ""))))
        values.check_units("properties", (*filters, *cost_functions))
    return DriverRequest(
        caller,
        driver,
        method,
        subjects=_subjects(arguments),
        arguments={
            name: values.string(name, arguments[name])
            for name in ("old_status", "new_status")
            if name in arguments
        },
        properties=properties,
        filters=filters,
        cost_functions=cost_functions,
    )


def result(decision: DriverDecision) -> object:
    """What a decision gives back in the design form, and within the engine form's envelope."""
    returns = decision.request.returns
    if returns in (Returns.TRUTH, Returns.VALUE):
        return decision.answer
    if returns is Returns.MIGRATIONS:
        return {vm: list(hosts) for vm, hosts in decision.answer.items()}
    if decision.request.method == "select_host":
        return decision.answer[0] if decision.answer else ""
    return list(decision.answer)


def schedulers(drivers: Iterable[DriverUnit]) -> list[dict[str, object]]:
    """What ``getSchedulers`` tells."""
    return [
        {
            "id": driver.id, "name": driver.name, "version": driver.version,
            "checksum": driver.checksum, "description": driver.description,
            "topic": driver.topic or "", "policies": list(driver.policies),
            "inputs": [
                {"name": each.name, "validation": each.pattern, "default": each.default or ""}
                for each in driver.properties.properties
            ],
            "interfaces": list(driver.interfaces), "written_for": driver.written_for or "",
        }
        for driver in drivers
    ]  # fmt: skip


def topics(drivers: Mapping[str, DriverUnit]) -> list[dict[str, object]]:
    """What ``getTopics`` tells."""
    return [
        {
            "topic": topic, "driver": driver.name, "description": driver.description,
            "methods": [
                {"name": each.name, "signature": each.signature, "help": each.help}
                for each in driver.methods
            ],
        }
        for topic, driver in drivers.items()
    ]  # fmt: skip


def _subjects(arguments: Mapping[str, object]) -> Subjects:
    return Subjects(
        hosts=values.hosts(arguments.get("hosts", [])),
        vms=values.hosts(arguments.get("vms", []), "vms"),
        vm=values.vm(arguments["vm"]) if "vm" in arguments else None,
        host=values.vm(arguments["host"], "host") if "host" in arguments else None,
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(";") if name.strip()]


def _factor(text: str) -> WantedUnit:
    name, equals, factor = text.rpartition("=")
    if not equals:
        return WantedUnit(text)
    if not _FACTOR.fullmatch(factor.strip()) or not -(2**31) <= int(factor) < 2**31:
        raise BadParameters(
            f"properties[{COST_FUNCTIONS!r}]: {text!r:.80}: expected name=factor with ; between, "
            "the factor an int"
        )
    return WantedUnit(name.strip(), int(factor))
