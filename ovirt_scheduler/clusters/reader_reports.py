"""What readers of documents report of hosts, VMs, affinity groups and labels.

A reader has read documents from outside, so it is not trusted: each value is checked.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Callable, Generic, NamedTuple, Optional, TypeVar

from ovirt_scheduler.engine.inventory import PAGE_SECONDS
from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.affinity import AffinityGroup, Rule
from ovirt_scheduler.model.cluster_state import HostState, VmState
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import Pack, Role
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.processes.protocol.packed_answers import MISSHAPEN, amount, text, texts

HostOrVm = TypeVar("HostOrVm", HostState, VmState)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Report(Generic[_T]):
    """What readers report of the entities of a document.

    Attributes:
        role: what is in the document.
        function: of ``processes.documents``, which reports it.
        values: of an entity, in a reader's order, and how each is checked.
        make: makes the state of an entity of these values.
        fewest: values; amounts are there as far as they are known.
    """

    role: Role
    function: str
    values: Mapping[str, Callable[[object], object]]
    make: Callable[..., _T]
    fewest: int = 3

    def read(self, executor: Executor, document: Document) -> tuple[Pack, dict[str, _T]]:
        """Have a reader read a document, within ``PAGE_SECONDS``.

        Returns:
            The entities packed; and the state of each by id.

        Raises:
            UnreadableDocument, Overloaded, ExecutorUnavailable: as for ``Executor.read_page``.
        """
        deadline = time.monotonic() + PAGE_SECONDS
        pack, reported = executor.read_page(self.role, document, self.function, deadline)
        return pack, self.unpack(reported)

    def unpack(self, reported: Any) -> dict[str, _T]:
        """The state of each entity by id.

        Args:
            reported: what the reader of one document sent.

        Raises:
            UnreadableDocument: it has not the shape.
        """
        by_id: dict[str, _T] = {}
        try:
            for key, values in reported.items():
                if not self.fewest <= len(values) <= len(self.values):
                    raise ValueError(f"{len(values)} values")
                checked = {
                    name: check(value) for (name, check), value in zip(self.values.items(), values)
                }
                by_id[text(key)] = self.make(**checked)
        except MISSHAPEN as error:
            raise UnreadableDocument(
                f"not the states of hosts, VMs or groups: {error!r:.200}"
            ) from None
        return by_id


class LabelMembers(NamedTuple):
    """An affinity label; members by their ids."""

    name: str
    is_implicit: bool  # a hard group of its own in clusters up to 4.3
    vms: frozenset[str]
    hosts: frozenset[str]


class LabelledGroup(NamedTuple):
    """An affinity group whose labels, by their ids, are yet to be replaced by their members."""

    group: AffinityGroup
    vm_labels: frozenset[str]
    host_labels: frozenset[str]


def resolve_labels(
    groups: Iterable[LabelledGroup], labels: Mapping[str, LabelMembers], has_implicit: bool
) -> Iterator[AffinityGroup]:
    """The groups with the members of their labels, without those that have no rule.

    Args:
        labels: by id; one that a group names may be gone.
        has_implicit: whether labels may be groups of their own.
    """
    nobody = LabelMembers("", False, frozenset(), frozenset())
    for group, vm_labels, host_labels in groups:
        if group.vm_rule or group.host_rule:
            of_vms = (labels.get(label, nobody).vms for label in vm_labels)
            of_hosts = (labels.get(label, nobody).hosts for label in host_labels)
            vms, hosts = group.vms.union(*of_vms), group.hosts.union(*of_hosts)
            yield group._replace(vms=vms, hosts=hosts)
    for label in labels.values() if has_implicit else ():
        if label.is_implicit:
            rule = Rule(positive=True, enforcing=True)
            yield AffinityGroup(label.name, label.vms, label.hosts, host_rule=rule)


def _labelled(
    vm_labels: frozenset[str], host_labels: frozenset[str], **values: Any
) -> LabelledGroup:
    return LabelledGroup(AffinityGroup(**values), vm_labels, host_labels)


def _text_or_none(value: object) -> Optional[str]:
    return None if value is None else text(value)


def _members(value: object) -> frozenset[str]:
    return frozenset(map(sys.intern, texts(value)))  # of one VM in many groups there is one text


def _number(value: object) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError("no number")
    return float(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("no truth")
    return value


def _rule(value: Any) -> Optional[Rule]:
    return None if value is None else Rule(*map(_truth, value))


HOSTS = Report(Role.HOSTS, "resource_use:states", {
    "name": text, "status": text, "cluster": _text_or_none, "processors": amount,
    "busy_processors": amount, "memory": amount, "used_memory": amount, "room": amount,
}, HostState)  # fmt: skip
VMS = Report(Role.VMS, "resource_use:states", {
    "name": text, "status": text, "cluster": _text_or_none, "host": _text_or_none,
    "origin": text, "is_highly_available": _truth, "pinned_to": _members,
    "processors": amount, "memory": amount, "busy_processors": amount,
}, VmState)  # fmt: skip
GROUPS = Report(Role.AFFINITY_GROUPS, "affinity_groups:groups", {
    "name": text, "priority": _number, "vm_rule": _rule, "host_rule": _rule, "vms": _members,
    "hosts": _members, "vm_labels": _members, "host_labels": _members,
}, _labelled)  # fmt: skip
LABELS = Report(Role.AFFINITY_LABELS, "affinity_groups:labels", {
    "name": text, "is_implicit": _truth, "vms": _members, "hosts": _members,
}, LabelMembers)  # fmt: skip
