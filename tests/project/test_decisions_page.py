"""Every command of docs/decisions.md, run in its order, shows what the page shows."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.command import of_page
from tests.support.paths import PROJECT

PAGE = PROJECT / "docs" / "decisions.md"
BLOCK = re.compile(r"^```sh\n((?:.*\n)*?)```\n\n((?:(?: {4}.*)?\n)*)", re.MULTILINE)
CALL = re.compile(r"ovirt-scheduler (?:filter|score|balance|select) .*")
LIST = re.compile(r"ovirt-scheduler decisions (?!.* -o )")
VARIES = {
    r"\b[0-9a-f]{16}\b": "ID",
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+Z)?": "TIME",
    r"\d+\.\d+ ms": "MILLISECONDS",
    r'("milliseconds":)\d+\.\d+': r"\1 MILLISECONDS",
    r"127\.0\.0\.1:\d+": "CALLER",
    r"sha256:[0-9a-f]{64}": "CHECKSUM",
}


class Block(NamedTuple):
    command: str
    shown: str


def blocks() -> Iterator[Block]:
    for command, shown in BLOCK.findall(PAGE.read_text("utf-8")):
        yield Block(command, textwrap.dedent(shown).strip("\n"))


def as_in_the_page(text: str) -> str:
    """Without what is another each time."""
    for varies, word in VARIES.items():
        text = re.sub(varies, word, text)
    return text.strip("\n")


@pytest.fixture(scope="module")
def reader(start_daemon, tmp_path_factory):
    """A reader's folder and the daemon that the page asks, with the samples."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(PROJECT / "demo", folder / "demo")
    return folder, start_daemon(PROJECT / "plugins", "pages = loopback")


def run(command: str, folder, daemon) -> str:
    command = CALL.sub(rf"\g<0> -o table --url {daemon.url}", command)
    command = LIST.sub(r"\g<0>-o table ", command)
    shown = ""
    for status, out, err in of_page(command, folder, daemon.state):
        assert status == 0, err
        shown += out
    return shown


def test_every_command_shows_what_the_page_shows(reader):
    """But for ids, times, ports and checksums; a command with nothing below it works."""
    found = list(blocks())
    assert len([block for block in found if block.shown]) > 6
    for block in found:
        told = as_in_the_page(run(block.command, *reader))
        assert told == as_in_the_page(block.shown) or not block.shown, block
