"""Finds plugins' files and makes policy units of them: data only, never a module.

The bytes that are read here are what is analysed, what is run and what the checksum is over;
an edit that comes meanwhile is seen at the next look.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ovirt_scheduler import properties
from ovirt_scheduler.config import PluginConf, Settings, parse_plugin_conf
from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model import (
    Analysis,
    Candidate,
    FoundUnit,
    Limits,
    PluginCode,
    PolicyUnit,
    PropertySet,
    Source,
)

Stamp = Tuple[int, ...]  # changes when a file does; empty where there is none
Stamps = Mapping[Path, Stamp]

_LARGEST_FILE = 1 << 20  # bytes
_READ_TRIES = 3
_LONGEST_NAME = 128  # characters (contract 3.1)


@dataclass(frozen=True)
class SeenFile:
    """A Python file in a folder of plugins."""

    name: str  # of the module
    path: Path
    written: float  # seconds since the epoch

    @property
    def helper(self) -> bool:
        """Whether its name says that it is no plugin (contract 5.1)."""
        return self.name.startswith("_")


@dataclass(frozen=True)
class Look:
    """What is in the folders now."""

    files: Tuple[SeenFile, ...]  # in the order of the folders, then by name
    stamps: Stamps  # of the files and of every conf file
    problems: Tuple[PluginError, ...]
    unreadable: Tuple[Path, ...]  # folders that are there and cannot be listed

    def neighbours(self, file: SeenFile) -> Tuple[SeenFile, ...]:
        """The other files of its folder, which it may import."""
        return tuple(
            other
            for other in self.files
            if other.path.parent == file.path.parent and other is not file
        )


@dataclass(frozen=True)
class LoadedPlugin:
    """A plugin that works, with all that is needed to make it again."""

    name: str
    path: Path
    units: Tuple[PolicyUnit, ...]  # none: a helper module
    sources: Tuple[Source, ...]  # the plugin first, then the helpers that it imports
    conf: Optional[bytes]  # its conf file, None where there is none
    checksum: str


class Loader:
    """Looks into the folders of ``plugins_path`` and loads what is there.

    Args:
        settings: where plugins and conf files are, and the limits of calls.
        analyse: looks at one file in a process of its own.
    """

    def __init__(self, settings: Settings, analyse: Callable[[Candidate], Analysis]) -> None:
        self._settings = settings
        self._analyse = analyse
        self._limits = Limits(
            timeout=settings.plugin_timeout,
            memory=settings.memory_limit,
            cpu=settings.cpu_limit,
            open_files=settings.files_limit,
        )

    def look(self) -> Look:
        """List the folders; reads no file."""
        files: List[SeenFile] = []
        stamps: Dict[Path, Stamp] = {}
        problems: List[PluginError] = []
        unreadable: List[Path] = []
        for folder in self._settings.plugins_path:
            try:
                found = sorted(_python_files(folder), key=lambda pair: pair[0].name)
            except FileNotFoundError:
                if folder not in self._settings.plugins_path_optional:
                    problems.append(
                        PluginError("there is no such folder; make it, or mend plugins_path",
                                    str(folder))
                    )  # fmt: skip
                continue
            except OSError as error:
                unreadable.append(folder)
                problems.append(PluginError(f"cannot be listed: {error.strerror}", str(folder)))
                continue
            files.extend(file for file, _ in found)
            stamps.update((file.path, stamp) for file, stamp in found)
        for file in files:
            conf = self.conf_path(file.name)
            stamps[conf] = _stamp(conf)
        return Look(tuple(files), stamps, tuple(problems), tuple(unreadable))

    def conf_path(self, name: str) -> Path:
        return self._settings.plugins_conf_path / f"{name}.conf"

    def load(self, file: SeenFile, neighbours: Sequence[SeenFile]) -> LoadedPlugin:
        """Read a file and what it may import, and analyse it.

        Raises:
            PluginError: it cannot be loaded; where, why and what to do (contract 5.5).
        """
        if not file.name.isidentifier() and "." in file.name:
            raise PluginError("a dot in the name of a plugin; rename the file", str(file.path))
        source = _read_source(file)
        others = []
        for other in neighbours:
            try:
                others.append(_read_source(other))
            except PluginError:
                continue  # reported as that file's own mistake; here it is just not there
        return self.make(source, others, _read_conf(self.conf_path(file.name)))

    def make(
        self, source: Source, neighbours: Sequence[Source], conf_data: Optional[bytes]
    ) -> LoadedPlugin:
        """Make a plugin of the text of its files.

        Raises:
            PluginError: it cannot be loaded; where, why and what to do (contract 5.5).
        """
        path = Path(source.path)
        conf_path = self.conf_path(source.name)
        conf = (
            PluginConf(source.name)
            if conf_data is None
            else parse_plugin_conf(conf_data, conf_path)
        )
        if not conf.enabled:
            return LoadedPlugin(source.name, path, (), (source,), conf_data, "")
        analysis = self._analyse(Candidate(source, str(path.parent), tuple(neighbours)))
        if analysis.fault is not None:
            fault = analysis.fault
            raise PluginError(fault.message, fault.file, fault.line)
        used = tuple(Source(module.name, module.path, module.source) for module in analysis.modules)
        checksum = _checksum(used, conf_data)
        code = PluginCode(source.name, str(path.parent), analysis.modules)
        units = tuple(self._unit(found, code, conf, checksum) for found in analysis.units)
        return LoadedPlugin(source.name, path, units, used or (source,), conf_data, checksum)

    def _unit(
        self,
        found: FoundUnit,
        code: PluginCode,
        conf: PluginConf,
        checksum: str,
    ) -> PolicyUnit:
        if len(found.name) > _LONGEST_NAME:
            raise PluginError(
                f"a name of {len(found.name)} characters; the engine takes {_LONGEST_NAME}",
                code.modules[0].path,
                found.line,
            )
        limits = self._limits
        if conf.timeout is not None:
            limits = replace(limits, timeout=conf.timeout)
        if conf.memory_limit is not None:
            limits = replace(limits, memory=conf.memory_limit)
        return PolicyUnit(
            name=found.name,
            kind=found.kind,
            description=found.description,
            plugin=code,
            checksum=checksum,
            limits=limits,
            properties=self._properties(found, code, conf),
            on_failure=conf.on_failure,
            class_name=found.class_name,
        )

    def _properties(
        self, found: FoundUnit, code: PluginCode, conf: PluginConf
    ) -> Optional[PropertySet]:
        """The conf file's properties, or else those that a class unit declares itself."""
        if conf.custom_properties:
            if found.kind not in conf.kinds:
                return None
            path, line = str(self.conf_path(code.name)), None
            declared = conf.name, conf.custom_properties, conf.default_values
        elif found.properties:
            path, line = code.modules[0].path, found.line
            declared = found.name, found.properties, ""
        else:
            return None
        try:
            return properties.parse(*declared)
        except PluginError as error:
            raise PluginError(error.message, path, line) from None


def _python_files(folder: Path) -> Iterator[Tuple[SeenFile, Stamp]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(".py") or entry.name.startswith("."):
                continue
            stamp = _stamp(Path(entry.path))
            if stamp:
                written = stamp[3] / 1e9
                yield SeenFile(entry.name[:-3], Path(entry.path), written), stamp


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return ()
    return (
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
        status.st_mode,
    )  # fmt: skip


def _read_source(file: SeenFile) -> Source:
    return Source(file.name, str(file.path), _read(file.path))


def _read_conf(path: Path) -> Optional[bytes]:
    try:
        return _read(path)
    except FileNotFoundError:
        return None


def _read(path: Path) -> bytes:
    """A whole file as it was at one moment.

    Raises:
        FileNotFoundError: there is none.
        PluginError: it cannot be read, or is no plain file, or too long.
    """
    try:
        for _ in range(_READ_TRIES):
            before = _stamp(path)
            # Non-blocking: a pipe of that name must not hold up the daemon.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as opened:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise PluginError("is not a plain file; remove it", str(path))
                data = opened.read(_LARGEST_FILE + 1)
            if _stamp(path) == before:
                break
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PluginError(
            f"cannot be read: {error.strerror}; see its owner and mode", str(path)
        ) from error
    if len(data) > _LARGEST_FILE:
        raise PluginError(f"is longer than {_LARGEST_FILE >> 10} KiB", str(path))
    return data


def _checksum(sources: Sequence[Source], conf: Optional[bytes]) -> str:
    """Over the plugin, its conf file and its helpers by name (contract 2.1, 5.1)."""
    digest = hashlib.sha256()
    if sources:
        digest.update(sources[0].text)
    digest.update(conf or b"")
    for source in sorted(sources[1:], key=lambda source: source.name):
        digest.update(source.text)
    return f"sha256:{digest.hexdigest()}"
