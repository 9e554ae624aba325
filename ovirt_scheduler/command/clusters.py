"""``ovirt-scheduler clusters``: who drives the clusters of scheduler.conf, and takes one over."""

from __future__ import annotations

import argparse
import time
from typing import Any

from ovirt_scheduler.command import arguments, tables
from ovirt_scheduler.command.status import ask
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadUsage
from ovirt_scheduler.history import explanation
from ovirt_scheduler.server.pages import status

_HEADINGS = ("CLUSTER", "DRIVE", "LAST LOOK", "STATE")


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(to, "clusters", _run)
    command.add_argument("action", choices=("list", "take"))
    command.add_argument("cluster", metavar="NAME", nargs="?", help="of take: the cluster")


def _run(options: argparse.Namespace) -> Shown:
    """Who drives the clusters, and have this daemon take one over.

    list: the clusters that the daemon on this machine looks after, and whether it stands by for
    another.
    take: have it drive a cluster from now on, in place of that other daemon. Stop the other one
    first. If it still runs, it stands by when it sees the first migration of this one.
    Root may ask, and the daemon's own user.

    examples:
      clusters list
      clusters take Default
      clusters list -o json
    """
    if (options.action == "take") != (options.cluster is not None):
        raise BadUsage("take needs the name of a cluster, and list has none")
    if options.action == "list":
        answer = explanation.cleaned(ask(arguments.state(), "status"))
        return _listed(answer["clusters"])
    answer = ask(arguments.state(), "take", cluster=options.cluster)
    former = explanation.cleaned(answer["driven_by"])
    before = f"; {former} did before" if former else ""
    return Shown(f"this daemon drives the cluster {options.cluster} from now on{before}\n", answer)


def _listed(clusters: Any) -> Shown:
    rows = [
        (
            each["name"],
            each["drive"],
            status.shown(each["last_look"], time.time()) if "last_look" in each else "none yet",
            status.cluster_state(each),
        )
        for each in clusters
    ]
    text = tables.table(_HEADINGS, rows) if rows else "no cluster is looked after (drive = off)\n"
    return Shown(text, clusters)
