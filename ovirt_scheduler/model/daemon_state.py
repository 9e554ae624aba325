"""The state of the daemon at one moment: plain values, for pages, metrics and ``status``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from ovirt_scheduler.model.plans import Plan, Refusal


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


class ClusterLook(NamedTuple):
    """A cluster that the daemon looks after by itself."""

    name: str
    drive: str  # as in scheduler.conf: dry-run, approve or on
    last_look: Optional[float] = None  # seconds since 1970
    next_look: Optional[float] = None
    problem: str = ""
    imbalance: Optional[float] = None  # in percent, as the last balancing found it
    plans: tuple[Plan, ...] = ()  # those that are open, the oldest first
    driven_by: str = ""  # another daemon, for which this one stands by
    refusals: tuple[Refusal, ...] = ()  # that close something now; times are seconds since 1970
    denial: str = ""  # why the engine's user may not migrate VMs, in the engine's words
    denied_since: Optional[float] = None


class EngineState(NamedTuple):
    """How the last question to the engine's REST API ended."""

    url: str
    problem: str = ""
    since: Optional[float] = None  # seconds since 1970
    answers: Mapping[str, int] = {}  # by ok and failed


class HistoryState(NamedTuple):
    """The state of the history of decisions, as its writer knows it."""

    decisions: int
    bytes: int
    waiting: int
    dropped: int
    problem: str = ""  # why it cannot be written
    undeleted: str = ""  # why its oldest decisions cannot be deleted


class ProcessesState(NamedTuple):
    """The processes below the daemon, and the calls in them."""

    kept: int
    started: int
    replaced: Mapping[str, int]  # by reason
    zygotes_started: int  # that were started, the present one included
    running: int  # places for calls
    places: int
    waiting: int  # requests
    refused: int  # requests, for the daemon was at its limit


class MissingUnit(NamedTuple):
    """A policy unit, a scheduler or a topic that callers name, and that is not there."""

    kind: str  # in words: filter, cost function, balance, scheduler, topic
    name: str
    since: float  # when it was first named, in seconds since 1970
    times: int  # how often it was named since
    because: str = ""  # what callers are told


class UnloadedFile(NamedTuple):
    """A file of the plugins' folders that gives no unit."""

    file: str  # the one with the mistake: the plugin's, its conf file, a helper, or the folder
    fault: str  # where and why


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
    history: Optional[HistoryState] = None
    reload_failure: Optional[ReloadFailure] = None  # None: the last reload was well
    stuck: str = ""  # why the watchdog would not be fed
    threads: tuple[ThreadState, ...] = ()
