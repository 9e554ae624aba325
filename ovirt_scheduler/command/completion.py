"""``ovirt-scheduler completion``, and the answers to a shell that completes a line."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ovirt_scheduler.command import arguments
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadUsage, PluginError, SchedulerError
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings.conf_file import content
from ovirt_scheduler.settings.table import Settings

_FILES = {"FILE", "DIR", "PATH", "PLUGIN.py", "SNAPSHOT"}  # what an argument is called that is one
_UNITS = {"unit", "set", "with", "without"}  # arguments that name units
_CLUSTERS = {"cluster", "section", "all"}
_OF_COMMAND = {"filter": Kind.FILTER, "score": Kind.COST_FUNCTION, "balance": Kind.BALANCE}


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(to, "completion", _run, output=(), settings=())
    command.add_argument("shell", choices=("bash", "zsh"))


def _run(options: argparse.Namespace) -> Shown:
    """Print what lets a shell complete the line.

    Where no package has put it in place, write this into ~/.bashrc, or the same with zsh into
    ~/.zshrc:

      eval "$(ovirt-scheduler completion bash)"

    examples:
      completion bash
      completion zsh
    """
    code = library().shellcode(["ovirt-scheduler"])
    # Versions of argcomplete before 3 know zsh by its imitation of bash alone.
    before = "autoload -U +X bashcompinit && bashcompinit\n" if options.shell == "zsh" else ""
    return Shown(f"{before}{code}\n")


def library() -> Any:
    """argcomplete, which is loaded when a shell needs it, and never by the daemon.

    Raises:
        BadUsage: it is not installed.
    """
    try:
        return importlib.import_module("argcomplete")
    except ImportError:
        raise BadUsage(f"completion needs argcomplete: install it for {sys.executable}") from None


def answer_shell(top: argparse.ArgumentParser) -> None:
    """Tell the shell how to complete the line, and end the process.

    No daemon is asked, and no plugin is run.

    Args:
        top: the parser of all commands.
    """
    # argparse has no other way to the parsers of the commands, and to their arguments.
    parsers = (action.choices for action in top._actions)  # noqa: SLF001
    commands = next(choices for choices in parsers if isinstance(choices, dict))
    for name, command in commands.items():
        kinds: Sequence[Kind] = (_OF_COMMAND[name],) if name in _OF_COMMAND else (*Kind,)
        for action in command._actions:  # noqa: SLF001
            metavar = str(action.metavar)
            if action.choices or metavar in _FILES:
                continue
            action.completer = lambda **_: ()  # else files are offered
            if action.dest in _UNITS and metavar == "UNIT=FACTOR":
                action.completer = partial(_units, (Kind.COST_FUNCTION,), "=")
            elif action.dest in _UNITS and metavar.startswith(("NAME", "UNIT")):
                action.completer = partial(_units, kinds, "")
            elif action.dest in _CLUSTERS and metavar in ("CLUSTER", "NAME"):
                action.completer = _clusters
    library().autocomplete(top)


def _units(
    kinds: Collection[Kind], suffix: str, parsed_args: argparse.Namespace, **_: object
) -> list[str]:
    """The names of units of some kinds, as the plugins' files have them."""
    functions = {kind.function for kind in kinds}
    folders = (folder for settings in _settings(parsed_args) for folder in settings.plugins_path)
    names = {name for folder in folders for name in _names_in(folder, functions)}
    return [f"{name}{suffix}" for name in sorted(names)]


def _names_in(folder: Path, functions: Collection[str]) -> Iterator[str]:
    for file in folder.glob("[!_]*.py"):
        try:
            tree = ast.parse(content(file, PluginError))  # at once, also if it is a pipe
        except (OSError, PluginError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        for name, body in [(file.stem, tree.body), *((node.name, node.body) for node in classes)]:
            if any(getattr(part, "name", "") in functions for part in body):
                yield name


def _clusters(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """The names of the clusters in the settings."""
    return [section.name for settings in _settings(parsed_args) for section in settings.clusters]


def _settings(parsed_args: argparse.Namespace) -> Iterator[Settings]:
    """The settings that a line names; nothing if they cannot be read."""
    with contextlib.suppress(SchedulerError):
        yield arguments.settings(argparse.Namespace(**{"config": None, **vars(parsed_args)}))
