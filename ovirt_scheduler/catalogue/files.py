"""Lists the folders of plugins: names, paths and stamps. Opens no file.

A folder below with an ``__init__.py`` is a package, and so on down; its modules are helpers. One
that somebody else may write is not looked into.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from ovirt_scheduler.security import trust

# Two writes that come closer than this may leave the same times on a file.
_CLOCK_STEP_NS = 50_000_000

_PACKAGE = "__init__.py"

Stamp = tuple[int, ...]  # differs when a file or a folder has changed; device and inode first
Stamps = Mapping[Path, Optional[Stamp]]  # None where there is nothing


class PluginFile(NamedTuple):
    """A Python file in a folder of plugins, or in a package there."""

    name: str  # of the module, as its folder's plugins import it
    path: Path
    folder: Path  # of plugins

    @property
    def helper(self) -> bool:
        """Whether its name or its place says that it is no plugin (contract 5.1)."""
        return self.name.startswith("_") or self.path.parent != self.folder


class Listing(NamedTuple):
    """What is in one folder of plugins."""

    files: tuple[PluginFile, ...]  # by name
    stamps: Stamps  # of these files, and of each folder below that is a package or may become one
    broken: tuple[Path, ...]  # links to nothing


def listing(folder: Path) -> Listing:
    """List a folder of plugins, and the packages in it.

    Raises:
        OSError: the folder cannot be listed. A package that cannot be is passed over.
    """
    files: list[PluginFile] = []
    stamps: dict[Path, Optional[Stamp]] = {}
    broken: list[Path] = []
    for path, name, stamp in _below(folder, "", ()):
        if stamp is None:
            broken.append(path)
            continue
        stamps[path] = stamp
        if name:
            files.append(PluginFile(name, path, folder))
    return Listing(tuple(sorted(files, key=lambda file: file.name)), stamps, tuple(broken))


def stamp(path: Path) -> Optional[Stamp]:
    """The stamp of a file or folder, which differs when it has changed; None: there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    # The last number differs at every scan while the times cannot be relied on.
    just_written = abs(time.time_ns() - status.st_mtime_ns) < _CLOCK_STEP_NS
    return (
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
        status.st_mode, time.monotonic_ns() if just_written else 0,
    )  # fmt: skip


def _below(
    folder: Path, package: str, above: tuple[Stamp, ...]
) -> Iterator[tuple[Path, str, Optional[Stamp]]]:
    """Each file and each folder, these without a name; a link to nothing has no stamp."""
    with os.scandir(folder) as found:
        entries = {entry.name: entry for entry in found}
    if package and _PACKAGE not in entries:
        return
    for name, entry in entries.items():
        path = Path(entry.path)
        stem = name[:-3]
        if name.endswith(".py") and not name.startswith("."):
            its_stamp = stamp(path)
            if not package and (its_stamp or entry.is_symlink()):
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
    its_stamp = stamp(folder)  # before it is listed: what comes later, shows later
    if its_stamp is None or its_stamp[:2] in above or folder.name == "__pycache__":
        return
    yield folder, "", its_stamp
    with contextlib.suppress(OSError):
        if not trust.tampering(folder):
            yield from _below(folder, package, (*above, its_stamp[:2]))
        elif (folder / _PACKAGE).exists():
            # It is refused for this file. There may be more, put there so that the scan never ends.
            yield folder / _PACKAGE, package, stamp(folder / _PACKAGE)
