"""One policy of a simulation: asks the code that serves where a VM goes, and what migrates."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Optional, cast

from ovirt_scheduler.clusters import check
from ovirt_scheduler.clusters.destinations import BALANCE, ClusterDestinations
from ovirt_scheduler.clusters.reader import View
from ovirt_scheduler.daemon.runtime import Runtime
from ovirt_scheduler.decisions import log
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.errors import BadUsage, ConfigError
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.cluster_state import ClusterState
from ovirt_scheduler.model.decisions import Decision, DriverCall, Request
from ovirt_scheduler.model.drivers import POLICY
from ovirt_scheduler.model.requests import Caller, Subjects
from ovirt_scheduler.model.tasks import EngineReplies
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings import config
from ovirt_scheduler.settings.config import ClusterSettings
from ovirt_scheduler.settings.file import content, entries
from ovirt_scheduler.workbench.simulated import SimulatedCluster, SimulatedVm

_DEFAULT = "default"  # the scheduler that comes with the package


def section(
    file: Optional[Path], name: str, changes: Mapping[str, str], words: str
) -> ClusterSettings:
    """A cluster's section of a file, or that of a cluster that has none, with changes.

    Args:
        file: a scheduler.conf that was read already; None: there is none.
        changes: of its keys, as they would stand in the file.
        words: the option that has the changes.

    Raises:
        BadUsage: a change that no section may have.
    """
    found: dict[str, str] = {}
    if file is not None:
        found = {
            entry.key: entry.value
            for entry in entries(content(file, ConfigError), file, ConfigError)
            if (entry.section, entry.subsection) == ("clusters", name) and entry.key
        }
    where = " with ".join([str(file)] * bool(found) + [words] * bool(changes))
    found.update(changes)
    lines = [f"{key} = {_quoted(value)}" for key, value in found.items()]
    try:
        text = "\n".join(["[clusters]", f"[[{name}]]", *lines])
        made = config.clusters(text.encode("utf-8", "surrogateescape"), Path(words))[0]
    except ConfigError as error:
        raise BadUsage(f"{where}: {error.message}") from None
    return replace(made, file=where, lines={})  # those of the text are no lines of a file


def _quoted(value: str) -> str:
    return f"'{value}'" if '"' in value else f'"{value}"'


class Policy(DecisionService):
    """Asks a cluster's filters, cost functions and scheduler; used by one thread.

    Args:
        runtime: it is started, and its plugins are loaded.
        settings: which are asked.

    Attributes:
        accepted: hosts that were left by the engine and the filters, and for how many VMs.
        asked: ids of the VMs that it was asked for.
        problems: what went wrong in plugins, and how often.

    Raises:
        ConfigError: the settings name what does not exist.
    """

    def __init__(
        self, runtime: Runtime, settings: ClusterSettings, cluster: SimulatedCluster
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        seconds = runtime.services.settings.request_timeout
        super().__init__(runtime.registry, runtime.executor, seconds, cluster)
        catalogue = runtime.registry.current()
        problem = check.problem(settings, catalogue)
        if problem:
            raise problem
        self._driver = catalogue.drivers[settings.scheduler]
        self._selector, self._properties = self._driver, settings.properties
        if not self._driver.defines("select_host"):  # the default goes by units alone
            self._selector = catalogue.drivers[_DEFAULT]
            items = settings.properties.items()
            self._properties = {key: value for key, value in items if key != POLICY}
        self.accepted: Counter[str] = Counter()
        self.asked: set[str] = set()
        self.problems: Counter[str] = Counter()

    def choose(self, vm: SimulatedVm, hosts: Iterable[str]) -> tuple[Optional[str], str]:
        """The host that a VM is started on or evacuated to; None, and why, where there is none.

        Args:
            hosts: those that the engine itself would let it on.
        """
        settings = self._settings
        decision = self.decide(
            Request(
                Caller.of_cluster(self._cluster.name),
                Subjects(hosts=tuple(hosts), vm=vm.id),
                self._properties,
                {Kind.FILTER: settings.filters, Kind.COST_FUNCTION: settings.cost_functions},
                DriverCall(self._selector, "select_host"),
            )
        )
        self.asked.add(vm.id)
        execution = decision.execution
        left, _ = aggregate.filtered(execution.hosts, execution.filters, decision.of(Kind.FILTER))
        self.accepted.update(left)
        answer = cast("tuple[str, ...]", decision.answer)
        return (answer[0], "") if answer else (None, log.summary(decision))

    def balance(
        self, state: ClusterState, staying: Collection[str], former: Mapping[str, frozenset[str]]
    ) -> Mapping[str, str]:
        """What is to be migrated now: VM to host, by id.

        Args:
            staying: VMs that are not to be migrated.
            former: hosts that a VM is not to go back to.
        """
        destinations = ClusterDestinations(
            self, self._settings, View(state), staying, former, threading.Event()
        )
        answer = destinations.answer(self._driver, BALANCE)
        for vm in answer.keys() - state.vms.keys():  # a balance may name any
            self.problems[f"{vm} is to be migrated, and no VM that runs has this id"] += 1
        chosen, _ = destinations.choose(answer)
        return {vm: host or self._any(vm) for vm, host in chosen.items()}

    def _any(self, vm: str) -> str:
        """The host that an engine might choose: the one that is used least."""
        simulated = self._cluster.vms[vm]
        others = [host for host in self._cluster.hosts.values() if host is not simulated.host]
        fit = [host for host in others if not host.refusal(simulated)]
        return min(fit, key=lambda host: host.view().used).id if fit else ""

    def decide(self, request: Request, known: Optional[EngineReplies] = None) -> Decision:
        """Decide, and note what went wrong."""
        decision = super().decide(request, known)
        texts: list[str] = []
        for unit, problems in decision.unit_errors.items():
            texts += [each if each.startswith(unit) else f"{unit}: {each}" for each in problems]
        self.problems.update(dict.fromkeys([*texts, *decision.errors], 1))
        return decision
