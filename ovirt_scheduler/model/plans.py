"""A plan: all migrations of one answer, with a reason for each; and what kept VMs from going."""

from __future__ import annotations

import enum
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

from ovirt_scheduler.model.cluster_state import ANY_HOST_NAME, ClusterState
from ovirt_scheduler.model.losses import WorstLoss

# What a plan comes to.
TOLD = "told"  # in a dry run
WAITING, APPROVED, REFUSED = "waiting", "approved", "refused"
MADE, LEFT_BEHIND, DROPPED = "made", "left behind", "dropped"


@dataclass(frozen=True)
class Step:
    """A migration; ids and names.

    Attributes:
        source: empty if the VM runs nowhere.
        target: empty for any host.
        problem: why the migration is not made now; empty if it is made.
        closure: the id of the VM that the engine is asked to migrate together with all that hard
            affinity groups tie to it; empty if this VM goes alone.
    """

    vm: str
    source: str
    target: str
    vm_name: str
    source_name: str
    target_name: str
    reason: str = ""
    problem: str = ""
    closure: str = ""

    @classmethod
    def planned(cls, vm: str, target: str, state: ClusterState, reason: str = "") -> Step:
        """A migration of a VM from where it is, with the names as they are now."""
        vm_state = state.vms[vm]
        source = "nowhere" if vm_state.host is None else state.host_name(vm_state.host)
        names = vm_state.name, source, state.host_name(target)
        return cls(vm, vm_state.host or "", target, *names, reason)

    def fields(self) -> dict[str, Any]:
        """The migration in plain values, with ids and names; an id that is empty is left out."""
        named = {
            "vm": (self.vm, self.vm_name),
            "source": (self.source, self.source_name),
            "target": (self.target, self.target_name),
        }
        ids = {key: {"id": id_, "name": name} for key, (id_, name) in named.items() if id_}
        return {**ids, "reason": self.reason}

    def to_any(self) -> Step:
        """The same migration, to whatever host."""
        return replace(self, target="", target_name=ANY_HOST_NAME)

    @property
    def text(self) -> str:
        """``proxy from lynx to ocelot: CPU 84 % to 61 %``."""
        return f"{self.vm_name} from {self.source_name} to {self.target_name}: {self.reason}"


@dataclass(frozen=True)
class Plan:
    """Migrations that are made together, or not at all.

    Attributes:
        method: of the scheduler that asks for them.
        time: when it was made, in seconds since 1970.
        imbalance: of the cluster then, in percent, as far as it is known.
        because: why it came to its state.
        by: who approved or refused it.
    """

    cluster: str
    method: str
    steps: tuple[Step, ...]
    time: float
    imbalance: Optional[float] = None
    state: str = WAITING
    because: str = ""
    by: str = ""
    id: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def is_open(self) -> bool:
        """Whether the plan may still be carried out."""
        return self.state in (TOLD, WAITING, APPROVED)

    @property
    def migrations(self) -> frozenset[tuple[str, str, str]]:
        """The migrations: VM, source and target, by id."""
        return frozenset((step.vm, step.source, step.target) for step in self.steps)

    def record(self, most: Optional[int] = None) -> dict[str, Any]:
        """The plan in plain values, for the history, JSON and pages.

        Args:
            most: how many of its migrations are included; None for all.
        """
        steps = [step.text for step in self.steps[:most]]
        if len(self.steps) > len(steps):
            steps.append(f"and {len(self.steps) - len(steps)} more")
        imbalance = None if self.imbalance is None else round(self.imbalance, 1)
        values = {
            "plan": self.id,
            "cluster": self.cluster,
            "state": self.state,
            "because": self.because or None,
            "by": self.by or None,
            "imbalance": imbalance,
            "method": self.method,
            "count": len(self.steps),
            "migrations": steps,
        }
        return {name: value for name, value in values.items() if value is not None}


class Obstacle(enum.Enum):
    """What kept a VM from where it was to go, in words."""

    REFUSED = "refused"
    FAILED = "failed"
    TAKEN_BACK = "taken back"
    NO_HOST = "no host"


@dataclass(frozen=True)
class Refusal:
    """Why a VM is not migrated to a host, or nowhere, for a while.

    Attributes:
        vm, host: by id; no host: it goes nowhere.
        reason: in the engine's words, where it has some.
        since: when it was refused first, and ``latest`` again, in seconds on the monotonic clock.
    """

    vm: str
    host: str
    obstacle: Obstacle
    reason: str
    vm_name: str
    host_name: str
    since: float
    latest: float

    @property
    def key(self) -> tuple[str, str]:
        """Which refusals are the same one again."""
        return self.vm, self.host

    @property
    def words(self) -> str:
        """Why the VM does not go there, in a sentence."""
        if self.obstacle is Obstacle.REFUSED:
            return f"the engine refused it: {self.reason}"
        if self.obstacle is Obstacle.FAILED:
            return f"its last migration to {self.host_name} failed: {self.reason}"
        return self.reason


class HostLook(NamedTuple):
    """A host of a cluster that the daemon looks after, as the latest look found it.

    Attributes:
        used: percent by what is used, processors and memory, as far as the latest balancing knew
            it.
        vms: id and name of each that runs there.
    """

    id: str
    name: str
    status: str
    used: Mapping[str, float]
    vms: tuple[tuple[str, str], ...]


class ClusterLook(NamedTuple):
    """A cluster that the daemon looks after by itself."""

    name: str
    drive: str  # as in scheduler.conf: dry-run, approve or on
    last_look: Optional[float] = None  # seconds since 1970
    next_look: Optional[float] = None
    problem: str = ""
    imbalance: Optional[float] = None  # in percent, as the last balancing found it
    plans: tuple[Plan, ...] = ()  # those that are open, the oldest first
    driven_by: str = ""  # another daemon, for which this one stands by
    refusals: tuple[Refusal, ...] = ()  # that close something now; times are seconds since 1970
    denial: str = ""  # why the engine's user may not migrate VMs, in the engine's words
    denied_since: Optional[float] = None
    conflict: str = ""  # of the engine's own policy with the section
    upgraded: bool = False  # the engine upgrades it, and it is not balanced meanwhile
    # The affinity groups with a broken rule, and whether it is hard.
    broken: tuple[tuple[str, bool], ...] = ()
    without_rules: str = ""  # why the engine does not tell its affinity groups
    hosts: tuple[HostLook, ...] = ()
    course: tuple[tuple[float, float], ...] = ()  # of the imbalance: seconds since 1970, percent
    policy: Mapping[str, str] = MappingProxyType({})  # what the section says, in words
    worst_loss: Optional[WorstLoss] = None  # of a host; None: not counted
