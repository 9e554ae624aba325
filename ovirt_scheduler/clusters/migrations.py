"""Has the engine make the migrations of one cluster, follows them, and remembers what went wrong.

::

    a migration ──► remembered ──► the engine is asked ──► followed until the VM is there, or is not
                    (on disk)            └─► refused: forgotten again ──┐       │
                                                                        ▼       ▼ failed
                                                           closed for a while (refusals.py)

A migration is remembered before the engine is asked for it. So each running migration is followed,
even if the daemon ends, the call fails or the engine's answer is lost: the state of the VM shows
how it ended.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Callable, NamedTuple, Optional

from ovirt_scheduler.clusters import engine_events
from ovirt_scheduler.clusters.engine_events import MigrationEnd
from ovirt_scheduler.clusters.following import Following
from ovirt_scheduler.clusters.migration_limits import MigrationLimits
from ovirt_scheduler.clusters.persistence import DriveMemory, Migrating
from ovirt_scheduler.clusters.plan_approval import Plans
from ovirt_scheduler.clusters.refusals import ANY_HOST, Refusals
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import AnswerLost, EngineDenial, EngineRefusal, EngineUnavailable
from ovirt_scheduler.log.marked_for_engine import for_engine
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.plans import Obstacle, Refusal, Step
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings.table import ClusterSettings

_log = logging.getLogger(__name__)

_BEGIN_SECONDS = 60.0  # in which a migration that was asked for is to be seen on its way
_LONGEST_MIGRATION = 3600.0  # seconds until one is not followed any more
_MOST_REFUSALS = 10  # in one look: each is an error in the engine's events

_STOPPING = "the engine was not asked: the daemon stops, or reloads"
_NO_ANSWER = "the engine was not asked, as it did not answer for another VM"
_IN_VAIN = "the engine was not asked, as its host cannot be emptied now"
_NO_WORDS = "the engine's events do not say why"
_ENOUGH = f"the engine was not asked, as it has refused {_MOST_REFUSALS} migrations in this look"


class ClusterServices(NamedTuple):
    """The services that the threads of all clusters share.

    Attributes:
        decisions: answers requests for schedulers and policy units.
        stopping: set when nothing more may begin.
        following: learns where VMs run, and what the engine is asked beforehand.
    """

    plans: Plans
    memory: DriveMemory
    inventory: Inventory
    decisions: DecisionService
    executor: Executor
    stopping: threading.Event
    following: Following


class RequestedMigrations(NamedTuple):
    """What came of migrations that the engine was asked for.

    Attributes:
        requested: the VMs that it was asked to migrate; it had offered to.
        begun: how many it begins.
        closed: by VM what is closed to it from now on, as ``ClusterDestinations.close`` takes it.
        is_final: whether other migrations would fare no better in this look.
    """

    requested: Collection[str]
    begun: int
    closed: Mapping[str, Mapping[str, str]]
    is_final: bool

    def words(self, steps: Sequence[Step]) -> str:
        """How many of a plan's migrations are begun."""
        return f"{self.begun} of {len(steps)} migrations are begun"


class ClusterMigrations:
    """The migrations of one cluster; used by the thread that looks after it.

    Attributes:
        limits: which know the migrations of the last hour.
        refusals: what kept VMs from going.
        denial: why the engine's user may not migrate VMs, in the engine's words, and since when
            (seconds since 1970); None if it may, as far as is known.
    """

    def __init__(self, settings: ClusterSettings, services: ClusterServices) -> None:
        self._cluster = settings.name
        self._settings = settings
        self._services = services
        self._memory = services.memory.cluster(settings.name)
        self.limits = MigrationLimits(settings, self._memory.migrated)
        self.refusals = Refusals(settings.refused_pause, self._memory.refusals)
        self.denial: Optional[tuple[str, float]] = None
        self._obstacle = ""  # why the engine is asked for no other migration in this look
        self._refusals_left = _MOST_REFUSALS
        self._was_denied = False  # in this look
        self._logged: dict[str, str] = {}  # by VM, why the engine was not asked

    @property
    def under_way(self) -> tuple[str, ...]:
        """The VMs that are migrated."""
        return tuple(self._memory.migrating)

    @property
    def planned(self) -> dict[str, str]:
        """The VMs that are migrated to a known host, with its id."""
        steps = (migrating.step for migrating in self._memory.migrating.values())
        return {step.vm: step.target for step in steps if step.target}

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """The refusals that close something now, with times in seconds since 1970."""
        now = time.monotonic()
        ahead = time.time() - now
        return tuple(
            replace(refusal, since=refusal.since + ahead, latest=refusal.latest + ahead)
            for refusal in self.refusals.current(now)
        )

    def begin_look(self) -> None:
        """Ask the engine anew, whatever it said in the look before."""
        self._refusals_left, self._obstacle, self._was_denied = _MOST_REFUSALS, "", False

    def make(
        self,
        steps: Sequence[Step],
        balances: bool,
        emptied: Collection[str],
        not_offered: Callable[[Step], Mapping[str, str]],
    ) -> RequestedMigrations:
        """Make migrations, one after another: the first goes before the next is asked about.

        Args:
            balances: whether a balancing wants them.
            emptied: hosts that all their VMs are to leave, or none.
            not_offered: gives what the engine says beforehand: what is closed to the VM, if the
                migration is not to be asked for.
        """
        begun, closed, is_final = 0, dict[str, Mapping[str, str]](), True
        requested: list[str] = []
        in_vain: set[str] = set()  # hosts that are not emptied after all
        for unit in _units(steps):
            step = unit[0]
            hosts = {} if self._obstacle else not_offered(step)
            if hosts:
                closed[step.vm], is_final = hosts, False
                continue
            requested += [member.vm for member in unit]
            problem = self._ask_engine(unit, in_vain)
            now = time.monotonic()
            for member in unit:
                if problem is None or isinstance(problem, AnswerLost):
                    migrating = self._memory.migrating[member.vm]
                    migrating.begun, migrating.confirmed = now, problem is None
                    self.limits.note_begun(member, now, balances)
                    begun += 1
                    closed[member.vm] = {ANY_HOST: ""}
                else:
                    self._memory.migrating.pop(member.vm, None)
                    self._not_moved(member.vm)
            is_news = True
            if isinstance(problem, EngineRefusal):
                in_vain.update({step.source}.intersection(emptied))
                is_news = self._note_refusal(step, problem, now)
                closed[step.vm] = self.refusals.closed(now).get(step.vm, {ANY_HOST: ""})
                is_final &= isinstance(problem, EngineDenial)
            for member in unit if is_news else ():
                self._log_asked(member, problem)
        self._services.memory.save(self._cluster)
        return RequestedMigrations(requested, begun, closed, is_final or bool(self._obstacle))

    def _ask_engine(
        self, unit: Sequence[Step], in_vain: Collection[str]
    ) -> Optional[EngineUnavailable]:
        """Remember a migration, and ask the engine for it; return why it does not begin it.

        Args:
            unit: of VMs that move together; the engine is asked for the first.
        """
        step = unit[0]
        if self._services.stopping.is_set():
            self._obstacle = _STOPPING
        if self._obstacle or step.source in in_vain:
            return EngineUnavailable(self._obstacle or _IN_VAIN)
        inventory = self._services.inventory
        latest_event = self._services.memory.latest_event or 0
        self._memory.migrating.update(
            (member.vm, Migrating(member, time.monotonic(), event=latest_event)) for member in unit
        )
        self._services.memory.save(self._cluster)
        try:
            inventory.migrate(step.vm, step.target, self._memory.mark, len(unit) > 1)
        except EngineRefusal as error:
            return error
        except AnswerLost as error:  # the others would wait as long
            self._obstacle = _NO_ANSWER
            return error
        except EngineUnavailable as error:
            self._obstacle = str(error)
            return error
        if not self._was_denied:
            self.denial = None
        return None

    def _note_refusal(self, step: Step, refusal: EngineRefusal, now: float) -> bool:
        """Remember a refusal; return whether it is news.

        A right that is missing says nothing of a VM or a host, and so closes neither.
        """
        self._refusals_left -= 1
        if not self._refusals_left:
            self._obstacle = _ENOUGH
        if not isinstance(refusal, EngineDenial):
            return self.refusals.add(step, Obstacle.REFUSED, refusal.words, now)
        self._was_denied, is_news = True, self.denial is None
        self.denial = self.denial or (refusal.words, time.time())
        return is_news

    def follow(self, state: ClusterState) -> None:
        """Log the migrations that have ended, and forget them; note what others did to VMs."""
        self._logged = {vm: why for vm, why in self._logged.items() if vm in state.vms}
        now = time.monotonic()
        endings = {
            vm: ending
            for vm, migrating in self._memory.migrating.items()
            if (ending := _ending(migrating, state, now)) is not None
        }
        after = {vm: self._memory.migrating[vm].event for vm in endings}
        ends = engine_events.ask_migration_ends(self._services.inventory, after, self._memory.mark)
        for vm, ending in endings.items():
            migrating, end = self._memory.migrating.pop(vm), ends.get(vm, MigrationEnd())
            step, is_ours = migrating.step, migrating.confirmed
            if ending is _MigrationResult.DONE and (is_ours or step.target):
                self.limits.note_done(vm, state.vms[vm].host or "", now)
            elif ending is _MigrationResult.FAILED and is_ours:
                self._not_moved(vm)
                self.refusals.add(step, Obstacle.FAILED, end.failure or _NO_WORDS, now)
            self._log_end(migrating, ending, end, state)
        pause = self._settings.refused_pause
        undone = self.limits.taken_back(state, self.under_way, now, pause)
        for step in undone:
            self._note_taken(step, now)
        if endings or undone:
            self._services.memory.save(self._cluster)

    def _not_moved(self, vm: str) -> None:
        """Let the next balancing move a VM that this one wanted to move, and did not."""
        if vm in self._memory.moved:
            self._memory.moved.remove(vm)

    def _note_taken(self, step: Step, now: float) -> None:
        """Let a VM stay that others took away from where it was brought to."""
        reason = f"others took it from {step.source_name} to {step.target_name}"
        self.refusals.add(step.to_any(), Obstacle.TAKEN_BACK, reason, now)
        _log.warning(
            "cluster %(cluster)s: others took %(vm)s from %(source_host)s to %(target_host)s after "
            "it was migrated; it stays there for an hour",
            step_fields(self._cluster, step),
        )

    def adopt(self, state: ClusterState) -> None:
        """Follow the migrations that run already, whoever asked for them."""
        now = time.monotonic()
        for vm, vm_state in state.vms.items():
            if vm_state.is_migrating and vm not in self._memory.migrating:
                step = Step.planned(vm, ANY_HOST, state)
                self._memory.migrating[vm] = Migrating(step, now, moving=True, confirmed=False)

    def _log_asked(self, step: Step, problem: Optional[EngineUnavailable]) -> None:
        reason = (
            problem.words if isinstance(problem, EngineRefusal) else str(problem or step.reason)
        )
        fields = step_fields(self._cluster, step, reason=reason)
        if problem is None:
            _log.info(
                "cluster %(cluster)s: migrating %(vm)s from %(source_host)s to %(target_host)s: "
                "%(reason)s",
                fields,
                extra=for_engine(False, step.vm, step.source),
            )
        elif isinstance(problem, AnswerLost):
            _log.warning(
                "cluster %(cluster)s: the engine did not confirm that %(vm)s migrates from "
                "%(source_host)s to %(target_host)s: %(reason)s",
                fields,
            )
        elif isinstance(problem, EngineDenial):
            _log.warning(
                "cluster %(cluster)s: the user of [engine] may not migrate VMs: %(reason)s",
                fields,
                extra=for_engine(),
            )
        elif isinstance(problem, EngineRefusal) or self._logged.get(step.vm) != reason:
            self._logged[step.vm] = reason  # the scheduler may want it again and again
            _log.warning(
                "cluster %(cluster)s: cannot migrate %(vm)s from %(source_host)s "
                "to %(target_host)s: %(reason)s",
                fields,
                extra=for_engine(vm=step.vm, host=step.source),
            )

    def _log_end(
        self, migrating: Migrating, ending: _MigrationResult, end: MigrationEnd, state: ClusterState
    ) -> None:
        step, settings = migrating.step, self._settings
        seconds = time.monotonic() - migrating.begun if end.seconds is None else end.seconds
        fields = step_fields(self._cluster, step, reason=ending.value, seconds=seconds)
        if ending is _MigrationResult.DONE:
            duration = f"within {seconds:.0f} s" if end.seconds is None else f"in {seconds:.1f} s"
            _log.info(
                "cluster %(cluster)s: the migration of %(vm)s to %(target_host)s is done "
                "%(reason)s",
                {**fields, "reason": duration},
                extra=for_engine(False, step.vm, step.target),
            )
        else:
            if ending is _MigrationResult.FAILED:
                vm, words = state.vms[step.vm], f" ({end.failure})" if end.failure else ""
                where = f"on {state.host_name(vm.host)}" if vm.host else vm.status or "off"
                fields["reason"] = f"{ending.value}, the VM is {where}{words},"
            _log.warning(
                "cluster %(cluster)s: the migration of %(vm)s to %(target_host)s "
                "%(reason)s after %(seconds).0f s",
                fields,
                extra=for_engine(vm=step.vm, host=step.source),
            )
        count = self.limits.exhausted(time.monotonic()).get(step.vm)
        if count is not None:
            unit = settings.scheduler if settings.balance is None else settings.balance.name
            _log.warning(
                "cluster %(cluster)s: %(vm)s was migrated %(count)d times within an hour, and now "
                "stays where it is: does %(unit)s move it back and forth?",
                step_fields(self._cluster, step, count=count, unit=unit),
            )


def _units(steps: Sequence[Step]) -> list[list[Step]]:
    """The migrations that the engine is asked for at once, together."""
    units: dict[str, list[Step]] = {}
    for step in steps:
        units.setdefault(step.closure or step.vm, []).append(step)
    return list(units.values())


def step_fields(cluster: str, step: Step, **more: object) -> dict[str, object]:
    """The fields of a migration in the log: names, as an administrator knows them."""
    return {
        "cluster": cluster,
        "vm": step.vm_name,
        "source_host": step.source_name,
        "target_host": step.target_name,
        **more,
    }


class _MigrationResult(enum.Enum):
    """How a migration ended, in words."""

    DONE = "is done"
    FAILED = "failed"
    GONE = "ended with the VM, which is gone,"
    TOO_LONG = "still goes on, and is followed no more,"


def _ending(migrating: Migrating, state: ClusterState, now: float) -> Optional[_MigrationResult]:
    """How a migration ended; None while it goes on."""
    age, step = now - migrating.begun, migrating.step
    vm = state.vms.get(step.vm)
    if vm is None:
        return _MigrationResult.GONE
    if vm.is_migrating:
        migrating.moving = True
        return _MigrationResult.TOO_LONG if age > _LONGEST_MIGRATION else None
    elsewhere = vm.host not in (None, step.source)
    if vm.host == step.target or (elsewhere and not step.target):
        return _MigrationResult.DONE
    is_late = migrating.moving or age > _BEGIN_SECONDS
    return _MigrationResult.FAILED if is_late else None
