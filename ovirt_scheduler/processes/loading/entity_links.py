"""Finds what plugins read of a host or VM that an engine sends as a link alone: it is empty.

It reads source, and runs nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Union

from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.processes.loading.modules import VERSION_3
from ovirt_scheduler.processes.loading.python2 import Remark

# The attributes that come with a query, as the manual's table has them.
LINKS = ("affinity_labels", "disk_attachments", "nics", "numa_nodes", "tags")

_ASKING = ("engine_connection", "Connection", "follow_link", VERSION_3)
_IN_ORDER = ("enumerate", "list", "reversed", "sorted")
_FUNCTIONS = [kind.function for kind in Kind]


def read_unasked(tree: ast.Module, names: Collection[str]) -> Iterator[Remark]:
    """Find where a plugin that never asks the engine first reads a link of a host or VM.

    Args:
        tree: of the plugin's file.
        names: all that its code and that of its helpers use.

    Yields:
        One remark at most: the number of the line, and what is empty and how to ask for it.
    """
    if not any(link in names for link in LINKS):
        return
    if any(name in _ASKING or name.endswith("_service") for name in names):
        return
    nodes = [*ast.walk(tree)]  # of a long file this takes most of the time
    hosts, vms = _entities(nodes)
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in LINKS:
            name = getattr(node.value, "id", "")
            query = f"follow_link({name}.{node.attr})"
            if name in hosts:
                query = f'system_service().hosts_service().list(follow="{node.attr}")'
            if name in hosts | vms and isinstance(node.ctx, ast.Load):
                yield (
                    node.lineno,
                    (
                        f"{name}.{node.attr} is empty: the engine sends a link alone; ask it, with "
                        f"engine_connection().{query}"
                    ),
                )
                return


def _entities(nodes: Sequence[ast.AST]) -> tuple[set[str], set[str]]:
    """The names that units give to a host and to a VM, and those of functions that get these."""
    hosts: set[str] = set()
    vms: set[str] = set()
    functions = {
        node.name: [each.arg for each in node.args.args if each.arg != "self"]
        for node in nodes
        if isinstance(node, ast.FunctionDef)
    }
    for unit in nodes:
        if not isinstance(unit, ast.FunctionDef) or unit.name not in _FUNCTIONS:
            continue
        parameters = functions[unit.name]
        if unit.name != Kind.BALANCE.function:
            vms.update(parameters[1:2])
        for node in ast.walk(unit):
            if isinstance(node, (ast.For, ast.comprehension)) and _over(node) in parameters[:1]:
                targets = ast.walk(node.target)
                hosts.update(each.id for each in targets if isinstance(each, ast.Name))
    for names in (hosts, vms):
        names.update(_passed_on(nodes, functions, names))
    return hosts, vms


def _passed_on(
    nodes: Iterable[ast.AST], functions: Mapping[str, list[str]], names: Container[str]
) -> list[str]:
    """The names that functions give to what is passed to them by one of some names."""
    return [
        parameter
        for call in nodes
        if isinstance(call, ast.Call)
        for argument, parameter in zip(call.args, functions.get(getattr(call.func, "id", ""), []))
        if getattr(argument, "id", "") in names
    ]


def _over(loop: Union[ast.For, ast.comprehension]) -> str:
    """The name over which a loop goes, in whatever order; empty if it is none."""
    values = loop.iter
    if isinstance(values, ast.Call) and getattr(values.func, "id", "") in _IN_ORDER:
        values = values.args[0] if values.args else values
    return getattr(values, "id", "")
