"""Finds cost functions that leave hosts out: such a host costs 0 (contract 4.4), which favours it.

It reads source, and runs nothing. ``ovirt-scheduler try`` shows hosts left out in any other way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.processes.loading.python2 import Remark

LEFT_OUT = (
    "do_score leaves hosts out here: they cost 0, which favours them beside costs above 0; give a "
    "host to avoid a high cost, or have a filter remove it"
)

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_WRAPPERS = ("dict", "list", "tuple", "print")


def hosts_left_out(tree: ast.Module) -> Iterator[Remark]:
    """Find where a cost function passes over hosts, and gives no reason for any."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.name != Kind.COST_FUNCTION.function:
            continue
        hosts = next((each.arg for each in node.args.args if each.arg != "self"), "")
        inside = [*ast.walk(node)]
        if not any(map(_gives_reason, inside)):
            for inner in inside:
                if _passes_over(inner, hosts):
                    yield inner.lineno, LEFT_OUT  # type: ignore[attr-defined]


def _passes_over(node: ast.AST, hosts: str) -> bool:
    """Whether a node is an answer with some of the hosts, or a loop that skips hosts."""
    if isinstance(node, ast.For) and _is_name(node.iter, hosts):
        branches = (each for each in node.body if isinstance(each, ast.If))
        return any(isinstance(each, ast.Continue) for if_ in branches for each in if_.body)
    answer = node.value if isinstance(node, (ast.Return, ast.Expr)) else None
    while isinstance(answer, ast.Call) and answer.args and _is_name(answer.func, *_WRAPPERS):
        answer = answer.args[0]
    return isinstance(answer, _COMPREHENSIONS) and any(
        loop.ifs and _is_name(loop.iter, hosts) for loop in answer.generators
    )


def _gives_reason(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    return _is_name(function, "reason") or getattr(function, "attr", "") == "reason"


def _is_name(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names
