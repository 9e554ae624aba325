"""Analyses a file of the plugins' folder: its units, drivers and code, or why it has none.

Runs the file's top level, so it happens only in a process of its own.
"""

from __future__ import annotations

import ast
import inspect
import marshal
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Optional, Union

from ovirt_scheduler.errors import DefaultMistake, PluginError
from ovirt_scheduler.model.analysis import Analysis, FileFault, FoundDriver, FoundUnit
from ovirt_scheduler.model.plugins import Candidate, Module, Source
from ovirt_scheduler.model.tasks import ANALYSIS_LIMITS
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values import properties
from ovirt_scheduler.model.values.text import count_of, one_line
from ovirt_scheduler.processes.loading import (
    driver_classes,
    entity_links,
    modules,
    patterns,
    python2,
    scores,
)
from ovirt_scheduler.processes.loading.driver_classes import Misdefined, description_of, line_of

# The parameters' names in class units.
_IN_A_CLASS = {"hosts": "hosts_ids", "vm": "vm_id", "properties": "args_map"}
_PATTERN_SECONDS = ANALYSIS_LIMITS.timeout / 2  # for the defaults of one set of properties
_NAMING = ("id", "attr", "name", "module")  # attributes of syntax nodes that have a name


def analyse(candidate: Candidate) -> Analysis:
    """Load a file as a call would, and find its units, drivers, helpers and mistakes.

    Never raises for what is wrong in the file: that is the analysis's ``fault``.
    """
    source = candidate.source
    try:
        tree = ast.parse(source.text, source.path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Analysis(fault=_syntax_fault(source, error))
    if not _may_have_units(tree):
        return Analysis()
    line = python2.print_to(tree)
    fault = modules.refusal(candidate) if line is None else _python_2_fault(source, line)
    fault = fault or _fault_of_conf(candidate)  # before the file runs, which could forge it
    return _loaded(candidate, tree) if fault is None else Analysis(fault=fault)


def _loaded(candidate: Candidate, tree: ast.Module) -> Analysis:
    source = candidate.source
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    class_nodes = {node.name: node for node in classes}
    modules.finder_of_sources((source, *candidate.neighbours)).install(candidate.folder)
    try:
        module = __import__(source.name)
    except BaseException as error:  # noqa: BLE001  a plugin may raise anything
        return Analysis(fault=_load_fault(candidate, error))
    try:
        units = [*_units(module, source.name, source.path)]
        drivers: list[FoundDriver] = []
        for plugin_class in _classes(module):
            units += _units(plugin_class, plugin_class.__name__, source.path)
            if driver_classes.is_driver(plugin_class):
                node = class_nodes.get(plugin_class.__name__)
                line = 1 if node is None else node.lineno
                description = description_of(module)
                drivers.append(driver_classes.read(plugin_class, description, source.path, line))
        if candidate.declared is None:
            units = [_checked_unit(unit, class_nodes) for unit in units]
            for driver in drivers:
                _check_driver(driver, class_nodes)
        code = tuple(_compiled(candidate))
        names, wants_statistics = _names_in_use(module, code)
        doubts = [
            *python2.comparisons(tree),
            *scores.hosts_left_out(tree),
            *entity_links.read_unasked(tree, names),
        ]
    except Misdefined as wrong:
        return Analysis(fault=FileFault(source.path, wrong.line, wrong.message))
    except BaseException as error:  # noqa: BLE001  a class of the plugin's may raise anything
        return Analysis(fault=_load_fault(candidate, error))
    return Analysis(
        tuple(units),
        code,
        bool(names & {"engine_connection", modules.VERSION_3}),
        wants_statistics,
        drivers=tuple(drivers),
        doubts=tuple(FileFault(source.path, *remark) for remark in doubts),
    )


def _fault_of_conf(candidate: Candidate) -> Optional[FileFault]:
    """What is wrong with the properties in the file's conf file; None if nothing is."""
    declared = candidate.declared
    if declared is None:
        return None
    try:
        property_set = properties.parse(declared.name, declared.patterns, declared.defaults)
        patterns.check_declared(property_set, _PATTERN_SECONDS)
    except PluginError as error:
        of_default = isinstance(error, DefaultMistake)
        line = declared.defaults_line if of_default else declared.line
        return FileFault(declared.file, line, error.message)
    return None


def _checked_unit(unit: FoundUnit, nodes: Mapping[str, ast.ClassDef]) -> FoundUnit:
    """The unit, with the properties noted whose values Python cannot check.

    Raises:
        Misdefined: its properties cannot be used.
    """
    try:
        property_set = properties.parse_for_java(unit.name, unit.properties)
        return replace(unit, unchecked=patterns.unchecked_names(property_set))
    except PluginError as error:
        line = _line_of_properties(error, nodes.get(unit.class_name or ""))
        raise Misdefined(line or unit.line, error.message) from None


def _check_driver(driver: FoundDriver, nodes: Mapping[str, ast.ClassDef]) -> None:
    """Check a driver's own properties.

    Raises:
        Misdefined: they cannot be used.
    """
    try:
        property_set = properties.parse(driver.name, driver.properties, driver.default_values)
        patterns.check_declared(property_set, _PATTERN_SECONDS)
    except PluginError as error:
        line = _line_of_properties(error, nodes.get(driver.class_name))
        raise Misdefined(line or driver.line, error.message) from None


def _line_of_properties(error: PluginError, node: Optional[ast.ClassDef]) -> Optional[int]:
    """The line on which a class sets its properties or, if those are wrong, their defaults."""
    of_default = isinstance(error, DefaultMistake)
    attribute = "default_values" if of_default else "properties_validation"
    for statement in [] if node is None else node.body:
        is_assignment = isinstance(statement, (ast.Assign, ast.AnnAssign))
        if is_assignment and attribute in map(_bound, ast.walk(statement)):
            return statement.lineno
    return None


def _may_have_units(tree: ast.Module) -> bool:
    """Whether a file binds the name of a unit's function anywhere, or may inherit or import one.

    A driver is a class with a base. Any other file is a helper, and is not run.
    """
    function_names = {"*", *(kind.function for kind in Kind)}
    return any(
        _bound(node) in function_names or (isinstance(node, ast.ClassDef) and node.bases)
        for node in ast.walk(tree)
    )


def _bound(node: ast.AST) -> Optional[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.name
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.alias):
        return node.asname or node.name
    return None


def _units(owner: Union[ModuleType, type], name: str, path: str) -> Iterator[FoundUnit]:
    """The units of a file, or of a class, as plugins of the released proxy have them
    (contract 5.3).
    """
    for kind in Kind:
        function = getattr(owner, kind.function, None)
        if function is None:
            continue
        line = line_of(function, path)
        arguments, class_name, declared = kind.parameters, None, None
        if isinstance(owner, type):
            arguments = tuple(_IN_A_CLASS[each] for each in kind.parameters)
            own = inspect.getattr_static(owner, kind.function)
            if not isinstance(own, (staticmethod, classmethod)):
                arguments = ("self", *arguments)
            class_name = name
            declared = driver_classes.text_of(owner, "properties_validation", line)
        _check_signature(function, kind, arguments, line)
        description = description_of(function, owner)
        yield FoundUnit(name, kind, description, line, class_name, declared or "")


def _classes(module: ModuleType) -> Iterator[type]:
    """The classes that a module defines, each once: a class may be bound to several names."""
    for name, value in [*vars(module).items()]:
        if inspect.isclass(value) and (value.__module__, value.__name__) == (module.__name__, name):
            yield value


def _check_signature(function: object, kind: Kind, arguments: Sequence[str], line: int) -> None:
    definition = f"{kind.function}({', '.join(arguments)})"
    if inspect.iscoroutinefunction(function):
        raise Misdefined(line, f"{kind.function} is async; take the async away")
    if not callable(function):
        raise Misdefined(line, f"{kind.function} is not a function; define {definition}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        actual, number = inspect.signature(function), count_of(len(arguments), "argument")
        problem = f"{kind.function}{actual} cannot be called with {number}; define {definition}"
        raise Misdefined(line, problem) from None
    except ValueError:  # a built-in that does not tell its signature
        return


def _compiled(candidate: Candidate) -> Iterator[Module]:
    """The plugin, then each module of its folder that it imports, now or later."""
    sources = {source.name: source for source in (candidate.source, *candidate.neighbours)}
    loaded = [name for name in sys.modules if name in sources]
    names = list(dict.fromkeys([candidate.source.name, *loaded]))
    guesses: set[str] = set()
    for name in names:  # grows while it runs
        source = sources[name]
        try:
            code = modules.compile_source(source)
        except (SyntaxError, ValueError):
            if name in guesses:
                continue
            raise
        yield Module(name, source.path, source.text, marshal.dumps(code))
        for later, _ in modules.imported(source):
            if later in sources and later not in names:
                names.append(later)
            elif later == modules.ANY:
                guesses |= sources.keys() - set(names)
                names += sorted(sources.keys() - set(names))


def _names_in_use(plugin: ModuleType, code: Iterable[Module]) -> tuple[set[str], bool]:
    """What a plugin uses, found in its code and in that of its helpers.

    Returns:
        All names, of modules the first part. And whether it uses statistics: the value of its
        ``uses_statistics``, or else whether its code has the word.

    Raises:
        Misdefined: ``uses_statistics`` is neither True nor False.
    """
    declared = getattr(plugin, "uses_statistics", None)
    if declared is not None and not isinstance(declared, bool):
        raise Misdefined(1, f"uses_statistics is {declared!r:.60}; set it to True or False")
    nodes = [node for each in code for node in ast.walk(ast.parse(each.source))]
    texts = [(each, getattr(node, each, None)) for node in nodes for each in _NAMING]
    names = {text.partition(".")[0] for _, text in texts if isinstance(text, str)}
    if declared is None:
        declared = ("attr", "statistics") in texts or any(
            isinstance(node, ast.Constant) and node.value == "statistics" for node in nodes
        )
    return names, declared


def _syntax_fault(source: Source, error: BaseException) -> FileFault:
    if b"\0" in source.text:  # Python says no more than that
        message = "has null bytes, as a file in UTF-16 has; save it in UTF-8"
        return FileFault(source.path, None, message)
    if not isinstance(error, SyntaxError):
        what = str(error) or type(error).__name__
        return FileFault(source.path, None, f"cannot be parsed: {what}; mend the file")
    line = error.lineno or None  # 0 where it is of no line
    text = _line_of(source, line)
    if python2.is_statement(text, error.msg):
        return _python_2_fault(source, line)
    shown = f" in {text!r:.80}" if text else ""
    mend = "this line" if line else "the file"
    return FileFault(source.path, line, f"syntax error: {error.msg}{shown}; mend {mend}")


def _python_2_fault(source: Source, line: Optional[int]) -> FileFault:
    text = _line_of(source, line)
    return FileFault(source.path, line, f"this line is Python 2: {text!r:.80}; {python2.PORT}")


def _line_of(source: Source, line: Optional[int]) -> str:
    texts = modules.lines(source.text)
    return texts[line - 1].strip() if line and line <= len(texts) else ""


def _load_fault(candidate: Candidate, error: BaseException) -> FileFault:
    try:
        return _shown_fault(candidate, error)
    except BaseException:  # noqa: BLE001  showing it runs code of the plugin's class
        message = "loading it raised an exception that cannot be shown; mend the file"
        return FileFault(candidate.source.path, None, message)


def _shown_fault(candidate: Candidate, error: BaseException) -> FileFault:
    paths = {source.path for source in (candidate.source, *candidate.neighbours)}
    file, line = modules.own_line(error, paths) or (candidate.source.path, None)
    if isinstance(error, SyntaxError) and error.filename:  # of a helper
        texts = {source.path: source for source in candidate.neighbours}
        if error.filename in texts:
            return _syntax_fault(texts[error.filename], error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return FileFault(file, line, f"cannot import {error.name}{_missing(candidate, error.name)}")
    what = one_line(modules.exception_text(error))
    if not isinstance(error, SystemExit):
        what = f"raised {what}"
    mend = "this line" if line else "the file"
    return FileFault(file, line, f"loading it {what}; mend {mend}")


def _missing(candidate: Candidate, name: str) -> str:
    """Why there is no module of a name, and what to do."""
    if name.partition(".")[0] == modules.VERSION_3:
        return f", which is not in the part of SDK 3 that is here; {python2.PORT}, with ovirtsdk4"
    absence = python2.absence(name)
    if absence:
        return f", {absence}"
    for refused, reason in candidate.refused:
        if refused == name:
            return f", which is left out: {reason}"
    place = os.path.join(candidate.folder, *name.split("."))  # noqa: PTH118
    if os.path.isdir(place):  # noqa: PTH112
        return f": put an __init__.py into {place}"
    return f": install it for the daemon's Python ({sys.executable}), or write {place}.py"
