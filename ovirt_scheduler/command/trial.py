"""``ovirt-scheduler try``: one plugin's file, run as the daemon runs it, with no daemon.

The whole way but for the network: the loader, the service and processes of their own. So what
is seen here is what will happen: limits, properties, failures, what is printed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ovirt_scheduler.catalogue.catalogue import Catalogue
from ovirt_scheduler.catalogue.loader import LoadedPlugin, Loader
from ovirt_scheduler.command import call_report, inputs, tables
from ovirt_scheduler.command.inputs import HostsGiven
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.decisions.units import Service
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import BadInput, BadUsage, PluginError
from ovirt_scheduler.model import near
from ovirt_scheduler.model.decisions import Decision
from ovirt_scheduler.model.requests import AnswerForm, Caller, Request
from ovirt_scheduler.model.results import CallResult, Migration
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.server import wire
from ovirt_scheduler.settings.config import Settings

_CALLER = Caller("try", AnswerForm.DESIGN, "here")


class _OneFile:
    """The units of the file that is tried."""

    def __init__(self, units: Tuple[PolicyUnit, ...]) -> None:
        self._catalogue = Catalogue({(unit.kind, unit.name): unit for unit in units})

    def look(self) -> Catalogue:
        return self._catalogue

    def glance(self) -> Catalogue:
        return self._catalogue


def settings_for(settings: Settings, path: Path) -> Settings:
    """The settings with the plugin's folder alone, and its conf file where that lies beside it."""
    folder = path.absolute().parent
    beside = (folder / f"{path.stem}.conf").exists()
    return replace(
        settings,
        plugins_path=(folder,),
        plugins_path_optional=frozenset(),
        plugins_conf_path=folder if beside else settings.plugins_conf_path,
    )


def run(
    settings: Settings,
    path: Path,
    kinds: Tuple[Kind, ...],
    hosts: HostsGiven,
    vm: str,
    properties: Dict[str, str],
) -> Shown:
    """Run every unit of a file that is of one of the kinds.

    Args:
        settings: as ``settings_for`` gives them.
        path: of the plugin.

    Raises:
        BadInput: there is no such file.
        BadUsage: it has units, but none of these kinds.
        PluginError: it does not load, or has no unit; where, why and what to do.
        RequestError: the documents cannot be read, or a property's value is refused.
        ExecutorUnavailable: no process can be started at all.
    """
    executor = Executor(settings.max_parallel_calls, settings.max_waiting, settings.plugin_user)
    inventory = None if settings.engine is None else Inventory(settings.engine)
    try:
        executor.start()
        loaded = _load(Loader(settings, executor.analyse), path)
        found = loaded.units
        if not found:
            raise _no_unit(loaded, path)
        units = [unit for unit in found if unit.kind in kinds]
        if not units:
            wanted = " or ".join(kind.words for kind in kinds)
            there = ", ".join(f"{unit.kind.words} {unit.name}" for unit in found)
            raise BadUsage(f"{path}: has no {wanted}; it has {there}")
        service = Service(_OneFile(found), executor, settings.request_timeout, inventory)
        decisions = [
            (unit, service.decide(_request(unit, hosts, vm, properties))) for unit in units
        ]
    finally:
        executor.close()
        if inventory is not None:
            inventory.close()
    names = inputs.names(hosts)
    notes = [*map(str, loaded.warnings), *_unknown(found, properties)]
    return Shown(
        "".join(f"note: {note}\n" for note in notes)
        + "\n".join("".join(_told(unit, decision, names)) for unit, decision in decisions),
        [_fields(unit, decision, notes) for unit, decision in decisions],
        all(result.ok for _, decision in decisions for result in decision.results),
    )


def _load(loader: Loader, path: Path) -> LoadedPlugin:
    wanted = path.absolute()
    look = loader.look()
    file = next((file for file in look.files if file.path == wanted), None)
    if file is None:
        # What the loader passes over is told by its own words where it has some.
        raise BadInput(next(map(str, look.problems), f"{path}: {_no_plugin(path)}"))
    try:
        return loader.load(file, look)
    except FileNotFoundError:
        raise PluginError("has just gone", str(path)) from None


def _no_plugin(path: Path) -> str:
    """Why the loader sees none there, and what to do."""
    if path.is_dir():
        return "is a folder; name the plugin's file in it"
    if path.exists():
        return "is no plugin's file: those are named NAME.py, and do not begin with _"
    meant = near.nearest(path.name, (file.name for file in path.parent.glob("*.py")))
    hint = "" if meant is None else f"; did you mean {path.parent / meant}?"
    return f"there is no such file{hint}"


def _no_unit(loaded: LoadedPlugin, path: Path) -> PluginError:
    if not loaded.enabled:
        return PluginError("its conf file says enabled = false", str(path))
    if loaded.drivers:
        names = ", ".join(driver.name for driver in loaded.drivers)
        see = "see ovirt-scheduler select and schedule, --local"
        return PluginError(f"has no policy unit but {names}: {see}", str(path))
    if loaded.warnings:
        return loaded.warnings[0]
    define = "define do_filter, do_score or do_balance, not indented, or a class"
    return PluginError(f"has no policy unit: {define}", str(path))


def _request(unit: PolicyUnit, hosts: HostsGiven, vm: str, properties: Dict[str, str]) -> Request:
    given = hosts if isinstance(hosts, str) else list(hosts)
    if unit.kind is Kind.FILTER:
        return wire.filters_request(_CALLER, ([unit.name], given, vm, properties))
    if unit.kind is Kind.COST_FUNCTION:
        return wire.cost_functions_request(_CALLER, ([[unit.name, 1]], given, vm, properties))
    return wire.balance_request(_CALLER, (unit.name, given, properties))


def _result(decision: Decision) -> Optional[CallResult]:
    """None where the unit was not called, as there were no hosts."""
    return decision.results[0] if decision.results else None


def _unknown(units: Sequence[PolicyUnit], given: Mapping[str, str]) -> Iterator[str]:
    """Of the properties that are given, those that no conf file of the units has."""
    sets = [unit.properties.properties for unit in units if unit.properties is not None]
    known = list(dict.fromkeys(prop.name for each in sets for prop in each))
    for name in given:
        if known and name not in known:
            hint = near.hint(name, known) or f"; there are {', '.join(known)}"
            yield f"property {name}: no unit of the plugin has it{hint}"


def _rejected(decision: Decision, accepted: Tuple[str, ...]) -> List[str]:
    return [host for host in decision.hosts if host not in accepted]


def _told(unit: PolicyUnit, decision: Decision, names: Mapping[str, str]) -> Iterator[str]:
    result = _result(decision)
    if result is None:
        yield f"{unit.kind.words} {unit.name}: not called, as there are no hosts\n"
        return
    milliseconds = result.seconds * 1000
    yield f"{unit.kind.words} {unit.name}: {result.outcome.value}, {milliseconds:.1f} ms\n"
    value = result.value
    if result.ok and unit.kind is Kind.BALANCE:
        yield from _migration(value, names)
    elif isinstance(value, tuple):
        rows = [(names.get(host), host, "accepted") for host in value]
        rows += [(names.get(host), host, "rejected") for host in _rejected(decision, value)]
        yield tables.table(("HOST", "ID", "VERDICT"), rows)
    elif value is not None and not isinstance(value, Migration):
        costs = sorted(value.items(), key=lambda item: item[1])
        rows = [(names.get(host), host, str(cost)) for host, cost in costs]
        yield tables.table(("HOST", "ID", "COST"), rows)
    if not result.ok:
        yield f"problem: {result.message}\n"
    for note in (*result.notes, *decision.errors):
        yield f"note: {note}\n"
    yield from call_report.printed(result)


def _migration(value: object, names: Mapping[str, str]) -> Iterator[str]:
    if not isinstance(value, Migration):
        yield "nothing to do\n"
        return
    rows = [(value.vm, names.get(host), host) for host in value.hosts]
    yield tables.table(("VM", "TO HOST", "ID"), rows or [(value.vm, "any host", "")])


def _fields(unit: PolicyUnit, decision: Decision, notes: Sequence[str]) -> Dict[str, object]:
    """The same for JSON; what does not apply to the kind, or was not reached, is not there."""
    fields: Dict[str, object] = {"unit": unit.name, "kind": unit.kind.value}
    result = _result(decision)
    if result is None:
        return {**fields, "outcome": "not called"}
    value = result.value
    if result.ok and unit.kind is Kind.BALANCE:
        moved = isinstance(value, Migration) and {"vm": value.vm, "hosts": list(value.hosts)}
        fields["migration"] = moved or None
    elif isinstance(value, tuple):
        fields.update(accepted=list(value), rejected=_rejected(decision, value))
    elif value is not None and not isinstance(value, Migration):
        fields["costs"] = dict(value)
    told = call_report.fields(result)
    return {**fields, **told, "notes": [*notes, *result.notes, *decision.errors]}
