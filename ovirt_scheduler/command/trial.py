"""``ovirt-scheduler try``: runs one plugin's file as the daemon does, without a daemon.

It goes the whole way but for the network: the file is loaded, its units are called in processes
of their own, and the answer is the one that the engine would get.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Dict, Iterator, Mapping, Sequence, Tuple

from ovirt_scheduler.catalogue.loader import LoadedPlugin, Loader
from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.command import terminal
from ovirt_scheduler.command.inputs import Inputs
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.errors import BadInput, BadUsage, PluginError
from ovirt_scheduler.model import near
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.settings.config import Settings


class _OneFile:
    """The units of one file, in the place of a registry."""

    def __init__(self, units: Tuple[PolicyUnit, ...]) -> None:
        self._catalogue = Catalogue({(unit.kind, unit.name): unit for unit in units})

    def refresh(self) -> Catalogue:
        """The units that were loaded; a registry would look for changes first."""
        return self._catalogue

    def current(self) -> Catalogue:
        """The units that were loaded."""
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
    inputs: Inputs,
) -> Shown:
    """Run every unit of a file that is of one of the kinds.

    Args:
        settings: as ``settings_for`` gives them.
        path: of the plugin.

    Raises:
        BadInput: there is no such file.
        BadUsage: it has units, but none of these kinds.
        PluginError: it does not load, or has no unit; where, why and what to do.
        RequestError: the documents cannot be read.
        ExecutorUnavailable: no process can be started at all.
    """
    with runtime.started(settings) as running:
        loaded = load(Loader(settings, running.executor.analyse), path)
        if not loaded.units:
            raise _no_unit(loaded, path)
        units = [unit for unit in loaded.units if unit.kind in kinds]
        if not units:
            wanted = " or ".join(kind.words for kind in kinds)
            there = ", ".join(f"{unit.kind.words} {unit.name}" for unit in loaded.units)
            raise BadUsage(f"{path}: has no {wanted}; it has {there}")
        call = terminal.here(running.prepare(settings, _OneFile(loaded.units)))
        answers = [(unit, _ask(call, unit, inputs)) for unit in units]
    notes = [*map(str, loaded.warnings), *_unknown(loaded.units, inputs.properties)]
    return Shown(
        "".join(f"note: {note}\n" for note in notes)
        + "\n".join(_text(unit, shown) for unit, shown in answers),
        [_fields(unit, shown, notes) for unit, shown in answers],
        all(shown.well for _, shown in answers),
    )


def load(loader: Loader, path: Path) -> LoadedPlugin:
    """Load one file of a loader's folders.

    Raises:
        BadInput: there is no such file, or it is no plugin's.
        PluginError: it does not load; where, why and what to do.
    """
    wanted = path.absolute()
    scan = loader.scan()
    file = next((file for file in scan.files if file.path == wanted), None)
    if file is None:
        # The loader may know why it does not see the file.
        raise BadInput(next(map(str, scan.problems), f"{path}: {_no_plugin(path)}"))
    try:
        return loader.load(file, scan)
    except FileNotFoundError:
        raise PluginError("has just gone", str(path)) from None


def _no_plugin(path: Path) -> str:
    """Why the loader finds no plugin at the path, and what to do."""
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


def _ask(call: terminal.Call, unit: PolicyUnit, inputs: Inputs) -> Shown:
    if unit.kind is Kind.FILTER:
        return terminal.run_filters(call, [unit.name], inputs)
    if unit.kind is Kind.COST_FUNCTION:
        return terminal.run_cost_functions(call, {unit.name: 1}, inputs)
    return terminal.run_balance(call, unit.name, inputs)


def _unknown(units: Sequence[PolicyUnit], properties: Mapping[str, str]) -> Iterator[str]:
    """A note on each property that no conf file of the units has."""
    sets = [unit.properties.properties for unit in units if unit.properties is not None]
    known = list(dict.fromkeys(prop.name for each in sets for prop in each))
    for name in properties:
        if known and name not in known:
            hint = near.hint(name, known) or f"; there are {', '.join(known)}"
            yield f"property {name}: no unit of the plugin has it{hint}"


def _text(unit: PolicyUnit, shown: Shown) -> str:
    ended = "not called"
    for call in shown.fields.get("calls", ()):
        ended = f"{call['outcome']}, {call['milliseconds']} ms"
    return f"{unit.kind.words} {unit.name}: {ended}\n{shown.text}"


def _fields(unit: PolicyUnit, shown: Shown, notes: Sequence[str]) -> Dict[str, object]:
    """The answer for JSON, together with how the call ended."""
    fields = {"unit": unit.name, "kind": unit.kind.value, **shown.fields}
    (call,) = fields.pop("calls", [{"outcome": "not called", "notes": []}])
    return {**fields, **call, "notes": [*notes, *call["notes"]]}
