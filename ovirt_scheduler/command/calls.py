"""The calls of the daemon as commands: discover, filter, score, balance, select, schedule."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from functools import partial
from typing import Callable

from ovirt_scheduler.command import arguments, control, inputs, recorded, terminal
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import certificate_report
from ovirt_scheduler.history import store
from ovirt_scheduler.history.reader import Reader
from ovirt_scheduler.security.addresses import url_host
from ovirt_scheduler.server.http import listening

_AS_ROOT = "sudo reads the state folder, for which none needs to run"

_ABOUT = """{0}.

{0}.
The running daemon answers. With --local the plugins are called right here, and what they print and
their tracebacks are shown, too. -o names shows names alone, one on a line, and problems on standard
error.

examples:
  {1}
  {2} --url https://localhost:18781 --ca certificate.pem{3}
"""

_Ask = Callable[[terminal.Call, argparse.Namespace], Shown]  # makes a call, as the options say


def add(to: arguments.Add) -> None:
    """Add a command for each call."""
    _add(to, "discover", "List the policy units", "--local",
         lambda call, _: terminal.discover(call))  # fmt: skip
    command = _add(
        to, "filter", "Ask which hosts filters accept",
        "Quiet --hosts hosts.xml --vm vm.xml --property most=5",
        lambda call, asked: terminal.run_filters(call, asked.unit, inputs.of(asked)),
    )  # fmt: skip
    command.add_argument("unit", metavar="NAME", nargs="+", help="a filter")
    command = _add(
        to, "score", "Ask what cost functions make of hosts",
        "Quiet=2 Memory --hosts hosts.xml --vm vm.xml", _score,
    )  # fmt: skip
    command.add_argument(
        "unit",
        metavar="NAME[=FACTOR]",
        nargs="+",
        help="a cost function, and its factor (default: 1)",
    )
    command = _add(
        to, "balance", "Ask which VM a balance would migrate", "Memory --hosts hosts.xml",
        lambda call, asked: terminal.run_balance(call, asked.unit, inputs.of(asked)),
    )  # fmt: skip
    command.add_argument("unit", metavar="NAME", help="the balance")
    _add(to, "schedulers", "List the schedulers", "--local",
         lambda call, _: terminal.schedulers(call))  # fmt: skip
    command = _add(
        to, "select", "Ask which host a scheduler would start a VM on",
        "default --hosts hosts.xml --vm vm.xml --property filters=Quiet",
        lambda call, asked: terminal.select_host(call, asked.scheduler, inputs.of(asked)),
    )  # fmt: skip
    command.add_argument("scheduler", metavar="SCHEDULER", help="its name")
    _add(to, "topics", "List the topics and their methods", "--local",
         lambda call, _: terminal.topics(call))  # fmt: skip
    command = _add(
        to, "schedule", "Call a method of a topic",
        "compute select_host hosts=@hosts.xml vm=@vm.xml",
        lambda call, asked: terminal.schedule(
            call, asked.topic, asked.method, inputs.arguments(asked.argument)
        ),
    )  # fmt: skip
    command.add_argument("topic", metavar="TOPIC", help="its name")
    command.add_argument("method", metavar="METHOD", help="one of the topic's")
    command.add_argument(
        "argument", metavar="KEY=VALUE", nargs="*", default=[],  # else argparse calls it required
        help="an argument of the method: JSON, or else text; @FILE stands for the text of a file",
    )  # fmt: skip


def _add(
    to: arguments.Add, name: str, brief: str, example: str, ask: _Ask
) -> argparse.ArgumentParser:
    """Add a command that makes a call.

    Args:
        example: what may follow its name; a call about hosts has ``--hosts`` there.
    """
    with_hosts = "--hosts" in example
    command = arguments.add_command(
        to, name, _run,
        about=_ABOUT.format(
            brief, f"{name} {example}", f"{name} {example}".partition(" --")[0],
            " --hosts hosts.xml" if with_hosts else "",
        ),
        output=("table", "json", "names"), settings=("config", "plugins"), in_pipe="json",
    )  # fmt: skip
    command.set_defaults(ask=ask)
    where = command.add_mutually_exclusive_group()
    where.add_argument("--url", help="the daemon's (default: where the settings have it listen)")
    where.add_argument("--local", action="store_true", help="call the plugins right here instead")
    arguments.add_certificate(command)
    if with_hosts:
        inputs.add(command, with_vm=name != "balance")
    return command


def _score(call: terminal.Call, asked: argparse.Namespace) -> Shown:
    given = inputs.factors("score", asked.unit)
    factors = {name: 1 if factor is None else factor for name, factor in given}
    return terminal.run_cost_functions(call, factors, inputs.of(asked))


def _run(options: argparse.Namespace) -> Shown:
    """Call the daemon, or plugins right here."""
    with contextlib.ExitStack() as stack, inputs.naming_files(options):
        if options.local:
            call = stack.enter_context(terminal.local(arguments.settings(options)))
        else:
            call = _of_daemon(options)
        shown: Shown = options.ask(call, options)
    if not options.local and options.url is None:
        asked = getattr(options, "unit", getattr(options, "scheduler", None))
        named = [asked] if isinstance(asked, str) else asked
        units = None if named is None else [name.partition("=")[0] for name in named]
        for each in control.old_versions(arguments.state(), units):
            sys.stderr.write(f"note: {each}\n")
    return shown


def _of_daemon(options: argparse.Namespace) -> terminal.Call:
    settings = arguments.settings(options)
    scheme = "https" if settings.ssl else "http"
    host = listening.known_as(url_host(settings.listening_address))
    url = options.url or f"{scheme}://{host}:{settings.listening_port}"
    made = certificate_report.server_files(settings, arguments.state()).certificate
    file = Reader(arguments.state() / store.FILE)
    find = partial(recorded.awaited, file, named=options.url is not None)
    instead = "--local needs none" if hasattr(options, "local") else _AS_ROOT
    return terminal.remote(
        url, options.ca or made, find if settings.history else terminal.nowhere, instead
    )


def history(options: argparse.Namespace) -> recorded.Recorded:
    """The history: of the state folder where it may be read, unless a daemon is named."""
    file = arguments.state() / store.FILE
    if options.url is None and os.access(file, os.R_OK):
        return Reader(file)
    return recorded.OfDaemon(_of_daemon(options))
