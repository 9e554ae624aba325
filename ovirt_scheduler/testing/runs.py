"""What the fixtures return: hosts and VMs with likely values, and the answers of plugins.

Plugins are loaded as ``try`` loads them, and called in processes of their own.
"""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional, TypeVar
from xml.etree.ElementTree import Element, fromstring

from ovirtsdk4 import types
from ovirtsdk4.reader import Reader
from ovirtsdk4.writer import Writer

from ovirt_scheduler.catalogue.loader import LoadedPlugin, Loader
from ovirt_scheduler.command.calls import trial
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.daemon.runtime import Runtime
from ovirt_scheduler.errors import SchedulerError
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.jobs import DriverCall, Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities, RequestedUnit, new_id
from ovirt_scheduler.model.tasks import Returns
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.plugin.interfaces import Hosts, Vms
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.workbench.fake_cluster import FakeCluster
from ovirt_scheduler.workbench.fake_engine import FakeEngine
from ovirt_scheduler.workbench.snapshot import Snapshot

__tracebackhide__ = True  # a failure reads as one of the test

GIB = 2**30

PropertyValues = Mapping[str, object]

_UnitOrDriver = TypeVar("_UnitOrDriver", PolicyUnit, DriverUnit)

_NO_PROPERTIES: PropertyValues = {}
_NO_FACTORS: Mapping[Path, int] = {}


def make_cluster(name: str = "Default", **attributes: Any) -> types.Cluster:
    """A cluster; its id is made of its name, unless ``attributes`` has one."""
    values = {"id": _id("cluster", name), "affinity_groups": [], **attributes}
    return types.Cluster(name=name, **values)


def make_host(
    name: str = "host", *, running: int = 0, processors: int = 16, **attributes: Any
) -> types.Host:
    """A host; the fixture of this name explains the parameters."""
    values = {
        "status": types.HostStatus.UP,
        "memory": 64 * GIB,
        "summary": types.VmSummary(active=running, migrating=0, total=running),
        **attributes,
    }
    values.setdefault("max_scheduling_memory", values["memory"])
    return _make_entity(types.Host, name, processors, **values)


def make_vm(name: str = "vm", *, processors: int = 1, **attributes: Any) -> types.Vm:
    """A VM; the fixture of this name explains the parameters."""
    values = {"status": types.VmStatus.UP, "memory": 4 * GIB, **attributes}
    return _make_entity(types.Vm, name, processors, **values)


def saved_cluster(path: Path) -> tuple[list[types.Host], list[types.Vm]]:
    """The hosts and VMs of a snapshot, with their tags, affinity labels and statistics.

    Raises:
        BadInput: the file cannot be read, or is no snapshot.
    """
    snapshot = Snapshot.read(Path(path))
    hosts, vms = (Reader.read(snapshot.document(name).data.decode()) for name in ("hosts", "vms"))
    return hosts, vms


def _elements(entities: Iterable[Any]) -> list[Element]:
    """The elements of entities, for a fake engine: hosts, VMs or clusters with all their parts."""
    return [fromstring(Writer.write(each)) for each in entities]  # noqa: S314  just written


def _make_entity(
    kind: Any,
    name: str,
    processors: int,
    *,
    cluster: Optional[types.Cluster] = None,
    tags: Sequence[str] = (),
    affinity_labels: Sequence[str] = (),
    statistics: Mapping[str, float] = MappingProxyType({}),
    **values: Any,
) -> Any:
    """A host or a VM, with its cluster and the collections that the engine has for both."""
    topology = types.CpuTopology(sockets=1, cores=processors, threads=1)
    values = {
        "id": _id(kind.__name__.lower(), name),
        "cpu": types.Cpu(topology=topology),
        "cluster": cluster or make_cluster(),
        **values,
    }
    return kind(
        name=name,
        tags=[types.Tag(id=_id("tag", tag), name=tag) for tag in tags],
        affinity_labels=[
            types.AffinityLabel(id=_id("label", label), name=label) for label in affinity_labels
        ],
        statistics=[
            types.Statistic(
                id=_id("statistic", key), name=key, values=[types.Value(datum=float(datum))]
            )
            for key, datum in statistics.items()
        ],
        **values,
    )


def _id(what: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{what}:{name}"))


class PluginFailed(AssertionError):
    """A plugin's file does not load, or its call failed; why, with the plugin's traceback."""


@dataclass(eq=False)
class Runs:
    """The calls of plugins in a test session; the fixtures explain the parameters.

    Attributes:
        running: the parts of the daemon that call plugins, started.
        engine: what ``engine_connection`` reaches; it has the hosts and VMs of the latest call.

    Raises (when called):
        PluginFailed: the plugin does not load, refuses a property's value, or fails.
    """

    running: Runtime
    engine: FakeEngine

    def run_unit(
        self,
        kind: str,
        plugin: Path,
        hosts: Hosts,
        vm: Optional[types.Vm] = None,
        *,
        vms: Vms = (),
        properties: PropertyValues = _NO_PROPERTIES,
        unit: Optional[str] = None,
    ) -> Any:
        """The answer of a filter, a cost function or a balance, with names; see the fixtures.

        Args:
            kind: a value of ``Kind``.
        """
        of_kind, loaded = Kind(kind), self._load(plugin)
        if of_kind is Kind.BALANCE and vm is not None:
            raise TypeError("a balance is about no single VM: leave it out, or give vms=")
        started_vms = [] if of_kind is Kind.BALANCE else [vm or make_vm()]
        request = Request(
            _caller(),
            Entities(_ids(hosts), vm=started_vms[0].id if started_vms else None),
            _texts(properties),
            {of_kind: (_requested_unit(loaded, of_kind, unit),)},
        )
        answer = self._answer(request, of_kind.label, hosts, [*vms, *started_vms], loaded)
        names = _names(hosts)
        if of_kind is Kind.FILTER:
            return [names[host] for host in answer]
        if of_kind is Kind.COST_FUNCTION:
            return {names[host]: cost for host, cost in answer.items()}
        if answer is None:
            return None
        return _names(vms).get(answer.vm, answer.vm), [names[host] for host in answer.hosts]

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
        properties: PropertyValues = _NO_PROPERTIES,
        filters: Sequence[Path] = (),
        cost_functions: Mapping[Path, int] = _NO_FACTORS,
        scheduler: Optional[str] = None,
    ) -> Any:
        """The answer of a scheduler's method, with names; see the fixture."""
        loaded = self._load(plugin)
        schedulers = [each for each in loaded.drivers if each.interfaces]
        driver = _chosen(schedulers, "scheduler", loaded, scheduler)
        defined = driver.defines(method)
        if defined is None:
            raise PluginFailed(
                f"{loaded.path}: the scheduler {driver.name} does not define {method}; "
                f"it is {', '.join(driver.interfaces)}"
            )
        if "vm" in defined.parameters:
            vm = vm or make_vm()
        before = [self._load(path) for path in filters]
        scoring = [(self._load(path), factor) for path, factor in cost_functions.items()]
        units = {
            Kind.FILTER: tuple(_requested_unit(file, Kind.FILTER) for file in before),
            Kind.COST_FUNCTION: tuple(
                _requested_unit(file, Kind.COST_FUNCTION)._replace(factor=factor)
                for file, factor in scoring
            ),
        }
        statuses = {"old_status": old_status, "new_status": new_status}
        change = {name: word for name, word in statuses.items() if word is not None}
        entities = Entities(_ids(hosts), _ids(vms), vm and vm.id, host and host.id)
        call = DriverCall(driver, method, change)
        request = Request(_caller(), entities, _texts(properties), units, call)
        machines = [*vms, *filter(None, (vm,))]
        files = [loaded, *before, *(file for file, _ in scoring)]
        answer = self._answer(request, driver.label, hosts, machines, *files)
        return _named(answer, defined.returns, _names(hosts), _names(machines))

    def run_topic(self, plugin: Path, method: str, /, **arguments: object) -> Any:
        """The value that a driver's own method returns."""
        loaded = self._load(plugin)
        drivers = [each for each in loaded.drivers if each.method(method)]
        driver = _chosen(drivers, f"driver with a method {method}", loaded, None)
        request = Request(_caller(), Entities(), driver_call=DriverCall(driver, method, arguments))
        return self._answer(request, driver.label, (), (), loaded)

    def _answer(
        self, request: Request, label: str, hosts: Hosts, vms: Vms, *files: LoadedPlugin
    ) -> Any:
        """The answer of units or a driver of some files; shows what they printed.

        Args:
            label: of the balance or driver that is called last, if there is one.

        Raises:
            PluginFailed: a call failed, or its answer is not valid.
            ValueError: two hosts have the same id.
        """
        number = Counter(host.id for host in hosts)
        for host in hosts:
            if number[host.id] > 1:
                raise ValueError(f"{number[host.id]} hosts are {host.name}: name each differently")
        machines = {vm.id: vm for vm in vms}  # the VM to start may be among those of the cluster
        self.engine.cluster = FakeCluster(_elements(hosts), _elements(machines.values()))
        settings, catalogue = self.running.services.settings, trial.catalogue_of(*files)
        services = self.running.prepare(settings, catalogue, self.engine)
        try:
            decision = services.decisions.decide(request)
        except SchedulerError as error:
            raise PluginFailed(str(error)) from None
        execution = decision.execution
        called = [(Kind.FILTER.label, each) for each in execution.filters]
        called += [(Kind.COST_FUNCTION.label, each) for each in execution.cost_functions]
        called += [(label, execution.final)] if execution.final is not None else []
        for kind, result in called:
            sys.stdout.write(result.stdout)
            sys.stderr.write(result.stderr)
            if not result.ok:
                failure = f"{kind} {result.unit} {result.outcome.value}: {result.message}"
                raise PluginFailed("\n".join(filter(None, (failure, result.traceback.rstrip()))))
            notes = (*result.notes, *result.remarks)
            sys.stderr.writelines(f"note: {kind} {result.unit}: {note}\n" for note in notes)
        return decision.answer

    def _load(self, plugin: Path) -> LoadedPlugin:
        path = Path(plugin)
        loader = Loader(
            trial.settings_for(self.running.services.settings, path), self.running.executor.analyse
        )
        try:
            return trial.load(loader, path)
        except SchedulerError as error:
            raise PluginFailed(str(error)) from None


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Runs]:
    """Start what runs plugins, with the default settings.

    Args:
        folder: for an empty scheduler.conf.
    """
    file = folder / "scheduler.conf"
    file.touch()
    settings = replace(scheduler_conf.load(file, {}, for_daemon=False), conf_beside=True)
    engine = FakeEngine()
    try:
        with runtime.started(settings) as running:
            yield Runs(running, engine)
    finally:
        engine.close()


def _chosen(
    units: Sequence[_UnitOrDriver], what: str, loaded: LoadedPlugin, name: Optional[str]
) -> _UnitOrDriver:
    fit = [unit for unit in units if name in (None, unit.name)]
    if len(fit) == 1:
        return fit[0]
    there = ", ".join(unit.name for unit in units)
    if not units:
        raise PluginFailed(f"{loaded.path}: has no {what}")
    if not fit:
        raise PluginFailed(f"{loaded.path}: has no {what} {name}; it has {there}")
    raise PluginFailed(f"{loaded.path}: say which {what} is meant: {there}")


def _requested_unit(loaded: LoadedPlugin, kind: Kind, name: Optional[str] = None) -> RequestedUnit:
    units = [each for each in loaded.units if each.kind is kind]
    return RequestedUnit(_chosen(units, kind.label, loaded, name).name)


def _named(answer: Any, returns: Returns, hosts: Mapping[str, str], vms: Mapping[str, str]) -> Any:
    """An answer of a scheduler, with names instead of ids."""
    if returns is Returns.SELECTION:
        return [hosts.get(host, host) for host in answer]
    if returns is Returns.MIGRATIONS:
        return {vms[vm]: [hosts[host] for host in targets] for vm, targets in answer.items()}
    return answer


def _names(entities: Sequence[Any]) -> dict[str, str]:
    return {each.id: each.name or each.id for each in entities}


def _texts(properties: PropertyValues) -> dict[str, str]:
    return {name: str(value) for name, value in properties.items()}


def _ids(entities: Sequence[Any]) -> tuple[str, ...]:
    return tuple(each.id for each in entities)


def _caller() -> Caller:
    return Caller(new_id(), AnswerForm.DESIGN, "a test")
