"""The last good version of each plugin, kept in the state folder over a restart."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Dict, Mapping, Optional, Sequence, Tuple

from ovirt_scheduler.catalogue.loader import LoadedPlugin, Loader
from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.plugins import Source
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.security import trust
from ovirt_scheduler.security.whole_file import write_whole

_log = logging.getLogger(__name__)


class NothingKept:
    """For commands that tell of the files as they are: saves nothing, knows nothing."""

    def save(self, plugin: LoadedPlugin) -> None: ...

    def catch_up(self) -> None: ...

    def drop(self, path: Path, filters: Sequence[str] = ()) -> None: ...

    def filters(self, path: Path) -> Tuple[str, ...]:  # noqa: ARG002
        return ()

    def restore(self, path: Path, loader: Loader) -> Optional[LoadedPlugin]:  # noqa: ARG002
        return None


class LastGood:
    """One file per plugin: the text of its sources and of its conf file.

    Args:
        folder: made when it is first needed, for the daemon's user alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._unsaved: Dict[Path, LoadedPlugin] = {}

    def save(self, plugin: LoadedPlugin) -> None:
        """Keep a version that loads; one that cannot be written is told, and tried again."""
        told = plugin.path in self._unsaved
        try:
            self._write(plugin)
        except OSError as error:
            self._unsaved[plugin.path] = plugin
            if not told:
                _log.warning(
                    "%(file)s cannot be kept for a restart: %(reason)s",
                    {"file": str(plugin.path), "reason": str(error)},
                )
        else:
            self._unsaved.pop(plugin.path, None)
            if told:
                _log.info("%(file)s is kept for a restart again", {"file": str(plugin.path)})

    def catch_up(self) -> None:
        """Try again what could not be written."""
        for plugin in tuple(self._unsaved.values()):
            self.save(plugin)

    def _write(self, plugin: LoadedPlugin) -> None:
        self._write_record(
            plugin.path,
            {
                "path": str(plugin.path),
                "filters": [unit.name for unit in plugin.units if unit.kind is Kind.FILTER],
                "conf": None if plugin.conf is None else _packed(plugin.conf),
                "sources": [
                    {"name": source.name, "path": source.path, "text": _packed(source.text)}
                    for source in plugin.sources
                ],
            },
        )

    def _write_record(self, path: Path, record: Mapping[str, object]) -> None:
        file = self._file(path)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        distrust = trust.tampering(self._folder)
        if distrust:  # what is written could be led elsewhere
            raise OSError(f"{self._folder}: {distrust}")
        data = json.dumps(record).encode("ascii")
        with contextlib.suppress(OSError):
            if file.read_bytes() == data:  # at each start all are saved, and few are new
                return
        write_whole(file, data)

    def drop(self, path: Path, filters: Sequence[str] = ()) -> None:
        """Forget a plugin whose file is gone, but for the names of its filters that are missed."""
        self._unsaved.pop(path, None)
        with contextlib.suppress(OSError):
            if filters:
                self._write_record(path, {"path": str(path), "filters": filters})
            else:
                self._file(path).unlink()

    def filters(self, path: Path) -> Tuple[str, ...]:
        """The names of the filters that a file had when it loaded last."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if not trust.tampering(self._file(path)):
                names = json.loads(self._file(path).read_text("ascii"))["filters"]
                return tuple(name for name in names if isinstance(name, str))
        return ()

    def restore(self, path: Path, loader: Loader) -> Optional[LoadedPlugin]:
        """The version that was saved last for this file, if it still loads."""
        file = self._file(path)
        try:
            distrust = trust.tampering(file)
            if distrust:
                _log.warning(
                    "the version of %(file)s that was kept is not used: %(reason)s",
                    {"file": str(path), "reason": f"{file}: {distrust}"},
                )
                return None
            record = json.loads(file.read_text("ascii"))
            if "sources" not in record and "filters" in record:  # its file was gone
                return None
            sources = [
                Source(source["name"], source["path"], _unpacked(source["text"]))
                for source in record["sources"]
            ]
            conf = None if record["conf"] is None else _unpacked(record["conf"])
            return loader.make(sources[0], sources[1:], conf)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, IndexError, PluginError) as error:
            _log.warning(
                "the version of %(file)s that was kept cannot be used: %(reason)s",
                {"file": str(path), "reason": str(error)},
            )
            return None

    def _file(self, path: Path) -> Path:
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        return self._folder / f"{path.stem}-{digest}.json"


def _packed(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _unpacked(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
