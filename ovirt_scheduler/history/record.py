"""The record of a decision, as JSON and the history have it (contract 8.1).

What is not known is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ovirt_scheduler.model.results import CallOutcome

# Verdicts on a host.
PASSED, REMOVED, FAILED, NEVER_ASKED = "passed", "removed", "failed", "never asked"

OK, NOT_ASKED = CallOutcome.OK.value, CallOutcome.NOT_ASKED.value


class Entity(TypedDict, total=False):
    """A host or a VM; one that is yet to be made has a name at most."""

    id: str
    name: str


class Verdict(TypedDict, total=False):
    """What a filter, or what was called last, said of a host."""

    unit: str
    verdict: str
    reason: str


class Cost(TypedDict, total=False):
    """What a cost function said of a host; of one that it left out there is a reason alone."""

    unit: str
    cost: int
    factor: int
    weighted: int  # factor times cost, or times ``held``
    held: int  # the cost as it was clamped (contract 3.6), if it was
    reason: str


class Host(Entity, total=False):
    """A host that a decision is about."""

    verdicts: Sequence[Verdict]  # in the order of the units
    costs: list[Cost]
    total: int  # the sum of the weighted costs
    rank: int  # 1 is the best; of a selection the scheduler's order


class UnitRecord(TypedDict, total=False):
    """A policy unit or a driver that a request names, and how its call ended."""

    name: str
    kind: str
    factor: int  # of a cost function
    checksum: str  # of its file
    mode: str  # live or shadow
    outcome: str
    milliseconds: float
    message: str  # why it failed, or was not called
    notes: list[str]
    corrected: bool  # whether something in the answer was put right, as the notes say


class Summary(TypedDict, total=False):
    """What a list shows of a decision, besides what its record says (contract 8.4)."""

    summary: str  # its outcome, in a sentence
    is_bad: bool  # a unit failed that would have counted, something went wrong, or no host is left
    failures: list[tuple[str, str]]  # the units that failed, each with its message


class Record(Summary, total=False):
    """A decision: of policy units, or of a driver and the policy units before it.

    A brief one has what a list shows: id, time, milliseconds, method, VM and ``Summary``.
    """

    id: str
    time: str  # RFC 3339, in UTC
    milliseconds: float
    caller: str
    method: str  # as XML-RPC has it: selectHost
    form: str  # of the answer; ``daemon``: a cluster's thread called
    cluster: str
    beforehand: bool  # the daemon asked the engine where it would migrate the VM, and it asked this
    vm: Entity
    vms: list[Entity]  # those that the answer migrates, as far as they have names
    properties: Mapping[str, str]
    units: list[UnitRecord]
    hosts: list[Host]
    answer: Any  # ids, the best first; VM id to ids; ``vm`` and ``hosts``; or a truth
    fault: int  # of a refused call: the code of the fault that the design form has for it
    decisive: list[str]  # cost functions without which another host would be the best
    errors: list[str]


def entity(identity: str, name: str) -> Host:
    """A host, or a VM: its id and its name, as far as they are known."""
    fields: Host = {}
    if identity:
        fields["id"] = identity
    if name:
        fields["name"] = name
    return fields
