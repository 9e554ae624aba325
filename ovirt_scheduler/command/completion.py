"""What lets a shell complete the command line, by argcomplete.

It is loaded when a shell asks, and never by the daemon, which does without it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any, Callable, Mapping

from ovirt_scheduler.errors import BadUsage

SHELLS = ("bash", "zsh")


def answer(environ: Mapping[str, str], parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Tell the shell what may come next, and end, if a shell is who asks.

    Raises:
        BadUsage: argcomplete is not installed.
    """
    if "_ARGCOMPLETE" in environ:
        _argcomplete().autocomplete(parser())


def script(shell: str, program: str) -> str:
    """What the shell is to run before it can complete the program's command line.

    Raises:
        BadUsage: argcomplete is not installed.
    """
    # Versions of argcomplete before 3 know zsh by its imitation of bash alone.
    before = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return f"{before}{_argcomplete().shellcode([program])}\n"


def _argcomplete() -> Any:
    try:
        return importlib.import_module("argcomplete")
    except ImportError:
        raise BadUsage(f"completion needs argcomplete: install it for {sys.executable}") from None
