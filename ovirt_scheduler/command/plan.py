"""``ovirt-scheduler plan``: what the daemon would migrate, for somebody to approve or refuse."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from ovirt_scheduler.command import arguments, tables
from ovirt_scheduler.command.status import ask
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadUsage
from ovirt_scheduler.history import explanation
from ovirt_scheduler.model.plans import REFUSED
from ovirt_scheduler.server.pages import status

_LOGIN = Path("/proc/self/loginuid")  # proc(5); sudo and su leave it as it is
_NOBODY = 2**32 - 1  # logged in: what runs was started by the system

_HEADINGS = ("PLAN", "CLUSTER", "MADE", "STATE", "MIGRATIONS")


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(to, "plan", _run, output=("table", "json", "names"))
    command.add_argument("action", choices=("list", "show", "approve", "refuse"))
    command.add_argument("plan", nargs="?", help="its id; list needs none")


def _run(options: argparse.Namespace) -> Shown:
    """List, show, approve or refuse what the daemon would migrate.

    list: the plans of the clusters that the daemon looks after, the newest first.
    show: each migration of one, and why.
    approve: have a plan made that waits (drive = approve). If the cluster has left it behind, it is
    not made, and the reason is shown.
    refuse: have it not made, nor its migrations planned again within the hour.
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
    answer = ask(arguments.state(), "plan", action=action, plan=options.plan, login=login())
    for each in answer if listed else [answer]:
        each["time"] = status.moment(each["time"])
    found = explanation.cleaned(answer)
    if listed:
        rows = [
            (each["plan"], each["cluster"], _made(each), each["state"], each["count"])
            for each in found
        ]
        text = tables.table(_HEADINGS, rows) or "there are no plans\n"
        return Shown(text, answer, names=[each["plan"] for each in found])
    well = action != "approve" or found["state"] in ("made", "approved")
    return Shown(_text(found), answer, well, [found["plan"]])


def login() -> Optional[int]:
    """The number of the user who logged in, whoever they have become since; None: not known."""
    try:
        number = int(_LOGIN.read_text("ascii"))
    except (OSError, ValueError):  # a kernel that keeps none
        return None
    return number if number < _NOBODY else None


def _text(plan: Mapping[str, Any]) -> str:
    why = f": {plan['because']}" if "because" in plan else ""
    about = f"plan {plan['plan']} of cluster {plan['cluster']}, {_made(plan)}"
    lines = [f"{about}: {plan['state']}{why}"]
    if "by" in plan:
        decision = "refused" if plan["state"] == REFUSED else "approved"
        lines.append(f"{decision} by {plan['by']}")
    if "imbalance" in plan:
        lines.append(f"imbalance {plan['imbalance']} %")
    lines += [f"  {migration}" for migration in plan["migrations"]]
    return "\n".join(lines) + "\n"


def _made(plan: Mapping[str, Any]) -> str:
    return status.shown(plan["time"], time.time())
