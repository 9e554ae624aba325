"""Reads the affinity groups of one cluster from the engine, and watches which rules are broken.

::

    clusters/ID/affinitygroups ──► a reader's process ──► groups ──► AffinityRules
    affinitylabels, where they count ─┘

The engine's enforcer mends one rule a minute. What it cannot mend, or has no time for, is mended
here: hard rules alone, one group a look, once their number has not fallen for two looks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from ovirt_scheduler.clusters.engine_side import EngineSide
from ovirt_scheduler.clusters.reader_reports import GROUPS, LABELS, LabelMembers, resolve_labels
from ovirt_scheduler.engine.inventory import PAGE_SECONDS, Inventory
from ovirt_scheduler.errors import EngineRefusal, SchedulerError
from ovirt_scheduler.model.affinity import AffinityGroup, AffinityRules, BrokenRule, PlacedVms
from ovirt_scheduler.model.answer_memory import Share
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings.table import ClusterSettings

_log = logging.getLogger(__name__)

_EVERY = 60.0  # seconds between two readings
_PATIENCE = 2  # looks in which the engine's enforcer may mend rules
LAST_WITH_IMPLICIT = (4, 3)  # the last version whose labels are groups of their own


class Mending(NamedTuple):
    """A migration that would mend a broken hard rule."""

    rule: BrokenRule
    vm: str
    hosts: tuple[str, ...]  # the best first


class RuleWatch:
    """Watches which affinity rules of one cluster are broken, and says what would mend them.

    Attributes:
        broken: the rules that are broken, as far as it was found out last.
    """

    def __init__(self) -> None:
        self._looks_in_vain = 0  # in which no hard rule was mended
        self._hard_broken = 0  # rules, at the last balancing
        self._mends = False
        self.broken: tuple[BrokenRule, ...] = ()

    def watch(self, placed: PlacedVms) -> None:
        """Note which rules are broken at a balancing."""
        self.broken = tuple(placed.broken())
        former, present = self._hard_broken, sum(rule.enforcing for rule in self.broken)
        self._hard_broken = present
        self._looks_in_vain = 0 if not former or present < former else self._looks_in_vain + 1
        self._mends = present > 0 and (self._mends or self._looks_in_vain >= _PATIENCE)

    def touched(self) -> dict[str, str]:
        """The VMs that are not moved for evenness, each with why: a broken hard rule is first."""
        return {
            vm: f"the affinity group {rule.group.name} is broken, and is mended first"
            for rule in self.broken
            if rule.enforcing
            for vm in (rule.group.vms if not rule.is_of_hosts else _members(rule))
        }

    def mendings(self, placed: PlacedVms, state: ClusterState) -> Iterator[Mending]:
        """What would mend hard rules, the first to be mended first, where it is time for that."""
        for rule in self.broken if self._mends else ():
            for unit in rule.units if rule.enforcing else ():
                hosts = _fit_hosts(unit, rule, placed, state)
                if hosts:
                    yield Mending(rule, unit[0], hosts)


class ClusterAffinity(RuleWatch):
    """The affinity rules of one cluster; used by one thread.

    Attributes:
        rules: as the engine told them last.
        problem: why it does not tell them, in its words; empty if it does.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        inventory: Inventory,
        executor: Executor,
        engine_side: EngineSide,
    ) -> None:
        super().__init__()
        self._cluster = settings.name
        self._is_on = settings.affinity
        self._pause = settings.refused_pause
        self._inventory = inventory
        self._executor = executor
        self._engine_side = engine_side
        self._look_at = 0.0  # when the present look began, on the monotonic clock
        self._read_again_at = 0.0
        self._logged: set[str] = set()  # problems and conflicts
        self.rules = AffinityRules()
        self.problem = ""

    @property
    def broken_groups(self) -> tuple[tuple[str, bool], ...]:
        """The names of the groups of broken rules, and whether the rule is hard."""
        return tuple((rule.group.name, rule.enforcing) for rule in self.broken)

    def begin_look(self) -> None:
        """Note when a look begins: two that begin a minute apart may both read the groups."""
        self._look_at = time.monotonic()

    def read(self, state: ClusterState) -> AffinityRules:
        """The rules as they are now, read at most once a minute; a failure is logged once."""
        cluster = next((host.cluster for host in state.hosts.values()), None)
        if self._is_on and cluster and self._look_at >= self._read_again_at:
            self._read_again_at = self._look_at + _EVERY
            try:
                groups = tuple(self._groups(cluster))
                self.problem = ""
                self._logged.discard("")
                if groups != self.rules.groups:
                    self.rules = AffinityRules(groups)
                self._log_conflicts()
                running = {key: vm.host for key, vm in state.vms.items() if vm.host}
                self.broken = tuple(PlacedVms(self.rules, running).broken())
            except SchedulerError as error:
                self._note_failure(error)
        return self.rules

    def _groups(self, cluster: str) -> Iterator[AffinityGroup]:
        """The groups of a cluster, with the members of labels where these count."""
        share = self._inventory.share()
        path = f"/clusters/{quote(cluster, safe='')}/affinitygroups"
        document = self._document(path, share)
        groups = GROUPS.read(self._executor, document)[1].values()
        if self._engine_side.version is None:
            self._engine_side.ask()
        version = self._engine_side.version
        has_implicit = version is not None and version <= LAST_WITH_IMPLICIT
        labels: dict[str, LabelMembers] = {}
        if has_implicit or any(group.vm_labels or group.host_labels for group in groups):
            document = self._document("/affinitylabels?follow=vms,hosts", share)
            _, labels = LABELS.read(self._executor, document)
        return resolve_labels(groups, labels, has_implicit)

    def _document(self, path: str, share: Share) -> Document:
        deadline = time.monotonic() + PAGE_SECONDS
        return self._inventory.document_at(path, deadline, share=share)

    def _note_failure(self, error: SchedulerError) -> None:
        """Go on by the rules that were read before; without any, where the engine refuses them."""
        is_refused = isinstance(error, EngineRefusal)
        self.problem = error.words if isinstance(error, EngineRefusal) else str(error)
        if is_refused:
            self.rules, self.broken = AffinityRules(), ()
            self._read_again_at = self._look_at + max(_EVERY, self._pause)
        if "" not in self._logged:
            self._logged.add("")
            remedy = "give the user of [engine] the role ReadOnlyAdmin, or set affinity = false"
            _log.warning(
                "cluster %(cluster)s: the engine's affinity groups cannot be read: %(reason)s; "
                "it is looked after %(state)s",
                {
                    "cluster": self._cluster,
                    "reason": self.problem,
                    "state": f"without them; {remedy}" if is_refused else "by those read before",
                },
            )

    def _log_conflicts(self) -> None:
        for first, second in self.rules.conflicts:
            words = f"{first} and {second}"
            if words not in self._logged:
                self._logged.add(words)
                _log.warning(
                    "cluster %(cluster)s: the affinity groups %(reason)s contradict each other; "
                    "their VMs stay where they are",
                    {"cluster": self._cluster, "reason": words},
                )


def _members(rule: BrokenRule) -> Iterator[str]:
    """The VMs that could move so that the rule holds."""
    for unit in rule.units:
        yield from unit


def _fit_hosts(
    unit: tuple[str, ...], rule: BrokenRule, placed: PlacedVms, state: ClusterState
) -> tuple[str, ...]:
    """The other hosts that rules and memory let a unit go to: the largest part of its group first,
    then by soft rules, then by what is used."""
    if not all(vm in state.vms and state.vms[vm].status == "up" for vm in unit):
        return ()
    memory = sum(state.vms[vm].memory for vm in unit)
    source = state.vms[unit[0]].host
    up = [key for key, host in state.hosts.items() if host.is_up and key != source]
    is_together = not rule.is_of_hosts and rule.group.vm_rule and rule.group.vm_rule.positive

    def rank(key: str) -> tuple[Any, ...]:
        host = state.hosts[key]
        there = sum(placed.host_of(vm) == key for vm in rule.group.vms) if is_together else 0
        return -there, placed.penalty(unit, key), host.used_memory / (host.memory or 1), key

    fit = [
        key
        for key in placed.acceptable(unit, up)
        if not state.hosts[key].memory
        or state.hosts[key].used_memory + memory <= state.hosts[key].memory
    ]
    return tuple(sorted(fit, key=rank))
