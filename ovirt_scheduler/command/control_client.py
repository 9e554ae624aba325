"""The commands that ask the daemon here on its control socket: status, clusters, plan."""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

from ovirt_scheduler import __version__
from ovirt_scheduler.command import arguments, tables
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon.control_socket import FILE, short_name
from ovirt_scheduler.errors import BadUsage, CallRefused, NoAnswer
from ovirt_scheduler.history import explanation
from ovirt_scheduler.model.plans import REFUSED
from ovirt_scheduler.model.values.text import shortened
from ovirt_scheduler.server.pages import status, times

_SECONDS, _MOST_BYTES = 10.0, 64 << 20  # to wait for an answer, and its length
_LONGEST_VERSION = 40  # characters

_UNITS = ("NAME", "KIND", "STATE", "CALLS", "FAILED", "MEDIAN", "P99")
_CLUSTERS = ("CLUSTER", "DRIVE", "LAST LOOK", "STATE")
_PLANS = ("PLAN", "CLUSTER", "MADE", "STATE", "MIGRATIONS")


def add(to: arguments.Add) -> None:
    """Add the commands to the command line."""
    command = arguments.add_command(to, "status", _status)
    arguments.add_options(command, {
        "--health": "say only ok, or why calls of plugins do not work, as /health does: for what "
        "restarts the daemon if the exit status is not 0, such as a container's health check",
    })  # fmt: skip
    command = arguments.add_command(to, "clusters", _clusters)
    command.add_argument("action", choices=("list", "take"))
    command.add_argument(
        "cluster", metavar="NAME", nargs="?", help="the cluster's, to take it over"
    )
    command = arguments.add_command(to, "plan", _plan, output=("table", "json", "names"))
    command.add_argument("action", choices=("list", "show", "approve", "refuse"))
    command.add_argument("plan", metavar="ID", nargs="?", help="the plan's; list needs none")


def ask(state: Path, command: str, **further: object) -> Any:
    """Ask the daemon of a state folder on its control socket.

    Args:
        command: its name.
        further: its arguments.

    Raises:
        NoAnswer: no daemon of this version is there, or it may not be asked, or it ended
            meanwhile.
        CallRefused: it refuses; the text says why.
    """
    reply = _request(state, {"command": command, **further})
    version = reply.get("version", "unknown")
    if version != __version__:
        raise NoAnswer(
            f"the running daemon is of version {version}, and this command of {__version__}; "
            "restart the daemon: systemctl restart ovirt-scheduler"
        )
    if "error" in reply:
        raise CallRefused(reply["error"])
    return reply["answer"]


def running_version(state: Path) -> Optional[str]:
    """The version of the daemon of a state folder, printable; None if none says so."""
    try:
        reply = _request(state, {"command": "version"})  # whatever it knows, it tells its version
    except NoAnswer:
        return None
    return explanation.cleaned(shortened(str(reply.get("version", "unknown")), _LONGEST_VERSION))


def _request(state: Path, question: Mapping[str, object]) -> Mapping[str, Any]:
    """Send a question to the daemon of a state folder, and return its reply.

    Raises:
        NoAnswer: no daemon is there, or it may not be asked, or it ended meanwhile.
    """
    try:
        with socket.socket(socket.AF_UNIX) as channel, short_name(state / FILE) as name:
            channel.settimeout(_SECONDS)
            channel.connect(name)
            channel.sendall(f"{json.dumps(question)}\n".encode())
            line = _read_line(channel)
    except PermissionError:
        raise NoAnswer(
            f"{state / FILE}: only root and the daemon's own user may ask; try it with sudo"
        ) from None
    except OSError as error:
        of_systemd = "; use sudo to ask the one that systemd started" if os.geteuid() else ""
        raise NoAnswer(
            f"no daemon answers at {state / FILE}: {error.strerror or error}; is it running? "
            "systemctl status ovirt-scheduler (without systemd, ovirt-scheduler serve starts one)"
            f"{of_systemd}"
        ) from None
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        raise NoAnswer("the daemon ended before it had answered; ask it again") from None
    return reply if isinstance(reply, dict) else {}


def _read_line(channel: socket.socket) -> bytes:
    """Read up to the end of a line, or of the stream.

    Raises:
        OSError: the time for all of it is over.
    """
    give_up = time.monotonic() + _SECONDS
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _MOST_BYTES:
        channel.settimeout(max(0.001, give_up - time.monotonic()))
        part = channel.recv(1 << 16)
        if not part:
            break
        line += part
    return bytes(line)


def old_versions(state: Path, units: Collection[str] = ()) -> Iterator[str]:
    """Notes on policy units and drivers of which an older version answers.

    Nothing if no daemon runs, or this user may not ask it.

    Args:
        state: the state folder of the daemon.
        units: the names of those that matter; none: all.
    """
    yield from dict.fromkeys(  # a file may have several units
        f"{unit['name']}: {unit['old_version']}"
        for unit in status_if_any(state).get("units", ())
        if "old_version" in unit and (not units or unit["name"] in units)
    )


def status_if_any(state: Path) -> Mapping[str, Any]:
    """The status of the daemon of a state folder, ``cleaned``.

    Returns:
        Nothing if no daemon runs, or this user may not ask it.
    """
    try:
        report: Mapping[str, Any] = explanation.cleaned(ask(state, "status"))
    except (NoAnswer, CallRefused):
        return {}
    return report


def gap(report: Mapping[str, Any]) -> Iterator[str]:
    """That the history is not written: since when, why, and what to do.

    Args:
        report: from ``status_if_any``.
    """
    for problem in report.get("problems", ()):
        if problem["kind"] == "history" and "since" in problem:
            yield (
                f"{problem['what']} since {times.shown(problem['since'])}, and what was decided "
                f"since then is missing here: {problem['detail']}. {problem['mend']}"
            )


def refusals(report: Mapping[str, Any], vm: str) -> Iterator[str]:
    """Why a VM is not migrated for a while, in sentences.

    Args:
        report: from ``status_if_any``.
        vm: its name or id.
    """
    clusters = report.get("clusters", ())
    for refusal in (each for cluster in clusters for each in cluster.get("refusals", ())):
        if vm in refusal["vm"].values():
            host = refusal["host"]["name"] if "host" in refusal else "any host"
            yield (
                f"{refusal['vm']['name']} is not migrated to {host} for a while, since "
                f"{times.shown(refusal['since'])}: {refusal['obstacle']}: {refusal['reason']}"
            )


def _status(options: argparse.Namespace) -> Shown:
    """Show the state of the daemon.

    Show the state of the daemon on this machine: its units and drivers, what fails since when, and
    what to do next. Exit status 0: all is well; 1: something fails. Only root and the daemon's own
    user may ask.

    examples:
      status
      status -o json
      status --health
    """
    if options.health:
        problem = explanation.cleaned(ask(arguments.state(), "health"))
        return Shown(f"{problem or 'ok'}\n", {"ok": not problem, "problem": problem}, not problem)
    report = ask(arguments.state(), "status")
    return Shown(_status_text(explanation.cleaned(report)), report, report["well"])


def _status_text(report: dict[str, Any]) -> str:
    lines: list[str] = [report["line"]]
    for problem in report["problems"]:
        since = f", since {times.shown(problem['since'])}" if "since" in problem else ""
        lines += ["", f"{problem['what']}{since}"]
        lines += [f"  {problem[key]}" for key in ("detail", "mend") if key in problem]
    rows = [
        (
            unit["name"], unit["kind"], unit["state"], unit["calls"], unit["failures"],
            times.milliseconds(unit.get("median_ms")), times.milliseconds(unit.get("p99_ms")),
        )
        for unit in report["units"]
    ]  # fmt: skip
    facts = [*status.facts(report)]
    width = max(len(term) for term, _ in facts)
    shown = [f"{term:<{width}}  {text}" for term, text in facts]
    for cluster in report["clusters"]:
        look = cluster.get("last_look")
        never = "not looked at" if "problem" in cluster else "not looked at yet"
        looked = f"looked at {times.shown(look)}" if look else never
        if "imbalance" in cluster:
            looked += f", imbalance {cluster['imbalance']} %"
        waiting = sum(plan["state"] == "waiting" for plan in cluster["plans"])
        if waiting:
            looked += f", plans that wait: {waiting} (ovirt-scheduler plan list)"
        state = status.cluster_state(cluster)[0]
        shown.append(f"{'Cluster ' + cluster['name']:<{width}}  {looked}: {state}")
    table = tables.table(_UNITS, rows) if rows else "no policy unit is loaded\n"
    return "\n".join(lines) + f"\n\n{table}\n" + "\n".join(shown) + "\n"


def _clusters(options: argparse.Namespace) -> Shown:
    """List the clusters that are looked after, or take one over.

    list: the clusters that the daemon on this machine looks after, and whether it stands by for
    another.

    take: have it drive a cluster from now on, instead of that other daemon. Stop the other one
    first. If it still runs, it stands by when it sees the first migration of this one.

    Only root and the daemon's own user may ask.

    examples:
      clusters list
      clusters take Default
      clusters list -o json
    """
    if (options.action == "take") != (options.cluster is not None):
        raise BadUsage("take needs the name of a cluster, and list has none")
    if options.action == "list":
        clusters = explanation.cleaned(ask(arguments.state(), "status"))["clusters"]
        rows = [
            (
                cluster["name"], cluster["drive"],
                times.shown(cluster["last_look"]) if "last_look" in cluster else "none yet",
                status.cluster_state(cluster)[0],
            )
            for cluster in clusters
        ]  # fmt: skip
        text = tables.table(_CLUSTERS, rows) or "no cluster is looked after (drive = off)\n"
        return Shown(text, clusters)
    answer = ask(arguments.state(), "take", cluster=options.cluster)
    former = explanation.cleaned(answer["driven_by"])
    before = f"; {former} did before" if former else ""
    return Shown(f"this daemon drives the cluster {options.cluster} from now on{before}\n", answer)


def _plan(options: argparse.Namespace) -> Shown:
    """List, show, approve or refuse what the daemon would migrate.

    list: the plans of the clusters that the daemon looks after, the newest first.

    show: each migration of one, and why.

    approve: carry out a waiting plan (drive = approve). If the cluster has left it behind, the plan
    is not carried out, and the reason is shown.

    refuse: end a waiting plan; its migrations are not planned again within the hour.

    Only root and the daemon's own user may ask; the history keeps who approved or refused
    (decisions --events).

    examples:
      plan list
      plan show 5e0c11a7
      plan approve 5e0c11a7
    """
    action, listed = options.action, options.action == "list"
    if listed != (options.plan is None):
        raise BadUsage(f"plan {action} takes {'no id' if listed else 'the id of a plan'}")
    answer = ask(arguments.state(), "plan", action=action, plan=options.plan)
    for plan in answer if listed else [answer]:
        plan["time"] = times.moment(plan["time"])
    cleaned = explanation.cleaned(answer)
    if listed:
        rows = [
            (plan["plan"], plan["cluster"], times.shown(plan["time"]), plan["state"], plan["count"])
            for plan in cleaned
        ]
        text = tables.table(_PLANS, rows) or "there are no plans\n"
        return Shown(text, answer, names=[plan["plan"] for plan in cleaned])
    well = action != "approve" or cleaned["state"] in ("made", "approved")
    return Shown(_plan_text(cleaned), answer, well, [cleaned["plan"]])


def _plan_text(plan: Mapping[str, Any]) -> str:
    why = f": {plan['because']}" if "because" in plan else ""
    about = f"plan {plan['plan']} of cluster {plan['cluster']}, {times.shown(plan['time'])}"
    lines = [f"{about}: {plan['state']}{why}"]
    if "by" in plan:
        decision = "refused" if plan["state"] == REFUSED else "approved"
        lines.append(f"{decision} by {plan['by']}")
    if "imbalance" in plan:
        lines.append(f"imbalance {plan['imbalance']} %")
    lines += [f"  {migration}" for migration in plan["migrations"]]
    return "\n".join(lines) + "\n"
