"""Which engine data a plugin uses: found in its code, or stated by the plugin.

Runs in the process of an analysis.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from types import ModuleType

from ovirt_scheduler.model.plugins import Module
from ovirt_scheduler.processes.loading.drivers import Misdefined
from ovirt_scheduler.processes.loading.imports import named
from ovirt_scheduler.processes.loading.modules import VERSION_3

_SAYS_ITSELF = "uses_statistics"


def wants_connection(modules: Iterable[Module]) -> bool:
    """Whether the code names ``engine_connection``, or imports version 3 of the SDK."""
    return any(
        "engine_connection" in (named(node), getattr(node, "name", None)) or _is_version3(node)
        for node in _nodes(modules)
    )


def wants_statistics(plugin: ModuleType, modules: Iterable[Module]) -> bool:
    """Whether the code reads an attribute ``statistics``; ``uses_statistics`` overrides that.

    Args:
        plugin: the loaded file; what its ``uses_statistics`` says counts.
        modules: the file and the helpers that it imports.

    Raises:
        Misdefined: ``uses_statistics`` is neither True nor False.
    """
    said = getattr(plugin, _SAYS_ITSELF, None)
    if isinstance(said, bool):
        return said
    if said is not None:
        raise Misdefined(1, f"{_SAYS_ITSELF} is {said!r:.60}; set it to True or False")
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "statistics")
        or (isinstance(node, ast.Constant) and node.value == "statistics")
        for node in _nodes(modules)
    )


def _is_version3(node: ast.AST) -> bool:
    """Whether a node imports the SDK of version 3, or something of it."""
    name = getattr(node, "module" if isinstance(node, ast.ImportFrom) else "name", None)
    return isinstance(name, str) and name.partition(".")[0] == VERSION_3


def _nodes(modules: Iterable[Module]) -> Iterator[ast.AST]:
    for module in modules:
        yield from ast.walk(ast.parse(module.source))
