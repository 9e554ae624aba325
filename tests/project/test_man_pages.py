"""The manual pages: made from what the program says, and such that man shows them."""

from __future__ import annotations

import importlib
import os
import re
import shutil

import pytest

from ovirt_scheduler.command import cli
from ovirt_scheduler.settings.table import CLUSTER, PLUGIN, SCHEDULER
from tests.support.command import executed
from tests.support.paths import PROJECT

PAGES = sorted((PROJECT / "docs" / "man").iterdir())
SHOWN = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MAN_KEEP_FORMATTING": ""}


@pytest.fixture
def made(monkeypatch):
    """What docs/generate.py writes, by file."""
    monkeypatch.syspath_prepend(str(PROJECT / "docs"))
    return importlib.import_module("generate").files()


def run(*command: str) -> str:
    """What a tool shows; a warning of it is an error."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not here")
    ended = executed(*command, env=SHOWN)
    assert (ended.returncode, ended.stderr) == (0, "")
    return re.sub(r".\x08", "", ended.stdout)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_say_what_the_program_says(made, page):
    """They are made anew with a change of the command line or of the table of settings."""
    assert page.read_text("utf-8") == made[page], f"run `python docs/generate.py`: {page.name}"


def test_there_are_two_pages():
    """Commands and settings."""
    assert [page.name for page in PAGES] == ["ovirt-scheduler.1", "ovirt-scheduler.conf.5"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize(
    "tool",
    [
        ("groff", "-man", "-ww", "-z", "-Tutf8"),
        ("man", "--warnings", "-l"),
        ("mandoc", "-T", "lint", "-W", "error"),
    ],
    ids=lambda tool: tool[0],
)
def test_no_tool_finds_fault_with_a_page(page, tool):
    """Those that are here."""
    assert page.read_text("utf-8").isascii()
    run(*tool, str(page))


def test_every_command_option_and_exit_status_is_in_the_page():
    """As man shows it."""
    shown = run("man", "-l", str(PAGES[0]))
    top = cli.parser()
    (commands,) = [each for each in top._actions if isinstance(each.choices, dict)]
    for name, command in commands.choices.items():
        _, found, rest = shown.partition(f"\n   ovirt-scheduler {name}\n")
        assert found, name
        section = re.split(r"\n   \S|\n\S", rest)[0]
        for action in command._actions:
            if "-h" not in action.option_strings:
                assert (action.option_strings or [str(action.metavar or "{")])[-1] in section
        assert f"ovirt-scheduler {name}" in section.partition("Examples:")[2]
    statuses = re.findall(r"^  (\d+) ", top.epilog.partition("exit status:")[2], re.MULTILINE)
    told = shown.partition("\nEXIT STATUS\n")[2].partition("\nSIGNALS\n")[0]
    assert re.findall(r"^ +(\d+)  ", told, re.MULTILINE) == statuses


def test_every_setting_is_in_the_page():
    """With what is allowed, and the default."""
    shown = " ".join(run("man", "-l", str(PAGES[1])).split())
    for key in SCHEDULER + CLUSTER + PLUGIN:
        told = f"{key.name} {key.help} Allowed: {key.allowed}. Default: {key.default or key.unset}."
        assert told in shown


def test_a_text_cannot_become_a_request_of_roff(made):
    """A point at the beginning of a line, and a backslash, are shown as they are."""
    pages = importlib.import_module("man_pages")
    assert pages._roff(".SH x") == r"\&.SH x"
    assert pages._roff(r"'\d-1'") == r"\&'\ed\-1'"
