"""What the commands share: their parser, options that many have, and how these are read."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import json
import os
import signal
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, NoReturn, Optional

from ovirt_scheduler.command import tables
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import (
    BadInput,
    BadUsage,
    ConfigError,
    NotOverwritten,
    NotPermitted,
    OutputUnwritten,
)
from ovirt_scheduler.history import store
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.settings.table import Settings

STATUSES = """\
exit status:
  0   done, and all is well
  1   something is wrong with what was checked or tried, the daemon refused
      the call, something of setup is left to you, or the output could not be
      written
  2   wrong usage: a mistake on the command line, also in a setting that an
      option changes
  66  a file that was named cannot be read
  69  no daemon answers, or none whose certificate is trusted
  70  no process for plugins can be started
  73  a file is there already, or cannot be written
  75  the port is taken, or the address to listen on is not there yet: try
      again
  77  only root can do this
  78  scheduler.conf or a certificate is wrong, or lacks what the command needs
  130 ended by Ctrl-C
"""

Add = Callable[..., argparse.ArgumentParser]  # adds a command's parser
_TYPES: Mapping[str, Callable[[str], object]] = {"FILE": Path, "DIR": Path, "NUMBER": int}


class Parser(argparse.ArgumentParser):
    """A parser whose messages on mistakes end with where the help is."""

    def error(self, message: str) -> NoReturn:
        """Show the usage and the message, and exit with 2."""
        super().error(f"{message}\n{self.prog} --help shows how it is used")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help as any output of a command: argparse does not say that it cannot."""
        if file is sys.stdout:
            write(message)
        else:
            super()._print_message(message, file)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fills the paragraphs of a help to the terminal's width, and keeps lists as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:  # noqa: ARG002
        paragraphs = text.strip("\n").split("\n\n")
        return "\n\n".join(
            text if text.startswith(" ") or "\n  " in text else textwrap.fill(text, width)
            for text in paragraphs
        )


class Intermixed(Parser):
    """A parser that takes options anywhere among a command's words."""

    _within = False

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse options and words in any order."""
        if self._within:  # older argparse comes back here, for the options and for the words
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False


def add_command(
    add: Add,
    name: str,
    run: Callable[[argparse.Namespace], Shown],
    about: str = "",
    output: Sequence[str] = ("table", "json"),
    settings: Collection[str] = ("config",),
) -> argparse.ArgumentParser:
    """Add a command, with the options that many have: ``--config``, ``--plugins`` and ``-o``.

    Args:
        run: runs the command, and returns what to show. The first line of its docstring is the help
            in the list of commands; the rest, which ends with examples, is the command's own help.
        about: replaces the docstring, if several commands share ``run``.
        output: the values of ``-o``, of which ``table`` is the default; without any there is no
            such option.
    """
    text, _, examples = inspect.cleandoc(about or run.__doc__ or "").partition("\n\nexamples:\n")
    brief, _, description = text.partition("\n\n")
    shown = "".join(f"  ovirt-scheduler {example.strip()}\n" for example in examples.splitlines())
    command = add(
        name,
        help=f"{brief[:1].lower()}{brief[1:]}".rstrip("."),
        description=description,
        epilog=f"examples:\n{shown}\n{STATUSES}",
        formatter_class=HelpFormatter,
    )
    command.set_defaults(run=run, parser=command, output="table")
    if "config" in settings:
        help_text = f"settings (default: {scheduler_conf.DEFAULT_FILE}, which may be missing)"
        add_options(command, {"--config FILE": help_text})
    if "plugins" in settings:
        add_options(command, {
            "--plugins PATH": "folders of plugins, ':' between them, instead of plugins_path in "
            "the settings; a NAME.conf beside NAME.py counts before one in plugins_conf_path",
        })  # fmt: skip
    if output:
        command.add_argument(
            "-o", "--output", choices=output, help="how to show it (default: table)"
        )
    return command


def add_options(command: argparse._ActionsContainer, options: Mapping[str, str]) -> None:
    """Add options, by what the help shows of each: ``--limit NUMBER`` and its text.

    A NUMBER is an integer, a FILE or DIR a path. What has an ``=`` may be given several times.
    An option without a value is a flag.
    """
    for shown, text in options.items():
        name, _, metavar = shown.partition(" ")
        if not metavar:
            command.add_argument(name, action="store_true", help=text)
        elif "=" in metavar:
            command.add_argument(name, metavar=metavar, action="append", default=[], help=text)
        else:
            kind = _TYPES.get(metavar, str)
            command.add_argument(name, metavar=metavar, type=kind, help=text)


# Whom to trust when the daemon is called.
CA = {
    "--ca FILE": "certificate to trust (default: the daemon's own; name a copy if you may not "
    "read it)"
}
# Where to read: in the state folder, unless a daemon is asked.
URL = {"--url URL": "ask the daemon there, instead of reading the folder", **CA}


def show(shown: Shown, output: str) -> int:
    """Show it as ``-o`` says: ``table``, ``json``, ``jsonl`` or ``names``; return the exit status.

    Raises:
        OutputUnwritten, BrokenPipeError: as for ``write``.
    """
    if output == "names":
        write("".join(f"{printable(name)}\n" for name in shown.names))
        sys.stderr.writelines(f"problem: {printable(problem)}\n" for problem in shown.problems)
    elif output == "jsonl":
        write("".join(f"{json.dumps(each, separators=(',', ':'))}\n" for each in shown.fields))
    else:
        json_too = output == "json" and shown.fields is not None
        write(tables.document(shown.fields) if json_too else shown.text)
    return 128 + signal.SIGINT if shown.stopped else 0 if shown.well else 1


def write(text: str) -> None:
    """Write to standard output at once; after an error, what else is written is dropped.

    Raises:
        BrokenPipeError: nobody reads it any more.
        OutputUnwritten: it cannot be written, as on a full disk.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise OutputUnwritten(f"could not write the output: {error.strerror}") from None


def state() -> Path:
    """The state folder of the daemon on this machine."""
    return scheduler_conf.state_folder()


def history() -> Path:
    """The file of the history, which need not be there yet.

    Raises:
        NotPermitted: this user may not read it.
    """
    file = state() / store.FILE
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))  # it may be a pipe
    except PermissionError:
        raise NotPermitted(
            f"{file}: only root and the daemon's user may read it; run this with sudo"
        ) from None
    except OSError:  # the reader tells of it
        pass
    return file


def unwritable(path: Path) -> Optional[str]:
    """Why this user cannot write a file of that path; None if nothing is wrong."""
    if path.is_symlink():
        return "is a link; name the file that it leads to"
    if path.is_dir():
        return "is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    place = path if path.exists() else path.parent
    return None if os.access(place, os.W_OK) else f"{place} cannot be written by this user"


def expect_writable(path: Optional[Path]) -> None:
    """Check, before long work begins, that its result can be written to a file.

    Raises:
        NotOverwritten: it cannot.
    """
    problem = None if path is None else unwritable(path)
    if path is not None and not problem and path.is_file():  # it is replaced, and not written into
        problem = unwritable(path.parent / f".{path.name}.new")
    if problem:
        raise NotOverwritten(f"{path}: cannot be written: {problem}")


def settings(options: argparse.Namespace, for_daemon: bool = False) -> Settings:
    """Read scheduler.conf, or the file of ``--config``; ``--plugins`` replaces its plugins_path.

    With ``--plugins``, conf files beside the plugins count (contract 5.8).

    Raises:
        ConfigError: something in it is wrong.
        BadUsage, BadInput: ``--plugins`` names nothing, or what is no folder.
    """
    settings = scheduler_conf.load(options.config, os.environ, for_daemon)
    if getattr(options, "plugins", None) is not None:
        named = [folder for folder in options.plugins.split(":") if folder]
        if not named:
            raise BadUsage("--plugins names no folder; leave it out to have those of the settings")
        for folder in (
            named if not for_daemon else ()
        ):  # the daemon waits for a folder that is not there yet
            if not Path(folder).is_dir():
                raise BadInput(f"--plugins {folder}: there is no such folder")
        folders = tuple(Path(folder).absolute() for folder in named)
        settings = dataclasses.replace(
            settings, plugins_path=folders, plugins_path_optional=frozenset(), conf_beside=True
        )
    return settings


def no_engine(settings: Settings, hint: str) -> ConfigError:
    """That a command needs the section ``[engine]``, with the file that lacks it."""
    file = settings.file
    lacks = "has no section [engine]" if file and file.exists() else "is not there: no [engine]"
    return ConfigError(f"{file} {lacks}; --config FILE names other settings; {hint}")


@contextlib.contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """What shows the progress on a terminal, over the line before; at the end that line is gone."""

    def show(progress: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{progress}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        show("")
