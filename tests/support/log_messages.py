"""Every message that the package logs, as its code has it, and texts that could forge one."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.paths import PROJECT

MANUAL = (PROJECT / "docs" / "operations.md").read_text("utf-8")


def rows(head: str) -> list:
    """The cells of the manual's table with that head."""
    _, _, rest = MANUAL.partition(f"{head}\n")
    assert rest, f"docs/operations.md has no table {head}"
    table = itertools.takewhile(lambda line: line.startswith("|"), rest.splitlines()[1:])
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in table]


HOSTILE = {
    "a line of the log": "x\n2026-01-01 00:00:00.000+00:00 ERROR   forged",
    "a carriage return": "x\r2026-01-01 00:00:00.000+00:00 ERROR   forged",
    "a terminal escape": "x\x1b[2J\x1b]0;title\x07\x9b31m",
    "a line separator": "x\u2028y\x85z",
    "text that runs backwards": "x\u202etxet",
    "a lone surrogate": "x\udc80y",
    "a zero": "x\0y",
    "an end of JSON": 'x"}\n{"level":"error"',
    "an entry of the journal": "x\nMESSAGE=forged\n\nPRIORITY=0\n",
    "a format": "%(pid)d %s {} ${jndi}",
}

LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error",
          "exception": "error", "_warning": "warning"}  # fmt: skip
PLACEHOLDER = re.compile(r"%\((\w+)\)[.0-9]*[sdfg]")


class Message(NamedTuple):
    place: str
    level: str
    text: str
    fields: object  # the node of the argument, or None


@functools.lru_cache
def messages() -> tuple[Message, ...]:
    """Every message that the package logs, as it stands in the code."""
    return tuple(_messages())


def _messages() -> Iterator[Message]:
    for path in sorted((PROJECT / "ovirt_scheduler").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            of = node.func.value
            if not isinstance(of, ast.Name) or node.func.attr not in LEVELS:
                continue
            its_own = (path.stem, of.id, node.func.attr) == ("handlers", "self", "_warning")
            if of.id in ("_log", "logger") or its_own:
                text, *rest = node.args
                assert isinstance(text, ast.Constant), f"{path.name}:{node.lineno}: no constant"
                assert len(rest) <= 1, f"{path.name}:{node.lineno}: one argument, the fields"
                place = f"{path.name}:{node.lineno}"
                yield Message(place, LEVELS[node.func.attr], text.value, rest[0] if rest else None)


def shown(text: str) -> str:
    """A message as the manual writes it: its fields in capitals."""
    return PLACEHOLDER.sub(lambda found: found.group(1).upper(), text)
