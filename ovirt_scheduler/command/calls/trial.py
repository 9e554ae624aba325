"""``ovirt-scheduler try``: runs one plugin's file as the daemon does, without a daemon.

Only the network is missing: the file is loaded, its units are called in processes of their own,
and the answer is the one that the engine would get.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_scheduler.catalogue import plugin_files
from ovirt_scheduler.catalogue.catalogue import Catalogue, unknown_properties
from ovirt_scheduler.catalogue.loader import LoadedPlugin, Loader
from ovirt_scheduler.command import arguments
from ovirt_scheduler.command.calls import commands, daemon_client, input_files, scheduler_calls
from ovirt_scheduler.command.calls.daemon_client import MethodCaller
from ovirt_scheduler.command.calls.input_files import CommandInputs
from ovirt_scheduler.command.calls.recorded_inputs import recorded_inputs
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.daemon.runtime import Runtime
from ovirt_scheduler.errors import BadInput, BadUsage, OutputUnwritten, PluginError, SchedulerError
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.model import manual
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.settings.table import Settings
from ovirt_scheduler.workbench.fake_cluster import FakeCluster
from ovirt_scheduler.workbench.fake_engine import FakeEngine
from ovirt_scheduler.workbench.simulated_rules import read_rules, running_vms
from ovirt_scheduler.workbench.snapshot import Snapshot

_HOSTS, _VMS = "/hosts?follow=statistics", "/vms?follow=statistics"
_STARTING = {"filter", "cost_function", "candidates", "select_host", "has_any_hosts"}
_WATCH_SECONDS = 0.5  # between two looks at the files

_SETTLE_SECONDS = 2.0  # for a process to compare its state with the one before its call


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(to, "try", _run)
    command.add_argument("plugin", metavar="PLUGIN.py", type=Path, help="the plugin")
    what = command.add_mutually_exclusive_group()
    what.add_argument(
        "--kind", type=_kind, action="append", default=[],
        help="only units of this kind: filter, cost function or score, balance; may be given "
        "several times (default: all, and schedulers)",
    )  # fmt: skip
    what.add_argument(
        "--call", metavar=("METHOD", "KEY=VALUE"), nargs="+",
        help="only this method of a scheduler or a topic. A hook takes host=NAME or vm=NAME, or an "
        "id, new_status=STATUS and, unless the document tells it, old_status=STATUS. A topic's "
        "method takes its own arguments: JSON, or else text; @FILE stands for the text of a file",
    )  # fmt: skip
    input_files.add(command, with_vm=True, required=False)
    arguments.add_options(command, {
        "--vms FILE": "a file with the XML document of the cluster's VMs, or with their ids: for a "
        "scheduler's load_balance, on_timer_invoked and hooks",
        "--cluster FILE": "a cluster that ovirt-scheduler snapshot saved, instead of --hosts, "
        "--vms and an engine; --vm names one of its VMs (default: the first that is down, else the "
        "first)",
        "--decision ID": "the hosts, VMs and properties of a recorded decision (record = true), "
        "instead of --hosts, --vm and --vms; --property changes a property",
        "--watch": "run it again after each edit of the plugin, its helpers, its conf file or the "
        "files given, until Ctrl-C",
    })  # fmt: skip


def _kind(words: str) -> Kind:
    """The kind of unit that a word of a command, of ``discover`` or of a conf file means."""
    try:
        return Kind("cost_function" if words == "score" else words)
    except ValueError:
        kinds = [kind.label for kind in Kind]
        hint = spelling.hint(words, kinds)
        raise argparse.ArgumentTypeError(
            f"there is no kind {words!r}; there are {', '.join(kinds)}{hint}"
        ) from None


def _run(options: argparse.Namespace) -> Shown:
    """Run one plugin, without a daemon.

    Run a plugin's units as the daemon runs them, in processes of their own and under the same
    limits: accepted and rejected hosts, costs or the migration, the time, what was printed, and the
    traceback of what failed. A scheduler is asked for a host and, with --vms, for migrations;
    --call has it told of a change of status, or calls a method of a topic. --cluster tries it on a
    snapshot: hosts and VMs are those of the file, and engine_connection() reaches a fake engine
    that has them. A NAME.conf beside NAME.py counts before one in plugins_conf_path, unless the
    folder is one of plugins_path.

    examples:
      try Quiet.py --hosts hosts.xml --vm vm.xml
      try Quiet.py --hosts hosts.xml --kind filter --property most=5
      try Spread.py --cluster cluster.xml.gz --watch
      try Spread.py --cluster cluster.xml.gz --call load_balance
      try Quiet.py --decision 1f2e3d4c5b6a7988
      try Backups.py --call windows 'gigabytes={"mail": 900}'
    """
    files = [options.hosts, options.vms, options.vm, options.cluster]
    files += [word.partition("=@")[2] for word in options.call or ()]
    if not options.watch:
        return _run_once(options)
    if "-" in map(str, files):
        raise BadUsage("--watch reads files again and again: name a file instead of -")
    watched = [Path(file) for file in files if file]
    while True:
        before = _stamps(options, watched)
        arguments.write("\x1b[H\x1b[2J" if sys.stdout.isatty() else "")
        try:
            arguments.show(_run_once(options), options.output)
        except OutputUnwritten:  # nothing could be shown of a later run either
            raise
        except SchedulerError as error:
            arguments.write(f"ovirt-scheduler: {error}\n")
        arguments.write(f"\n{time.strftime('%X')}: waiting for an edit; Ctrl-C ends\n")
        while _stamps(options, watched) == before:
            time.sleep(_WATCH_SECONDS)


def _stamps(options: argparse.Namespace, watched: Sequence[Path]) -> plugin_files.Stamps:
    """The stamps of the plugin, its conf file and the watched files: an edit changes one."""
    stamps: dict[Path, Optional[plugin_files.Stamp]] = {}
    with contextlib.suppress(SchedulerError, OSError):  # one of them is just being replaced
        settings = arguments.settings(options)
        folder = options.plugin.absolute().parent
        confs = [
            place / f"{options.plugin.stem}.conf" for place in (folder, settings.plugins_conf_path)
        ]
        stamps.update((path, plugin_files.stamp(path)) for path in (*watched, *confs))
        _, folder_stamps = plugin_files.listing(folder)
        stamps.update(folder_stamps)
    return stamps


def _run_once(options: argparse.Namespace) -> Shown:
    settings = settings_for(arguments.settings(options), options.plugin)
    with contextlib.ExitStack() as stack:
        engine, snapshot = None, None
        if options.decision is not None:
            if options.cluster or options.hosts or options.vms or options.vm:
                raise BadUsage("--decision has hosts and VMs: leave out the other options for them")
            call_inputs = recorded_inputs(RecordReader(arguments.history()), options.decision)
            properties = {
                **call_inputs.properties, **input_files.pairs(options.property, "--property")
            }  # fmt: skip
            call_inputs = call_inputs._replace(properties=properties)
        elif options.cluster is None:
            if options.vm is not None and str(options.vm) != "-" and not options.vm.exists():
                raise BadInput(
                    f"--vm {options.vm}: there is no such file; it is the name of a VM only with "
                    "--cluster"
                )
            call_inputs = input_files.read_options(options)
            if options.vms is not None:
                call_inputs = call_inputs._replace(vms=input_files.hosts(options.vms, "VM"))
        elif options.hosts or options.vms:
            raise BadUsage("--cluster has hosts and VMs: leave out --hosts and --vms")
        else:
            snapshot = Snapshot.read(options.cluster)
            engine = stack.enter_context(contextlib.closing(FakeEngine()))
            hosts, vms, clusters = map(snapshot.elements, ("hosts", "vms", "clusters"))
            engine.cluster = FakeCluster(hosts, vms, clusters, snapshot.cluster)
            call_inputs = _cluster_inputs(engine, options)
        with input_files.naming_files(options):
            return run(
                settings, options.plugin, tuple(options.kind), call_inputs,
                options.call or (), engine, snapshot,
            )  # fmt: skip


def _cluster_inputs(engine: FakeEngine, options: argparse.Namespace) -> CommandInputs:
    """Hosts and VMs of the fake engine, in the documents that the daemon would ask it for."""
    hosts, vms, down = map(engine.cluster.get, (_HOSTS, _VMS, f"{_VMS}&search=status%3Ddown"))
    vm_names = input_files.names(vms, "vm")
    vm = input_files.NO_VM
    vm_option = options.vm and str(options.vm)
    if vm_option and vm_option not in {*vm_names, *vm_names.values()} and options.vm.exists():
        vm = input_files.vm(options.vm)
    elif vm_option or vm_names:
        first = next(iter({**input_files.names(down, "vm"), **vm_names}), "")
        identity = scheduler_calls.find(vms, "vm", vm_option) if vm_option else first
        vm = engine.cluster.get(f"/vms/{identity}?follow=statistics")
    return CommandInputs(hosts, vm, input_files.pairs(options.property, "--property"), vms)


def catalogue_of(*files: LoadedPlugin) -> Catalogue:
    """The units and drivers of some files."""
    drivers = [driver for file in files for driver in file.drivers]
    return Catalogue(
        {(unit.kind, unit.name): unit for file in files for unit in file.units},
        drivers={driver.name: driver for driver in drivers},
        topics={driver.topic: driver for driver in drivers if driver.topic},
    )


def settings_for(settings: Settings, path: Path) -> Settings:
    """The settings with the plugin's folder alone.

    If that is one of the daemon's folders, the conf file is the one that the daemon reads; else one
    beside the plugin counts, as with ``--plugins`` (contract 5.8).
    """
    folder = path.absolute().parent
    return dataclasses.replace(
        settings,
        plugins_path=(folder,),
        plugins_path_optional=frozenset(),
        conf_beside=settings.conf_beside or folder not in settings.plugins_path,
    )


def run(
    settings: Settings,
    path: Path,
    kinds: tuple[Kind, ...],
    call_inputs: CommandInputs,
    method_call: Sequence[str] = (),
    engine: Optional[FakeEngine] = None,
    snapshot: Optional[Snapshot] = None,
) -> Shown:
    """Run every unit of a file that is of one of the kinds, and ask its schedulers.

    Args:
        settings: as ``settings_for`` gives them.
        path: of the plugin.
        kinds: of the units to run. Without any, every unit runs, and each scheduler is asked for a
            host and, where there are VMs, for migrations.
        call_inputs: the hosts, VMs and properties of the calls.
        method_call: one method of a scheduler or driver, and its arguments: only this is called.
        engine: used in place of the engine in the settings; notes show what it was asked to do.
        snapshot: of the engine's cluster, whose affinity rules schedulers get.

    Raises:
        BadInput: there is no such file.
        BadUsage: it has units, but none of these kinds; no such method; or hosts or VMs lack.
        PluginError: it does not load, or has nothing to call; where, why and what to do.
        RequestError: the documents cannot be read.
        ExecutorUnavailable: no process can be started at all.
    """
    with runtime.started(settings) as running:
        loaded = load(Loader(settings, running.executor.analyse), path)
        services = running.prepare(settings, catalogue_of(loaded), engine)
        if snapshot is not None:
            rules = read_rules(running.executor, snapshot)
            services.decisions.note_cluster(snapshot.cluster, running_vms(snapshot), rules)
        here = daemon_client.of_services(services)
        trials = [*_trials(here, loaded, path, kinds, call_inputs, method_call)]
        owners: list[Union[PolicyUnit, DriverUnit]] = [*loaded.units, *loaded.drivers]
        notes = [*map(str, loaded.warnings), *unknown_properties(call_inputs.properties, owners)]
        has_engine = engine is not None or settings.engine is not None
        if not has_engine and any(owner.plugin.wants_engine for owner in owners):
            notes.append(
                "it asks the engine, and there is no [engine] in the settings: --cluster FILE "
                "tries it on a saved cluster, with a fake engine"
            )
        if any(unit.shadow for unit in loaded.units):
            notes.append(
                "its conf file says shadow = true: the daemon records what it answers, "
                "and does not use it"
            )
        if engine and any(_STARTING & {*names.values()} for _, names, _ in trials):
            started = input_files.names(call_inputs.vm, "vm").values()
            notes += (f"the VM to start: {name}" for name in started)
        if not kinds and not method_call:
            for driver in loaded.drivers:
                notes += scheduler_calls.uncalled_notes(driver, call_inputs)
        answers = [_run_trial(each, running, engine) for each in trials]
    if not trials:
        raise BadUsage(f"{path}: nothing in it is called unless you say how; {'; '.join(notes)}")
    text = _notes(notes) + "\n".join(each.text for each in answers)
    fields = [{**each.fields, "notes": [*notes, *each.fields["notes"]]} for each in answers]
    return Shown(text, fields, all(each.well for each in answers))


def _run_trial(trial: _Trial, running: Runtime, engine: Optional[FakeEngine]) -> Shown:
    """Make a call; show how it ended, what it did to its process and the engine, and the answer."""
    words, names, ask = trial
    shown = ask()
    after = [
        f"after this call the plugin's process cannot be kept: {why}; each such call "
        f"starts a new process ({manual.page('plugins.md')}, A process of its own)"
        for why in dict.fromkeys(running.executor.wait_until_idle(_SETTLE_SECONDS))
    ]
    after += _engine_notes(engine)
    # A scheduler's call is the last one, after those of the units that a property names.
    *_, call = shown.fields.pop("calls", [{"outcome": "not called", "notes": []}])
    took = f", {call['milliseconds']} ms" if "milliseconds" in call else ""
    text = f"{words}: {call['outcome']}{took}\n{_notes(after)}{shown.text}"
    return Shown(
        text, {**names, **shown.fields, **call, "notes": [*after, *call["notes"]]}, shown.well
    )


def _notes(notes: Iterable[str]) -> str:
    return "".join(f"note: {note}\n" for note in notes)


# A call: what it calls, as text and as fields for JSON, and the function that makes it.
_Trial = tuple[str, Mapping[str, object], Callable[[], Shown]]


def _trials(
    call: MethodCaller,
    loaded: LoadedPlugin,
    path: Path,
    kinds: tuple[Kind, ...],
    call_inputs: CommandInputs,
    method_call: Sequence[str],
) -> Iterator[_Trial]:
    """The calls of a file's units and drivers, in this order."""
    if not loaded.enabled:
        raise PluginError("its conf file says enabled = false", str(path))
    if not (loaded.units or loaded.drivers):
        define = "define do_filter, do_score or do_balance, not indented, or a class"
        raise next(iter(loaded.warnings), PluginError(f"has no policy unit: {define}", str(path)))
    units = [unit for unit in loaded.units if not (kinds or method_call) or unit.kind in kinds]
    if kinds and not units:
        requested = " or ".join(kind.label for kind in kinds)
        there = ", ".join(f"{unit.kind.label} {unit.name}" for unit in loaded.units) or "none"
        raise BadUsage(f"{path}: has no {requested}; it has {there}")
    for unit in units:
        if not call_inputs.hosts:
            raise BadUsage(f"{unit.name} is about hosts: give --hosts FILE, or --cluster FILE")
        names = {"unit": unit.name, "kind": unit.kind.label}
        yield f"{unit.kind.label} {unit.name}", names, partial(_call_unit, call, unit, call_inputs)
    words: Sequence[str] = method_call[1:]
    if method_call:
        drivers = scheduler_calls.with_method(loaded.drivers, str(path), method_call[0])
        methods = [(driver, method_call[0]) for driver in drivers]
    else:
        every = () if kinds else loaded.drivers
        methods = [
            (driver, name)
            for driver in every
            for name in scheduler_calls.by_itself(driver, call_inputs)
        ]
    for driver, method in methods:
        yield (
            f"{driver.label} {driver.name}, {method}",
            {driver.label: driver.name, "method": method},
            partial(scheduler_calls.call_method, call, driver, method, words, call_inputs),
        )


def load(loader: Loader, path: Path) -> LoadedPlugin:
    """Load one file of a loader's folders.

    Raises:
        BadInput: there is no such file, or it is no plugin's.
        PluginError: it does not load; where, why and what to do.
    """
    absolute = path.absolute()
    scan = loader.scan()
    file = next((file for file in scan.files if file.path == absolute), None)
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
    meant = spelling.nearest(path.name, (file.name for file in path.parent.glob("*.py")))
    hint = "" if meant is None else f"; did you mean {path.parent / meant}?"
    return f"there is no such file{hint}"


def _call_unit(call: MethodCaller, unit: PolicyUnit, call_inputs: CommandInputs) -> Shown:
    if unit.kind is Kind.FILTER:
        return commands.run_filters(call, [unit.name], call_inputs)
    if unit.kind is Kind.COST_FUNCTION:
        return commands.run_cost_functions(call, {unit.name: 1}, call_inputs)
    return commands.run_balance(call, unit.name, call_inputs)


def _engine_notes(engine: Optional[FakeEngine]) -> Iterator[str]:
    """Notes on the migrations that the latest call asked for, and on requests without an answer."""
    if engine is None:
        return
    cluster = engine.cluster
    for vm, host in cluster.migrations:
        yield f"it asked the engine to migrate {vm} to {host or 'any host'}"
    yield from cluster.unknown
    cluster.migrations.clear()
    cluster.unknown.clear()
