"""The command line: its commands and options, their help, and the exit statuses.

argparse reads it, as every machine with Python has it.
"""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ovirt_scheduler import __version__
from ovirt_scheduler.command import (
    arguments,
    calls,
    certificate,
    check,
    clusters,
    decisions,
    plan,
    replay,
    simulate,
    skeleton,
    status,
    trial,
    why,
)
from ovirt_scheduler.command.setup import engine, run
from ovirt_scheduler.command.setup.files import CONF
from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import daemon
from ovirt_scheduler.errors import BadInput, BadUsage, NotPermitted, SchedulerError
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.model import spelling
from ovirt_scheduler.settings import config

_SHELLS = ("bash", "zsh")  # whose completion there is


def main(words: Optional[Sequence[str]] = None) -> int:
    """Run a command.

    Returns:
        The exit status (sysexits.h); ``--help`` has a list of them.
    """
    words = sys.argv[1:] if words is None else words
    _prepare_streams()
    _answer_shell()
    top = parser(arguments.Intermixed)
    command = next((word for word in words if not word.startswith("-")), None)
    if command is not None and command not in top.commands:
        there = f"there are {', '.join(top.commands)}"
        top.error(f"there is no command {command!r}; {there}{spelling.hint(command, top.commands)}")
    options, stray = top.parse_known_args(words)
    if stray:  # parse_args would not show the command's own usage
        usage = options.parser.format_usage()
        meant = spelling.hint(stray[0], re.findall("--[a-z-]+", usage))
        options.parser.error(f"unrecognized arguments: {' '.join(stray)}{meant}")
    # Only the daemon has a log: a command shows what happened itself.
    logging.getLogger("ovirt_scheduler").addHandler(logging.NullHandler())
    try:
        return arguments.show(options.run(options), arguments.output_of(options))
    except SchedulerError as error:
        return _failed(error)
    except PermissionError as error:  # of a folder on the way to a file
        return _failed(BadInput(f"{error.filename}: {error.strerror}; run this as who may read it"))
    except BrokenPipeError:  # whoever read has seen enough
        return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT  # as shells tell of it


def _failed(error: SchedulerError) -> int:
    """Say why a command cannot be done; gives its exit status."""
    lines = map(printable, str(error).split("\n"))
    print("ovirt-scheduler:", "\n".join(lines), file=sys.stderr)  # noqa: T201
    return error.exit_status


def _prepare_streams() -> None:
    """Have standard input and output take what there may be, whatever the locale."""
    if sys.stdin is None:  # it was closed, as with <&-
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115  until the process ends
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if isinstance(sys.stdin, io.TextIOWrapper):  # documents, which are read as files are
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    if isinstance(sys.stdout, io.TextIOWrapper):  # names and signs that a terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")


def parser(command: type[arguments.Parser] = arguments.Parser) -> arguments.Parser:
    """Make the parser of the whole command line, with its help.

    Args:
        command: the class of the parser of each command.
    """
    top = arguments.Parser(
        prog="ovirt-scheduler",
        description="Calls policy units written in Python when oVirt places or balances VMs.",
        epilog=f"""\
examples:
  ovirt-scheduler new Quiet --filter               a plugin to start from
  ovirt-scheduler try Quiet.py --hosts hosts.xml   run it, without a daemon
  ovirt-scheduler check                            settings, certificates and plugins
  ovirt-scheduler discover                         what the running daemon offers
  ovirt-scheduler why web                          who removed which host for a VM, what each cost
  ovirt-scheduler setup --dry-run                  how this machine would be set up for it

COMMAND --help shows more of each; man ovirt-scheduler has all of it.

{arguments.STATUSES}""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=command)
    top.commands = commands.choices
    add = commands.add_parser
    _add_serve(add)
    for module in (
        check, calls, why, decisions, status, clusters, plan, trial, skeleton, replay, simulate,
        certificate,
    ):  # fmt: skip
        module.add(add)
    _add_setup(add)
    _add_completion(add)
    return top


def _add_serve(to: arguments.Add) -> None:
    arguments.add_command(to, "serve", _serve, output=(), settings=("config", "plugins"))


def _add_setup(to: arguments.Add) -> None:
    command = arguments.add_command(to, "setup", _setup, output=(), settings=())
    command.add_argument("--dry-run", action="store_true", help="show each step, do nothing")
    command.add_argument(
        "--root", metavar="DIR", type=Path,
        help="set up the files of the machine whose / is DIR; starts nothing",
    )  # fmt: skip
    command.add_argument(
        "--remove", action="store_true",
        help="undo what setup did; what was edited or there before stays, and so do plugins",
    )  # fmt: skip
    command.add_argument(
        "--engine", action="store_true",
        help="connect the engine of this machine: its answer form, its configuration, its trust",
    )  # fmt: skip
    command.add_argument(
        "--adopt", action="store_true",
        help=f"copy the plugins of ovirt-scheduler-proxy to {engine.ADOPTED}, and check them",
    )  # fmt: skip


def _add_completion(to: arguments.Add) -> None:
    command = arguments.add_command(to, "completion", _complete, output=(), settings=())
    command.add_argument("shell", choices=_SHELLS)


def _serve(options: argparse.Namespace) -> Shown:
    """Run the daemon until SIGTERM or Ctrl-C.

    Serve XML-RPC calls until SIGTERM or Ctrl-C. Prints 'listening on URL' to standard error when it
    is ready. SIGHUP has it read settings, certificates and plugins again.

    examples:
      serve
      serve --plugins plugins
    """
    daemon.serve(lambda: arguments.settings(options, for_daemon=True))
    return Shown()


def _setup(options: argparse.Namespace) -> Shown:
    """Make this machine ready for the daemon, and start it.

    Make the user, the folders, the configuration, the certificate and the unit, and start the
    daemon. Each step is shown before it is done; what is so already stays, so it may be run again
    at any time, and after an upgrade. A file that was edited is never overwritten: the new one is
    put beside it. Exit status 1 when something is left for you to do.

    examples:
      setup --dry-run
      setup --engine
      setup --engine --adopt
      setup --remove
      setup --root /mnt/image
    """
    root = Path("/") if options.root is None else options.root.resolve()
    if not root.is_dir():
        raise BadInput(f"--root {root}: there is no such folder")
    machine = Machine(root, live=root == Path("/"))
    if machine.live and os.geteuid() != 0 and not options.dry_run:
        raise NotPermitted(
            "only root can set this machine up; run it with sudo, or have --dry-run tell what it "
            "would do"
        )
    if options.remove and (options.engine or options.adopt):
        raise BadUsage("--remove undoes all that setup did: leave --engine and --adopt out")
    if options.remove:
        return Shown(well=not run.remove(machine, options.dry_run, arguments.write))
    wanted = run.SetupOptions(options.engine, options.adopt, options.dry_run)
    left = run.install(machine, wanted, arguments.write)
    plugins = Shown()
    adopted = machine.path(engine.ADOPTED)
    if options.adopt and adopted.exists() and not options.dry_run:
        arguments.write(f"\novirt-scheduler check --plugins {adopted}\n")
        settings = config.load(machine.path(CONF), os.environ)
        plugins = check.check_plugins(replace(settings, plugins_path=(adopted,)))
    summary = f"left to you: {left} of the steps, see above\n" if left else ""
    return Shown(plugins.text + summary, well=plugins.well and not left)


def _complete(options: argparse.Namespace) -> Shown:
    """Print what lets a shell complete the line.

    For ~/.bashrc or ~/.zshrc where no package has put it in place already:
    eval "$(ovirt-scheduler completion bash)"

    examples:
      completion bash
      completion zsh
    """
    code = _argcomplete().shellcode(["ovirt-scheduler"])
    # Versions of argcomplete before 3 know zsh by its imitation of bash alone.
    before = "autoload -U +X bashcompinit && bashcompinit\n" if options.shell == "zsh" else ""
    return Shown(f"{before}{code}\n")


def _answer_shell() -> None:
    """If a shell asks how to complete the line, answer it and end the process.

    Raises:
        BadUsage: argcomplete is not installed.
    """
    if "_ARGCOMPLETE" in os.environ:
        _argcomplete().autocomplete(parser())


def _argcomplete() -> Any:
    """The library, which is loaded when a shell needs it, and never by the daemon."""
    try:
        return importlib.import_module("argcomplete")
    except ImportError:
        raise BadUsage(f"completion needs argcomplete: install it for {sys.executable}") from None
