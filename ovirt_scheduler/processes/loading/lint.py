"""Finds Python 2 and undefined names in plugins' files, for ``check``; runs nothing of them.

Runs as a program of its own, since a file may be made to crash whoever parses it. It gets paths as
JSON on its standard input, and prints ``[[path, line, message], …]``.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pyflakes import checker, messages

from ovirt_scheduler.model.plugins import Source
from ovirt_scheduler.processes.loading import modules, python2
from ovirt_scheduler.processes.loading.python2 import Remark

_CAUGHT = re.compile(r"except\s.+,\s*(\w+)\s*:")
_MOST_ERRORS = 200  # syntax errors in one file; each takes a parse


def main() -> None:
    """Print what is wrong in the files whose paths are on standard input."""
    rows = [
        (path, line, message)
        for path in json.load(sys.stdin)
        for line, message in remarks(_read(path), path)
    ]
    json.dump(rows, sys.stdout)


def remarks(text: bytes, path: str) -> list[Remark]:
    """List what is wrong in a file, by line, also behind lines that cannot be parsed."""
    problems, text = _without_errors(text, path)
    try:
        tree = ast.parse(text, path)
        problems += python2.prints(tree, text)
        own = {file.stem for file in Path(path).parent.glob("*.py")}
        for name, line in modules.imported(Source(Path(path).stem, path, text)):
            absence = "" if "." in name or name in own else python2.absence(name)
            if absence and importlib.util.find_spec(name) is None:
                problems.append((line, f"{name} is {absence}"))
        problems += python2.comparisons(tree)
        problems += _unknown(tree, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass  # loading it has reported that
    return sorted(set(problems))


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
        return file.read(1 << 20)
    return b""  # loading it has reported that


def _without_errors(text: bytes, path: str) -> tuple[list[Remark], bytes]:
    """Remarks on the lines of Python 2 that cannot be parsed, and the text with them replaced."""
    statements: list[Remark] = []
    # Python 2 read a tab as spaces up to the next multiple of eight.
    lines = text.decode("utf-8", "replace").expandtabs().splitlines(keepends=True)
    for _ in range(_MOST_ERRORS):
        try:
            ast.parse("".join(lines), path)
        except SyntaxError as error:
            number = error.lineno or 0
            if not 0 < number <= len(lines) or number in dict(statements):
                break
            line = lines[number - 1]
            if not python2.is_statement(line, error.msg):
                break
            remark = f"this line is Python 2: {line.strip()!r:.80}; {python2.PORT}"
            statements.append((number, remark))
            indent = line[: len(line) - len(line.lstrip())]
            lines[number - 1] = f"{indent}{_instead(line.strip())}\n"
        except (ValueError, RecursionError, MemoryError):
            break
        else:
            break
    return statements, "".join(lines).encode("utf-8")


def _instead(line: str) -> str:
    if not line.endswith(":"):
        return "pass"
    caught = _CAUGHT.fullmatch(line)
    return f"except Exception as {caught[1]}:" if caught else "if True:"


def _unknown(tree: ast.Module, path: str) -> Iterator[Remark]:
    for message in checker.Checker(tree, path).messages:
        if isinstance(message, messages.UndefinedName):
            (name,) = message.message_args
            if name in python2.NAMES:
                yield message.lineno, f"{name} is Python 2; {python2.PORT}"
            else:
                yield message.lineno, f"nothing defines {name}; define or import it"
