"""The affinity rules of a saved cluster: an engine's filters by them, and its enforcer.

A snapshot has the groups in the cluster's element, and the labels in its hosts and VMs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Optional
from xml.etree.ElementTree import tostring

from ovirt_scheduler.clusters.affinity_watch import LAST_WITH_IMPLICIT
from ovirt_scheduler.clusters.reader_reports import GROUPS, LabelMembers, resolve_labels
from ovirt_scheduler.errors import BadInput, UnreadableDocument
from ovirt_scheduler.model.affinity import AffinityRules, BrokenRule, PlacedVms
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.workbench.simulated_cluster import SimulatedCluster, SimulatedHost, SimulatedVm
from ovirt_scheduler.workbench.snapshot import Snapshot

_NEWEST = "99"  # the version of a cluster that does not tell it


def read_rules(executor: Executor, snapshot: Snapshot) -> AffinityRules:
    """The affinity rules of a saved cluster; none where it was saved without its groups.

    Raises:
        BadInput: its groups cannot be read.
    """
    clusters = snapshot.elements("clusters")
    groups = [group for cluster in clusters for group in cluster.iterfind("affinity_groups/*")]
    is_old = any(
        tuple(
            int(cluster.findtext(f"version/{part}") or _NEWEST) for part in ("major", "minor")
        ) <= LAST_WITH_IMPLICIT
        for cluster in clusters
    )  # fmt: skip
    if not groups and not is_old:
        return AffinityRules()
    # To parse each host and VM once more takes long in a large cluster.
    has_labels = is_old or any(group.find(f"{kind}_labels/*") is not None
                               for group in groups for kind in ("vm", "host"))  # fmt: skip
    labels = dict(_labels(snapshot)) if has_labels else {}
    data = b"<affinity_groups>%b</affinity_groups>" % b"".join(map(tostring, groups))
    try:
        _, groups_by_id = GROUPS.read(executor, Document(data, "utf-8"))
    except UnreadableDocument as error:
        raise BadInput(f"the affinity groups of {snapshot.cluster}: {error}") from None
    return AffinityRules(resolve_labels(groups_by_id.values(), labels, is_old))


def running_vms(snapshot: Snapshot) -> dict[str, str]:
    """The host of each VM that runs, by their ids."""
    hosts = ((vm.get("id", ""), vm.find("host")) for vm in snapshot.elements("vms"))
    return {vm: host.get("id", "") for vm, host in hosts if host is not None}


def _labels(snapshot: Snapshot) -> Iterator[tuple[str, LabelMembers]]:
    """The affinity labels by id, gathered from the hosts and VMs that have them."""
    names: dict[str, tuple[str, bool]] = {}
    members: dict[str, dict[str, set[str]]] = {}
    for kind in ("hosts", "vms"):
        for entity in snapshot.elements(kind):
            for label in entity.iterfind("affinity_labels/affinity_label"):
                key = label.get("id", "")
                is_implicit = label.findtext("has_implicit_affinity_group") == "true"
                names[key] = label.findtext("name") or key, is_implicit
                of_kind = members.setdefault(key, {"hosts": set(), "vms": set()})[kind]
                of_kind.add(entity.get("id", ""))
    for key, (name, is_implicit) in names.items():
        vms, hosts = frozenset(members[key]["vms"]), frozenset(members[key]["hosts"])
        yield key, LabelMembers(name, is_implicit, vms, hosts)


class Enforced(NamedTuple):
    """A migration by the engine's enforcer."""

    vm: SimulatedVm
    host: SimulatedHost
    rule: BrokenRule


class SimulatedRules:
    """What an engine does by the affinity rules of a simulated cluster."""

    def __init__(self, rules: AffinityRules, cluster: SimulatedCluster) -> None:
        self.rules = rules
        self._cluster = cluster

    def _placed(self, rules: AffinityRules) -> PlacedVms:
        """The VMs of groups where they run now."""
        vms = ((key, self._cluster.vms.get(key)) for key in rules.vms)
        return PlacedVms(rules, {key: vm.host.id for key, vm in vms if vm and vm.host})

    def broken(self) -> tuple[str, ...]:
        """The names of the groups of broken rules, the hard ones first, each with its hardness."""
        return tuple(
            f"{rule.group.name} ({'hard' if rule.enforcing else 'soft'})"
            for rule in self._placed(self.rules).broken()
        )

    def refusals(self, unit: Sequence[str]) -> dict[str, str]:
        """Why the filters of hard rules refuse VMs that move together on each host; empty: not."""
        return self._placed(self.rules.about(unit[0])).refusals(unit, self._cluster.hosts)

    def unit_of(self, vm: SimulatedVm) -> tuple[str, ...]:
        """The VMs that have to move with this one, itself first."""
        return self._placed(self.rules.about(vm.id)).unit_of(vm.id)

    def enforce(self) -> Optional[Enforced]:
        """The one VM that the enforcer moves in a minute: for hard rules first, then for soft."""
        placed = self._placed(self.rules)
        for rule in placed.broken():
            for key in chain.from_iterable(rule.units):
                vm = self._cluster.vms[key]
                host = self._better_host(vm, rule, placed)
                if host is not None:
                    return Enforced(vm, host, rule)
        return None

    def _better_host(
        self, vm: SimulatedVm, rule: BrokenRule, placed: PlacedVms
    ) -> Optional[SimulatedHost]:
        """The host that hard rules let the VM go to by itself, and where fewer soft ones break."""
        here = vm.host
        if here is None or not (vm.is_movable and vm.is_up) or vm.is_hosted_engine:
            return None
        fit = [
            host
            for host in map(self._cluster.hosts.__getitem__, placed.acceptable(
                (vm.id,), [key for key in self._cluster.hosts if key != here.id]
            ))
            if not host.refusal(vm)
        ]  # fmt: skip
        penalty = {host.id: placed.penalty((vm.id,), host.id) for host in (*fit, here)}
        if not rule.enforcing:
            fit = [host for host in fit if penalty[host.id] < penalty[here.id]]
        return min(fit, key=lambda host: (penalty[host.id], host.view().used), default=None)
