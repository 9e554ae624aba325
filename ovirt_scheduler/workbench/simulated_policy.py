"""Asks the filters, cost functions and scheduler of a section about a simulated cluster."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Optional, cast

from ovirt_scheduler.clusters.affinity_watch import RuleWatch
from ovirt_scheduler.clusters.cluster_reader import ClusterView
from ovirt_scheduler.clusters.destinations import BALANCE, MEND, ClusterDestinations
from ovirt_scheduler.clusters.placing import Choices
from ovirt_scheduler.clusters.planning import MOST_MENDINGS
from ovirt_scheduler.clusters.refusals import ANY_HOST
from ovirt_scheduler.clusters.section_check import SectionCheck, unread_properties
from ovirt_scheduler.daemon.runtime import Runtime
from ovirt_scheduler.decisions import summary
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.model.affinity import AffinityRules, PlacedVms
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.drivers import POLICY, Migrations
from ovirt_scheduler.model.jobs import Decision, DriverCall, Request
from ovirt_scheduler.model.plans import Step
from ovirt_scheduler.model.requests import Caller, Entities
from ovirt_scheduler.model.tasks import EngineReplies
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values.text import count_of
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.workbench.simulated_cluster import SimulatedCluster, SimulatedVm

_DEFAULT = "default"  # the scheduler that comes with the package
_PLURAL = {
    "has": "have", "is": "are", "does": "do", "goes": "go", "reboots": "reboot",
    "refused": "refused",
}  # fmt: skip


class Balanced(NamedTuple):
    """What a policy answers to a balancing.

    Attributes:
        migrations: VM to host, by id.
        unfit: migrations that are not allowed, with the problem.
        leaders: by VM the one with which it moves, of those that move together.
        mended: the name of the affinity group whose rule they mend; empty: they even out use.
    """

    migrations: Mapping[str, str]
    unfit: Sequence[Step]
    leaders: Mapping[str, str]
    mended: str = ""


class SimulatedPolicy(DecisionService):
    """Asks a cluster's filters, cost functions and scheduler; used by one thread.

    Args:
        runtime: it is started, and its plugins are loaded.
        settings: which are asked.
        rules: of affinity, which the settings may switch off.

    Attributes:
        accepted: hosts that the engine and the filters left, and for how many VMs.
        placed_vms: ids of the VMs that it was asked for.
        problems: failures of plugins, and how often.
        unread: properties that nothing in the settings knows, in sentences.

    Raises:
        ConfigError: the settings name what does not exist.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: ClusterSettings,
        cluster: SimulatedCluster,
        rules: AffinityRules,
    ) -> None:
        self._settings = settings
        self._rules = rules if settings.affinity else AffinityRules()
        self._watch = RuleWatch()
        self._cluster = cluster
        seconds = runtime.services.settings.request_timeout
        super().__init__(runtime.registry, runtime.executor, seconds, cluster)
        catalogue = runtime.registry.current()
        problem = SectionCheck(settings, runtime.executor).problem(catalogue)
        if problem:
            raise problem
        self.unread = [*unread_properties(settings, catalogue)]
        self._driver = catalogue.drivers[settings.scheduler]
        self._selector, self._properties = self._driver, dict(settings.properties)
        if not self._driver.defines("select_host"):  # the default goes by units alone
            self._selector = catalogue.drivers[_DEFAULT]
            items = settings.properties.items()
            self._properties = {key: value for key, value in items if key != POLICY}
        self.accepted: Counter[str] = Counter()
        self.placed_vms: set[str] = set()
        self.problems: Counter[str] = Counter()

    def choices(
        self, vm: SimulatedVm, hosts: Iterable[str], company: Iterable[str] = ()
    ) -> Choices:
        """The hosts that a VM can be started on or evacuated to, and why no others.

        Args:
            company: VMs that go along.
            hosts: those that the engine itself would allow.
        """
        settings, placed = self._settings, self._placed_vms().about(vm.id)
        for other in company:
            placed.move(other, None)
        decision = self.decide(
            Request(
                Caller.of_cluster(self._cluster.name),
                Entities(hosts=tuple(hosts), vm=vm.id),
                self._properties,
                {Kind.FILTER: settings.filters, Kind.COST_FUNCTION: settings.cost_functions},
                DriverCall(self._selector, "select_host", rules=placed),
            )
        )
        self.placed_vms.add(vm.id)
        self.accepted.update(decision.execution.remaining)
        answer = cast("tuple[str, ...]", decision.answer)
        return Choices(answer, summary.why_not(decision))

    def balance(
        self,
        state: ClusterState,
        closed: Mapping[str, Mapping[str, str]],
        doubtful: Mapping[str, Collection[str]],
        mends: bool,
    ) -> Balanced:
        """The migrations to make now.

        Args:
            closed, doubtful: as for ``ClusterDestinations``.
            mends: whether a broken affinity rule may be mended instead, if it is time for that.
        """

        def destinations_for(
            method: str, closed: Mapping[str, Mapping[str, str]]
        ) -> ClusterDestinations:
            return ClusterDestinations(
                self, self._settings, self._driver, method, ClusterView(state), closed,
                threading.Event(), doubtful, rules=self._rules,
            )  # fmt: skip

        destinations = destinations_for(MEND, closed)
        mendings = self._watch.mendings(self._placed_vms(), state) if mends else ()
        for mending in islice(mendings, MOST_MENDINGS):
            answer: Migrations = {mending.vm: mending.hosts}
            destinations.learn(answer)
            chosen, _ = destinations.choose(answer)
            if chosen:
                return Balanced(chosen, (), destinations.leaders, mending.rule.group.name)
        touched = {
            vm: {ANY_HOST: why, **closed.get(vm, {})} for vm, why in self._watch.touched().items()
        }
        destinations = destinations_for(BALANCE, {**closed, **touched})
        answer = destinations.answer()
        for vm in answer.keys() - state.vms.keys():  # a balance may name any
            self.problems[f"{vm} is to be migrated, and no VM that runs has this id"] += 1
        chosen, unfit = destinations.choose(answer)
        migrations = {vm: host or self._any(vm) for vm, host in chosen.items()}
        return Balanced(migrations, unfit, destinations.leaders)

    def watch_rules(self) -> None:
        """Note at the beginning of a balancing which affinity rules are broken."""
        self._watch.watch(self._placed_vms())

    def _placed_vms(self) -> PlacedVms:
        vms = self._cluster.vms.items() if self._rules.groups else ()
        return PlacedVms(self._rules, {key: vm.host.id for key, vm in vms if vm.host})

    def _any(self, vm: str) -> str:
        """The host that an engine might choose: the one that is used least."""
        simulated = self._cluster.vms[vm]
        hosts = self._cluster.hosts.values()
        fit = [each for each in hosts if each is not simulated.host and not each.refusal(simulated)]
        return min(fit, key=lambda host: host.view().used).id if fit else ""

    def decide(self, request: Request, replies: Optional[EngineReplies] = None) -> Decision:
        """Decide, and note failures."""
        decision = super().decide(request, replies)
        texts: list[str] = []
        for unit, problems in decision.unit_errors.items():
            texts += [each if each.startswith(unit) else f"{unit}: {each}" for each in problems]
        self.problems.update(dict.fromkeys([*texts, *decision.errors], 1))
        return decision


def refusal_words(refusals: Iterable[str]) -> list[str]:
    """How many hosts each refusal holds for: ``2 hosts have too few processors``."""
    words = []
    for refusal, number in sorted(Counter(filter(None, refusals)).items()):
        verb, space, rest = refusal.partition(" ")
        if verb not in _PLURAL:  # a sentence about the rule
            words.append(f"{count_of(number, 'host')}: {refusal}")
        else:
            verb = verb if number == 1 else _PLURAL[verb]
            words.append(f"{count_of(number, 'host')} {verb}{space}{rest}")
    return words
