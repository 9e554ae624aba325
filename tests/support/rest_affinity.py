"""The affinity groups of a fake engine: their documents, its filters, closures and enforcer.

Written from what the engine's documentation and source say, and not from our own rules: what those
accept is compared with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from tests.support.elements import Element, at, collection, id_of
from tests.support.rest_cluster import Host, Vm

if TYPE_CHECKING:
    from tests.support.rest_server import RestServer

HARD, SOFT = True, False
_WEIGHT_OF_HOSTS = 20  # of a rule of hosts, against that of VMs


@dataclasses.dataclass
class Group:
    """An affinity group; members are named.

    Attributes:
        together, apart: whether its VMs belong on one host, or on different ones: hard or soft.
        on, off: whether its VMs belong on its hosts, or on others: hard or soft.
        is_old: written as engines before 4.3 write a group that has no rule of hosts.
    """

    name: str
    vms: Sequence[str] = ()
    hosts: Sequence[str] = ()
    together: Optional[bool] = None
    apart: Optional[bool] = None
    on: Optional[bool] = None
    off: Optional[bool] = None
    priority: float = 1.0
    vm_labels: Sequence[str] = ()
    host_labels: Sequence[str] = ()
    is_old: bool = False


@dataclasses.dataclass
class Label:
    """An affinity label; members are named."""

    name: str
    vms: Sequence[str] = ()
    hosts: Sequence[str] = ()
    is_implicit: bool = False


def groups_document(engine: RestServer) -> str:
    return collection("affinity_groups", [_group(group) for group in engine.groups])


def groups_element(engine: RestServer) -> Element:
    """The groups in the element of their cluster."""
    return Element("affinity_groups", [_group(group) for group in engine.groups])


def labels_document(engine: RestServer) -> str:
    return collection("affinity_labels", [_label(label) for label in engine.labels])


def _group(group: Group) -> Element:
    content = [
        Element("name", group.name),
        Element("broken", "false"),
        *_rules(group),
        Element("priority", str(group.priority)),
        *_members("vms", group.vms),
        *_members("hosts", group.hosts),
        *_members("vm_labels", group.vm_labels),
        *_members("host_labels", group.host_labels),
    ]
    return Element("affinity_group", content, {"id": id_of(f"group {group.name}")})


def _rules(group: Group) -> Iterator[Element]:
    if group.is_old:
        enforcing = group.together if group.apart is None else group.apart
        yield Element("enforcing", str(bool(enforcing)).lower())
        yield Element("positive", str(group.apart is None).lower())
        return
    yield _rule("hosts_rule", group.on, group.off)
    yield _rule("vms_rule", group.together, group.apart)


def _rule(name: str, positive: Optional[bool], negative: Optional[bool]) -> Element:
    values = {
        "enabled": positive is not None or negative is not None,
        "enforcing": bool(negative if positive is None else positive),
        "positive": positive is not None,
    }
    return Element(name, [Element(key, str(value).lower()) for key, value in values.items()])


def _members(kind: str, names: Sequence[str]) -> list[Element]:
    one, prefix = {
        "vms": ("vm", ""), "hosts": ("host", ""), "vm_labels": ("affinity_label", "label "),
        "host_labels": ("affinity_label", "label "),
    }[kind]  # fmt: skip
    below = "affinitylabels" if prefix else kind
    members = [Element(one, "", at(below, id_of(f"{prefix}{name}"))) for name in names]
    return [Element(kind, members)] if members else []


def _label(label: Label) -> Element:
    content = [
        Element("name", label.name),
        Element("has_implicit_affinity_group", str(label.is_implicit).lower()),
        *_members("vms", label.vms),
        *_members("hosts", label.hosts),
    ]
    return Element("affinity_label", content, {"id": id_of(f"label {label.name}")})


def _groups(engine: RestServer) -> Iterator[Group]:
    """The groups with the members of their labels, and the implicit ones of labels."""
    labels = {label.name: label for label in engine.labels}
    for group in engine.groups:
        of_vms = [vm for name in group.vm_labels for vm in labels[name].vms]
        of_hosts = [host for name in group.host_labels for host in labels[name].hosts]
        yield dataclasses.replace(group, vms=[*group.vms, *of_vms], hosts=[*group.hosts, *of_hosts])
    for label in engine.labels if engine.version <= (4, 3) else ():
        if label.is_implicit:
            yield Group(label.name, label.vms, label.hosts, on=HARD)


def refusal(engine: RestServer, vm: Vm, host: Host, moving: Collection[str] = ()) -> str:
    """Why the affinity filters refuse a VM on a host.

    Args:
        moving: names of VMs that come along.
    """
    required: set[str] = set()
    refused: set[str] = set()
    for group in _groups(engine):
        if vm.name not in group.vms:
            continue
        if (group.on is HARD and host.name not in group.hosts) or (
            group.off is HARD and host.name in group.hosts
        ):
            return f"{host.name} did not satisfy internal filter VmToHostsAffinityGroups."
        others = {
            other.host
            for other in engine.vms
            if other.name in group.vms and other.name not in (vm.name, *moving) and other.host
        }
        required |= others if group.together is HARD else set()
        refused |= others if group.apart is HARD else set()
        if group.apart is HARD and len({*group.vms}.intersection((vm.name, *moving))) > 1:
            refused.add(host.name)
    if host.name in refused or (required and host.name not in required):
        return f"{host.name} did not satisfy internal filter VmAffinityGroups."
    return ""


def closure(engine: RestServer, vm: Vm) -> list[Vm]:
    """The VMs that migrate with this one in its closure, itself first."""
    names = {vm.name}
    there = {other.name: other for other in engine.vms if other.host == vm.host}
    while True:
        more = {
            name
            for group in _groups(engine)
            if group.together is HARD and names.intersection(group.vms)
            for name in group.vms
            if name in there
        }
        if more <= names:
            return [vm, *(there[name] for name in sorted(names) if name != vm.name)]
        names |= more


def broken(engine: RestServer, is_hard: bool) -> set[str]:
    """The names of groups with a broken rule; for a checker that knows nothing of ours."""
    return {name for name, _ in _violations(engine, is_hard)}


def _violations(engine: RestServer, is_hard: bool) -> list[tuple[str, list[Vm]]]:
    """The names of broken groups with what could move: by rules of hosts first."""
    of_hosts, of_vms = [], []
    for group in _groups(engine):
        members = [vm for vm in engine.vms if vm.name in group.vms and vm.host]
        wrong = [
            vm
            for vm in members
            if (group.on is is_hard and vm.host not in group.hosts)
            or (group.off is is_hard and vm.host in group.hosts)
        ]
        if wrong:
            of_hosts.append((group.name, wrong))
        by_host: dict[str, list[Vm]] = {}
        for vm in members:
            by_host.setdefault(vm.host or "", []).append(vm)
        if group.together is is_hard and len(by_host) > 1:
            of_vms.append((group.name, min(by_host.values(), key=len)))
        crowded = [vm for on_it in by_host.values() if len(on_it) > 1 for vm in on_it]
        if group.apart is is_hard and crowded:
            of_vms.append((group.name, crowded))
    return of_hosts + of_vms


def enforce(engine: RestServer) -> Optional[tuple[str, str]]:
    """Do what the enforcer does once a minute: have one VM migrated, where that mends a rule.

    Returns:
        The names of the VM and of its host; None if it has nothing to do.
    """
    if engine.migrating:
        return None
    for is_hard in (HARD, SOFT):
        for vm in (vm for violation in _violations(engine, is_hard) for vm in violation[1]):
            if vm.status != "up" or vm.affinity != "migratable" or "hosted_engine" in vm.origin:
                continue
            fit = [
                host
                for host in engine.hosts
                if host.name != vm.host and not engine.refusal(vm, host)
            ]
            here = next(host for host in engine.hosts if host.name == vm.host)
            best = min(fit, key=lambda host: _cost(engine, vm, host), default=None)
            is_better = best and _cost(engine, vm, best) < _cost(engine, vm, here)
            if best and (is_better or is_hard):
                engine.begin_migration(vm, best, "")
                return vm.name, best.name
    return None


def _cost(engine: RestServer, vm: Vm, host: Host) -> float:
    """What soft rules cost for a VM on a host."""
    cost = 0.0
    for group in _groups(engine):
        if vm.name not in group.vms:
            continue
        cost += _WEIGHT_OF_HOSTS * (group.on is SOFT and host.name not in group.hosts)
        cost += _WEIGHT_OF_HOSTS * (group.off is SOFT and host.name in group.hosts)
        others = {
            other.host for other in engine.vms if other.name in group.vms and other is not vm
        } - {None}
        cost += group.together is SOFT and bool(others) and host.name not in others
        cost += group.apart is SOFT and host.name in others
    return cost
