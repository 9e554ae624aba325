"""``ovirt-scheduler completion``, and the answers to a shell that completes a line."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from ovirt_scheduler.command import arguments
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadUsage


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(to, "completion", _run, output=(), settings=())
    command.add_argument("shell", choices=("bash", "zsh"))


def _run(options: argparse.Namespace) -> Shown:
    """Print what lets a shell complete the line.

    For ~/.bashrc or ~/.zshrc where no package has put it in place already:
    eval "$(ovirt-scheduler completion bash)"

    examples:
      completion bash
      completion zsh
    """
    code = library().shellcode(["ovirt-scheduler"])
    # Versions of argcomplete before 3 know zsh by its imitation of bash alone.
    before = "autoload -U +X bashcompinit && bashcompinit\n" if options.shell == "zsh" else ""
    return Shown(f"{before}{code}\n")


def library() -> Any:
    """argcomplete, which is loaded when a shell needs it, and never by the daemon.

    Raises:
        BadUsage: it is not installed.
    """
    try:
        return importlib.import_module("argcomplete")
    except ImportError:
        raise BadUsage(f"completion needs argcomplete: install it for {sys.executable}") from None
