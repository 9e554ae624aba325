"""``ovirt-scheduler setup``: make this machine ready for the daemon."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from ovirt_scheduler.command import arguments, check
from ovirt_scheduler.command.setup import engine, run
from ovirt_scheduler.command.setup.files import CONF
from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadInput, BadUsage, NotPermitted
from ovirt_scheduler.settings import config


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(to, "setup", _run, output=(), settings=())
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


def _run(options: argparse.Namespace) -> Shown:
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
