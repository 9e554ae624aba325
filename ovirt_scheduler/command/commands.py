"""What each command does: it reads its options, and calls the modules that do the work.

A command takes the parsed options and returns the program's exit status.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, ContextManager, Iterator, Mapping

from ovirt_scheduler.command import (
    certificate,
    decisions,
    inputs,
    recorded,
    skeleton,
    status,
    tables,
    terminal,
    trial,
    why,
)
from ovirt_scheduler.command.check import check as check_all
from ovirt_scheduler.command.check import check_plugins
from ovirt_scheduler.command.inputs import Inputs
from ovirt_scheduler.command.setup import engine, run
from ovirt_scheduler.command.setup.files import CONF
from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import certificate_report, daemon
from ovirt_scheduler.errors import BadInput, BadUsage, NotPermitted, UnreadableDocument
from ovirt_scheduler.history import store
from ovirt_scheduler.model import near
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.server.http import listening
from ovirt_scheduler.settings import config
from ovirt_scheduler.settings.config import Settings
from ovirt_scheduler.settings.values import url_host

SHELLS = ("bash", "zsh")  # whose completion there is
_AS_ROOT = "sudo reads the state folder, for which none needs to run"
KINDS = {"filter": Kind.FILTER, "score": Kind.COST_FUNCTION, "balance": Kind.BALANCE}


def _show(shown: Shown, output: str) -> int:
    """Show it as ``-o`` says: ``table``, ``json`` or ``names``; gives the exit status."""
    if output == "names":
        sys.stdout.writelines(f"{name}\n" for name in shown.names)
        sys.stderr.writelines(f"problem: {problem}\n" for problem in shown.problems)
    else:
        sys.stdout.write(tables.document(shown.fields) if output == "json" else shown.text)
    sys.stdout.flush()
    return 0 if shown.well else 1


def serve(options: argparse.Namespace) -> int:
    """Run the daemon until it is stopped."""
    daemon.serve(lambda: _settings(options, for_daemon=True))
    return 0


def check(options: argparse.Namespace) -> int:
    """Check settings, certificates and plugins."""
    shown = check_all(_settings(options, for_daemon=True), _state())
    return _show(shown, options.output or "table")


def call(options: argparse.Namespace) -> int:
    """Call the daemon, or plugins right here; JSON unless somebody looks, or ``-o`` says how."""
    with _calls(options) as call, _naming_files(options):
        shown = options.ask(call, options)
    if not options.local and options.url is None:
        _note_old_versions(options)
    return _show(shown, options.output or ("table" if sys.stdout.isatty() else "json"))


def _note_old_versions(options: argparse.Namespace) -> None:
    """Say on standard error which of the units that were asked answer in an older version."""
    named = getattr(options, "unit", getattr(options, "scheduler", None))
    names = [named] if isinstance(named, str) else named
    asked = None if names is None else [name.partition("=")[0] for name in names]
    sys.stderr.writelines(f"note: {each}\n" for each in status.old_versions(_state(), asked))


@contextlib.contextmanager
def _naming_files(options: argparse.Namespace) -> Iterator[None]:
    """Name the file in the message on a document that cannot be read.

    Raises:
        BadInput: a document of a file cannot be read.
    """
    files = {"hosts": getattr(options, "hosts", None), "vm": getattr(options, "vm", None)}
    for item in getattr(options, "argument", ()):
        key, _, value = item.partition("=")
        files[key] = value[1:] if value.startswith("@") else None
    try:
        yield
    except UnreadableDocument as error:
        subject = str(error).partition(":")[0].partition(",")[0].lower()
        file = files.get(subject)
        if file is None:
            raise
        name = "standard input" if file == "-" else file
        raise BadInput(f"{name}: {error}") from None


def _calls(options: argparse.Namespace) -> ContextManager[terminal.Call]:
    return terminal.local(_settings(options)) if options.local else _of_daemon(options)


def _of_daemon(options: argparse.Namespace) -> ContextManager[terminal.Call]:
    settings = _settings(options)
    scheme = "https" if settings.ssl else "http"
    host = listening.known_as(url_host(settings.listening_address))
    url = options.url or f"{scheme}://{host}:{settings.listening_port}"
    made = certificate_report.server_files(settings, _state()).certificate
    file = store.Reader(_state() / store.FILE)
    find = partial(recorded.awaited, file, named=options.url is not None)
    instead = "--local needs none" if hasattr(options, "local") else _AS_ROOT
    return terminal.remote(
        url, options.ca or made, find if settings.history else terminal.nowhere, instead
    )


# What each of the calls asks, by the command's name.
QUESTIONS: Mapping[str, Callable[[terminal.Call, argparse.Namespace], Shown]] = {
    "discover": lambda call, _: terminal.discover(call),
    "filter": lambda call, asked: terminal.run_filters(call, asked.unit, _inputs(asked)),
    "score": lambda call, asked: terminal.run_cost_functions(
        call, terminal.factors(asked.unit), _inputs(asked)
    ),
    "balance": lambda call, asked: terminal.run_balance(call, asked.unit, _inputs(asked)),
    "schedulers": lambda call, _: terminal.schedulers(call),
    "select": lambda call, asked: terminal.select_host(call, asked.scheduler, _inputs(asked)),
    "topics": lambda call, _: terminal.topics(call),
    "schedule": lambda call, asked: terminal.schedule(
        call, asked.topic, asked.method, inputs.arguments(asked.argument)
    ),
}


def ask_why(options: argparse.Namespace) -> int:
    """Show why a VM was placed where it was, or why one decision came out as it did."""
    if (options.vm is None) == (options.decision is None):
        raise BadUsage("name a VM, by its name or id, or a decision with --decision")
    output = options.output or "table"
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    with _recorded(options) as kept:
        if options.vm is None:
            shown = why.of_decision(kept, options.decision, options.host, coloured)
        else:
            shown = why.of_vm(kept, options.vm, options.host, coloured)
    return _show(shown, output)


def list_decisions(options: argparse.Namespace) -> int:
    """List the decisions of the history that fit the options."""
    on_terminal = sys.stdout.isatty()
    piped = "jsonl" if options.follow else "json"
    if options.events:
        output = options.output or ("table" if on_terminal else "json")
        decisions.show_events(store.Reader(_state() / store.FILE), options, output)
        return 0
    wanted = decisions.query(options, time.time())
    with _recorded(options) as kept:
        show = decisions.follow if options.follow else decisions.show
        show(kept, wanted, options.output or ("table" if on_terminal else piped))
    return 0


def show_status(options: argparse.Namespace) -> int:
    """Show how the daemon is, as it says itself, and exit with 1 where it is not well."""
    return status.show(_state(), options.output or "table")


def _recorded(options: argparse.Namespace) -> ContextManager[recorded.Recorded]:
    """The history: of the state folder where it may be read, unless a daemon is named."""
    file = _state() / store.FILE
    if options.url is None and os.access(file, os.R_OK):
        return contextlib.nullcontext(store.Reader(file))
    return recorded.of_daemon(_of_daemon(options))


def try_plugin(options: argparse.Namespace) -> int:
    """Run the units of one file."""
    settings = trial.settings_for(_settings(options), options.plugin)
    call_inputs = _inputs(options)
    if options.vms is not None:
        call_inputs = call_inputs._replace(vms=inputs.hosts(options.vms, "VM"))
    with _naming_files(options):
        shown = trial.run(settings, options.plugin, tuple(options.kind or ()), call_inputs)
    return _show(shown, options.output or "table")


def kind(words: str) -> Kind:
    """The kind of unit that a word of a command, of ``discover`` or of a conf file means.

    Raises:
        BadUsage: there is none of that name.
    """
    found = {**KINDS, **{each.value: each for each in Kind}}
    spelt = words.strip().lower().replace(" ", "_").replace("-", "_")
    if spelt not in found:
        there = ", ".join(each.words for each in Kind)
        raise BadUsage(f"there is no kind {words!r}; there are {there}{near.hint(words, found)}")
    return found[spelt]


def _inputs(options: argparse.Namespace) -> Inputs:
    vm = inputs.vm(options.vm) if getattr(options, "vm", None) else inputs.NO_VM
    return Inputs(inputs.hosts(options.hosts), vm, inputs.pairs(options.property))


def new(options: argparse.Namespace) -> int:
    """Write a plugin to start from."""
    parts = [part for part in skeleton.PARTS if getattr(options, part)]
    if not parts:
        there = ", ".join(f"--{part}" for part in skeleton.PARTS)
        raise BadUsage(f"say what it is to be: {there}")
    plugin, conf, test = skeleton.write(options.folder, options.name, parts)
    tried = f", or ovirt-scheduler try {plugin} --hosts hosts.xml" if parts != ["driver"] else ""
    sys.stdout.write(
        f"{plugin}\n{conf}\n{test}\n"
        f"next: python3 -m pytest {test}{tried};\n"
        f"then put {plugin.name} into plugins_path, {conf.name} into plugins_conf_path\n"
    )
    return 0


def cert(options: argparse.Namespace) -> int:
    """Make, show, check, export or renew the daemon's certificate."""
    settings, state = _settings(options), _state()
    if options.switch and options.action != "renew":
        raise BadUsage("--switch goes with renew")
    if options.action == "export":
        sys.stdout.write(certificate.export(settings, state))
        return 0
    if options.action == "renew":
        renew = certificate.switch if options.switch else certificate.prepare
        return _show(renew(settings, state), options.output or "table")
    if options.action == "make":
        settings = certificate.make(settings, state)
    shown = certificate.show(settings, state, options.days)
    # Whoever asks to see a certificate is content with a bad one; whoever checks it is not.
    shown = shown._replace(well=shown.well or options.action != "check")
    return _show(shown, options.output or "table")


def complete(options: argparse.Namespace) -> int:
    """Print what the shell has to run before it can complete the command line."""
    code = _argcomplete().shellcode(["ovirt-scheduler"])
    # Versions of argcomplete before 3 know zsh by its imitation of bash alone.
    before = "autoload -U +X bashcompinit && bashcompinit\n" if options.shell == "zsh" else ""
    sys.stdout.write(f"{before}{code}\n")
    return 0


def answer_shell(environ: Mapping[str, str], parser: Callable[[], argparse.ArgumentParser]) -> None:
    """If a shell asks how to complete the line, answer it and end the process.

    Raises:
        BadUsage: argcomplete is not installed.
    """
    if "_ARGCOMPLETE" in environ:
        _argcomplete().autocomplete(parser())


def _argcomplete() -> Any:
    """The library, which is loaded when a shell needs it, and never by the daemon."""
    try:
        return importlib.import_module("argcomplete")
    except ImportError:
        raise BadUsage(f"completion needs argcomplete: install it for {sys.executable}") from None


def setup(options: argparse.Namespace) -> int:
    """Set this machine up, or undo that."""
    root = Path("/") if options.root is None else options.root.resolve()
    machine = Machine(root, live=root == Path("/"))
    if machine.live and os.geteuid() != 0 and not options.dry_run:
        raise NotPermitted(
            "only root can set this machine up; run it with sudo, or have --dry-run tell what it "
            "would do"
        )
    if options.remove and (options.engine or options.adopt):
        raise BadUsage("--remove undoes all that setup did: leave --engine and --adopt out")
    if options.remove:
        return 1 if run.remove(machine, options.dry_run, sys.stdout) else 0
    wanted = run.SetupOptions(options.engine, options.adopt, options.dry_run)
    left = run.install(machine, wanted, sys.stdout)
    well = True
    adopted = machine.path(engine.ADOPTED)
    if options.adopt and adopted.exists() and not options.dry_run:
        sys.stdout.write(f"\novirt-scheduler check --plugins {adopted}\n")
        settings = config.load(machine.path(CONF), os.environ)
        well = not _show(check_plugins(replace(settings, plugins_path=(adopted,))), "table")
    if left:
        sys.stdout.write(f"left to you: {left} of the steps, see above\n")
    return 0 if well and not left else 1


def _state() -> Path:
    return config.state_folder(os.environ, os.getuid())


def _settings(options: argparse.Namespace, for_daemon: bool = False) -> Settings:
    settings = config.load(options.config, os.environ, for_daemon)
    if getattr(options, "plugins", None):
        folders = tuple(Path(folder).absolute() for folder in options.plugins.split(":") if folder)
        settings = replace(settings, plugins_path=folders, plugins_path_optional=frozenset())
    return settings
