"""The job of a request, its execution, and the decision that is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from ovirt_scheduler.model.plugins import NO_ENGINE, Engine
from ovirt_scheduler.model.requests import Hosts, Request, Vm
from ovirt_scheduler.model.results import Answer, CallResult
from ovirt_scheduler.model.tasks import EngineReplies, Pack, Role
from ovirt_scheduler.model.units import Kind, UnitCall


class Job(NamedTuple):
    """Units of one kind to call."""

    kind: Kind
    calls: tuple[UnitCall, ...]
    hosts: Hosts
    vm: Optional[Vm]
    deadline: float  # seconds on the monotonic clock, for all calls together
    strict: bool = True  # a property's value that a unit refuses ends it all (contract 1.5)
    replies: EngineReplies = EngineReplies()
    engine: Engine = NO_ENGINE
    packs: Mapping[Role, Pack] = {}  # of documents that were read already


class ShadowCall(NamedTuple):
    """A call of a unit in shadow, after the answer (contract 10.4)."""

    call: UnitCall
    result: Optional[CallResult] = None  # None: it was not called
    problem: str = ""  # why it was not


class Execution(NamedTuple):
    """What the executor returns for one request."""

    hosts: tuple[str, ...]  # ids in the order given
    vm: Optional[str]
    results: tuple[CallResult, ...]  # of the units that ran, in the order asked for
    errors: tuple[str, ...] = ()  # that belong to no single unit
    names: Mapping[str, str] = {}  # by id, as far as they are known
    packs: Mapping[Role, Pack] = {}  # of the documents that came


class Decision(NamedTuple):
    """The whole record of one answered request; the server picks from it what a form shows."""

    request: Request
    execution: Execution  # with costs as the functions told them
    results: tuple[CallResult, ...]  # of the execution, with costs as they count for the answer
    answer: Answer
    errors: tuple[str, ...] = ()
    unit_errors: Mapping[str, tuple[str, ...]] = {}
    calls: tuple[UnitCall, ...] = ()
    time: float = 0.0  # when it was asked for, in seconds since 1970
    seconds: float = 0.0  # that it took
    secret: str = ""  # the token for the engine that plugins were given
    shadows: tuple[ShadowCall, ...] = ()
