"""``ovirt-scheduler check``: what the daemon would do with the settings and plugins as they are."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Optional, TextIO

from ovirt_scheduler.config import Settings
from ovirt_scheduler.executor import Executor
from ovirt_scheduler.loader import LoadedPlugin, Loader
from ovirt_scheduler.registry import Catalogue, Registry


class _NothingKept:
    """A check tells of the files as they are, and keeps nothing."""

    def save(self, plugin: LoadedPlugin) -> None: ...

    def drop(self, path: Path) -> None: ...

    def restore(self, path: Path, loader: Loader) -> Optional[LoadedPlugin]:  # noqa: ARG002
        return None


def check(settings: Settings, out: TextIO = sys.stdout) -> bool:
    """Load every plugin as the daemon does, and tell what came of it.

    Returns:
        Whether all is well.

    Raises:
        ExecutorUnavailable: no process can be started to load plugins in.
    """
    # What the registry logs is told below, in order.
    logging.getLogger("ovirt_scheduler").addHandler(logging.NullHandler())
    executor = Executor(settings.max_parallel_calls, settings.max_waiting)
    try:
        executor.start()
        catalogue = Registry(Loader(settings, executor.analyse), _NothingKept()).look()
    finally:
        executor.close()
    _tell(catalogue, settings, out)
    return not catalogue.faults


def _tell(catalogue: Catalogue, settings: Settings, out: TextIO) -> None:
    for unit in sorted(catalogue.units.values(), key=lambda unit: (unit.name, unit.kind.value)):
        described = unit.description.partition("\n")[0]
        out.write(f"{unit.name:24} {unit.kind.words:14} {described}\n")
    if not catalogue.units:
        folders = ", ".join(map(str, settings.plugins_path)) or "no folder: set plugins_path"
        out.write(f"no policy units; looked in {folders}\n")
    for fault in catalogue.faults:
        out.write(f"{fault}\n")
