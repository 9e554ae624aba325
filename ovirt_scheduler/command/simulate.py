"""``ovirt-scheduler snapshot``: a cluster of the engine, in a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ovirt_scheduler.command import arguments
from ovirt_scheduler.errors import BadUsage
from ovirt_scheduler.workbench import snapshot


def add(to: arguments.Add) -> None:
    """Add ``snapshot`` to the command line."""
    command = arguments.add_command(
        to, "snapshot", _snapshot, "save a cluster of the engine in a file",
        "Save the hosts and VMs of a cluster, with their statistics and tags, as the engine of\n"
        "[engine] tells of them now. What a VM's initialization and payloads hold is left out, as\n"
        "there may be passwords in it. The file is XML; a name that ends in .gz has it packed.",
        "snapshot Default -f cluster.xml", "snapshot Default -f cluster.xml.gz",
        output=(), settings=("config",),
    )  # fmt: skip
    command.add_argument("cluster", metavar="CLUSTER", help="its name")
    command.add_argument(
        "-f", "--file", metavar="FILE", type=Path, required=True,
        help="where to; a former file is overwritten",
    )  # fmt: skip


def _snapshot(options: argparse.Namespace) -> int:
    engine = arguments.settings(options).engine
    if engine is None:
        raise BadUsage("there is no section [engine] in the settings: it says which engine to ask")
    taken = snapshot.take(engine, options.cluster, _tell)
    _tell("")
    taken.write(options.file)
    sys.stdout.write(
        f"{options.file}: {len(taken.hosts)} hosts and {len(taken.vms)} VMs of {taken.cluster}, "
        f"{taken.taken}\n"
    )
    return 0


def _tell(progress: str) -> None:
    """Show how far it is, on a terminal alone, in the place of what was shown before."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{progress}")
        sys.stderr.flush()
