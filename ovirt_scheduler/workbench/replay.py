"""Makes recorded decisions again, with the daemon's own code: unchanged, and with changes.

::

    recordings ──► a decision ──┬─► made again on today's plugins ──┬─► comparison
    (the oldest first)          └─► made again with the changes ────┘
                   as many at once as max_parallel_calls

No call reaches the engine: its answers to ids are recorded, and a plugin that asks for more gets
an error.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Callable, Optional, Union, cast

from ovirt_scheduler.catalogue.catalogue import Catalogue
from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import SHIPPED, Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.errors import BadUsage, EngineUnavailable, RequestError
from ovirt_scheduler.history import conversion
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import Recorded, RecordReader
from ovirt_scheduler.model.affinity import NO_RULES, PlacedVms
from ovirt_scheduler.model.jobs import DriverCall, Request
from ovirt_scheduler.model.plugins import EngineAccess
from ovirt_scheduler.model.requests import (
    AnswerForm,
    Caller,
    Document,
    Entities,
    IdOrDocument,
    IdsOrDocument,
    RequestedUnit,
    new_id,
)
from ovirt_scheduler.model.tasks import EngineReplies, EngineReply, Ids, Role, Sought
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.model.values.hidden import HIDDEN
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings.table import Settings

_KINDS = {kind.method: kind for kind in Kind}
_SELECTS = ("select_host", "candidates", "has_any_hosts")  # calls that filters come before
_CHUNK = 8  # decisions that one thread makes after another: many are made on the same hosts
_KEPT = 4  # documents, for each thread

Remade = Union[Record, str]  # of a refused request: why
Replayed = tuple[Record, Sequence[Remade]]  # as it was decided then; and by each policy


@dataclass(frozen=True)
class Changes:
    """What is to be different.

    Attributes:
        factors: of cost functions, by name.
        without: units that are not asked.
        added: units that are asked besides, each with its factor; None: as a filter, too.
    """

    factors: Mapping[str, int] = field(default_factory=dict)
    without: Sequence[str] = ()
    added: Mapping[str, Optional[int]] = field(default_factory=dict)

    def units(self, kind: Kind, former: Record, catalogue: Catalogue) -> tuple[RequestedUnit, ...]:
        """The units of a kind that are asked instead of the recorded ones."""
        factors = self.factors if kind is Kind.COST_FUNCTION else {}
        units = [
            RequestedUnit(unit["name"], factors.get(unit["name"], unit.get("factor", 1)))
            for unit in former["units"]
            if unit["kind"] == kind.label
            and unit.get("mode", "live") == "live"
            and unit["name"] not in self.without
        ]
        if kind is not Kind.BALANCE:
            there = {each.name for each in units}
            units += [
                RequestedUnit(name, 1 if factor is None else factor)
                for name, factor in self.added.items()
                if name not in there
                and any(unit["kind"] == kind.label for unit in former["units"])
                and kind in catalogue.kinds_of(name)
                and (kind is Kind.COST_FUNCTION or factor is None)
            ]
        return tuple(units)


class Policy:
    """Plugins and changes: makes decisions by them. Safe to use from many threads.

    Args:
        executor: runs the plugins.
        settings: that hold for them.
        changes: to what was asked.
    """

    def __init__(self, executor: Executor, settings: Settings, changes: Changes) -> None:
        self._executor = executor
        self._settings = settings
        self._changes = changes
        registry = Registry(Loader(settings, executor.analyse, SHIPPED), LastGood(None))
        self.catalogue = _with_live(registry.refresh(), changes.added)
        self._check(changes)

    def _check(self, changes: Changes) -> None:
        """Refuse changes that name units which do not exist.

        Raises:
            BadUsage: there is no such unit.
        """
        there = {name for _, name in self.catalogue.units}
        named: list[tuple[str, str, Optional[int]]] = [
            *(("--set", name, factor) for name, factor in changes.factors.items()),
            *(("--with", name, factor) for name, factor in changes.added.items()),
            *(("--without", name, None) for name in changes.without),
        ]
        for option, name, factor in named:
            kinds = self.catalogue.kinds_of(name)
            if not kinds:
                folders = ", ".join(map(str, self._settings.plugins_path))
                hint = spelling.hint(name, there)
                raise BadUsage(f"{option} {name}: no plugin in {folders} has this unit{hint}")
            if factor is not None and Kind.COST_FUNCTION not in kinds:
                problem = "it is no cost function, and has no factor"
                raise BadUsage(f"{option} {name}={factor}: {problem}")
            if option == "--with" and kinds == (Kind.BALANCE,):
                raise BadUsage(f"--with {name}: only a filter or a cost function can be added")

    def make(self, recorded: Recorded, past: Past) -> Remade:
        """Make a decision: its record, or why it was refused."""
        former = recorded.record
        form = AnswerForm.DESIGN if former["form"] == "design" else AnswerForm.ENGINE
        seconds = self._settings.request_timeout
        service = DecisionService(self.catalogue, self._executor, seconds, past)
        try:
            entities, last = past.entities, None
            if former["method"] in _KINDS:
                kinds = [_KINDS[former["method"]]]
                of_vm = Kind.BALANCE not in kinds  # else the record's VM is the one that it moves
                entities = entities._replace(vm=entities.vm or "" if of_vm else None)
            else:
                last = _driver_call(service, recorded)
                kinds = [Kind.FILTER, Kind.COST_FUNCTION] if last.method in _SELECTS else []
            units = {kind: self._changes.units(kind, former, self.catalogue) for kind in kinds}
            caller = Caller(new_id(), form, "replay")
            # Where a value was not recorded, the default holds.
            values = former.get("properties", {}).items()
            properties = {name: value for name, value in values if value != HIDDEN}
            request = Request(caller, entities, properties, units, last)
            return conversion.make_record(service.decide(request))
        except RequestError as error:
            return str(error)


def _driver_call(service: DecisionService, recorded: Recorded) -> DriverCall:
    """The call of a recorded decision's scheduler, which knows what it had selected.

    Raises:
        UnknownUnit: there is no such scheduler any more.
    """
    call = recorded.request
    driver = service.scheduler(recorded.record["units"][-1]["name"], call["method"])
    service.selections[driver.name] = tuple(call["selected"])
    attributes = {
        name: call[name]
        for name in ("destinations", "planned", "coming", "averages")
        if name in call  # not all are in older recordings
    }
    rules = PlacedVms.of_plain(call["rules"]) if "rules" in call else NO_RULES
    return DriverCall(driver, call["method"], call["arguments"], **attributes, rules=rules)


def _with_live(catalogue: Catalogue, added: Container[str]) -> Catalogue:
    """The catalogue without units in shadow; added ones count like others."""
    live = {
        key: replace(unit, shadow=False)
        for key, unit in catalogue.shadows.items()
        if unit.name in added
    }
    return replace(catalogue, units={**catalogue.units, **live}, shadows={})


class _Gone(Exception):
    """A recording went from the history, which is full, while others were replayed."""


class Past:
    """The inputs of a recorded decision, and the engine's answers at that time.

    Hosts and VMs with known ids are given by their ids, and the documents as the engine's reply. So
    each document is read once, however many decisions were made on it.

    Args:
        document: returns one by its number, and the ids that it is about.

    Raises:
        _Gone: a document is not there any more.
    """

    def __init__(self, recorded: Recorded, document: Callable[[int, Ids], EngineReply]) -> None:
        former, named = recorded.record, recorded.request.get("ids", {})
        hosts = tuple(host["id"] for host in former["hosts"])
        vms, vm = tuple(named.get("vms", ())), named.get("vm", former.get("vm", {}).get("id"))
        ids_of: dict[Role, Ids] = {Role.HOSTS: hosts, Role.VMS: vms, Role.VM: (vm,) if vm else ()}
        replies: dict[Role, list[EngineReply]] = {role: [] for role in Role}
        brought: dict[Role, Optional[Document]] = {}
        for role, of_engine, number in recorded.documents:
            ids = ids_of.get(role, ())
            reply = document(number, ids)
            if of_engine or ids:
                replies[role].append(reply)
            else:
                brought[role] = reply.document
        self.entities = Entities(
            cast("IdsOrDocument", brought.get(Role.HOSTS, hosts)),
            cast("IdsOrDocument", brought.get(Role.VMS, vms)),
            cast("Optional[IdOrDocument]", brought.get(Role.VM, vm)),
            cast("Optional[IdOrDocument]", brought.get(Role.HOST, named.get("host"))),
        )
        of_vm = next(iter(replies[Role.VM]), None)
        self._replies = EngineReplies(tuple(replies[Role.HOSTS]), of_vm, tuple(replies[Role.VMS]))

    def look_up(self, _sought: Sought, _deadline: float) -> EngineReplies:
        """What the engine answered when the decision was made."""
        return self._replies

    def access(self, _deadline: float) -> EngineAccess:
        """Nothing.

        Raises:
            EngineUnavailable: always.
        """
        raise EngineUnavailable(
            "a replay asks no engine: it may know other things now than it did then"
        )


def run(
    reader: RecordReader, numbers: Sequence[int], policies: Sequence[Policy], parallel: int
) -> Iterator[Replayed]:
    """Make decisions again, one policy after another; they come in their order.

    Args:
        numbers: of recorded decisions.
        parallel: decisions that are made at once.

    Yields:
        The recorded decision, and that of each policy.

    Raises:
        HistoryUnreadable: the recordings cannot be read.
    """

    @functools.lru_cache(_KEPT * parallel)  # with what was read of it
    def document(number: int, ids: Ids) -> EngineReply:
        past_document = Document(reader.document(number), "utf-8")
        if not past_document.data:
            raise _Gone
        return EngineReply(past_document, ids)

    stopping = threading.Event()

    def make(some: Sequence[int]) -> list[Replayed]:
        replayed: list[Replayed] = []
        for recorded in filter(None, map(reader.recording, some)):
            if stopping.is_set():
                break
            with contextlib.suppress(_Gone):
                past = Past(recorded, document)
                remade = [policy.make(recorded, past) for policy in policies]
                replayed.append((recorded.record, remade))
        return replayed

    chunks = (numbers[start : start + _CHUNK] for start in range(0, len(numbers), _CHUNK))
    with ThreadPoolExecutor(parallel) as threads:
        try:
            for replayed in threads.map(make, chunks):
                yield from replayed
        finally:  # whoever takes them may stop early
            stopping.set()
