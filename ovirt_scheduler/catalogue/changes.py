"""Reports what changed in plugins' files between two scans, for the log and for the history."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Callable

from ovirt_scheduler.catalogue.plugin_states import FileState
from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.errors import PluginError

_log = logging.getLogger(__name__)

KeepEvent = Callable[[Mapping[str, object]], None]


def _log_problems(before: Catalogue, now: Catalogue, keep: KeepEvent) -> None:
    """Log the problems that are new."""
    logged = set(map(str, (*before.faults, *before.warnings)))
    for fault in now.faults:
        if str(fault) not in logged:
            _log.error("cannot be loaded: %(reason)s", _problem(fault))
            place = {"file": fault.file, "line": fault.line, "message": fault.message}
            keep({"event": "not loaded", **{key: each for key, each in place.items() if each}})
    for warning in now.warnings:
        if str(warning) not in logged:
            _log.warning("noted: %(reason)s", _problem(warning))


def log(
    former: Mapping[Path, FileState],
    states: Mapping[Path, FileState],
    before: Catalogue,
    now: Catalogue,
    keep: KeepEvent,
) -> None:
    """Log what is another than before.

    Args:
        former, states: of each file.
        keep: called with each event.
    """
    _log_problems(before, now, keep)
    over = {fault.file for fault in before.faults} - {fault.file for fault in now.faults}
    for path in sorted(former.keys() | states.keys()):
        old, new = (in_use[path].good if path in in_use else None for in_use in (former, states))
        contents = new.contents if new else []
        if new is not None and contents and (old is None or old.checksum != new.checksum):
            _log.info(
                "loaded %(file)s (%(kind)s), %(checksum)s",
                {"file": str(path), "kind": ", ".join(contents), "checksum": new.checksum},
            )
            event = {"event": "loaded", "file": str(path), "checksum": new.checksum}
            keep(event if old is None else {**event, "event": "edited", "former": old.checksum})
        elif old is not None and old.contents and not contents:
            how = "has nothing to call any more" if path in states else "is gone"
            _log.info("unloaded %(file)s: it %(reason)s", {"file": str(path), "reason": how})
            keep({"event": "unloaded", "file": str(path)})
        else:
            continue
        over.discard(str(path))  # that line says it
    for file in sorted(filter(None, over)):
        _log.info("%(file)s is in order again", {"file": file})


def _problem(problem: PluginError) -> dict[str, object]:
    return {"reason": str(problem), "file": problem.file, "line": problem.line}
