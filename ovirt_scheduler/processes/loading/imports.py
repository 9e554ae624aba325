"""Finds what a plugin's file may import, from its source, before anything of it runs."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from typing import Optional

from ovirt_scheduler.model.analysis import FileFault
from ovirt_scheduler.model.plugins import Candidate, Source

_IMPORTERS = {"import_module", "__import__"}

ANY = "*"  # no module can be named so


def refusal(candidate: Candidate) -> Optional[FileFault]:
    """Find the first import of a file that must not be run, in the plugin or its helpers."""
    if not candidate.refused:
        return None
    refused = dict(candidate.refused)
    sources = {source.name: source for source in (candidate.source, *candidate.neighbours)}
    names = [candidate.source.name]
    for name in names:  # grows while it runs
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):  # importing it tells
            for later, line in imported(sources[name]):
                if later in refused:
                    message = f"imports {later}, which is left out: {refused[later]}"
                    return FileFault(sources[name].path, line, message)
                if later in sources and later not in names:
                    names.append(later)
    return None


def imported(source: Source) -> Iterator[tuple[str, int]]:
    """Find the modules that a file may import, each after its packages, and the lines.

    ``ANY`` where it calls a function of Python's that imports with a name that only it knows.
    """
    package = source.name.split(".")
    if not source.path.endswith("/__init__.py"):
        package.pop()
    with_name = set()  # functions that are called with a name
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and named(node.func) in _IMPORTERS:
            argument = node.args[0] if node.args else None
            if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                continue
            with_name.add(node.func)
            names = [argument.value]
        elif named(node) in _IMPORTERS and node not in with_name:
            names = [ANY]
        else:
            continue
        for name in names:
            parts = name.split(".")
            for length in range(1, len(parts) + 1):
                yield ".".join(parts[:length]), getattr(node, "lineno", 1)


def named(node: ast.AST) -> Optional[str]:
    """The name that a node reads, of a variable or of an attribute; None for other nodes."""
    return getattr(node, "id", None) or getattr(node, "attr", None)
