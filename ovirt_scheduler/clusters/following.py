"""Counts how often the engine followed: whether VMs went to the best host of their decision.

::

    a decision that ranks hosts ──► waits ──► the VM has started or moved ──► counted: yes or no
                                      │         (two looks at its cluster after it differ)
                                      └── 5 minutes, or the next decision on it: dropped

A decision that leaves the engine no choice is not counted, nor one after which nobody saw the VM
start or move: it may have been a question, or the VM is in a cluster that is not looked after.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping

from ovirt_scheduler.clusters.inquiries import Inquiries
from ovirt_scheduler.model.jobs import Decision, Reported
from ovirt_scheduler.model.tasks import Returns

_SECONDS = 300.0  # in which a VM starts or moves
_MOST = 10_000  # decisions that wait


class Following:
    """Whether VMs went where the latest decision said. Safe to use from many threads.

    Attributes:
        inquiries: the questions to the engine for which it asks the same as for a migration.
    """

    def __init__(self) -> None:
        self.inquiries = Inquiries()
        self._lock = threading.Lock()
        # By VM: when it was decided (monotonic), and the best hosts; the oldest first.
        self._waiting: dict[str, tuple[float, frozenset[str]]] = {}
        # By cluster: when its latest look began (monotonic), and VM to host.
        self._looks: dict[str, tuple[float, Mapping[str, str]]] = {}
        self._counts = {"yes": 0, "no": 0}

    @property
    def counts(self) -> dict[str, int]:
        """How often the engine followed (yes), and did not (no), since the start."""
        with self._lock:
            return dict(self._counts)

    def decided(self, what: Reported) -> None:
        """Note the best hosts of a decision, whose answer is out.

        Args:
            what: any call; all but decisions on a VM that a caller asked for are passed over.
        """
        if not isinstance(what, Decision) or what.request.caller.cluster:
            return  # the daemon's own decisions are not for the engine
        vm, best = what.execution.vm, _best_hosts(what)
        if vm is None or self.inquiries.cover(vm, what.time):
            return
        with self._lock:
            self._waiting.pop(vm, None)
            if best:
                self._waiting[vm] = time.monotonic(), best
            if len(self._waiting) > _MOST:
                del self._waiting[next(iter(self._waiting))]

    def note_places(
        self, cluster: str, running: Mapping[str, str], migrated: Collection[str], begun: float
    ) -> None:
        """Count the VMs of a cluster that have started or moved since the latest look at it.

        A VM that moves is counted if that look came after the decision: it may have moved before.

        Args:
            cluster: its name.
            running: VM to host, by their ids; it is kept, and nobody changes it.
            migrated: VMs that this daemon has asked the engine to migrate.
            begun: when the look began, on the monotonic clock.
        """
        with self._lock:
            former_begun, former = self._looks.get(cluster, (begun, running))
            self._looks[cluster] = begun, running
            oldest = time.monotonic() - _SECONDS
            while self._waiting and next(iter(self._waiting.values()))[0] < oldest:
                del self._waiting[next(iter(self._waiting))]
            for vm in self._waiting.keys() & running.keys():
                if vm in migrated:
                    del self._waiting[vm]
                    continue
                decided_at, best = self._waiting[vm]
                is_later = former_begun > decided_at or vm not in former
                if is_later and running[vm] != former.get(vm):
                    del self._waiting[vm]
                    self._counts["yes" if running[vm] in best else "no"] += 1

    def forget(self, cluster: str) -> None:
        """Forget the latest look at a cluster: this daemon does not drive it now."""
        with self._lock:
            self._looks.pop(cluster, None)


def _best_hosts(decision: Decision) -> frozenset[str]:
    """The hosts that rank first; none if all do, or the decision ranks none."""
    returns, answer = decision.request.returns, decision.answer
    if returns is Returns.SELECTION and len(answer) > 1:
        return frozenset(answer[:1])
    if returns is Returns.COSTS and len(set(answer.values())) > 1:
        lowest = min(answer.values())
        return frozenset(host for host, cost in answer.items() if cost == lowest)
    return frozenset()
