"""The last version of each plugin that loaded, kept in the state folder over a restart."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ovirt_scheduler.catalogue.loader import LoadedPlugin, Loader, PluginText
from ovirt_scheduler.catalogue.plugin_files import PluginFile
from ovirt_scheduler.errors import ExecutorUnavailable, PluginError
from ovirt_scheduler.model.plugins import Candidate, Source
from ovirt_scheduler.model.values import typed_json
from ovirt_scheduler.security.atomic_file import write_state

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Version:
    """What a file of the folder holds."""

    path: str  # of the plugin
    filters: tuple[str, ...]  # names
    conf: Optional[bytes] = None  # its conf file
    sources: tuple[Source, ...] = ()  # its file, then its helpers; none: the file is gone


class LastGood:
    """Keeps the last good versions, in one file for each plugin.

    Args:
        folder: in the state folder; made when it is first needed. None for a command, which keeps
            nothing and shows files as they are.
    """

    def __init__(self, folder: Optional[Path]) -> None:
        self._folder = None if folder is None else folder.absolute()
        self._unsaved: dict[Path, LoadedPlugin] = {}
        self._holds: Optional[tuple[frozenset[Path], ...]] = None  # at most; None: not looked at

    def save(self, plugin: LoadedPlugin) -> None:
        """Keep a version that loads. If that fails, a warning says so; ``catch_up`` tries again."""
        if self._folder is None:
            return
        failed_before = plugin.path in self._unsaved
        version = _Version(str(plugin.path), plugin.filters, plugin.conf, plugin.sources)
        try:
            self._write(version)
        except OSError as error:
            self._unsaved[plugin.path] = plugin
            if not failed_before:
                _log.warning(
                    "%(file)s cannot be kept for a restart: %(reason)s",
                    {"file": str(plugin.path), "reason": error.strerror},
                )
        else:
            self._unsaved.pop(plugin.path, None)
            if failed_before:
                _log.info("%(file)s is kept for a restart again", {"file": str(plugin.path)})

    def catch_up(self) -> None:
        """Try again to write what could not be written."""
        for plugin in tuple(self._unsaved.values()):
            self.save(plugin)

    def _write(self, version: _Version) -> None:
        """Write a version's file, unless it is there already.

        Raises:
            OSError: it cannot be written.
        """
        file, data = self._file(Path(version.path)), typed_json.dump(version)
        with contextlib.suppress(OSError):
            if file.read_bytes() == data:
                return  # at each start all are saved, and few are new
        write_state(file, data)

    def keep_only(self, plugins: Iterable[Path], alone: Iterable[Path]) -> None:
        """Forget all plugins but some; what cannot be removed is tried again at the next time.

        Args:
            plugins: the files that are there.
            alone: files that are gone while their conf files are there: the names of their filters
                are kept, as calls may still ask for them.
        """
        holds = frozenset(plugins), frozenset(alone)
        if self._folder is None or holds == self._holds:
            return
        names = {path: self.filters(path) for path in holds[1]}
        self._unsaved = {path: plugin for path, plugin in self._unsaved.items() if path in holds[0]}
        with contextlib.suppress(OSError):
            files = {self._file(path) for path in holds[0]}
            for path, filters in names.items():
                if filters is not None:
                    self._write(_Version(str(path), filters))
                    files.add(self._file(path))
            if self._folder.exists():
                for file in set(self._folder.iterdir()) - files:
                    if file.suffix in (".json", ".new"):
                        file.unlink()
            self._holds = holds

    def filters(self, path: Path) -> Optional[tuple[str, ...]]:
        """The names of the filters that a plugin had when it was last loaded; None: not known.

        A command keeps nothing, and cannot tell what the daemon knows.
        """
        if self._folder is None:
            return ()
        if path in self._unsaved:
            return self._unsaved[path].filters
        with contextlib.suppress(OSError, ValueError, PluginError):
            return self._read(path).filters
        return None

    def restore(self, path: Path, loader: Loader) -> Optional[LoadedPlugin]:
        """Load the version of a plugin that was saved last. None if there is none, or it fails.

        Raises:
            ExecutorUnavailable: no process is available to analyse it in.
        """
        try:
            version = self._read(path)
            if version.sources:  # the plugin's file was not gone
                first, *helpers = version.sources
                candidate = Candidate(first, str(path.parent), tuple(helpers))
                file = PluginFile(path.stem, path, path.parent)
                return loader.make(PluginText(file, candidate, version.conf))
        except FileNotFoundError:
            pass
        except ExecutorUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  one file's is not that of all
            _log.warning(
                "the version of %(file)s that was kept cannot be used: %(reason)s",
                {"file": str(path), "reason": str(error)},
            )
        return None

    def kept_since(self, path: Path) -> Optional[float]:
        """Since when the last good version is kept, in seconds since 1970; None if none is."""
        if path not in self._unsaved:
            with contextlib.suppress(OSError):
                return self._file(path).stat().st_mtime
        return None

    def _read(self, path: Path) -> _Version:
        return typed_json.load(self._file(path).read_bytes(), _Version)

    def _file(self, path: Path) -> Path:
        """Where a plugin's last good version is kept.

        Raises:
            FileNotFoundError: nothing is kept.
        """
        if self._folder is None:
            raise FileNotFoundError
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        return self._folder / f"{path.stem:.50}-{digest}.json"  # within the 255 bytes of a name
