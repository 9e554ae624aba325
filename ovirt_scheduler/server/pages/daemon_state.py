"""The state of the daemon at one moment: plain values, for pages, metrics and ``status``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Optional

if TYPE_CHECKING:  # else the command status would load what runs plugins
    from ovirt_scheduler.decisions.missing_names import MissingUnit
    from ovirt_scheduler.engine.inventory import EngineState
    from ovirt_scheduler.history.store import HistoryState
    from ovirt_scheduler.model.plans import ClusterLook
    from ovirt_scheduler.processes.executor import ProcessesState


class UnitState(NamedTuple):
    """A policy unit or a driver that is loaded. Times are in seconds since 1970."""

    name: str
    kind: str  # in words: filter, cost function, balance, driver
    file: str
    checksum: str
    mode: str = "live"  # or shadow
    description: str = ""
    properties: tuple[tuple[str, str], ...] = ()  # name and pattern
    old_version: Optional[float] = None  # when the older version that answers was first loaded
    old_since: Optional[float] = None  # since when its file does not load
    old_because: str = ""


class UnloadedFile(NamedTuple):
    """A file of the plugins' folders that gives no unit."""

    file: str  # the one with the mistake: the plugin's, its conf file, a helper, or the folder
    fault: str  # where and why
    in_part: bool = False  # something else that is in it works


class ReloadFailure(NamedTuple):
    """The last reload, which changed nothing."""

    time: float  # seconds since 1970
    reason: str


class ThreadState(NamedTuple):
    """The failures of a thread that goes on whatever its work raises."""

    work: str  # what it does
    failures: int
    problem: str = ""  # why the latest turn failed; empty if it did not


class DaemonState(NamedTuple):
    """The state of the whole daemon. Times are in seconds since 1970."""

    version: str
    started: float
    plugins_path: str
    units: tuple[UnitState, ...]
    processes: ProcessesState
    unloaded: tuple[UnloadedFile, ...] = ()
    missing: tuple[MissingUnit, ...] = ()  # that callers named within the last hour
    certificate_ends: Optional[float] = None
    engine: Optional[EngineState] = None
    clusters: tuple[ClusterLook, ...] = ()
    # How often VMs went to the best host, and not: yes, no. None: no cluster is looked after.
    followed: Optional[Mapping[str, int]] = None
    history: Optional[HistoryState] = None
    reload_failure: Optional[ReloadFailure] = None  # None: the last reload was well
    stuck: str = ""  # why the watchdog would not be fed
    threads: tuple[ThreadState, ...] = ()
