"""The plans of the clusters, their approval and their outcome.

::

    drive = dry-run   told, until the scheduler wants something else
    drive = approve   waiting ──► approved ──► made
                         │            └──► left behind
                         └──► refused, left behind, dropped
    drive = on        made

A plan is left behind when one of its VMs is not where it was, a host is not up, the scheduler no
longer wants anything like it, or when it is more than an hour old. The daemon keeps plans in its
memory: if it stops, waiting plans are dropped, and the scheduler answers anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Callable, Optional

from ovirt_scheduler.errors import SchedulerError
from ovirt_scheduler.log.marked_for_engine import for_engine
from ovirt_scheduler.model.cluster_state import ClusterState, status_words
from ovirt_scheduler.model.plans import (
    APPROVED,
    DROPPED,
    LEFT_BEHIND,
    MADE,
    REFUSED,
    TOLD,
    WAITING,
    Plan,
    Step,
)
from ovirt_scheduler.security import trust

_log = logging.getLogger(__name__)

_HOUR = 3600.0
_MOST_ENDED = 50  # plans that are remembered
_MOST_KEPT = 20  # migrations in an event of the history
_DECISIONS = {"approve": APPROVED, "refuse": REFUSED}  # what an action makes of a plan
_OUTCOME_SECONDS = 8.0  # that whoever approves a plan waits for its outcome


class Plans:
    """The plans of all clusters. Many threads may use it at once.

    Args:
        keep: keeps an event in the history.
        wake: has a cluster looked at now.
    """

    def __init__(
        self, keep: Callable[[Mapping[str, object]], None], wake: Callable[[str], None]
    ) -> None:
        self._keep, self._wake = keep, wake
        self._plans: dict[str, Plan] = {}  # by id, the oldest first
        self._changed = threading.Condition()
        self._refused: dict[tuple[str, str, str], float] = {}  # cluster, VM, target; when

    def of_cluster(self, name: str) -> tuple[Plan, ...]:
        """Its plans, the oldest first."""
        with self._changed:
            return tuple(plan for plan in self._plans.values() if plan.cluster == name)

    def open(self, cluster: str, method: str) -> Optional[Plan]:
        """The plan of a method's answer that may still be carried out."""
        plans = self.of_cluster(cluster)
        return next((plan for plan in plans if plan.is_open and plan.method == method), None)

    def add(self, plan: Plan) -> bool:
        """Add a plan, and replace the open one of the same method.

        Returns:
            Whether it is another plan than that one.
        """
        former = self.open(plan.cluster, plan.method)
        if former is not None:
            because = "the scheduler wants something else now"
            if former.migrations == plan.migrations:
                if former.state != TOLD or plan.state == TOLD:
                    return False
                because = "balancing may migrate now"
            self.end(former, LEFT_BEHIND, because)
        if plan.steps:
            self._put(plan)
            with self._changed:
                ended = [key for key, each in self._plans.items() if not each.is_open]
                for key in ended[:-_MOST_ENDED]:
                    del self._plans[key]
        return True

    def end(self, plan: Plan, state: str, because: str = "") -> None:
        """Record how a plan ended, unless somebody has refused it."""
        with self._changed:
            latest = self._plans.get(plan.id)
            if latest is not None and latest.is_open:
                self._put(replace(latest, state=state, because=because))

    def drop(self, cluster: str, because: str) -> None:
        """End the open plans of a cluster that is no longer looked after in this way."""
        for plan in self.of_cluster(cluster):
            self.end(plan, DROPPED, because)

    def keep_clusters(self, names: Collection[str], because: str) -> None:
        """End the open plans of other clusters."""
        with self._changed:
            others = {plan.cluster for plan in self._plans.values()}.difference(names)
        for name in others:
            self.drop(name, because)

    def was_refused(self, cluster: str, vm: str, target: str) -> bool:
        """Whether somebody refused that migration within the last hour."""
        with self._changed:
            when = self._refused.get((cluster, vm, target))
        return when is not None and when > time.monotonic() - _HOUR

    def answer(self, request: Mapping[str, object], user: int) -> object:
        """Answer on the control socket.

        Args:
            request: the ``action``, list, show, approve or refuse, and but for list the ``plan``.
            user: who asks, by number, as the kernel says.

        Returns:
            The plan, after some seconds in which an approved one may have been made; or all of
            them, the newest first.

        Raises:
            SchedulerError: there is no such plan, or it does not wait.
        """
        action, key = str(request.get("action")), str(request.get("plan"))
        if action == "list":
            with self._changed:
                return [_shown(plan) for plan in reversed(tuple(self._plans.values()))]
        if action in _DECISIONS:
            self._decide(key, _DECISIONS[action], trust.user_name(user))
        elif action != "show":
            raise SchedulerError("the action of plan is list, show, approve or refuse")
        return _shown(self._find(key))

    def _decide(self, key: str, state: str, by: str) -> None:
        """Approve a plan, and wait some seconds for its outcome; or refuse it.

        The migrations of a refused plan are not proposed again within the hour.
        """
        with self._changed:
            plan = self._find(key)
            if plan.state != WAITING:
                outcome = f"{plan.state}, {plan.because}" if plan.because else plan.state
                raise SchedulerError(f"plan {plan.id} does not wait: it is {outcome}")
            self._put(replace(plan, state=state, by=by))
            if state == REFUSED:
                now = time.monotonic()
                self._refused = {each: at for each, at in self._refused.items() if at > now - _HOUR}
                for step in plan.steps:
                    self._refused[plan.cluster, step.vm, step.target] = now
                return
        self._wake(plan.cluster)
        with self._changed:
            self._changed.wait_for(lambda: not self._find(key).is_open, _OUTCOME_SECONDS)

    def _find(self, key: str) -> Plan:
        with self._changed:
            plan = self._plans.get(key)
        if plan is None:
            raise SchedulerError(f"there is no plan {key!r:.40}; see ovirt-scheduler plan list")
        return plan

    def _put(self, plan: Plan) -> None:
        """Store the present state of a plan, and report it."""
        with self._changed:
            self._plans[plan.id] = plan
            self._changed.notify_all()
        self._keep({"event": "plan", **plan.record(_MOST_KEPT)})
        fields = {
            "cluster": plan.cluster,
            "plan": plan.id,
            "state": plan.state,
            "count": len(plan.steps),
            "reason": plan.because or (f"by {plan.by}" if plan.by else plan.steps[0].text),
        }
        if plan.state == WAITING:
            _log.info(
                "cluster %(cluster)s: plan %(plan)s waits for approval (migrations: %(count)d): "
                "%(reason)s",
                fields,
                extra=for_engine(),
            )
        elif plan.state not in (TOLD, MADE):
            _log.info("cluster %(cluster)s: plan %(plan)s is %(state)s: %(reason)s", fields)


def left_behind(plan: Plan, state: ClusterState, migrating: Collection[str]) -> str:
    """Why a plan no longer fits the cluster; empty if it does.

    Args:
        migrating: ids of VMs whose migration has begun, even if the state does not show it yet.
    """
    if time.time() - plan.time > _HOUR:
        return "it is more than an hour old"
    return next(filter(None, (misfit(step, state, migrating) for step in plan.steps)), "")


def misfit(step: Step, state: ClusterState, migrating: Collection[str]) -> str:
    """Why a migration can no longer be made as planned; empty if it can; as ``left_behind``."""
    vm, target = state.vms.get(step.vm), state.hosts.get(step.target)
    if vm is None or vm.host is None:
        return f"{step.vm_name} does not run any more"
    if vm.host != step.source:
        return f"{step.vm_name} is on {state.host_name(vm.host)}, and not on {step.source_name}"
    if vm.status != "up":
        return f"{step.vm_name} {status_words(vm.status)}"
    if step.vm in migrating:
        return f"{step.vm_name} is migrating"
    if target is not None and target.status != "up":
        return f"{step.target_name} {status_words(target.status)}"
    return f"{step.target_name} is gone" if step.target and target is None else ""


def _shown(plan: Plan) -> dict[str, object]:
    return {"time": plan.time, **plan.record(), "steps": [step.fields() for step in plan.steps]}
