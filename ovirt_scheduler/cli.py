"""The command line."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Optional, Sequence

from ovirt_scheduler import __version__, check, config, daemon
from ovirt_scheduler.config import Settings
from ovirt_scheduler.errors import ConfigError, ExecutorUnavailable


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run a command.

    Returns:
        The exit status: 0 done, 1 something is wrong with what was checked, 2 wrong usage,
        70 no plugin process can be started, 78 wrong configuration (sysexits.h, which systemd
        knows).
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
    daemon.serve(_settings(options))
    return 0


def _check(options: argparse.Namespace) -> int:
    return 0 if check.check(_settings(options)) else 1


def _settings(options: argparse.Namespace) -> Settings:
    settings = config.load(options.config, os.environ)
    if options.plugins:
        folders = tuple(Path(folder).absolute() for folder in options.plugins.split(":") if folder)
        settings = replace(settings, plugins_path=folders, plugins_path_optional=frozenset())
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ovirt-scheduler",
        description="Calls policy units written in Python when oVirt places or balances VMs.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help=f"settings (default: {config.DEFAULT_FILE}, which may be missing)",
    )
    where.add_argument(
        "--plugins",
        metavar="PATH",
        help="folders of plugins, ':' between them, instead of plugins_path in the settings",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    serving = commands.add_parser(
        "serve",
        parents=[where],
        help="run the daemon until SIGTERM or Ctrl-C",
        description="Serve XML-RPC calls until SIGTERM or Ctrl-C. Prints 'listening on URL' to "
        "standard error when it is ready.",
    )
    serving.set_defaults(run=_serve)
    checking = commands.add_parser(
        "check",
        parents=[where],
        help="tell what the settings and the plugins come to",
        description="Check the settings, load every plugin as the daemon does, and list the "
        "policy units; then what cannot be loaded, with file, line and what to do. Exit status "
        "1 when there is any, 78 when the settings are wrong.",
    )
    checking.set_defaults(run=_check)
    return parser
