"""Finds the modules that a plugin may import, and imports them from the code in the registry.

The code that runs is the code that was analysed, even if a file was edited since, or a helper is
imported late. ``exception_text`` and ``own_line`` describe an exception of that code. ``refusal``
and ``imported`` read source, and run nothing.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import linecache
import marshal
import os.path
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import CodeType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Callable, Optional

from ovirt_scheduler.model.analysis import FileFault
from ovirt_scheduler.model.plugins import Candidate, PluginCode, Source

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # importlib.abc loads many modules, which each fork would have to copy


_IMPORTERS = {"import_module", "__import__"}

ANY = "*"  # no module can be named so

VERSION_3 = "ovirtsdk"  # of the SDK


def _module_of_sdk3(name: str, text: str = "", submodules: tuple[str, ...] = ()) -> Source:
    """A module of version 3; importing one loads ``plugin.sdk3``, which others do not need."""
    absent = f"""
from ovirt_scheduler.plugin.sdk3 import absent_names as _absent_names
__getattr__ = _absent_names(__name__, {submodules!r})
"""
    end = "/__init__.py" if submodules else ".py"
    return Source(name, f"{name.replace('.', '/')}{end}", f"{text}{absent}".encode())


_SDK3 = (  # the modules of the part of version 3 that is here
    _module_of_sdk3("ovirtsdk", submodules=("api", "infrastructure", "xml")),
    _module_of_sdk3("ovirtsdk.api", "from ovirt_scheduler.plugin.sdk3 import API"),
    _module_of_sdk3("ovirtsdk.xml", submodules=("params",)),
    _module_of_sdk3("ovirtsdk.xml.params", "__all__ = ()"),
    _module_of_sdk3("ovirtsdk.infrastructure", submodules=("errors",)),
    _module_of_sdk3(
        "ovirtsdk.infrastructure.errors",
        "from ovirtsdk4 import ConnectionError\n"
        "from ovirt_scheduler.plugin.sdk3 import RequestError",
    ),
)


# The importer of a plugin's folder, which finds nothing: there may be files on the disk that others
# can change, and compiled ones that no checksum covers.
_CLOSED = SimpleNamespace(find_spec=lambda _name, _target=None: None)


def _close(folder: str) -> None:
    """Have nothing in a folder imported from the disk, whatever path leads there.

    This does not close libraries of this Python that lie below the folder.
    """
    before = tuple(sys.path)

    def closed(path: str) -> SimpleNamespace:
        own = (library for library in before if not _is_in(folder, library))
        if not _is_in(path, folder) or any(_is_in(path, library) for library in own):
            raise ImportError(path)  # asks the next hook
        return _CLOSED

    sys.path_hooks.insert(0, closed)
    for path in [path for path in sys.path_importer_cache if path.startswith(folder)]:
        del sys.path_importer_cache[path]


def _is_in(path: str, folder: str) -> bool:
    """Whether a path leads to a folder or below it, as it is written or by its links."""
    for real in (os.path.abspath, os.path.realpath):
        place, above = real(path), real(folder)
        if place == above or place.startswith(f"{above.rstrip('/')}/"):
            return True
    return False


class FolderFinder(Loader):
    """Finds the modules of one plugin folder, ahead of everything else, and nothing else there."""

    def __init__(self, origins: Mapping[str, str], code: Callable[[str], CodeType]) -> None:
        self._origins = origins
        self._code = code
        self._cached = functools.cache(importlib.util.cache_from_source)

    def install(self, folder: str) -> None:
        """Make the folder's modules win over all others, as a script's folder does."""
        _close(folder)
        sys.path.insert(0, folder)
        sys.meta_path.insert(0, self)
        sys.meta_path.append(finder_of_sources(_SDK3))  # one that is installed comes before it
        for name in self._origins:
            sys.modules.pop(name, None)

    def make(self, name: str) -> ModuleType:
        """Make one of the modules without asking all finders; ``run`` runs it."""
        return importlib.util.module_from_spec(self._spec(name))

    def run(self, module: ModuleType) -> ModuleType:
        """Run a module that ``make`` made, as its import would."""
        name = module.__name__  # the module may change it
        sys.modules[name] = module
        self.exec_module(module)
        return sys.modules[name]

    def find_spec(self, fullname: str, *_: object) -> Optional[importlib.machinery.ModuleSpec]:
        """Find a module of the folder; the import system calls this."""
        return self._spec(fullname) if fullname in self._origins else None

    def _spec(self, name: str) -> importlib.machinery.ModuleSpec:
        origin = self._origins[name]
        is_package = origin.endswith("/__init__.py") and name != "__init__"
        spec = importlib.machinery.ModuleSpec(name, self, origin=origin, is_package=is_package)
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(origin))  # noqa: PTH120
        spec.has_location = True  # gives the module its __file__
        spec.cached = self._cached(origin)  # else it is made up anew in each call
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Have Python make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run a module; the import system calls this, too."""
        code = self._code(module.__name__)
        exec(code, module.__dict__)  # noqa: S102  running plugins is what this is for


def finder_of(plugin: PluginCode) -> FolderFinder:
    """Make a finder for a plugin and its helpers, with the code from the registry."""
    modules = {module.name: module for module in plugin.modules}
    for module in plugin.modules:  # tracebacks show what runs, not what the file says by now
        linecache.cache[module.path] = (len(module.source), None, lines(module.source), module.path)
    return FolderFinder(
        {name: module.path for name, module in modules.items()},
        functools.cache(lambda name: marshal.loads(modules[name].code)),  # noqa: S302  analysis made it
    )


def finder_of_sources(sources: Iterable[Source]) -> FolderFinder:
    """Make a finder for modules that are compiled from source when they are imported."""
    by_name = {source.name: source for source in sources}
    return FolderFinder(
        {name: source.path for name, source in by_name.items()},
        lambda name: compile_source(by_name[name]),
    )


def compile_source(source: Source) -> CodeType:
    """Compile a file.

    Raises:
        SyntaxError, ValueError: it is not Python.
    """
    # dont_inherit: this module's own __future__ is not the plugin's.
    return compile(source.text, source.path, "exec", dont_inherit=True)


def lines(source: bytes) -> list[str]:
    """Split source into lines as Python counts them; a form feed ends none."""
    return [line.decode("utf-8", "replace") for line in source.splitlines(keepends=True)]


def exception_text(error: BaseException) -> str:
    """An exception of a plugin as text: ``ValueError: its text``, or ``called sys.exit(1)``.

    This runs code of the exception's class, which may be the plugin's and raise anything.
    """
    if isinstance(error, SystemExit):
        return f"called sys.exit({error.code!r:.80})"
    text = ""
    with contextlib.suppress(BaseException):  # without it there is still the class
        text = str(error)
    return type(error).__name__ + (f": {text}" if text else "")


def own_line(error: BaseException, paths: Collection[str]) -> Optional[tuple[str, int]]:
    """The innermost line of these files in the traceback of an error; None if there is none."""
    innermost = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename in paths:
            innermost = frame.f_code.co_filename, line
    return innermost


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

    ``ANY`` stands for a name that is only known at run time, as that of ``import_module``.
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
        elif isinstance(node, ast.Call) and _named(node.func) in _IMPORTERS:
            argument = node.args[0] if node.args else None
            if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                continue
            with_name.add(node.func)
            names = [argument.value]
        elif _named(node) in _IMPORTERS and node not in with_name:
            names = [ANY]
        else:
            continue
        for name in names:
            parts = name.split(".")
            for length in range(1, len(parts) + 1):
                yield ".".join(parts[:length]), getattr(node, "lineno", 1)


def _named(node: ast.AST) -> Optional[str]:
    """The name that a node reads, of a variable or of an attribute; None for other nodes."""
    return getattr(node, "id", None) or getattr(node, "attr", None)
