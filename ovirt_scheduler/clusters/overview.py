"""What is shown of a cluster that the daemon looks after: its hosts, and what its section says."""

from __future__ import annotations

from typing import Optional

from ovirt_scheduler.clusters.cluster_reader import ClusterReader
from ovirt_scheduler.clusters.migration_limits import used_parts
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.plans import HostLook
from ovirt_scheduler.settings.table import ClusterSettings


def hosts(reader: ClusterReader) -> tuple[HostLook, ...]:
    """The hosts as a reader's latest look found them; none before the first one."""
    state, measured = reader.state or ClusterState({}, {}), reader.measured
    looks: list[HostLook] = []
    vms: dict[Optional[str], list[tuple[str, str]]] = {}
    for key, vm in state.vms.items():
        vms.setdefault(vm.host, []).append((key, vm.name))
    for key, host in state.hosts.items():
        parts = used_parts(measured.get(key, host))
        used = {what: round(100 * part, 1) for what, part in parts.items()}
        looks.append(HostLook(key, host.name, host.status, used, tuple(vms.get(key, ()))))
    return tuple(looks)


def policy(section: ClusterSettings) -> dict[str, str]:
    """What a section says about balancing, in words."""
    costs = ", ".join(f"{each.name} × {each.factor}" for each in section.cost_functions)
    properties = {key: value for key, value in section.properties.items() if key != "policy"}
    words = {
        "Scheduler": section.scheduler,
        "Policy": section.policy or "the scheduler's first",
        "Properties": "; ".join(f"{key}={value}" for key, value in properties.items()),
        "Filters": ", ".join(each.name for each in section.filters),
        "Cost functions": costs,
        "Balance": section.balance.name if section.balance else "",
        "Hold": f"{section.hold / 60:g} min",
        "Margin": f"{section.margin:g} %",
        "Migrations of a VM": f"{section.migrations_per_vm} an hour at most",
    }
    return {what: text for what, text in words.items() if text}
