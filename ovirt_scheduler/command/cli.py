"""The command line: its commands and options, their help, and the exit statuses.

argparse reads it, because every machine with Python has that.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Optional

from ovirt_scheduler import __version__
from ovirt_scheduler.command import arguments, completion
from ovirt_scheduler.errors import BadInput, FileMistake, SchedulerError
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.model.values import spelling

# Each command with the module of this folder that has it, in the order of the help. Only the
# module of the command that is called is loaded.
_MODULES = {
    "serve": "serve",
    "check": "check",
    **dict.fromkeys(("discover", "filter", "score", "balance"), "calls.commands"),
    **dict.fromkeys(("schedulers", "select", "topics", "schedule"), "calls.commands"),
    **dict.fromkeys(("why", "decisions"), "decisions"),
    **dict.fromkeys(("status", "clusters", "plan"), "control_client"),
    "try": "calls.trial",
    "new": "skeleton",
    **dict.fromkeys(("replay", "snapshot", "simulate"), "workbench"),
    **dict.fromkeys(("maintenance", "capacity"), "capacity"),
    "cert": "certificate",
    "setup": "setup.installation",
    "completion": "completion",
}


def main(words: Optional[Sequence[str]] = None) -> int:
    """Run a command.

    Returns:
        The exit status (sysexits.h); ``--help`` has a list of them.
    """
    _prepare_streams()
    try:
        return _run(sys.argv[1:] if words is None else words)
    except SchedulerError as error:
        return _failed(error)
    except PermissionError as error:  # of a folder on the way to a file
        return _failed(
            BadInput(f"{error.filename}: {error.strerror}; run this as a user who may read it")
        )
    except BrokenPipeError:  # the reader has ended, such as head
        return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT  # as shells report it


def _run(words: Sequence[str]) -> int:
    """Read the command line, run its command, show what it gives; gives the exit status."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks how to complete the line
        completion.answer_shell(parser())  # and ends the process
    command = next((word for word in words if not word.startswith("-")), None)
    top = parser(arguments.Intermixed, words[0] if words else "")
    if command is not None and command not in _MODULES:
        there = f"there are {', '.join(_MODULES)}{spelling.hint(command, _MODULES)}"
        place = "; options stand after the command" if words[0].startswith("-") else ""
        top.error(f"there is no command {command!r}; {there}{place}")
    options, stray = top.parse_known_args(words)
    if stray:  # parse_args would not show the command's own usage
        usage = options.parser.format_usage()
        meant = spelling.hint(stray[0], re.findall("--[a-z-]+", usage))
        options.parser.error(f"unrecognized arguments: {' '.join(stray)}{meant}")
    # Only the daemon has a log: a command shows what happened itself.
    logging.getLogger("ovirt_scheduler").addHandler(logging.NullHandler())
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # all modules are loaded
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return arguments.show(options.run(options), options.output)


def _failed(error: SchedulerError) -> int:
    """Say why a command cannot be done; gives its exit status."""
    errors = error.mistakes if isinstance(error, FileMistake) else (error,)
    lines = (printable(line) for each in errors for line in str(each).split("\n"))
    print("ovirt-scheduler:", "\n".join(lines), file=sys.stderr)  # noqa: T201
    return error.exit_status


def _prepare_streams() -> None:
    """Make the standard streams accept any character, whatever the locale."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed, as with <&-
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # names and signs that a terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")


def parser(
    command_type: type[arguments.Parser] = arguments.Parser, command: str = ""
) -> arguments.Parser:
    """Make the parser of the command line, with its help.

    Args:
        command_type: the class of the parser of each command.
        command: the one that is called; of any other word, the parser has all commands.
    """
    top = arguments.Parser(
        prog="ovirt-scheduler",
        description="Calls policy units written in Python when oVirt places or balances VMs.",
        epilog=f"""\
examples:
  ovirt-scheduler new Quiet --filter               a plugin to start from
  ovirt-scheduler try Quiet.py --hosts hosts.xml   run it, without a daemon
  ovirt-scheduler check                            what is wrong, and where
  ovirt-scheduler discover                         the units of the daemon
  ovirt-scheduler why web                          why the VM is where it is
  ovirt-scheduler setup --dry-run                  what setup would do here

COMMAND --help shows more of each; man ovirt-scheduler has all of it.

{arguments.STATUSES}""",
        formatter_class=arguments.HelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=command_type)
    modules = [_MODULES[command]] if command in _MODULES else _MODULES.values()
    for name in dict.fromkeys(modules):
        importlib.import_module(f"ovirt_scheduler.command.{name}").add(commands.add_parser)
    return top
