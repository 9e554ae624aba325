"""The messages that the package logs, and the page that says what each of them means."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PACKAGE = Path(__file__).resolve().parents[1] / "ovirt_scheduler"
_LOGGERS = ("_log", "logger")
_LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error",
           "exception": "error", "_warning": "warning"}  # fmt: skip
_SHOWN = ("error", "warning", "info")
_BUG = "this is a bug"  # the page says once what to do about these
PLACEHOLDER = re.compile(r"%\((\w+)\)[.0-9]*[sdfg]")
_MARK = "<!-- tables of messages -->\n"


class Message(NamedTuple):
    """A message as it stands in the code."""

    room: str
    place: str
    level: str
    text: str
    arguments: list[ast.expr]

    @property
    def shown(self) -> str:
        """As the manual writes it: its fields in capitals."""
        return PLACEHOLDER.sub(lambda field: field.group(1).upper(), self.text)


def messages() -> Iterator[Message]:
    """Every message that the package logs."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        room = path.relative_to(_PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and _logs(node.func, path.stem):
                text, *arguments = node.args
                place = f"{path.name}:{node.lineno}"
                level = _LEVELS[node.func.attr]
                yield Message(room, place, level, ast.literal_eval(text), arguments)


def _logs(called: ast.expr, module: str) -> bool:
    """Whether that is a method of a logger, or the one of the handler that cannot use a logger."""
    if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name):
        return False
    method = called.value.id, called.attr
    if module == "handlers" and method == ("self", "_warning"):
        return True
    return called.value.id in _LOGGERS and called.attr in _LEVELS


def explanations(page: str) -> dict[tuple[str, str], tuple[str, str]]:
    """What the page says: level and message to meaning and advice."""
    table = [[cell.strip() for cell in line[1:-1].split("|")] for line in page.splitlines()]
    rows = [cells for cells in table if cells[0] in _SHOWN]
    return {(level, text.strip("`")): (means, advice) for level, text, means, advice in rows}


def page(former: str) -> str:
    """``docs/messages.md`` with its tables made anew from the code.

    The code has level and words of each message; meaning and advice are written into the page, and
    stay there as long as the message does.
    """
    explained = explanations(former)
    rooms: dict[str, set[tuple[str, str]]] = {}
    for message in messages():
        if message.level in _SHOWN and _BUG not in message.text:
            rooms.setdefault(message.room, set()).add((message.level, message.shown))
    text = former.partition(_MARK)[0] + _MARK
    for room, logged in sorted(rooms.items()):
        text += f"\n## ovirt_scheduler.{room}\n\n"
        text += "| level | message | meaning | what to do |\n|---|---|---|---|\n"
        for level, shown in sorted(logged, key=lambda each: (_SHOWN.index(each[0]), each[1])):
            cells = (level, f"`{shown}`", *explained.get((level, shown), ("", "")))
            text += "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"
    return text
