"""The tasks of the processes below the zygote, and the data that comes with them.

Only the daemon pickles tasks, so a process trusts them. Entities travel beside a task, as sealed
files in memory (``Pack``) whose descriptors come with it.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Optional, Union

from ovirt_scheduler.model.answer_memory import Claim
from ovirt_scheduler.model.plugins import (
    Candidate,
    Engine,
    Limits,
    PluginCode,
    ProcessKey,
    PropertySet,
)
from ovirt_scheduler.model.requests import Document

Ids = tuple[str, ...]

NO_PLUGIN = "the daemon"  # instead of the file of a plugin: whose a process is that runs none
READERS = ProcessKey("readers", 0, 0, 0, 0)  # which processes read documents

ANALYSIS_LIMITS = Limits(timeout=10.0, memory=512 << 20, cpu=10, open_files=256)


class Returns(enum.Enum):
    """What a function of a plugin returns; ``answers`` reads and ``packed_answers`` packs each."""

    HOSTS = "hosts"  # a filter: the hosts to keep
    COSTS = "costs"  # a cost function: host to cost
    MIGRATION = "migration"  # a balance: one VM and its hosts, or nothing
    SELECTION = "selection"  # ids of hosts, the best first
    IDS = "ids"  # of hosts, where none are given to choose from
    TRUTH = "truth"
    MIGRATIONS = "migrations"  # VM id to the ids of the hosts it may go to, the best first
    VALUE = "value"  # whatever XML-RPC carries


class Role(enum.Enum):
    """The role of a request's entities in a function: the name of its parameter.

    No function gets affinity groups and labels: the daemon makes rules of them.
    """

    HOSTS = "hosts"
    VMS = "vms"
    VM = "vm"
    HOST = "host"
    AFFINITY_GROUPS = "affinity_groups"
    AFFINITY_LABELS = "affinity_labels"

    @property
    def kind(self) -> str:
        """The SDK's name of the type."""
        return {
            Role.HOSTS: "Host", Role.HOST: "Host", Role.AFFINITY_GROUPS: "AffinityGroup",
            Role.AFFINITY_LABELS: "AffinityLabel",
        }.get(self, "Vm")  # fmt: skip


class Pack:
    """The entities of one document, packed into a sealed file in memory.

    Args:
        descriptor: of the file; it is closed when nobody has the pack any more.
        ids: of the entities, in the document's order; None for a VM that is yet to be made.
        sizes: bytes of each pack, if several lie in this file one after another; else empty.
    """

    def __init__(
        self, descriptor: int, ids: tuple[Optional[str], ...], sizes: tuple[int, ...] = ()
    ) -> None:
        self.descriptor = descriptor
        self.ids = ids
        self.sizes = sizes
        self.names: dict[str, str] = {}  # by id, as far as they are known
        self.claim: Optional[Claim] = None  # if they are of the engine's answers
        self.states: object = None  # in its document, unchecked, if it tells them

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return os.fstat(self.descriptor).st_size

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


@dataclass(eq=False)
class EngineReply:
    """The engine's reply about hosts or VMs: its document, and the pack once it was read.

    Requests share it by way of the inventory's cache. Two of them may read it at once; both
    then put the same here.
    """

    document: Optional[Document]
    ids: Ids
    pack: Optional[Pack] = None
    problems: tuple[str, ...] = ()
    keeps_document: bool = True  # for the history; else it goes when there is a pack


class Sought(NamedTuple):
    """The hosts and VMs that the engine is asked about, by their ids."""

    hosts: Ids = ()
    vm: Optional[str] = None
    vms: Ids = ()
    statistics: bool = False  # of each host and VM as well


class EngineReplies(NamedTuple):
    """The engine's replies on the hosts and VMs that a request names by id (contract 5.2)."""

    hosts: tuple[EngineReply, ...] = ()
    vm: Optional[EngineReply] = None
    vms: tuple[EngineReply, ...] = ()


Packs = Mapping[Role, tuple[Pack, ...]]


class CallInputs(NamedTuple):
    """The hosts and VMs that calls get: their ids, and packs if more than an id is known.

    Of several packs the first that has an id counts. An id that no pack has becomes an entity
    with nothing but that id (contract 5.2).
    """

    hosts: Ids = ()
    vms: Ids = ()
    vm: Optional[str] = None
    host: Optional[str] = None
    packs: Packs = {}  # noqa: RUF012  nobody changes it

    @property
    def names(self) -> Mapping[str, str]:
        """The known names of hosts and VMs, by id; a VM without an id has the key ""."""
        names_by_id: dict[str, str] = {}
        for packs in self.packs.values():
            for pack in packs:
                names_by_id = {**pack.names, **names_by_id}
        return names_by_id


class Function(NamedTuple):
    """A function of a plugin, and how it is called."""

    unit: str  # the policy unit or driver that it belongs to
    kind: str  # of that, in a sentence: cost function
    name: str
    returns: Returns
    class_name: Optional[str] = None  # its class is made anew for each call; None: of the module
    # By position; None: the call's own arguments, by name.
    parameters: Optional[tuple[str, ...]] = None
    takes_ids: bool = False  # a class unit: ids instead of entities, and it may print its answer
    properties: Optional[PropertySet] = None


@dataclass(frozen=True)
class Setup:
    """The first task of a plugin's process: which plugin it serves."""

    plugin: PluginCode
    limits: Limits

    @functools.cached_property
    def key(self) -> ProcessKey:
        """What the process serves."""
        return ProcessKey.of(self.plugin, self.limits)

    @property
    def file(self) -> str:
        """The plugin's file."""
        return self.plugin.modules[0].path


class ReaderSetup(NamedTuple):
    """The first task of a reader."""

    key: ProcessKey = READERS
    file: str = NO_PLUGIN


class CallTask(NamedTuple):
    """One call of a function of the plugin.

    ``packs`` has, for each role, the places of its packs among the descriptors that came with the
    task, each with ``Pack.sizes``.
    """

    function: Function
    engine: Engine
    hosts: Ids
    vms: Ids
    vm: Optional[str]
    host: Optional[str]
    packs: Mapping[str, tuple[tuple[int, tuple[int, ...]], ...]]
    seconds: float  # time for checking the properties' values
    properties: Mapping[str, str]
    arguments: Mapping[str, object]
    attributes: Mapping[str, object]  # set on the class's instance before the call
    strict: bool  # a value that cannot be checked in that time is refused, as a wrong one is


class CheckTask(NamedTuple):
    """Whether a function's properties take these values; nothing of the plugin runs."""

    function: Function
    properties: Mapping[str, str]
    seconds: float  # time for checking them
    strict: bool = True  # as in a ``CallTask``


class PingTask(NamedTuple):
    """Only say READY: whether the process waits for a task."""


class PrintedTask(NamedTuple):
    """Read a class unit's answer from what its call printed (contract 5.3)."""

    function: Function
    hosts: Ids
    stdout: bytes
    stderr: bytes


class Unread(NamedTuple):
    """A document to be read.

    Attributes:
        ids: that the engine was asked for, if the document is its answer.
        report: the function of ``processes.documents`` that says what the daemon has to know of
            the entities, as MODULE:FUNCTION; empty: nothing.
    """

    role: Role
    document: Document
    ids: Optional[Ids] = None
    report: str = ""


class ReadTask(NamedTuple):
    """Read documents, and pack what is in each of them."""

    documents: tuple[Unread, ...]


class SplitTask(NamedTuple):
    """Cut documents into the elements of their hosts and VMs.

    Attributes:
        cut: the function of ``processes.documents`` that does it, as MODULE:FUNCTION.
    """

    documents: tuple[Document, ...]
    cut: str


Task = Union[
    Setup, ReaderSetup, CallTask, CheckTask, PingTask, PrintedTask, ReadTask, SplitTask, Candidate
]
