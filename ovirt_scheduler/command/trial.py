"""``ovirt-scheduler try``: runs one plugin's file as the daemon does, without a daemon.

It goes the whole way but for the network: the file is loaded, its units are called in processes
of their own, and the answer is the one that the engine would get.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from ovirt_scheduler import manual
from ovirt_scheduler.catalogue.loader import LoadedPlugin, Loader
from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.command import arguments, inputs, terminal
from ovirt_scheduler.command.inputs import Inputs
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.errors import BadInput, BadUsage, PluginError
from ovirt_scheduler.model import near
from ovirt_scheduler.model.drivers import COST_FUNCTIONS, FILTERS, POLICY, DriverUnit
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings.config import Settings

# What a scheduler is asked for beside a host, by its own name and that of XML-RPC.
_MIGRATES = {"load_balance": "loadBalance", "on_timer_invoked": "onTimerInvoked"}

# Of a scheduler, beside those that it has itself.
_OF_EACH_SCHEDULER = (POLICY, FILTERS, COST_FUNCTIONS)

_SETTLE_SECONDS = 2.0  # in which a process has been compared with what it was before its call
_KINDS = {"filter": Kind.FILTER, "score": Kind.COST_FUNCTION, "balance": Kind.BALANCE}


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(
        to, "try", _run, "run one plugin, without a daemon",
        "Run a plugin's units as the daemon runs them, in processes of their own and under the "
        "same\nlimits: accepted and rejected hosts, costs or the migration, the time, what was "
        "printed, and\nthe traceback of what failed. A scheduler is asked for a host and, with "
        "--vms, for migrations.\nA conf file beside the plugin counts, else the one in "
        "plugins_conf_path.",
        "try Quiet.py --hosts hosts.xml --vm vm.xml", "try Quiet.py --hosts hosts.xml --kind "
        "filter --property most=5", "try Spread.py --hosts hosts.xml --vms vms.xml",
        settings=("config",),
    )  # fmt: skip
    command.add_argument("plugin", metavar="PLUGIN.py", type=Path, help="the plugin's file")
    command.add_argument(
        "--kind", type=_kind, action="append",
        help="only units of this kind: filter, cost function or score, balance; may be given "
        "several times (default: all, and schedulers)",
    )  # fmt: skip
    inputs.add(command, with_vm=True)
    command.add_argument(
        "--vms", metavar="FILE",
        help="XML document of the cluster's VMs, or their ids: for a scheduler's load_balance and "
        "on_timer_invoked",
    )  # fmt: skip


def _kind(words: str) -> Kind:
    """The kind of unit that a word of a command, of ``discover`` or of a conf file means."""
    found = {**_KINDS, **{each.value: each for each in Kind}}
    spelt = words.strip().lower().replace(" ", "_").replace("-", "_")
    if spelt not in found:
        there = ", ".join(each.words for each in Kind)
        raise argparse.ArgumentTypeError(
            f"there is no kind {words!r}; there are {there}{near.hint(words, found)}"
        )
    return found[spelt]


def _run(options: argparse.Namespace) -> int:
    """Run the units of one file."""
    settings = settings_for(arguments.settings(options), options.plugin)
    call_inputs = inputs.of(options)
    if options.vms is not None:
        call_inputs = call_inputs._replace(vms=inputs.hosts(options.vms, "VM"))
    with inputs.naming_files(options):
        shown = run(settings, options.plugin, tuple(options.kind or ()), call_inputs)
    return arguments.show(shown, options.output or "table")


class _OneFile:
    """The units and drivers of one file, in the place of a registry."""

    def __init__(self, loaded: LoadedPlugin) -> None:
        self._catalogue = Catalogue(
            {(unit.kind, unit.name): unit for unit in loaded.units},
            drivers={driver.name: driver for driver in loaded.drivers},
        )

    def refresh(self) -> Catalogue:
        """What was loaded; a registry would look for changes first."""
        return self._catalogue

    def current(self) -> Catalogue:
        """What was loaded."""
        return self._catalogue


class _Answer(NamedTuple):
    """What one unit, or one method of a scheduler, answered."""

    words: str  # what was called
    called: Mapping[str, object]  # the same for JSON
    shown: Shown
    notes: Tuple[str, ...] = ()  # on what the call left behind

    @classmethod
    def of_unit(cls, unit: PolicyUnit, shown: Shown) -> _Answer:
        called = {"unit": unit.name, "kind": unit.kind.value}
        return cls(f"{unit.kind.words} {unit.name}", called, shown)

    @classmethod
    def of_scheduler(cls, scheduler: DriverUnit, method: str, shown: Shown) -> _Answer:
        called = {"scheduler": scheduler.name, "method": method}
        return cls(f"scheduler {scheduler.name}, {method}", called, shown)


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
    call_inputs: Inputs,
) -> Shown:
    """Run every unit of a file that is of one of the kinds, and ask its schedulers.

    Args:
        settings: as ``settings_for`` gives them.
        path: of the plugin.
        kinds: none: every unit, and the schedulers. These are asked for a host and, where there
            are VMs, for migrations.

    Raises:
        BadInput: there is no such file.
        BadUsage: it has units, but none of these kinds; or a scheduler that lacks VMs.
        PluginError: it does not load, or has nothing to call; where, why and what to do.
        RequestError: the documents cannot be read.
        ExecutorUnavailable: no process can be started at all.
    """
    with runtime.started(settings) as running:
        loaded = load(Loader(settings, running.executor.analyse), path)
        schedulers = [] if kinds else [each for each in loaded.drivers if each.interfaces]
        if not loaded.units and not schedulers:
            raise _no_unit(loaded, path)
        units = [unit for unit in loaded.units if not kinds or unit.kind in kinds]
        if not units and not schedulers:
            wanted = " or ".join(kind.words for kind in kinds)
            there = ", ".join(f"{unit.kind.words} {unit.name}" for unit in loaded.units)
            raise BadUsage(f"{path}: has no {wanted}; it has {there}")
        call = terminal.here(running.prepare(settings, _OneFile(loaded)))
        answers: List[_Answer] = []
        for unit in units:
            answer = _Answer.of_unit(unit, _ask(call, unit, call_inputs))
            answers.append(answer._replace(notes=_why_not_kept(running.executor)))
        notes = [*map(str, loaded.warnings), *_unknown(loaded, call_inputs.properties)]
        for scheduler in schedulers:
            answers.extend(
                answer._replace(notes=_why_not_kept(running.executor))
                for answer in _ask_scheduler(call, scheduler, call_inputs)
            )
            notes += _not_asked(scheduler, call_inputs)
    if not answers:
        raise BadUsage(f"{path}: {'; '.join(notes)}")
    return Shown(
        "".join(f"note: {note}\n" for note in notes) + "\n".join(map(_text, answers)),
        [_fields(answer, notes) for answer in answers],
        all(answer.shown.well for answer in answers),
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
        see = "see ovirt-scheduler schedule, --local"
        return PluginError(f"has no policy unit but {names}: {see}", str(path))
    if loaded.warnings:
        return loaded.warnings[0]
    define = "define do_filter, do_score or do_balance, not indented, or a class"
    return PluginError(f"has no policy unit: {define}", str(path))


def _ask(call: terminal.Call, unit: PolicyUnit, call_inputs: Inputs) -> Shown:
    if unit.kind is Kind.FILTER:
        return terminal.run_filters(call, [unit.name], call_inputs)
    if unit.kind is Kind.COST_FUNCTION:
        return terminal.run_cost_functions(call, {unit.name: 1}, call_inputs)
    return terminal.run_balance(call, unit.name, call_inputs)


def _ask_scheduler(
    call: terminal.Call, scheduler: DriverUnit, call_inputs: Inputs
) -> Iterator[_Answer]:
    if scheduler.defines("select_host"):
        shown = terminal.select_host(call, scheduler.name, call_inputs)
        yield _Answer.of_scheduler(scheduler, "select_host", shown)
    for method, name in _MIGRATES.items():
        if scheduler.defines(method) and call_inputs.vms:
            shown = terminal.migrations(call, name, scheduler.name, call_inputs)
            yield _Answer.of_scheduler(scheduler, method, shown)


def _not_asked(scheduler: DriverUnit, call_inputs: Inputs) -> Iterator[str]:
    """A note on what a scheduler would be asked for with VMs."""
    lacking = [method for method in _MIGRATES if scheduler.defines(method) and not call_inputs.vms]
    if lacking:
        yield f"scheduler {scheduler.name}: give --vms to call {' and '.join(lacking)}"


def _why_not_kept(executor: Executor) -> Tuple[str, ...]:
    """Notes on what the latest call left behind in the plugin's process, which ends the process."""
    return tuple(
        f"after this call the plugin's process cannot be kept: {why}; each such call starts a new "
        f"process ({manual.page('plugins.md')}, A process of its own)"
        for why in dict.fromkeys(executor.settle(_SETTLE_SECONDS))
    )


def _unknown(loaded: LoadedPlugin, properties: Mapping[str, str]) -> Iterator[str]:
    """A note on each property that nothing in the file has."""
    sets = [unit.properties.properties for unit in loaded.units if unit.properties is not None]
    sets += [driver.properties.properties for driver in loaded.drivers]
    known = list(dict.fromkeys(prop.name for each in sets for prop in each))
    if any(driver.interfaces for driver in loaded.drivers):
        known += [name for name in _OF_EACH_SCHEDULER if name not in known]
    for name in properties:
        if known and name not in known:
            hint = near.hint(name, known) or f"; there are {', '.join(known)}"
            yield f"property {name}: no unit of the plugin has it{hint}"


def _text(answer: _Answer) -> str:
    ended = "not called"
    for call in answer.shown.fields.get("calls", ()):
        ended = f"{call['outcome']}, {call['milliseconds']} ms"
    more = "".join(f"note: {note}\n" for note in answer.notes)
    return f"{answer.words}: {ended}\n{more}{answer.shown.text}"


def _fields(answer: _Answer, notes: Sequence[str]) -> Dict[str, object]:
    """The answer for JSON, together with how the call ended."""
    fields = {**answer.called, **answer.shown.fields}
    # The last call is that of the scheduler, after the units that a property named.
    *_, call = fields.pop("calls", [{"outcome": "not called", "notes": []}])
    return {**fields, **call, "notes": [*notes, *answer.notes, *call["notes"]]}
