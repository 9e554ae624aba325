"""Plays a cluster forward under a policy: VMs come and go, hosts fail, the policy balances.

::

    look at an hour ──► loads ──► hosts that fail, leave, return ──► VMs that come, one by one
         ▲                                                               │
         └── the policy's load_balance_interval ◄── a balancing ◄────────┘

Each placement and each migration changes what the next call sees. ``hold`` and ``margin`` limit
migrations as in the daemon. A run ends when the scenario is over and the cluster is at rest:
nothing has moved for longer than ``hold``.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Callable, NamedTuple

from ovirt_scheduler.clusters.averages import UseAverages
from ovirt_scheduler.clusters.migration_limits import MigrationLimits
from ovirt_scheduler.clusters.placing import Choices
from ovirt_scheduler.clusters.planning import MOST_ROUNDS
from ovirt_scheduler.clusters.refusals import ANY_HOST, Refusals
from ovirt_scheduler.daemon.runtime import Runtime
from ovirt_scheduler.model.cluster_state import ClusterState, imbalance, status_words
from ovirt_scheduler.model.plans import Obstacle, Step
from ovirt_scheduler.model.values.text import count_of
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.workbench.scenario import FAILS, MAINTENANCE, Arrival, HostEvent, Scenario
from ovirt_scheduler.workbench.simulated_cluster import (
    UP,
    HostView,
    SimulatedCluster,
    SimulatedHost,
    SimulatedVm,
)
from ovirt_scheduler.workbench.simulated_policy import Balanced, SimulatedPolicy, refusal_words
from ovirt_scheduler.workbench.simulated_rules import SimulatedRules, read_rules
from ovirt_scheduler.workbench.snapshot import Snapshot

PLACED, RESTARTED, EVACUATED, MIGRATED = "placed", "restarted", "evacuated", "migrated"
ENFORCED = "enforced"  # by the engine, for an affinity group


class ClusterMoment(NamedTuple):
    """The cluster at one moment."""

    hour: float
    hosts: tuple[HostView, ...]
    broken: tuple[str, ...] = ()  # names of the affinity groups whose rules are broken

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
    """A VM that came to a host; ``source`` is empty if it did not run before."""

    hour: float
    what: str
    vm: str
    source: str
    target: str
    reason: str = ""  # of a balancing's


@dataclass
class SimulationResult:
    """The result of a simulation.

    Attributes:
        views: before; between, which is when all VMs of hour 0 are placed, or the middle of a
            scenario that lasts; after.
        course: the imbalance of the use, at each look.
        refused: migrations that an engine would refuse, and how often each was asked for.
        waiting: migrations that the policy wants at the end, and why they are not made.
        unplaced: names of VMs that found no host at the end, and why.
        closed: names of hosts that nobody may use at the end, and why.
        left_out: names of VMs that count as not running from the beginning, and why.
        has_rules: whether the cluster has affinity groups.
        rested: whether it came to rest.
        stopped: when Ctrl-C came, in words; empty: it did not.
        problems: failures of plugins, and how often.
        unread: properties that nothing in the policy knows, in sentences.
    """

    views: list[ClusterMoment] = field(default_factory=list)
    course: list[tuple[float, float]] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    waiting: Mapping[str, str] = field(default_factory=dict)
    unplaced: dict[str, str] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    has_rules: bool = False
    balancings: int = 0
    rested: bool = False
    stopped: str = ""
    problems: Mapping[str, int] = field(default_factory=dict)
    unread: Sequence[str] = ()

    @property
    def stages(self) -> Iterator[tuple[str, ClusterMoment]]:
        """The views, each with its name."""
        return zip(("before", "between", "after"), self.views)

    @property
    def migrations(self) -> Sequence[Move]:
        """The moves of VMs that ran: by balancing, by the enforcer, or off a host that left."""
        return [move for move in self.moves if move.what in (MIGRATED, EVACUATED, ENFORCED)]


@dataclass(eq=False)
class Simulation:
    """One run.

    Attributes:
        runtime: it is started.
        settings: of the cluster's policy.
        seed: of the chances in the scenario.
        most: balancings after the scenario is over.
        tell: called with the progress, again and again.

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
        rules = read_rules(self.runtime.executor, self.snapshot)
        self._rules = SimulatedRules(rules, self._cluster)
        self._policy = SimulatedPolicy(self.runtime, self.settings, self._cluster, rules)
        self._hour = self._still_since = 0.0
        self._outcome = SimulationResult(
            left_out=self._cluster.left_out, has_rules=bool(rules.groups)
        )
        self._coming: deque[Arrival] = deque(self.scenario.arrivals)
        self._events: deque[HostEvent] = deque(self.scenario.host_events)
        self._leaders: Mapping[str, str] = {}  # of what the latest balancing moves together
        self._moved: list[str] = []  # by the balancing before
        self._averages = UseAverages(self.settings.average)
        self._limits = MigrationLimits(self.settings, [])
        self._refusals = Refusals(self.settings.refused_pause, [])

    def run(self) -> SimulationResult:
        """Play it to its end, or until Ctrl-C."""
        outcome = self._outcome
        try:
            self._play((self.settings.load_balance_interval or 60.0) / 3600)
        except KeyboardInterrupt:
            outcome.stopped = self._moment()
        finally:
            self._cluster.close()
        outcome.views += [self._view()] * (3 - len(outcome.views))
        outcome.closed = self._closed()
        outcome.problems, outcome.unread = self._policy.problems, self._policy.unread
        return outcome

    def _play(self, step: float) -> None:
        """Look again and again.

        Args:
            step: hours between two looks.
        """
        outcome, rounds, number = self._outcome, self.most, 0
        self._change_loads()
        outcome.views.append(self._view())
        while not outcome.rested and rounds > 0:
            self._hour = number * step
            self._look()
            self._enforce(step if number else 0.0)
            if len(outcome.views) < 2 and self._hour >= self.scenario.hours / 2:
                outcome.views.append(self._view())
            self._balance()
            outcome.course.append(
                (self._hour, ClusterMoment(self._hour, self._host_views()).imbalance["used"])
            )
            moves = count_of(len(outcome.moves), "move")
            self.tell(f"{self._moment()}: {moves}")
            number += 1
            if number * step > self.scenario.hours:
                rounds -= 1
                still = self._hour - self._still_since - step
                outcome.rested = still >= self.settings.hold / 3600

    def _moment(self) -> str:
        """How far it has come, in words."""
        if self._hour >= self.scenario.hours:
            return f"hour {self._hour:.1f}, when nothing happens any more"
        return f"hour {self._hour:.1f} of {self.scenario.hours:g}"

    def _look(self) -> None:
        """Apply the events since the look before."""
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
            for vm in self._cluster.vms.values():
                if vm.fell is host:
                    vm.fell, vm.waits = None, RESTARTED

    def _evacuate(self, host: SimulatedHost) -> None:
        for vm in tuple(host.vms.values()):
            if vm.is_movable and vm.host is host:
                self._place(vm, EVACUATED)
        if not host.vms:
            host.set("status", "maintenance")

    def _place(self, vm: SimulatedVm, what: str) -> None:
        """Have the policy choose a host for a VM; the VM waits if there is none.

        VMs that belong together leave a host together.
        """
        unit = [self._cluster.vms[key] for key in self._rules.unit_of(vm)]
        refusals = self._rules.refusals([member.id for member in unit])
        for host in self._cluster.hosts.values():
            own = filter(None, map(host.refusal, unit))
            refusals[host.id] = next(own, "") or refusals[host.id]
        fit = [host for host, refusal in refusals.items() if not refusal]
        company = [member.id for member in unit if member is not vm]
        choices = self._policy.choices(vm, fit, company) if fit else Choices((), "")
        if not choices.hosts:
            if vm.host is None:  # else it stays where it runs
                engine = refusal_words(refusals.values())
                self._outcome.unplaced[vm.name] = "; ".join(filter(None, (choices.why, *engine)))
                vm.waits = what
            return
        for member in unit:
            member.waits = ""
            self._outcome.unplaced.pop(member.name, None)
            self._move(member, self._cluster.hosts[choices.hosts[0]], what)

    def _enforce(self, hours: float) -> None:
        """Have the engine's enforcer move a VM in each minute in which no other is migrated."""
        for _ in range(round(60 * hours) - bool(self._moved) if self._rules.rules.groups else 0):
            enforced = self._rules.enforce()
            if enforced is None:
                break
            words = f"the affinity group {enforced.rule.group.name} is broken"
            self._move(enforced.vm, enforced.host, ENFORCED, words)

    def _balance(self) -> None:
        """Have the policy balance once."""
        if not self.settings.load_balance_interval:
            return
        outcome, now = self._outcome, self._hour * 3600
        outcome.balancings += 1
        pause = self.settings.refused_pause
        for step in self._limits.taken_back(self._cluster.state(), (), now, pause):
            self._refusals.add(step.to_any(), Obstacle.TAKEN_BACK, "others took it back", now)
        staying, self._moved, waiting = [*self._moved], [], dict[str, str]()
        self._policy.watch_rules()
        for turn in range(MOST_ROUNDS):
            state = self._averages.averaged(self._cluster.state(), now)
            closed = self._closed_to(now, (*staying, *self._moved))
            balanced = self._policy.balance(
                state, closed, self._refusals.doubtful(now), mends=not self._moved
            )
            self._leaders = balanced.leaders
            judged = self._judged(balanced, state, now, again=turn > 0)
            waiting.update(
                (f"{step.vm_name} to {step.target_name}", step.problem) for step in balanced.unfit
            )
            ready = [step for step in judged if not step.problem]
            migrated = [step.vm for step in ready if self._migrate(step, now)]
            self._moved += migrated
            waiting.update(
                (f"{step.vm_name} to {step.target_name}", step.problem)
                for step in judged
                if step.problem
            )
            if len(migrated) == len(ready):
                break
        outcome.waiting = waiting

    def _judged(
        self, balanced: Balanced, state: ClusterState, now: float, again: bool
    ) -> Sequence[Step]:
        """The migrations, with the problem of those that are not made now."""
        judged: Sequence[Step] = [
            Step.planned(vm, host, state, f"the affinity group {balanced.mended} is broken")
            for vm, host in balanced.migrations.items()
        ]
        if not balanced.mended:
            judged = self._limits.judge(balanced.migrations, state, now, again)
        hours = self.settings.hours
        if hours is None or hours.contain(round(self._hour * 60) % (24 * 60)):
            return judged
        words = f"balancing migrates at {hours} only"
        return [replace(step, problem=step.problem or words) for step in judged]

    def _closed_to(self, now: float, staying: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """What is closed to VMs, as for ``ClusterDestinations``.

        Args:
            staying: VMs that were moved just before.
        """
        closed = self._refusals.closed(now)
        for vm, hosts in self._limits.former_hosts(now).items():
            closed[vm] = {**hosts, **closed.get(vm, {})}
        closed.update((vm, {ANY_HOST: ""}) for vm in (*staying, *self._limits.exhausted(now)))
        return closed

    def _migrate(self, step: Step, now: float) -> bool:
        """Make a migration, unless an engine would refuse it."""
        refusal = self._refusal(step)
        if refusal:
            self._outcome.refused[f"{step.vm_name}: {refusal}"] += 1
            self._refusals.add(step, Obstacle.REFUSED, refusal, now)
            return False
        self._move(
            self._cluster.vms[step.vm], self._cluster.hosts[step.target], MIGRATED, step.reason
        )
        self._limits.note_begun(step, now)
        self._limits.note_done(step.vm, step.target, now)
        return True

    def _refusal(self, step: Step) -> str:
        """Why an engine would refuse a migration; empty if it would not."""
        vm, host = self._cluster.vms[step.vm], self._cluster.hosts.get(step.target)
        if not vm.is_movable:
            return "may not be migrated"
        if host is None:
            return "no host can take it"
        leader = self._leaders.get(vm.id, vm.id)  # without one the engine is asked for a single VM
        others = self._rules.unit_of(vm)[1:]
        unit = [vm.id, *(key for key in others if self._leaders.get(key) == leader)]
        refusal = host.refusal(vm) or self._rules.refusals(unit)[host.id]
        return f"{host.name} {refusal}" if refusal else ""

    def _move(self, vm: SimulatedVm, host: SimulatedHost, what: str, reason: str = "") -> None:
        former = "" if vm.host is None else vm.host.name
        self._cluster.place(vm, host)
        self._outcome.moves.append(Move(self._hour, what, vm.name, former, host.name, reason))
        self._still_since = self._hour

    def _view(self) -> ClusterMoment:
        return ClusterMoment(self._hour, self._host_views(), self._rules.broken())

    def _host_views(self) -> tuple[HostView, ...]:
        return tuple(host.view() for host in self._cluster.hosts.values())

    def _closed(self) -> dict[str, str]:
        """The hosts that are not up, or that took none of the VMs that asked."""
        closed: dict[str, str] = {}
        for name, host in self._hosts.items():
            if host.status != UP:
                closed[name] = status_words(host.status)
            elif self._policy.placed_vms and not self._policy.accepted[host.id]:
                number = count_of(len(self._policy.placed_vms), "VM")
                closed[name] = f"takes none of {number} that asked"
        return closed
