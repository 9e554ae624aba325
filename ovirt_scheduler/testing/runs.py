"""Runs plugins for tests: loaded as ``try`` loads them, called in processes of their own."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar

from ovirtsdk4 import types

from ovirt_scheduler.catalogue.loader import LoadedPlugin, Loader
from ovirt_scheduler.command import trial
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.errors import SchedulerError
from ovirt_scheduler.model.decisions import Job
from ovirt_scheduler.model.drivers import DriverJob, DriverUnit, Subjects
from ovirt_scheduler.model.plugins import PluginCode
from ovirt_scheduler.model.requests import Document, WantedUnit
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.tasks import Returns
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings import config
from ovirt_scheduler.settings.config import Settings
from ovirt_scheduler.testing.entities import elements, make_vm
from ovirt_scheduler.workbench.engine import MadeEngine
from ovirt_scheduler.workbench.made_cluster import MadeCluster

Hosts = Sequence[types.Host]
Vms = Sequence[types.Vm]
Properties = Mapping[str, object]

_Unit = TypeVar("_Unit", PolicyUnit, DriverUnit)

_NO_PROPERTIES: Properties = {}
_NO_FACTORS: Mapping[Path, int] = {}


class PluginFailed(AssertionError):
    """A plugin's file does not load, or its call failed; why, with the plugin's traceback."""


class Runs:
    """What runs the plugins of a test session; the fixtures say what the methods take.

    Args:
        settings: for the limits of calls.
        executor: it is started.
        made: what ``engine_connection`` reaches.

    Raises (when called):
        PluginFailed: the plugin does not load, refuses a property's value, or fails.
    """

    def __init__(self, settings: Settings, executor: Executor, made: MadeEngine) -> None:
        self._settings = settings
        self._executor = executor
        self._engine = made

    def run_filter(
        self,
        plugin: Path,
        hosts: Hosts,
        vm: Optional[types.Vm] = None,
        *,
        vms: Vms = (),
        properties: Properties = _NO_PROPERTIES,
        unit: Optional[str] = None,
    ) -> List[str]:
        """The names of the hosts that a filter keeps; see the fixture."""
        __tracebackhide__ = True
        kept = self._run_unit(Kind.FILTER, plugin, unit, hosts, vm or make_vm(), vms, properties)
        names = _names(hosts)
        return [names[host] for host in kept]

    def run_score(
        self,
        plugin: Path,
        hosts: Hosts,
        vm: Optional[types.Vm] = None,
        *,
        vms: Vms = (),
        properties: Properties = _NO_PROPERTIES,
        unit: Optional[str] = None,
    ) -> Dict[str, int]:
        """The cost of each host by its name; see the fixture."""
        __tracebackhide__ = True
        vm = vm or make_vm()
        costs = self._run_unit(Kind.COST_FUNCTION, plugin, unit, hosts, vm, vms, properties)
        names = _names(hosts)
        return {names[host]: cost for host, cost in costs.items()}

    def run_balance(
        self,
        plugin: Path,
        hosts: Hosts,
        *,
        vms: Vms = (),
        properties: Properties = _NO_PROPERTIES,
        unit: Optional[str] = None,
    ) -> Optional[Tuple[str, List[str]]]:
        """The VM to migrate and the hosts it may go to, by name, or None; see the fixture."""
        __tracebackhide__ = True
        found = self._run_unit(Kind.BALANCE, plugin, unit, hosts, None, vms, properties)
        if found is None:
            return None
        names = _names(hosts)
        return _names(vms).get(found.vm, found.vm), [names[host] for host in found.hosts]

    def run_scheduler(  # noqa: PLR0913  all that a request may bring, by name
        self,
        plugin: Path,
        method: str,
        hosts: Hosts = (),
        vms: Vms = (),
        *,
        vm: Optional[types.Vm] = None,
        host: Optional[types.Host] = None,
        old_status: Optional[str] = None,
        new_status: Optional[str] = None,
        properties: Properties = _NO_PROPERTIES,
        filters: Sequence[Path] = (),
        cost_functions: Mapping[Path, int] = _NO_FACTORS,
        scheduler: Optional[str] = None,
    ) -> Any:
        """What a method of a scheduler answers, with names; see the fixture."""
        __tracebackhide__ = True
        driver = _chosen([each for each in self._load(plugin).drivers if each.interfaces],
                         "scheduler", plugin, scheduler)  # fmt: skip
        defined = driver.defines(method)
        if defined is None:
            raise PluginFailed(
                f"{plugin}: the scheduler {driver.name} does not define {method}; "
                f"it is {', '.join(driver.interfaces)}"
            )
        costs = [self._unit(Kind.COST_FUNCTION, path, None) for path in cost_functions]
        inline = _inline(driver.plugin)
        statuses = {"old_status": old_status, "new_status": new_status}
        values = _texts(properties)
        known_vms = [*vms, vm] if vm else [*vms]
        job = DriverJob(
            driver,
            method,
            Subjects(
                self._document("hosts", hosts, inline),
                self._document("vms", vms, inline),
                self._one("vms", vm or make_vm(), inline) if "vm" in defined.parameters else None,
                None if host is None else self._one("hosts", host, inline),
            ),
            {name: word for name, word in statuses.items() if word is not None},
            values,
            self._deadline(),
            engine=self._engine.access,
            filters=tuple(
                UnitCall(self._unit(Kind.FILTER, path, None), values) for path in filters
            ),
            cost_functions=tuple(UnitCall(each, values) for each in costs),
            wanted_costs=tuple(
                WantedUnit(each.name, factor)
                for each, factor in zip(costs, cost_functions.values())
            ),
        )
        answer = self._run_driver(job, hosts, known_vms)
        return _named(answer, job.returns, _names(hosts), _names(known_vms))

    def run_topic(self, plugin: Path, method: str, /, **arguments: object) -> Any:
        """What a driver's own method returns."""
        __tracebackhide__ = True
        drivers = [each for each in self._load(plugin).drivers if each.method(method)]
        driver = _chosen(drivers, f"driver with a method {method}", plugin, None)
        job = DriverJob(driver, method, Subjects(), arguments, {}, self._deadline())
        return self._run_driver(job, (), ())

    def _run_unit(
        self,
        kind: Kind,
        plugin: Path,
        name: Optional[str],
        hosts: Hosts,
        vm: Optional[types.Vm],
        vms: Vms,
        properties: Properties,
    ) -> Any:
        __tracebackhide__ = True
        unit = self._unit(kind, plugin, name)
        self._engine.cluster = MadeCluster(elements(hosts), elements([*vms, *([vm] if vm else [])]))
        inline = _inline(unit.plugin)
        job = Job(
            kind,
            (UnitCall(unit, _texts(properties)),),
            self._document("hosts", hosts, inline),
            None if vm is None else self._one("vms", vm, inline),
            self._deadline(),
            engine=self._engine.access,
        )
        try:
            execution = self._executor.run(job)
        except SchedulerError as error:
            raise PluginFailed(str(error)) from None
        return _ended(kind.words, execution.results[0]).value

    def _run_driver(self, job: DriverJob, hosts: Hosts, vms: Vms) -> Any:
        __tracebackhide__ = True
        self._engine.cluster = MadeCluster(elements(hosts), elements(vms))
        try:
            execution = self._executor.run_driver(job)
        except SchedulerError as error:
            raise PluginFailed(str(error)) from None
        for call, result in zip(job.filters, execution.filters):
            _ended(call.unit.kind.words, result)
        for call, result in zip(job.cost_functions, execution.cost_functions):
            _ended(call.unit.kind.words, result)
        if execution.result is None:  # the filters left no host
            return False if job.returns is Returns.TRUTH else ()
        _ended(job.driver.words, execution.result)
        return execution.answer

    def _document(
        self, collection: str, entities: Sequence[Any], inline: Sequence[str]
    ) -> Document:
        inside = (
            self._engine.cluster.entity(collection, each, inline) for each in elements(entities)
        )
        return Document(f"<{collection}>{''.join(inside)}</{collection}>".encode(), "utf-8")

    def _one(self, collection: str, entity: Any, inline: Sequence[str]) -> Document:
        (element,) = elements([entity])
        return Document(self._engine.cluster.entity(collection, element, inline).encode(), "utf-8")

    def _unit(self, kind: Kind, plugin: Path, name: Optional[str]) -> PolicyUnit:
        __tracebackhide__ = True
        units = [each for each in self._load(plugin).units if each.kind is kind]
        return _chosen(units, kind.words, plugin, name)

    def _load(self, plugin: Path) -> LoadedPlugin:
        __tracebackhide__ = True
        path = Path(plugin)
        loader = Loader(trial.settings_for(self._settings, path), self._executor.analyse)
        try:
            return trial.load(loader, path)
        except SchedulerError as error:
            raise PluginFailed(str(error)) from None

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.request_timeout


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Runs]:
    """Start what runs plugins, with the settings that hold where nobody changed any.

    Args:
        folder: for a scheduler.conf in which nothing stands.
    """
    file = folder / "scheduler.conf"
    file.touch()
    settings = config.load(file, {}, for_daemon=False)
    made = MadeEngine()
    try:
        with runtime.started(settings) as running:
            yield Runs(settings, running.executor, made)
    finally:
        made.close()


def _chosen(units: Sequence[_Unit], what: str, plugin: Path, name: Optional[str]) -> _Unit:
    __tracebackhide__ = True
    fit = [unit for unit in units if name in (None, unit.name)]
    if len(fit) == 1:
        return fit[0]
    there = ", ".join(unit.name for unit in units)
    if not units:
        raise PluginFailed(f"{plugin}: has no {what}")
    if not fit:
        raise PluginFailed(f"{plugin}: has no {what} {name}; it has {there}")
    raise PluginFailed(f"{plugin}: say which {what} is meant: {there}")


def _ended(words: str, result: CallResult) -> CallResult:
    """Show what a call printed.

    Raises:
        PluginFailed: it has no answer that counts.
    """
    __tracebackhide__ = True
    sys.stdout.write(result.stdout)
    sys.stderr.write(result.stderr)
    if not result.ok:
        failure = f"{words} {result.unit} {result.outcome.value}: {result.message}"
        raise PluginFailed("\n".join(filter(None, (failure, result.traceback.rstrip()))))
    sys.stderr.writelines(f"note: {words} {result.unit}: {note}\n" for note in result.notes)
    return result


def _named(answer: Any, returns: Returns, hosts: Mapping[str, str], vms: Mapping[str, str]) -> Any:
    """An answer of a scheduler, with names in the place of ids."""
    if returns is Returns.SELECTION:
        return [hosts.get(host, host) for host in answer]
    if returns is Returns.MIGRATIONS:
        return {vms[vm]: [hosts[host] for host in targets] for vm, targets in answer.items()}
    return answer


def _names(entities: Sequence[Any]) -> Dict[str, str]:
    return {each.id: each.name or each.id for each in entities}


def _texts(properties: Properties) -> Dict[str, str]:
    return {name: str(value) for name, value in properties.items()}


def _inline(code: PluginCode) -> Tuple[str, ...]:
    """What the daemon has the engine write into the documents for a plugin (contract 5.2)."""
    return ("statistics",) if code.wants_statistics else ()
