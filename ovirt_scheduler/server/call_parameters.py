"""Reads the parameters of a call into a ``Request``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ovirt_scheduler.errors import BadParameters
from ovirt_scheduler.model.drivers import COST_FUNCTIONS, FILTERS, DriverUnit, listed_units
from ovirt_scheduler.model.jobs import DriverCall, Request
from ovirt_scheduler.model.requests import Caller, Entities, RequestedUnit
from ovirt_scheduler.model.units import LONGEST_NAME, MOST_UNITS, Kind
from ovirt_scheduler.server import parameter_values

_FACTOR = re.compile(r"-?[0-9]{1,10}")


def unit_request(caller: Caller, kind: Kind, parameters: Sequence[object]) -> Request:
    """The call of an operation that runs policy units of a kind (contract 2.2 to 2.4).

    Args:
        parameters: units, hosts, a VM (except for a balance), and properties.

    Raises:
        BadParameters: which parameter, and what was expected.
    """
    named, hosts, *vms, custom = parameters
    if kind is Kind.FILTER:
        place = "filters"
        units = [*map(RequestedUnit, parameter_values.strings(place, named))]
    elif kind is Kind.COST_FUNCTION:
        place = "cost_functions"
        units = _factors(place, named)
    else:
        place = "balance"
        units = [RequestedUnit(parameter_values.string(place, named))]
    _check_units(place, units)
    vm = parameter_values.vm(vms[0]) if vms else None
    entities = Entities(parameter_values.hosts(hosts), vm=vm)
    return Request(caller, entities, parameter_values.properties(custom), {kind: tuple(units)})


def _check_units(place: str, units: Sequence[RequestedUnit]) -> None:
    """Refuse a call that names too many policy units, or one that cannot be.

    Raises:
        BadParameters: more policy units than one call may name, a longer name than a unit has
            (contract 4.2a), or a factor beyond 32 bits.
    """
    if len(units) > MOST_UNITS:
        raise BadParameters(
            f"{place}: {len(units)} policy units are named; a call names at most {MOST_UNITS}"
        )
    for unit in units:
        if len(unit.name) > LONGEST_NAME:
            raise BadParameters(
                f"{place}: {unit.name[:40]!r}… has {len(unit.name)} characters; the name of a "
                f"policy unit has at most {LONGEST_NAME}"
            )
        if not -(2**31) <= unit.factor < 2**31:
            raise BadParameters(
                f"{place}: the factor of {unit.name:.80}: {unit.factor} is beyond 32 bits"
            )


def _factors(place: str, value: object) -> list[RequestedUnit]:
    if isinstance(value, dict):
        value = [list(item) for item in value.items()]
    if not isinstance(value, list):
        raise parameter_values.expected(place, "an array of [name, factor]", value)
    units = []
    for position, pair in enumerate(value):
        here = f"{place}[{position}]"
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadParameters(f"{here}: expected [name, factor]")
        name = parameter_values.string(f"{here}[0]", pair[0])
        factor = pair[1]
        if type(factor) is not int:
            raise parameter_values.expected(
                f"{here}[1], the factor of {name:.80}", "an int", factor
            )
        units.append(RequestedUnit(name, factor))
    return units


def driver_request(
    caller: Caller, driver: DriverUnit, method: str, arguments: Mapping[str, object]
) -> Request:
    """A call of a driver's method, its arguments by name.

    Methods of the interfaces get hosts and VMs like all calls (contract 1.4); a driver's own
    methods get plain values.

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
    parameters = {*published.required, *published.optional}
    unknown = [f"{name!r:.80}" for name in arguments if name not in parameters]
    if unknown:
        raise BadParameters(f"arguments: {', '.join(unknown)[:200]} unknown; it is {whole}")
    defined = driver.defines(method)
    if defined is None:
        return Request(caller, Entities(), driver_call=DriverCall(driver, method, arguments))
    properties = dict(parameter_values.properties(arguments.get("properties")))
    units: dict[Kind, tuple[RequestedUnit, ...]] = {}
    if defined.interface == "HostSelector":
        filters = tuple(map(RequestedUnit, listed_units(properties.pop(FILTERS, ""))))
        cost_functions = tuple(map(_factor, listed_units(properties.pop(COST_FUNCTIONS, ""))))
        _check_units("properties", (*filters, *cost_functions))
        units = {Kind.FILTER: filters, Kind.COST_FUNCTION: cost_functions}
    entities = Entities(
        hosts=parameter_values.hosts(arguments.get("hosts", [])),
        vms=parameter_values.hosts(arguments.get("vms", []), "vms"),
        vm=parameter_values.vm(arguments["vm"]) if "vm" in arguments else None,
        host=parameter_values.vm(arguments["host"], "host") if "host" in arguments else None,
    )
    others = [name for name in ("old_status", "new_status") if name in arguments]
    statuses = {name: parameter_values.string(name, arguments[name]) for name in others}
    return Request(caller, entities, properties, units, DriverCall(driver, method, statuses))


def _factor(text: str) -> RequestedUnit:
    name, equals, factor = text.rpartition("=")
    if not equals:
        return RequestedUnit(text)
    if not _FACTOR.fullmatch(factor.strip()):
        raise BadParameters(
            f"properties[{COST_FUNCTIONS!r}]: {text!r:.80}: expected name=factor with ; between, "
            "the factor an int"
        )
    return RequestedUnit(name.strip(), int(factor))
