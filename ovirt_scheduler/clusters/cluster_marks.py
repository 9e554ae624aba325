"""Asks the engine for its own scheduling of a cluster: the policy, and whether it is upgraded.

::

    <cluster id="…"><scheduling_policy id="…"/><upgrade_in_progress>true</upgrade_in_progress>…
    <scheduling_policy id="…"><name>evenly_distributed</name>…
    <balances><balance><scheduling_policy_unit id="…"/></balance></balances>

Only these few values are searched for; the documents are not parsed.
"""

from __future__ import annotations

import html
import re
import time
from typing import NamedTuple, Optional
from urllib.parse import urlencode

from ovirt_scheduler.clusters.engine_events import ID
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.model.values.text import writable

_POLICY = re.compile(rb"<scheduling_policy" + ID)
_UPGRADED = re.compile(rb"<upgrade_in_progress>\s*true\s*<")
_RESERVES = re.compile(rb"<ha_reservation>\s*(true|false)\s*<")
_VERSION = re.compile(
    rb"<version>\s*<major>\s*([0-9]{1,4})\s*</major>\s*<minor>\s*([0-9]{1,4})\s*</minor>"
)
_NAME = re.compile(rb"<name>([^<]{1,1000})</name>")
_UNIT = re.compile(rb"<scheduling_policy_unit" + ID)

_SECONDS = 20.0  # for an answer
_MOST_BYTES = 1 << 20  # of it

_BALANCING = ("evenly_distributed", "power_saving", "vm_evenly_distributed")  # that engines have
MAINTENANCE = "cluster_maintenance"
_QUIET = ("none", MAINTENANCE)
_NO_BALANCE = b"38440000-8cf0-14bd-c43e-10b96e4ef00a"  # the unit of a policy that balances nothing


class ClusterMarks(NamedTuple):
    """The marks of a cluster: its policy's id, whether it is being upgraded, and more."""

    policy: str = ""
    is_upgraded: bool = False
    version: tuple[int, int] = (4, 7)  # of compatibility; the latest where it is not told
    reserves: Optional[bool] = None  # whether its ha_reservation is on; None: it is not told


class EnginePolicy(NamedTuple):
    """A scheduling policy of the engine's."""

    name: str = ""
    balances: bool = False


def of_cluster(inventory: Inventory, name: str) -> ClusterMarks:
    """Ask for the marks of a cluster.

    Raises:
        EngineUnavailable: as for ``Inventory.bytes_at``.
    """
    document = _ask(inventory, f"/clusters?{urlencode({'search': f'name={name}', 'max': 1})}")
    policy = _POLICY.search(document)
    version = _VERSION.search(document)
    marks = ClusterMarks(policy[1].decode() if policy else "", bool(_UPGRADED.search(document)))
    reserves = _RESERVES.search(document)
    marks = marks._replace(reserves=reserves[1] == b"true" if reserves else None)
    return marks._replace(version=(int(version[1]), int(version[2]))) if version else marks


def policy_of(inventory: Inventory, policy_id: str) -> EnginePolicy:
    """Ask for a scheduling policy; without an id it is an empty one.

    Raises:
        EngineUnavailable: as for ``Inventory.bytes_at``.
    """
    if not policy_id:
        return EnginePolicy()
    path = f"/schedulingpolicies/{policy_id}"
    match = _NAME.search(_ask(inventory, path))
    name = html.unescape(match[1].decode("utf-8", "replace")) if match else ""
    balances = name in _BALANCING
    if not balances and name not in _QUIET:  # somebody has made it
        units = _UNIT.findall(_ask(inventory, f"{path}/balances"))
        balances = any(unit.lower() != _NO_BALANCE for unit in units)
    return EnginePolicy(f"{writable(name):.100}", balances)


def _ask(inventory: Inventory, path: str) -> bytes:
    return inventory.bytes_at(path, time.monotonic() + _SECONDS, _MOST_BYTES)
