"""Lists the folders of plugins, and reads the files there, each once a scan.

A folder in it with an ``__init__.py`` is a package, and so are folders in packages; their modules
are helpers. A package that somebody else may write is not read.

What a file may import the daemon guesses from the words in its text, because it does not parse the
file. Guessing too many does no harm.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple, Optional

from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.plugins import Candidate, Source
from ovirt_scheduler.security import trust
from ovirt_scheduler.settings.conf_file import content

_WORD = re.compile(r"\w+")

# A file with one of these words may import a module that no word in it names.
_COMPUTING = frozenset(
    ("__import__", "import_module", "importlib", "exec", "eval", "runpy", "pkgutil")
)

_PACKAGE = "__init__.py"

Stamp = tuple[int, ...]  # differs when a file or a folder has changed; device and inode first
Stamps = Mapping[Path, Optional[Stamp]]  # None if there is nothing


class PluginFile(NamedTuple):
    """A Python file in a folder of plugins, or in a package there."""

    name: str  # of the module, as its folder's plugins import it
    path: Path
    folder: Path  # of plugins

    @property
    def helper(self) -> bool:
        """Whether its name or its place says that it is no plugin."""
        return self.name.startswith("_") or self.path.parent != self.folder


def listing(folder: Path) -> tuple[list[PluginFile], Stamps]:
    """List a folder of plugins, and the packages in it.

    Returns:
        The files by name; and the stamps of these files, and of each folder below that is a
        package or may become one.

    Raises:
        FileNotFoundError: there is no such folder.
        PluginError: it cannot be listed or trusted. A package that cannot be listed is left out.
    """
    files: list[PluginFile] = []
    stamps: dict[Path, Optional[Stamp]] = {}
    try:
        problem = trust.tampering(folder)
        if problem:
            raise PluginError(problem, str(folder))
        for path, name, stamp in _below(folder, "", ()):
            stamps[path] = stamp
            if name:
                files.append(PluginFile(name, path, folder))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PluginError(f"cannot be listed: {error.strerror}", str(folder)) from error
    return sorted(files, key=lambda file: file.name), stamps


def stamp(path: Path) -> Optional[Stamp]:
    """The stamp of a file or folder, which changes with it; None: there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
        status.st_mode,
    )  # fmt: skip


def _below(
    folder: Path, package: str, above: tuple[Stamp, ...]
) -> Iterator[tuple[Path, str, Optional[Stamp]]]:
    """Each file and each folder, these without a name; a link to nothing has no stamp."""
    with os.scandir(folder) as listing:
        entries = {entry.name: entry for entry in listing}
    if package and _PACKAGE not in entries:
        return
    for name, entry in entries.items():
        path = Path(entry.path)
        stem = name[:-3]
        if name.endswith(".py") and not name.startswith("."):
            its_stamp = stamp(path)
            if not package and (its_stamp or entry.is_symlink()):  # one to nothing is told, too
                yield path, stem, its_stamp
            elif its_stamp and name == _PACKAGE:
                yield path, package, its_stamp
            elif its_stamp and stem.isidentifier():
                yield path, f"{package}.{stem}", its_stamp
        # A plugin's file goes before a package of its name, though Python has it otherwise.
        elif name.isidentifier() and f"{name}.py" not in entries and entry.is_dir():
            yield from _inner(path, f"{package}.{name}" if package else name, above)


def _inner(
    folder: Path, package: str, above: tuple[Stamp, ...]
) -> Iterator[tuple[Path, str, Optional[Stamp]]]:
    its_stamp = stamp(folder)  # before it is listed: a later change gives another stamp
    if its_stamp is None or its_stamp[:2] in above or folder.name == "__pycache__":
        return
    yield folder, "", its_stamp
    with contextlib.suppress(OSError, RecursionError):  # packages may be nested without end
        if not trust.tampering(folder):
            yield from _below(folder, package, (*above, its_stamp[:2]))
        elif (folder / _PACKAGE).exists():
            # It is refused for this file. There may be more, put there so that the scan never ends.
            yield folder / _PACKAGE, package, stamp(folder / _PACKAGE)


class Sources:
    """The texts of the files that one scan has found."""

    def __init__(self, files: Sequence[PluginFile]) -> None:
        # Each with the words in its text that may name a module; None: it may import any.
        self._read: dict[PluginFile, tuple[Source, Optional[frozenset[str]]]] = {}
        self._named: dict[object, dict[str, list[PluginFile]]] = {}  # by folder and first name
        for file in files:
            if "." not in file.path.stem:
                named = self._named.setdefault(file.folder, {})
                named.setdefault(file.name.partition(".")[0], []).append(file)

    def candidate(self, file: PluginFile) -> Candidate:
        """A file, with those of its folder that it may import, directly or through others.

        Raises:
            FileNotFoundError: it has gone since the scan.
            PluginError: it cannot be read or trusted.
        """
        source, _ = self._once(file)
        named = self._named.get(file.folder, {})
        imported: dict[PluginFile, None] = {file: None}
        neighbours: list[Source] = []
        refused: list[tuple[str, str]] = []
        queue = [file]
        while queue:
            module = queue.pop(0)
            try:
                neighbour, words = self._once(module)
            except FileNotFoundError:
                continue
            except PluginError as error:
                refused.append((module.name, str(error)))
                continue
            if module is not file:
                neighbours.append(neighbour)
            for name in named if words is None else named.keys() & words:
                queue += [other for other in named[name] if other not in imported]
                imported.update(dict.fromkeys(named[name]))
        neighbours.sort(key=lambda other: other.name)
        return Candidate(source, str(file.folder), tuple(neighbours), tuple(sorted(refused)))

    def _once(self, file: PluginFile) -> tuple[Source, Optional[frozenset[str]]]:
        if file not in self._read:
            text = content(file.path, PluginError, trusted=True)
            self._read[file] = Source(file.name, str(file.path), text), _words(text)
        return self._read[file]


def _words(text: bytes) -> Optional[frozenset[str]]:
    """The words of a text that may name a module; None if it may import any."""
    words = frozenset(_WORD.findall(text.decode("utf-8", "replace")))
    return None if words & _COMPUTING else words


def named_like_python(sources: Iterable[Source]) -> Iterator[PluginError]:
    """A remark on each of these files that stands in the place of a module of Python's own."""
    own = os.path.dirname(os.__file__)  # noqa: PTH120
    folders = [own, f"{own}/lib-dynload"]
    for source in sources:
        # Python 3.9 has no sys.stdlib_module_names.
        spec = PathFinder.find_spec(source.name, folders) if "." not in source.name else None
        if source.name in sys.builtin_module_names or (spec is not None and spec.loader):
            yield PluginError(
                "has the name of a module of Python's standard library: plugins that import it, "
                "and their libraries, get this file instead; rename it",
                source.path,
            )
