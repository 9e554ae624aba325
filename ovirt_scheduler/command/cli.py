"""The command line: its commands and options, their help, and the exit statuses.

argparse reads it, as every machine with Python has it.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import sys
from pathlib import Path
from typing import (
    Any,
    Callable,
    Collection,
    List,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    Type,
)

from ovirt_scheduler import __version__
from ovirt_scheduler.command import commands, skeleton
from ovirt_scheduler.command.setup import engine
from ovirt_scheduler.daemon import certificate_report
from ovirt_scheduler.errors import BadUsage, SchedulerError
from ovirt_scheduler.history.query import OUTCOMES
from ovirt_scheduler.model import near
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings import config

_STATUSES = """\
exit status:
  0   done, and all is well
  1   something is wrong with what was checked or tried, the daemon refused the call, or
      something of setup is left to you
  2   wrong usage
  66  a file that was named cannot be read
  69  no daemon answers, or none whose certificate is trusted
  70  no process for plugins can be started
  73  a file is there already, or cannot be written
  75  the port is taken, or the address to listen on is not there yet: try again
  77  only root can do this
  78  scheduler.conf or a certificate is wrong
"""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run a command.

    Returns:
        The exit status (sysexits.h); ``--help`` has a list of them.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):  # names and signs that a terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    commands.answer_shell(os.environ, parser)
    top = parser(_Intermixed)
    command = next((word for word in arguments if not word.startswith("-")), None)
    if command is not None and command not in top.commands:
        there = f"there are {', '.join(top.commands)}"
        top.error(f"there is no command {command!r}; {there}{near.hint(command, top.commands)}")
    options, stray = top.parse_known_args(arguments)
    if stray:  # parse_args would not show the command's own usage
        usage = options.parser.format_usage()
        meant = near.hint(stray[0], re.findall("--[a-z-]+", usage))
        options.parser.error(f"unrecognized arguments: {' '.join(stray)}{meant}")
    # Only the daemon has a log: a command shows what happened itself.
    logging.getLogger("ovirt_scheduler").addHandler(logging.NullHandler())
    try:
        return int(options.run(options))
    except SchedulerError as error:
        print(f"ovirt-scheduler: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_status
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


_Add = Callable[..., argparse.ArgumentParser]  # adds a command's parser


class _Parser(argparse.ArgumentParser):
    """A parser whose messages on mistakes end with where the help is.

    Attributes:
        commands: the parser of each command, by its name.
    """

    commands: Mapping[str, argparse.ArgumentParser] = {}

    def error(self, message: str) -> NoReturn:
        super().error(f"{message}\n{self.prog} --help shows how it is used")


class _Intermixed(_Parser):
    """A parser that takes options anywhere among a command's words."""

    _within = False

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> Tuple[argparse.Namespace, List[str]]:
        if self._within:  # older argparse comes back here, for the options and for the words
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False


def parser(command: Type[_Parser] = _Parser) -> _Parser:
    """Make the parser of the whole command line, with its help.

    Args:
        command: the class of the parser of each command.
    """
    top = _Parser(
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

{_STATUSES}""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=command)
    top.commands = commands.choices
    add = commands.add_parser
    _add_serve(add)
    _add_check(add)
    _add_calls(add)
    _add_why(add)
    _add_decisions(add)
    _add_status(add)
    _add_try(add)
    _add_new(add)
    _add_cert(add)
    _add_setup(add)
    _add_completion(add)
    return top


def _command(
    add: _Add,
    name: str,
    run: Callable[[argparse.Namespace], int],
    brief: str,
    description: str,
    *examples: str,
    output: Sequence[str] = ("table", "json"),
    settings: Collection[str] = ("config", "plugins"),
    **options: Any,
) -> argparse.ArgumentParser:
    """Add a command, with the options that many have: ``--config``, ``--plugins`` and ``-o``."""
    shown = "".join(f"  ovirt-scheduler {example}\n" for example in examples)
    command = add(
        name,
        help=brief,
        description=description,
        epilog=f"examples:\n{shown}\n{_STATUSES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run, parser=command, **options)
    if "config" in settings:
        command.add_argument(
            "--config", metavar="FILE", type=Path,
            help=f"settings (default: {config.DEFAULT_FILE}, which may be missing)",
        )  # fmt: skip
    if "plugins" in settings:
        command.add_argument(
            "--plugins", metavar="PATH",
            help="folders of plugins, ':' between them, instead of plugins_path in the settings",
        )  # fmt: skip
    if output:
        default = "a table in a terminal, JSON in a pipe" if "names" in output else "table"
        command.add_argument(
            "-o", "--output", choices=output, help=f"how to show it (default: {default})"
        )
    return command


def _add_serve(add: _Add) -> None:
    _command(
        add, "serve", commands.serve, "run the daemon until SIGTERM or Ctrl-C",
        "Serve XML-RPC calls until SIGTERM or Ctrl-C. Prints 'listening on URL' to standard error\n"
        "when it is ready. SIGHUP has it read settings, certificates and plugins again.",
        "serve", "serve --plugins plugins", output=(),
    )  # fmt: skip


def _add_check(add: _Add) -> None:
    _command(
        add, "check", commands.check, "find what is wrong with settings, certificates and plugins",
        "Check settings and certificates, bind the port unless the daemon has it, log in to the\n"
        "engine of [engine], load every plugin as the daemon does, and list the policy units.\n"
        "Each thing that is wrong is shown with its file, its line, and what to do.",
        "check", "check --plugins plugins", "check -o json",
    )  # fmt: skip


_WITH_HOSTS = ("filter", "score", "balance", "select")  # of the calls
# What each call takes beside options: name, metavar, how many, help.
_WORDS: Mapping[str, Sequence[Tuple[str, str, Optional[str], str]]] = {
    "filter": [("unit", "NAME", "+", "of a filter")],
    "score": [("unit", "NAME[=FACTOR]", "+", "of a cost function; factor 1")],
    "balance": [("unit", "NAME", None, "of the balance")],
    "select": [("scheduler", "SCHEDULER", None, "its name")],
    "schedule": [
        ("topic", "TOPIC", None, "of the driver"),
        ("method", "METHOD", None, "that it publishes"),
        ("argument", "KEY=VALUE", "*",
         "of the method; JSON, or else text; @FILE stands for the text of a file"),
    ],
}  # fmt: skip


def _add_calls(add: _Add) -> None:
    calls = (
        ("discover", "list the policy units", "discover --local"),
        ("filter", "ask which hosts filters accept",
         "filter Quiet --hosts hosts.xml --vm vm.xml --property most=5"),
        ("score", "ask what cost functions make of hosts",
         "score Quiet=2 Memory --hosts hosts.xml --vm vm.xml"),
        ("balance", "ask which VM a balance would migrate", "balance Memory --hosts hosts.xml"),
        ("schedulers", "list the schedulers", "schedulers --local"),
        ("select", "ask which host a scheduler would start a VM on",
         "select default --hosts hosts.xml --vm vm.xml --property filters=Quiet"),
        ("topics", "list the topics and their methods", "topics --local"),
        ("schedule", "call a method of a topic",
         "schedule compute select_host hosts=@hosts.xml vm=@vm.xml"),
    )  # fmt: skip
    for name, brief, example in calls:
        command = _command(
            add, name, commands.call, brief,
            f"{brief[0].upper()}{brief[1:]}: of a running daemon, or with --local of the plugins "
            "right here,\nwith what they print and their tracebacks. -o names gives nothing but "
            "names, one on a line, and\nproblems on standard error.",
            example, f"{example.partition(' --')[0]} --url https://localhost:18781 --ca "
            "certificate.pem" + (" --hosts hosts.xml" if name in _WITH_HOSTS else ""),
            output=("table", "json", "names"), ask=commands.QUESTIONS[name],
        )  # fmt: skip
        where = command.add_mutually_exclusive_group()
        where.add_argument(
            "--url", help="of the daemon (default: where the settings have it listen)"
        )
        where.add_argument("--local", action="store_true", help="run the plugins here instead")
        _add_certificate(command)
        for word, metavar, nargs, about in _WORDS.get(name, ()):
            command.add_argument(word, metavar=metavar, nargs=nargs, help=about)
        if name in _WITH_HOSTS:
            _add_input(command, with_vm=name != "balance")


def _add_certificate(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--ca", metavar="FILE", type=Path,
        help="certificate to trust (default: the daemon's own, from the settings or the state "
        "folder; who cannot read it names a copy)",
    )  # fmt: skip


_OF_HISTORY = (
    "\nThe history is read in the state folder where that may be read, else the daemon is asked."
)


def _add_why(add: _Add) -> None:
    command = _command(
        add, "why", commands.ask_why, "tell why a VM was placed where it was, or nowhere",
        "Tell the calls of a VM's last placement as one: who removed which host and why, what each "
        "host\ncost, and which units were decisive. " + _OF_HISTORY.lstrip(),
        "why web", "why web --host lynx", "why --decision 1f2e3d4c5b6a7988", "why web -o json",
        settings=("config",),
    )  # fmt: skip
    command.add_argument("vm", metavar="VM", nargs="?", help="its name or id")
    command.add_argument("--decision", metavar="ID", help="one decision, by its id")
    command.add_argument("--host", metavar="HOST", help="only of this host, by its name or id")
    _add_url(command)


def _add_decisions(add: _Add) -> None:
    command = _command(
        add, "decisions", commands.list_decisions, "list what was decided",
        "List the decisions that fit all that is said, the newest first. -o names gives their ids."
        + _OF_HISTORY,
        "decisions --vm web", "decisions --unit MaxVms --outcome raised --since 2h",
        "decisions --follow", "decisions --events --since 1d",
        "decisions --since 2026-01-31T12:00:00 -o jsonl",
        settings=("config",), output=("table", "json", "jsonl", "names"),
    )  # fmt: skip
    for name, metavar, told in (
        ("vm", "VM", "on this VM, by its name or id"),
        ("host", "HOST", "about this host, by its name or id"),
        ("unit", "NAME", "in which this unit or scheduler was asked for"),
        ("cluster", "CLUSTER", "that the daemon looked after by itself"),
        ("method", "METHOD", "of this call, such as runFilters"),
        ("since", "TIME", "from this time on: 2026-01-31T12:00:00, or how long ago: 90s, 10m, 2h"),
        ("until", "TIME", "before this time"),
    ):
        command.add_argument(f"--{name}", metavar=metavar, help=told)
    command.add_argument(
        "--outcome", choices=OUTCOMES, help="in which a unit ended so; with --unit, that one"
    )
    command.add_argument(
        "--limit", metavar="NUMBER", type=int, help="the newest of them (default: 100)"
    )
    command.add_argument(
        "--follow", action="store_true",
        help="the last ten, then each that comes, until Ctrl-C",
    )  # fmt: skip
    command.add_argument(
        "--events", action="store_true",
        help="in their place, what happened to the daemon and its plugins; with --since, --until",
    )  # fmt: skip
    _add_url(command)


def _add_status(add: _Add) -> None:
    _command(
        add, "status", commands.show_status, "how the daemon is",
        "Tell how the daemon on this machine is: its units and drivers, what fails since when and\n"
        "what to do next. Exit status 0: all is well; 1: something fails. Root may ask, and the\n"
        "daemon's own user.",
        "status", "status -o json",
        settings=(),
    )  # fmt: skip


def _add_url(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", help="of the daemon, to ask it in place of reading the folder")
    _add_certificate(command)


def _add_input(command: argparse.ArgumentParser, with_vm: bool) -> None:
    command.add_argument(
        "--hosts", metavar="FILE", required=True,
        help="XML document of the hosts, or their ids with white space between; - is standard "
        "input",
    )  # fmt: skip
    if with_vm:
        command.add_argument(
            "--vm", metavar="FILE",
            help="XML document of the VM, or its id (default: a VM of which nothing is known)",
        )  # fmt: skip
    command.add_argument(
        "--property", metavar="KEY=VALUE", action="append", default=[],
        help="for the units; may be given several times",
    )  # fmt: skip


def _kind(words: str) -> Kind:
    try:
        return commands.kind(words)
    except BadUsage as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_try(add: _Add) -> None:
    command = _command(
        add, "try", commands.try_plugin, "run one plugin, without a daemon",
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
    _add_input(command, with_vm=True)
    command.add_argument(
        "--vms", metavar="FILE",
        help="XML document of the cluster's VMs, or their ids: for a scheduler's load_balance and "
        "on_timer_invoked",
    )  # fmt: skip


def _add_new(add: _Add) -> None:
    command = _command(
        add, "new", commands.new, "write a plugin to start from",
        "Write a plugin, its conf file and tests that pass. Nothing is overwritten.",
        "new Quiet --filter --score", "new Quiet --balance --folder plugins",
        "new Night --scheduler", "new Backups --driver",
        output=(), settings=(),
    )  # fmt: skip
    command.add_argument("name", metavar="NAME", help="of the plugin, and so of its units")
    for name, part in skeleton.PARTS.items():
        command.add_argument(f"--{name}", action="store_true", help=f"with {part.what}")
    command.add_argument(
        "--folder", metavar="DIR", type=Path, default=Path(), help="where to (default: here)",
    )  # fmt: skip


def _add_cert(add: _Add) -> None:
    command = _command(
        add, "cert", commands.cert, "make, show, check, export or renew the daemon's certificate",
        "make: a self-signed certificate in the state folder, as the first start makes; one that "
        "is\nthere stays. show: its place, names, days left and fingerprint. check: the same, and\n"
        "exit status 1 when it cannot be used, or has fewer days left than --days.\n"
        "export: the certificate itself, in PEM, for callers to trust. renew: makes the next one,\n"
        "and shows who has to trust it first; with --switch the daemon uses it from its next "
        "reload on.",
        "cert show", "cert check --days 60", "cert show -o json", "cert export", "cert renew",
        "cert renew --switch",
        settings=("config",),
    )  # fmt: skip
    command.add_argument("action", choices=("make", "show", "check", "export", "renew"))
    command.add_argument(
        "--days", type=int, default=certificate_report.DAYS,
        help="fewer days left than this are a problem (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--switch", action="store_true", help="of renew: put the next certificate in use"
    )


def _add_setup(add: _Add) -> None:
    command = _command(
        add, "setup", commands.setup, "make this machine ready for the daemon, and start it",
        "Make the user, the folders, the configuration, the certificate and the unit, and start "
        "the\ndaemon. Each step is shown before it is done; what is so already stays, so it may be "
        "run again at\nany time, and after an upgrade. A file that was edited is never "
        "overwritten: the new one is put\nbeside it. Exit status 1 when something is left for you "
        "to do.",
        "setup --dry-run", "setup --engine", "setup --engine --adopt", "setup --remove",
        "setup --root /mnt/image", output=(), settings=(),
    )  # fmt: skip
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


def _add_completion(add: _Add) -> None:
    command = _command(
        add, "completion", commands.complete, "print what lets a shell complete the line",
        "For ~/.bashrc or ~/.zshrc where no package has put it in place already:\n"
        'eval "$(ovirt-scheduler completion bash)"',
        "completion bash", "completion zsh", output=(), settings=(),
    )  # fmt: skip
    command.add_argument("shell", choices=commands.SHELLS)
