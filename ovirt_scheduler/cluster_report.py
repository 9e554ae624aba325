"""Whether what scheduler.conf says of a cluster fits the schedulers that there are."""

from __future__ import annotations

from typing import Mapping, Optional

from ovirt_scheduler import properties
from ovirt_scheduler.config import ClusterSettings
from ovirt_scheduler.drivers import POLICY, DriverUnit


def problem(cluster: ClusterSettings, drivers: Mapping[str, DriverUnit]) -> Optional[str]:
    """The key of the cluster's section that is wrong, and what to write there; None: all is well.

    Args:
        drivers: by name.
    """
    scheduler = drivers.get(cluster.scheduler)
    if scheduler is None or not scheduler.interfaces:
        there = ", ".join(name for name in sorted(drivers) if drivers[name].interfaces)
        return f"scheduler: there is no scheduler {cluster.scheduler!r:.160}; write one of {there}"
    policy = cluster.properties.get(POLICY)
    if policy is not None and policy not in scheduler.policies:
        there = ", ".join(scheduler.policies)
        remedy = f"write one of {there}" if there else "it has none: take the key out"
        return f"policy: {policy!r:.160} is no policy of {scheduler.name}; {remedy}"
    refused = properties.refused(scheduler.properties, cluster.properties)
    return None if refused is None else f"properties: {refused}"
