"""What a request for policy units comes to, and what it brings back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional, Tuple

from ovirt_scheduler.model.model import NO_ENGINE, CallResult, Engine, Hosts, Kind, UnitCall, Vm
from ovirt_scheduler.model.tasks import Known


@dataclass(frozen=True)
class Job:
    """Units of one kind to call."""

    kind: Kind
    calls: Tuple[UnitCall, ...]
    hosts: Hosts
    vm: Optional[Vm]
    deadline: float  # seconds on the monotonic clock, for all calls together
    strict: bool = True  # a property's value that a unit refuses ends it all (contract 1.5)
    known: Known = field(default_factory=Known)
    engine: Engine = NO_ENGINE


@dataclass(frozen=True)
class Execution:
    """What the executor brings back for one request."""

    hosts: Tuple[str, ...]  # ids in the order given
    vm: Optional[str]
    results: Tuple[CallResult, ...]  # of the units that ran, in the order asked for
    errors: Tuple[str, ...] = ()  # that belong to no single unit
