"""What a file of the plugins' folder is: its policy units and its code, or why it is neither.

Runs the file's top level, so it happens only in the process of a plugin call.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import marshal
import re
import sys
import traceback
from types import ModuleType
from typing import Iterator, List, Optional, Sequence, Tuple

from ovirt_scheduler.model import Analysis, Candidate, FileFault, FoundUnit, Kind, Module, Source
from ovirt_scheduler.plugin_modules import FolderFinder, compile_source, finder_of_sources

_ARGUMENTS = {
    Kind.FILTER: ("hosts", "vm", "properties"),
    Kind.COST_FUNCTION: ("hosts", "vm", "properties"),
    Kind.BALANCE: ("hosts", "properties"),
}
_CLASS_ARGUMENTS = {
    Kind.FILTER: ("hosts_ids", "vm_id", "args_map"),
    Kind.COST_FUNCTION: ("hosts_ids", "vm_id", "args_map"),
    Kind.BALANCE: ("hosts_ids", "args_map"),
}

# What ends the parse of Python 2 source: print and exec statements, two names in an except or
# a raise, <>, backquotes, octal numbers, ur"".
_PYTHON_2 = re.compile(
    r"""^\s*(print\s+[^(=\s]|print\s*>>|exec\s+["'\w]|(except|raise)\s+[\w.]+\s*,)"""
    r"""|<>|`|(?<![\w.])0[0-7]+\b|\b[uU][rR]["']"""
)


def analyse(candidate: Candidate) -> Analysis:
    """Load a file as a call would, and say what is in it.

    Never raises for what is wrong in the file: that is the analysis's ``fault``.
    """
    source = candidate.source
    try:
        tree = ast.parse(source.text, source.path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Analysis(fault=_syntax_fault(source, error))
    if not any(True for _ in _unit_names(tree)):
        return Analysis()
    finder = finder_of_sources((source, *candidate.neighbours))
    finder.install(candidate.folder)
    try:
        module = __import__(source.name)
        units = tuple(_units(module, source))
        modules = tuple(_compiled(candidate, finder))
    except _Wrong as wrong:
        return Analysis(fault=FileFault(source.path, wrong.line, wrong.message))
    except BaseException as error:  # noqa: BLE001  a plugin may raise anything
        return Analysis(fault=_load_fault(candidate, error))
    return Analysis(units, modules)


class _Wrong(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def _unit_names(tree: ast.Module) -> Iterator[str]:
    """Names a file binds at its top level that make it a plugin."""
    wanted = {kind.function for kind in Kind}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in wanted:
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in wanted:
            yield node.id
        elif isinstance(node, ast.alias) and (node.asname or node.name) in wanted:
            yield node.asname or node.name


def _units(module: ModuleType, source: Source) -> Iterator[FoundUnit]:
    for kind in Kind:
        function = getattr(module, kind.function, None)
        if function is None:
            continue
        line = _line(function)
        _check_signature(function, kind, _ARGUMENTS[kind], line)
        description = inspect.getdoc(function) or inspect.getdoc(module) or ""
        yield FoundUnit(source.name, kind, description, line)
    # By name and once each: a class may be bound to several names.
    classes = {thing: None for thing in vars(module).values() if inspect.isclass(thing)}
    for found in classes:
        if found.__module__ == module.__name__:
            yield from _class_units(found)


def _class_units(found: type) -> Iterator[FoundUnit]:
    """The units of a class as plugins of the released proxy have them (contract 5.3)."""
    for kind in Kind:
        method = getattr(found, kind.function, None)
        if method is None:
            continue
        line = _line(method)
        own = inspect.getattr_static(found, kind.function)
        arguments = _CLASS_ARGUMENTS[kind]
        if not isinstance(own, (staticmethod, classmethod)):
            arguments = ("self", *arguments)
        _check_signature(method, kind, arguments, line)
        declared = getattr(found, "properties_validation", None) or ""
        if not isinstance(declared, str):
            raise _Wrong(line, f"properties_validation of {found.__name__} is not a string")
        description = inspect.getdoc(method) or inspect.getdoc(found) or ""
        yield FoundUnit(found.__name__, kind, description, line, found.__name__, declared)


def _check_signature(function: object, kind: Kind, arguments: Sequence[str], line: int) -> None:
    wanted = f"{kind.function}({', '.join(arguments)})"
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise _Wrong(line, f"{kind.function} is not a function; define {wanted}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        taken = str(inspect.signature(function))
        raise _Wrong(
            line,
            f"{kind.function}{taken} cannot be called with {len(arguments)} arguments; "
            f"define {wanted}",
        ) from None
    except ValueError:  # a built-in that does not tell its signature
        return


def _line(function: object) -> int:
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return getattr(code, "co_firstlineno", 1)


def _compiled(candidate: Candidate, finder: FolderFinder) -> Iterator[Module]:
    """The plugin, then each module of its folder that it imports, now or later."""
    sources = {source.name: source for source in (candidate.source, *candidate.neighbours)}
    names = list(dict.fromkeys([candidate.source.name, *finder.imported]))
    for name in names:  # grows while it runs
        source = sources[name]
        code = compile_source(source)
        yield Module(name, source.path, source.text, marshal.dumps(code))
        with contextlib.suppress(SyntaxError, ValueError):
            names.extend(
                later
                for later in _imports(ast.parse(source.text))
                if later in sources and later not in names
            )


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def _syntax_fault(source: Source, error: BaseException) -> FileFault:
    if not isinstance(error, SyntaxError):
        what = str(error) or type(error).__name__
        return FileFault(source.path, None, f"cannot be parsed: {what}")
    line = error.lineno
    lines = source.text.decode("utf-8", "replace").splitlines()
    text = lines[line - 1].strip() if line and line <= len(lines) else ""
    if _PYTHON_2.search(text) or "Missing parentheses in call" in error.msg:
        return FileFault(
            source.path,
            line,
            f"this line is Python 2: {text!r:.80}; port the file to Python 3, "
            "for example with 2to3 (docs/migrating.md)",
        )
    shown = f" in {text!r:.80}" if text else ""
    return FileFault(source.path, line, f"syntax error: {error.msg}{shown}; mend this line")


def _load_fault(candidate: Candidate, error: BaseException) -> FileFault:
    file, line = _own_frame(candidate, error)
    if isinstance(error, SyntaxError) and error.filename:  # of a helper
        texts = {source.path: source for source in candidate.neighbours}
        if error.filename in texts:
            return _syntax_fault(texts[error.filename], error)
    if isinstance(error, ModuleNotFoundError):
        return FileFault(
            file,
            line,
            f"cannot import {error.name}: install it for the daemon's Python ({sys.executable}), "
            f"or put {error.name}.py into {candidate.folder}",
        )
    kind = type(error).__name__
    return FileFault(file, line, f"loading it raised {kind}: {_one_line(error)}; mend this line")


def _own_frame(candidate: Candidate, error: BaseException) -> Tuple[str, Optional[int]]:
    """Where in the folder it happened: the innermost of its own lines."""
    paths = {candidate.source.path, *(source.path for source in candidate.neighbours)}
    frames: List[Tuple[str, Optional[int]]] = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename in paths
    ]
    return frames[-1] if frames else (candidate.source.path, None)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
