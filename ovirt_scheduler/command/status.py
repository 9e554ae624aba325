"""``ovirt-scheduler status``: how the daemon is, what is wrong since when, and what to do next."""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Optional

from ovirt_scheduler import __version__
from ovirt_scheduler.command import arguments, tables
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon.control import FILE, short_name
from ovirt_scheduler.errors import CallRefused, NoAnswer
from ovirt_scheduler.history import explanation
from ovirt_scheduler.server.pages import status

_SECONDS = 10.0
_HEADINGS = ("NAME", "KIND", "STATE", "CALLS", "FAILED", "MEDIAN", "P99")


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    arguments.add_command(to, "status", _run)


def _run(_: argparse.Namespace) -> Shown:
    """How the daemon is.

    Tell how the daemon on this machine is: its units and drivers, what fails since when and what to
    do next. Exit status 0: all is well; 1: something fails. Root may ask, and the daemon's own
    user.

    examples:
      status
      status -o json
    """
    report = ask(arguments.state(), "status")
    return Shown(_text(explanation.cleaned(report)), report, report["well"])


def ask(state: Path, command: str, **further: object) -> Any:
    """What the daemon of a state folder answers on its control socket.

    Args:
        command: and what it takes besides.

    Raises:
        NoAnswer: no daemon of this version is there, or it may not be asked, or it ended
            meanwhile.
        CallRefused: it refuses, and why.
    """
    asked = json.dumps({"command": command, **further})
    try:
        with socket.socket(socket.AF_UNIX) as channel, short_name(state / FILE) as name:
            channel.settimeout(_SECONDS)
            channel.connect(name)
            channel.sendall(f"{asked}\n".encode())
            with channel.makefile("rb") as file:
                line = file.readline()
    except PermissionError:
        raise NoAnswer(
            f"{state / FILE}: only root and the daemon's own user may ask; try it with sudo"
        ) from None
    except OSError as error:
        of_systemd = "; the one that systemd started is asked with sudo" if os.geteuid() else ""
        raise NoAnswer(
            f"no daemon answers at {state / FILE}: {error.strerror or error}; is it running? "
            f"systemctl status ovirt-scheduler{of_systemd}"
        ) from None
    try:
        reply = json.loads(line)
    except ValueError:
        raise NoAnswer("the daemon ended before it had answered; ask it again") from None
    if reply.get("version") != __version__:
        raise NoAnswer(
            f"the daemon that runs is of version {reply.get('version', 'unknown')}, and this "
            f"command of {__version__}; start the daemon anew: systemctl restart ovirt-scheduler"
        )
    if "error" in reply:
        raise CallRefused(reply["error"])
    return reply["answer"]


def old_versions(state: Path, units: Optional[Collection[str]] = None) -> Iterator[str]:
    """What to know of policy units and drivers of which an older version answers.

    Nothing where no daemon runs, or it may not be asked: the command does without.

    Args:
        state: the state folder of the daemon.
        units: the names of those that matter; all of them, where it is left out.
    """
    try:
        report = explanation.cleaned(ask(state, "status"))
    except (NoAnswer, CallRefused):
        return
    for unit in report["units"]:
        if unit["state"] == "old version" and (units is None or unit["name"] in units):
            yield f"{unit['name']}: {unit['because']}"


def _text(report: dict[str, Any]) -> str:
    lines: list[str] = [report["line"]]
    for problem in report["problems"]:
        since = (
            f", since {status.shown(problem['since'], time.time())}" if "since" in problem else ""
        )
        lines += ["", f"{problem['what']}{since}"]
        lines += [f"  {problem[key]}" for key in ("detail", "mend") if key in problem]
    rows = [
        (
            unit["name"], unit["kind"], unit["state"], unit["calls"], unit["failures"],
            status.milliseconds(unit.get("median_ms")), status.milliseconds(unit.get("p99_ms")),
        )
        for unit in report["units"]
    ]  # fmt: skip
    facts = [*status.facts(report)]
    width = max(len(term) for term, _ in facts)
    shown = [f"{term:<{width}}  {text}" for term, text in facts]
    for cluster in report["clusters"]:
        look = cluster.get("last_look")
        looked = f"looked at {status.shown(look, time.time())}" if look else "not looked at yet"
        if "imbalance" in cluster:
            looked += f", imbalance {cluster['imbalance']} %"
        waiting = sum(plan["state"] == "waiting" for plan in cluster["plans"])
        if waiting:
            looked += f", plans that wait: {waiting} (ovirt-scheduler plan list)"
        state = status.cluster_state(cluster)
        shown.append(f"{'Cluster ' + cluster['name']:<{width}}  {looked}: {state}")
    table = tables.table(_HEADINGS, rows) if rows else "no policy unit is loaded\n"
    return "\n".join(lines) + f"\n\n{table}\n" + "\n".join(shown) + "\n"
