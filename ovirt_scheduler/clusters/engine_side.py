"""Looks after what the engine itself does with a cluster: it may balance it, too, or upgrade it."""

from __future__ import annotations

import logging
import time
from typing import Optional

from ovirt_scheduler.clusters import cluster_marks
from ovirt_scheduler.clusters.cluster_marks import MAINTENANCE, EnginePolicy
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import EngineUnavailable
from ovirt_scheduler.model.drivers import POLICY
from ovirt_scheduler.settings.table import ClusterSettings

_log = logging.getLogger(__name__)

_POLICY_EVERY = 600.0  # seconds between two questions for a policy


def balances(settings: ClusterSettings) -> bool:
    """Whether a section has its cluster balanced: one without a policy of ``default`` does not."""
    policy = settings.properties.get(POLICY, "none" if settings.scheduler == "default" else "")
    return bool(settings.load_balance_interval and (settings.balance or policy != "none"))


def conflict(settings: ClusterSettings, policy: EnginePolicy) -> str:
    """Why the engine's policy does not go with a section, and what to do; empty if it does."""
    if not (policy.balances and balances(settings)):
        return ""
    return (
        f"the engine balances it, too, by its policy {policy.name}: each moves what the other has "
        "placed; choose the policy none for the cluster there"
    )


class EngineSide:
    """What the engine does with one cluster; used by one thread.

    Attributes:
        conflict: of its policy with the section, in words; empty if there is none.
        is_upgraded: whether it upgrades the cluster just now.
        version: of the cluster; None if it was not told yet.
        reserves: whether the cluster's ``ha_reservation`` is on; None if it was not told.
    """

    def __init__(self, settings: ClusterSettings, inventory: Inventory) -> None:
        self._settings = settings
        self._inventory = inventory
        self._policy, self._policy_id = EnginePolicy(), ""
        self._policy_at = 0.0  # when to ask for it again, on the monotonic clock
        self.conflict = ""
        self.is_upgraded = False
        self.version: Optional[tuple[int, int]] = None
        self.reserves: Optional[bool] = None

    def ask(self) -> None:
        """Ask the engine; where it does not answer, all is as before."""
        try:
            marks = cluster_marks.of_cluster(self._inventory, self._settings.name)
            self.version, self.reserves = marks.version, marks.reserves
            now = time.monotonic()
            if self._policy_id != marks.policy or now >= self._policy_at:
                self._policy = cluster_marks.policy_of(self._inventory, marks.policy)
                self._policy_id, self._policy_at = marks.policy, now + _POLICY_EVERY
        except EngineUnavailable:
            return
        self._note(self._policy, marks.is_upgraded or self._policy.name == MAINTENANCE)

    def _note(self, policy: EnginePolicy, is_upgraded: bool) -> None:
        """Log what has changed."""
        former, self.conflict = self.conflict, conflict(self._settings, policy)
        cluster = self._settings.name
        if self.conflict and self.conflict != former:
            _log.warning(
                "cluster %(cluster)s: %(reason)s", {"cluster": cluster, "reason": self.conflict}
            )
        if is_upgraded != self.is_upgraded:
            self.is_upgraded = is_upgraded
            words = "is being upgraded, and not balanced until that is over"
            _log.info(
                "cluster %(cluster)s: %(state)s",
                {"cluster": cluster, "state": words if is_upgraded else "is upgraded"},
            )
