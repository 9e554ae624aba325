"""``ovirt-scheduler serve``: the daemon."""

from __future__ import annotations

import argparse

from ovirt_scheduler.command import arguments
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import lifecycle


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    arguments.add_command(to, "serve", _run, output=(), settings=("config", "plugins"))


def _run(options: argparse.Namespace) -> Shown:
    """Run the daemon until SIGTERM or Ctrl-C.

    Serve XML-RPC calls until SIGTERM or Ctrl-C. Prints 'listening on URL' to standard error when it
    is ready. On SIGHUP it reads settings, certificates and plugins again.

    examples:
      serve
      serve --plugins plugins
    """
    lifecycle.serve(lambda: arguments.settings(options, for_daemon=True))
    return Shown()
