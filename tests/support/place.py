"""Folders of plugins with a registry over them, as the daemon makes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from ovirt_scheduler.catalogue.catalogue import Catalogue
from ovirt_scheduler.catalogue.edits import LOOK_TIMES
from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.model.plugins import Candidate
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings import scheduler_conf

LONG_AGO = (10**9, 10**9)  # times of a file
AT_ONCE = LOOK_TIMES._replace(settle=0.0)  # a change counts at once


def plugin(version: object, before: str = "") -> str:
    """A cost function that tells its version as its cost and as its description."""
    return (
        f"{before}\n"
        "def do_score(hosts, vm, properties):\n"
        f'    """{version}"""\n'
        f"    return [(host, {version!r}) for host in hosts]\n"
    )


class Place:
    """Two folders of plugins, one of conf files, one of state."""

    def __init__(self, base: Path, executor: Executor, settings: str = "") -> None:
        self.first, self.second, self.confs = base / "first", base / "second", base / "confs"
        self.state = base / "state"
        for folder in (self.first, self.second, self.confs):
            folder.mkdir()
            os.utime(folder, LONG_AGO)
        conf = base / "scheduler.conf"
        conf.write_text(
            f"plugins_path = {self.first}:{self.second}\nplugins_conf_path = {self.confs}\n"
            f"{settings}"
        )
        self.settings = scheduler_conf.load(conf, {})
        self.executor = executor
        self.analysed: list[str] = []
        self.registry = self.start()

    def start(self) -> Registry:
        """A registry as the daemon makes it; another one is as after a restart."""
        return Registry(Loader(self.settings, self.analyse), LastGood(self.state), times=AT_ONCE)

    def analyse(self, candidate: Candidate) -> object:
        self.analysed.append(candidate.source.name)
        return self.executor.analyse(candidate)

    def write(self, name: str, text: str, folder: Optional[Path] = None) -> Path:
        """Put a file there as an installer does, which keeps its time: it is another inode."""
        path = (folder or self.first) / f"{name}.py"
        draft = path.with_suffix(".new")
        draft.write_text(text)
        os.utime(draft, LONG_AGO)
        return draft.replace(path)

    def look(self) -> Catalogue:
        """Look at the folders once, so soon after each change that none counts yet."""
        times, self.registry.times = self.registry.times, self.registry.times._replace(settle=60.0)
        self.registry._update()
        self.registry.times = times
        return self.registry.current()

    def versions(self) -> dict[str, str]:
        """Unit to description, after a look."""
        return versions(self.registry.refresh())

    def faults(self) -> list[str]:
        return [str(fault) for fault in self.registry.refresh().faults]


def versions(catalogue: Catalogue) -> dict[str, str]:
    return {unit.name: unit.description for unit in catalogue.units.values()}


def cost_function(catalogue: Catalogue, name: str) -> Optional[PolicyUnit]:
    return catalogue.units.get((Kind.COST_FUNCTION, name))


def huge(path: Path) -> None:
    """Make a file of a tebibyte, none of it written."""
    path.touch()
    os.truncate(path, 1 << 40)
