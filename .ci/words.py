"""Find names in the package that do not say what they hold. `make lint` runs it.

    python .ci/words.py [FOLDER]     the project's folder; default: the current one

A name is that of a variable, a parameter, an attribute, a function or a class. One that is bound in
a comprehension on one line may be short: whoever reads it sees what it stands for.

Each name is printed as FILE:LINE: NAME. The exit status is 1 if a folder has more of them than
``ALLOWED``, or fewer: then the number there has to go down.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = "ovirt_scheduler"
VAGUE = frozenset((
    "asked", "done", "each", "found", "given", "held", "kept", "known", "left", "made", "said",
    "seen", "taken", "these", "those", "told", "tried", "wanted",
))  # fmt: skip
# How many a folder or a file still has; what is not here has none. These numbers only go down.
ALLOWED: dict[str, int] = {
    "history": 1,
}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def main(project: Path, allowed: Mapping[str, int]) -> int:
    """Print each vague name of a folder that has more or fewer than are allowed.

    Args:
        project: the folder that has the package.
        allowed: how many a folder or a file of the package may have; others may have none.

    Returns:
        The exit status.
    """
    names_of: dict[str, list[str]] = {room: [] for room in ("", *allowed)}
    for file in sorted((project / PACKAGE).rglob("*.py")):
        path = file.relative_to(project / PACKAGE).as_posix()
        rooms = [room for room in names_of if f"{path}/".startswith(f"{room}/")]
        names = vague_names(ast.parse(file.read_bytes()))
        names_of[max(rooms, key=len, default="")] += [
            f"{PACKAGE}/{path}:{line}: {name}" for line, name in names
        ]
    status = 0
    for room, lines in names_of.items():
        most, count = allowed.get(room, 0), f"{room or PACKAGE}: {len(lines)} vague names"
        if len(lines) > most:
            print(*lines, f"{count}, at most {most} allowed: say what they hold", sep="\n")
        elif len(lines) < most:
            print(f"{count}, no longer {most}: lower the number in ALLOWED of .ci/words.py")
        status |= len(lines) != most
    return status


def vague_names(tree: ast.Module) -> list[tuple[int, str]]:
    """Line and name of each that is vague, in the order of the lines."""
    short = {
        id(node)
        for comprehension in ast.walk(tree)
        if isinstance(comprehension, _COMPREHENSIONS)
        and comprehension.lineno == comprehension.end_lineno
        for generator in comprehension.generators
        for node in ast.walk(generator.target)
    }
    names = (
        (node.lineno, name)
        for node in ast.walk(tree)
        if id(node) not in short
        for name in bound_names(node)
    )
    return sorted((line, name) for line, name in names if name.strip("_") in VAGUE)


def bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a node of a syntax tree binds by itself, without those of its children."""
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        yield node.id if isinstance(node, ast.Name) else node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, _DEFINITIONS):
        yield node.name
    elif isinstance(node, ast.alias) and node.asname:
        yield node.asname
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name


if __name__ == "__main__":
    sys.exit(main(Path(*sys.argv[1:]), ALLOWED))
