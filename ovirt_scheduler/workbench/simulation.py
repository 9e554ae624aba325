"""Plays a cluster forward under a policy: VMs come and go, hosts fail, the policy balances.

::

    look at an hour ──► loads ──► hosts that fail, leave, return ──► VMs that come, one by one
         ▲                                                               │
         └── the policy's load_balance_interval ◄── a balancing ◄────────┘

Each placement and each migration changes what the next call sees. What a balancing wants is held
to ``hold`` and ``margin`` as the daemon does it. A run ends when the scenario is over and the
cluster is at rest: nothing has been moved for longer than ``hold``.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Callable, NamedTuple

from ovirt_scheduler.clusters.calm import Calm, exhausted
from ovirt_scheduler.daemon.runtime import Runtime
from ovirt_scheduler.model.cluster_state import imbalance
from ovirt_scheduler.model.plans import Step
from ovirt_scheduler.settings.config import ClusterSettings
from ovirt_scheduler.workbench.policy import Policy
from ovirt_scheduler.workbench.scenario import FAILS, MAINTENANCE, Arrival, HostEvent, Scenario
from ovirt_scheduler.workbench.simulated import (
    UP,
    HostView,
    SimulatedCluster,
    SimulatedHost,
    SimulatedVm,
)
from ovirt_scheduler.workbench.snapshot import Snapshot

PLACED, RESTARTED, EVACUATED, MIGRATED = "placed", "restarted", "evacuated", "migrated"


class View(NamedTuple):
    """The cluster at one moment."""

    hour: float
    hosts: tuple[HostView, ...]

    @property
    def up(self) -> Sequence[HostView]:
        """The hosts that are up."""
        return [host for host in self.hosts if host.status == UP]

    @property
    def imbalance(self) -> Mapping[str, float]:
        """Of the hosts that are up, in percent: of what is used, of CPU and of memory."""
        return {
            what: imbalance(getattr(host, what) for host in self.up)
            for what in ("used", "cpu", "memory")
        }


class Move(NamedTuple):
    """A VM that came to a host; ``source`` is empty where it did not run before."""

    hour: float
    what: str
    vm: str
    source: str
    target: str
    reason: str = ""  # of a balancing's


@dataclass
class Outcome:
    """What a simulation came to.

    Attributes:
        views: before; between, which is when all that comes at hour 0 is placed, or in the middle
            of a scenario that lasts; after.
        course: the imbalance of what is used, at each look.
        refused: migrations that an engine would refuse, and how often each was asked for.
        waiting: migrations that the policy wants at the end, and why they are not made.
        unplaced: names of VMs that found no host at the end, and why.
        closed: names of hosts that nobody may use at the end, and why.
        left_out: names of VMs that count as not running from the beginning, and why.
        rested: whether it came to rest.
        stopped: whether Ctrl-C came before.
        problems: what went wrong in plugins, and how often.
    """

    views: list[View] = field(default_factory=list)
    course: list[tuple[float, float]] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    waiting: Mapping[str, str] = field(default_factory=dict)
    unplaced: dict[str, str] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    balancings: int = 0
    rested: bool = False
    stopped: bool = False
    problems: Mapping[str, int] = field(default_factory=dict)

    @property
    def stages(self) -> Iterator[tuple[str, View]]:
        """The views, each with its name."""
        return zip(("before", "between", "after"), self.views)

    @property
    def migrations(self) -> Sequence[Move]:
        """The moves of VMs that ran, by balancing or off a host that left."""
        return [move for move in self.moves if move.what in (MIGRATED, EVACUATED)]


@dataclass(eq=False)
class Simulation:
    """One run.

    Attributes:
        runtime: it is started.
        settings: of the cluster's policy.
        seed: of the chances in the scenario.
        most: balancings after the scenario is over.
        tell: is told how far it is, again and again.

    Raises:
        BadInput: the snapshot cannot be simulated.
        ConfigError: the settings name what does not exist.
        ScenarioError: the scenario names a host that does not exist.
    """

    runtime: Runtime
    snapshot: Snapshot
    settings: ClusterSettings
    scenario: Scenario
    seed: int = 0
    most: int = 100
    tell: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self._cluster = SimulatedCluster(self.snapshot)
        self._hosts = {host.name: host for host in self._cluster.hosts.values()}
        self.scenario.check(self._hosts)
        self._policy = Policy(self.runtime, self.settings, self._cluster)
        self._hour = self._still_since = 0.0
        self._outcome = Outcome(left_out=self._cluster.left_out)
        self._coming: deque[Arrival] = deque(self.scenario.arrivals)
        self._events: deque[HostEvent] = deque(self.scenario.host_events)
        self._moved: Sequence[str] = ()  # by the balancing before
        self._migrated: dict[str, list[float]] = {}  # by a VM's id, when balancings migrated it
        self._calm = Calm(self.settings.hold, self.settings.margin)

    def run(self) -> Outcome:
        """Play it to its end, or until Ctrl-C."""
        outcome = self._outcome
        try:
            self._play((self.settings.load_balance_interval or 60.0) / 3600)
        except KeyboardInterrupt:
            outcome.stopped = True
        finally:
            self._cluster.close()
        outcome.views += [self._view()] * (3 - len(outcome.views))
        outcome.closed = self._closed()
        outcome.problems = self._policy.problems
        return outcome

    def _play(self, step: float) -> None:
        """Look again and again.

        Args:
            step: hours between two looks.
        """
        outcome, left, number = self._outcome, self.most, 0
        self._change_loads()
        outcome.views.append(self._view())
        while not outcome.rested and left > 0:
            self._hour = number * step
            self._look()
            if len(outcome.views) < 2 and self._hour >= self.scenario.hours / 2:
                outcome.views.append(self._view())
            self._balance()
            outcome.course.append((self._hour, self._view().imbalance["used"]))
            self.tell(f"hour {self._hour:.1f}: {len(outcome.moves)} moves")
            number += 1
            if number * step > self.scenario.hours:
                left -= 1
                still = self._hour - self._still_since - step
                outcome.rested = still >= self.settings.hold / 3600

    def _look(self) -> None:
        """What has happened since the look before."""
        self._change_loads()
        while self._events and self._events[0].at <= self._hour:
            self._happen(self._events.popleft())
        for vm in self._cluster.vms.values():
            if vm.ends <= self._hour:
                self._cluster.remove(vm)
                self._outcome.unplaced.pop(vm.name, None)
                vm.ends, vm.waits, vm.fell = math.inf, "", None
        for vm in self._cluster.vms.values():
            if vm.waits:
                self._place(vm, vm.waits)
        while self._coming and self._coming[0].at <= self._hour:
            arrival = self._coming.popleft()
            vm = self._cluster.add(
                arrival.name, arrival.memory, arrival.processors,
                arrival.load * arrival.processors,
            )  # fmt: skip
            vm.vary(self.scenario.load(vm.name, self._hour, self.seed))
            vm.ends = arrival.until
            self._place(vm, PLACED)
        for host in self._cluster.hosts.values():
            if host.status == "preparing_for_maintenance":
                self._evacuate(host)

    def _change_loads(self) -> None:
        if self.scenario.curves:
            self._cluster.load(lambda vm: self.scenario.load(vm, self._hour, self.seed))

    def _happen(self, event: HostEvent) -> None:
        host = self._hosts[event.host]
        if event.what == MAINTENANCE:
            host.set("status", "preparing_for_maintenance")
        elif event.what == FAILS:
            host.set("status", "non_responsive")
            for vm in tuple(host.vms.values()):
                self._cluster.remove(vm)
                if vm.is_highly_available:
                    vm.waits = RESTARTED
                else:
                    vm.fell = host
        else:
            host.set("status", UP)
            for vm in host.vms.values():  # that found no other host
                self._outcome.unplaced.pop(vm.name, None)
            for vm in self._cluster.vms.values():
                if vm.fell is host:
                    vm.fell, vm.waits = None, RESTARTED

    def _evacuate(self, host: SimulatedHost) -> None:
        for vm in tuple(host.vms.values()):
            if vm.is_movable:
                self._place(vm, EVACUATED)
        if not host.vms:
            host.set("status", "maintenance")

    def _place(self, vm: SimulatedVm, what: str) -> None:
        """Have the policy choose a host for a VM; it waits where there is none."""
        refusals = {host.id: host.refusal(vm) for host in self._cluster.hosts.values()}
        fit = [host for host, refusal in refusals.items() if not refusal]
        chosen, why = self._policy.choose(vm, fit) if fit else (None, "")
        if chosen is None:
            reasons = Counter(filter(None, refusals.values()))
            engine = [f"{number} {reason}" for reason, number in sorted(reasons.items())]
            self._outcome.unplaced[vm.name] = "; ".join(filter(None, (why, *engine)))
            if vm.host is None:
                vm.waits = what
            return
        vm.waits = ""
        self._outcome.unplaced.pop(vm.name, None)
        self._move(vm, self._cluster.hosts[chosen], what)

    def _balance(self) -> None:
        """Have the policy balance once."""
        if not self.settings.load_balance_interval:
            return
        outcome, now, state = self._outcome, self._hour * 3600, self._cluster.state()
        outcome.balancings += 1
        most = self.settings.migrations_per_vm
        staying = (*self._moved, *exhausted(self._migrated, most, now))
        wanted = self._policy.balance(state, staying, self._calm.former_hosts(now))
        judged = self._calm.judge(wanted, state, now)
        made = [each for each in judged if not each.problem and self._migrate(each)]
        self._calm.made(made, now)
        self._moved = [each.vm for each in made]
        outcome.waiting = {
            f"{each.vm_name} to {each.target_name}": each.problem for each in judged if each.problem
        }

    def _migrate(self, step: Step) -> bool:
        """Make a migration, unless an engine would refuse it."""
        vm, host = self._cluster.vms[step.vm], self._cluster.hosts.get(step.target)
        if not vm.is_movable:
            refusal = "may not be migrated"
        elif host is None:
            refusal = "no host can take it"
        elif host.refusal(vm):
            refusal = f"{host.name} {host.refusal(vm)}"
        else:
            self._move(vm, host, MIGRATED, step.reason)
            self._migrated.setdefault(vm.id, []).append(self._hour * 3600)
            return True
        self._outcome.refused[f"{vm.name}: {refusal}"] += 1
        return False

    def _move(self, vm: SimulatedVm, host: SimulatedHost, what: str, reason: str = "") -> None:
        former = "" if vm.host is None else vm.host.name
        self._cluster.place(vm, host)
        self._outcome.moves.append(Move(self._hour, what, vm.name, former, host.name, reason))
        self._still_since = self._hour

    def _view(self) -> View:
        return View(self._hour, tuple(host.view() for host in self._cluster.hosts.values()))

    def _closed(self) -> dict[str, str]:
        """The hosts that are not up, or that no VM was let on of all that asked."""
        closed: dict[str, str] = {}
        for name, host in self._hosts.items():
            if host.status != UP:
                closed[name] = f"is {host.status}"
            elif self._policy.asked and not self._policy.accepted[host.id]:
                closed[name] = f"takes none of the {len(self._policy.asked)} VMs that asked"
        return closed
