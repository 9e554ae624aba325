"""The command line."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Optional, Sequence

from ovirt_scheduler import __version__, config, daemon
from ovirt_scheduler.errors import ConfigError, ExecutorUnavailable


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run a command.

    Returns:
        The exit status: 0 done, 2 wrong usage, 70 no plugin process can be started,
        78 wrong configuration (sysexits.h, which systemd knows).
    """
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except ConfigError as error:
        return _fail(error, os.EX_CONFIG)
    except ExecutorUnavailable as error:
        return _fail(error, os.EX_SOFTWARE)


def _fail(error: Exception, status: int) -> int:
    print(f"ovirt-scheduler: {error}", file=sys.stderr)  # noqa: T201
    return status


def _serve(options: argparse.Namespace) -> int:
    settings = config.load(options.config, os.environ)
    if options.plugins:
        folders = tuple(Path(folder).absolute() for folder in options.plugins.split(":") if folder)
        settings = replace(settings, plugins_path=folders, plugins_path_optional=frozenset())
    daemon.serve(settings)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ovirt-scheduler",
        description="Calls policy units written in Python when oVirt places or balances VMs.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    serve = commands.add_parser(
        "serve",
        help="run the daemon until SIGTERM or Ctrl-C",
        description="Serve XML-RPC calls until SIGTERM or Ctrl-C. Prints 'listening on URL' to "
        "standard error when it is ready.",
    )
    serve.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help=f"settings (default: {config.DEFAULT_FILE}, which may be missing)",
    )
    serve.add_argument(
        "--plugins",
        metavar="PATH",
        help="folders of plugins, ':' between them, instead of plugins_path in the settings",
    )
    serve.set_defaults(run=_serve)
    return parser
