"""``ovirt-scheduler new``: a plugin to start from, with its conf file and tests that pass."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import shlex
import string
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ovirt_scheduler.command import arguments
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadUsage, NotOverwritten
from ovirt_scheduler.model.units import LONGEST_NAME


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(to, "new", _run, output=(), settings=())
    command.add_argument("name", metavar="NAME", help="of the plugin, and so of its units")
    options = {f"--{name}": f"with {part}" for name, part in PARTS.items()}
    arguments.add_options(command, {**options, "--folder DIR": "where to (default: here)"})
    command.set_defaults(folder=Path())


def _run(options: argparse.Namespace) -> Shown:
    """Write a plugin to start from.

    Write a plugin, its conf file and tests that pass. Nothing is overwritten.

    examples:
      new Quiet --filter --score
      new Quiet --balance --folder plugins
      new Night --scheduler
      new Backups --driver
    """
    parts = [part for part in PARTS if getattr(options, part)]
    if not parts:
        there = ", ".join(f"--{part}" for part in PARTS)
        raise BadUsage(f"say what it is to be: {there}")
    plugin, conf, test = write(options.folder, options.name, parts)
    missing = "" if importlib.util.find_spec("pytest") else " (after: pip install pytest)"
    tried_with = (
        "--call shares 'amounts={\"web\": 1}'" if parts == ["driver"]
        else "--cluster cluster.xml.gz\n"
        "(which has your cluster after: ovirt-scheduler snapshot CLUSTER -f cluster.xml.gz)"
    )  # fmt: skip
    return Shown(
        f"{plugin}\n{conf}\n{test}\n"
        f"next: {shlex.join(['python3', '-m', 'pytest', str(test)])}{missing}, or "
        f"{shlex.join(['ovirt-scheduler', 'try', str(plugin)])} {tried_with};\n"
        f"then put {plugin.name} into plugins_path, {conf.name} into plugins_conf_path\n"
    )


# What a plugin may have, by the name of the option. Code and test of each are templates.
PARTS = {
    "filter": "a do_filter",
    "score": "a do_score",
    "balance": "a do_balance",
    "scheduler": "a whole scheduler",
    "driver": "a driver, which publishes a method on a topic",
}
# What some of them import from ``ovirt_scheduler.plugin``.
_IMPORTED = {"balance": "engine_connection", "scheduler": "Scheduler", "driver": "Driver"}

_TEMPLATES = Path(__file__).resolve().parent / "plugin_templates"


def write(folder: Path, name: str, parts: Collection[str]) -> tuple[Path, ...]:
    """Write NAME.py, NAME.conf and tests/test_NAME.py; all of them or none.

    The test is in a folder of its own: the daemon would load it as a plugin beside plugins.

    Args:
        parts: keys of ``PARTS``, at least one.

    Returns:
        The three files.

    Raises:
        BadUsage: the name cannot be a plugin's.
        NotOverwritten: one of them is there, or cannot be written.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise BadUsage(
            f"{name!r} cannot be a plugin's name: begin with a letter, then letters, digits and _; "
            "no keyword of Python"
        )
    if len(name) > LONGEST_NAME:
        raise BadUsage(f"a name of {len(name)} characters; the engine takes {LONGEST_NAME}")
    chosen = [part for part in PARTS if part in parts]
    uses_hosts = chosen != ["driver"]  # and the property of the conf file
    imports = ", ".join(sorted(_IMPORTED[part] for part in chosen if part in _IMPORTED))
    words = {
        "name": name,
        # A file's drivers need names of their own.
        "driver": f"{name}Topic" if "scheduler" in parts else name,
        "topic": name.lower(),
        "imports": f"\n\nfrom ovirt_scheduler.plugin import {imports}" if imports else "",
    }
    code = ["plugin", *["running"] * uses_hosts, *chosen]
    tests = ["test", *(f"test_{part}" for part in chosen)]
    confs = [*["properties"] * uses_hosts, "plugin", *["filter"] * ("filter" in parts)]
    files = {
        folder / f"{name}.py": _filled(words, "py", code),
        folder / f"{name}.conf": _filled(words, "conf", confs),
        folder / "tests" / f"test_{name}.py": _filled(words, "py", tests),
    }
    _write(files)
    return tuple(files)


def _filled(words: Mapping[str, str], suffix: str, templates: Sequence[str]) -> str:
    """The text of templates, one after another, with words in the places of their names."""
    texts = ((_TEMPLATES / f"{each}.{suffix}-tpl").read_text("utf-8") for each in templates)
    return string.Template("".join(texts)).substitute(words)


def _write(files: dict[Path, str]) -> None:
    written: list[Path] = []
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
        except OSError as error:
            for created in written:
                created.unlink()
            raise NotOverwritten(
                f"{path}: cannot be written: {error.strerror}; choose another name or --folder"
            ) from None
