"""Runs the jobs of requests: reads their documents, and calls their plugins in order.

::

    documents ──► a reader ──► packs
    hosts ──► filters, one after another ──► cost functions, side by side ──► a driver's method
              on the hosts that are left      their weighted sum: self.costs

The processes are those of ``processes``; here is which calls there are, on what.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Callable, Optional, TypeVar, cast

from ovirt_scheduler.errors import BadParameters, RefusedProperty, UnreadableDocument
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.analysis import Analysis
from ovirt_scheduler.model.cluster_state import HostState, VmState
from ovirt_scheduler.model.daemon_state import ProcessesState
from ovirt_scheduler.model.decisions import Execution, Job
from ovirt_scheduler.model.drivers import (
    DriverExecution,
    DriverJob,
    StatusChange,
    Subjects,
)
from ovirt_scheduler.model.plugins import Candidate, Engine, Limits, PluginCode, PluginUser
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.tasks import (
    CallInputs,
    EngineReplies,
    EngineReply,
    Function,
    Pack,
    Returns,
    Role,
    Unread,
)
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.processes import plugin_call, splitting
from ovirt_scheduler.processes.kept_process import key_of
from ovirt_scheduler.processes.plugin_call import OUTPUT_LIMIT, PluginCall
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.frames import FrameError
from ovirt_scheduler.processes.runner import Runner

# Of one role: each is a descriptor that a plugin's process has open, of the few that it may have.
_MOST_PACKS = 2

States = TypeVar("States")

HearChange = Callable[[StatusChange, DriverExecution], None]

_RETURNS = {
    Kind.FILTER: Returns.HOSTS,
    Kind.COST_FUNCTION: Returns.COSTS,
    Kind.BALANCE: Returns.MIGRATION,
}


class Executor:
    """Runs jobs. Safe to use from many threads.

    Args:
        parallel: plugin calls that may run at once, over all requests.
        max_waiting: requests that may wait for one of them to end.
        user: whom plugins run as, which takes root; None: this process's own user.
        adopts: this process has no other children than the executor's, and kills whatever a
            zygote that died leaves behind.
        kept: processes of plugins that are kept between calls.
    """

    def __init__(
        self,
        parallel: int,
        max_waiting: int,
        user: Optional[PluginUser] = None,
        adopts: bool = False,
        kept: int = 64,
    ) -> None:
        self._runner = Runner(parallel, max_waiting, kept, user, adopts)

    def start(self) -> None:
        """Start the zygote and what keeps processes ready.

        Raises:
            ExecutorUnavailable: the zygote does not start.
        """
        self._runner.start()

    def close(self) -> None:
        """End everything below this process; returns when it is gone."""
        self._runner.close()

    @property
    def zygote_pid(self) -> Optional[int]:
        """The process id of the zygote; None where there is none just now."""
        return self._runner.zygote_pid

    def state(self) -> ProcessesState:
        """How the processes are, and what came to pass since the start."""
        runner, places = self._runner, self._runner.places
        return ProcessesState(
            runner.pool.kept, runner.started, runner.pool.replaced, runner.zygotes,
            places.busy, places.capacity, places.waiting, places.refused,
        )  # fmt: skip

    def keep(self, most: int) -> None:
        """Change how many processes of plugins are kept between calls."""
        self._runner.pool.keep(most)

    def settle(self, seconds: float) -> Sequence[str]:
        """Wait until each process that was called has been compared with what it was before.

        Args:
            seconds: to wait at most.

        Returns:
            Why processes have ended by themselves since this was asked last, in words.
        """
        return self._runner.pool.settle(seconds)

    def want(self, plugins: Sequence[tuple[PluginCode, Limits]]) -> None:
        """Have a process of each of these plugins ready before it is called."""
        self._runner.pool.want({key_of(*each): each for each in plugins})

    def analyse(self, candidate: Candidate) -> Analysis:
        """Look at a plugin's file in a process of its own; a fault in it is in the result.

        Raises:
            ExecutorUnavailable: no process is to be had for it.
        """
        return self._runner.analyse(candidate)

    def split(self, documents: Sequence[Document]) -> list[Optional[list[bytes]]]:
        """Cut documents that were read into their elements: ``splitting.split``."""
        return splitting.split(self._runner, documents)

    def run(self, job: Job) -> Execution:
        """Call the policy units of a job.

        Returns:
            The results of the units that ran. A plugin's failure is a result.

        Raises:
            UnreadableDocument: the hosts or the VM cannot be read.
            RefusedProperty: a value that a unit refuses, where the job is strict.
            Overloaded: no place became free in time, too many wait, or it is closed.
            ExecutorUnavailable: no process is to be had for it.
        """
        wanted = len(job.calls) if job.kind is Kind.COST_FUNCTION else 1
        with self._runner.places.taken(wanted, job.deadline) as parallel:
            return self._run(job, parallel)

    @property
    def is_free(self) -> bool:
        """Whether a request would have a place at once."""
        return self._runner.places.is_free

    def look_on(self, job: Job) -> Execution:
        """Call policy units one after another as ``run`` does, but hold no place.

        So no request waits for them. The units are in shadow.
        """
        return self._run(job, 1)

    def _run(self, job: Job, parallel: int) -> Execution:
        by_ids = all(call.unit.class_name is not None for call in job.calls)
        replies = EngineReplies() if by_ids else job.replies
        subjects = Subjects(hosts=job.hosts, vm=job.vm)
        inputs, problems = self._read(subjects, replies, job.deadline, job.packs)
        packs = _brought(subjects, inputs)
        if not inputs.hosts:
            return Execution((), inputs.vm, (), problems, inputs.names, packs)
        # Many that print a lot would fill the daemon's memory: together they keep one's share.
        shown = OUTPUT_LIMIT // max(1, len(job.calls))
        calls = [_unit_call(call, inputs, job.engine, shown) for call in job.calls]
        if job.strict:
            self._refuse(calls, job.deadline, parallel)
        if job.kind is Kind.FILTER:
            results = self._filtered(job.calls, calls, job.deadline)
        else:
            results = self._runner.call(calls, job.deadline, parallel)
        return Execution(inputs.hosts, inputs.vm, tuple(results), problems, inputs.names, packs)

    def run_driver(self, job: DriverJob) -> DriverExecution:
        """Call a method of a driver, and before it the policy units that it asks for.

        Raises:
            BadParameters: the host whose status has changed is not among the hosts.
            And what ``run`` raises.
        """
        with self._runner.places.taken(len(job.cost_functions), job.deadline) as parallel:
            inputs, problems = self._read(job.subjects, job.replies, job.deadline)
            filters = [_unit_call(call, inputs, job.engine) for call in job.filters]
            costs = [_unit_call(call, inputs, job.engine) for call in job.cost_functions]
            method = _method_call(job, inputs)
            if job.strict:
                self._refuse([*filters, *costs, method], job.deadline, parallel)
            filtered = self._filtered(job.filters, filters, job.deadline) if inputs.hosts else []
            policies = [call.unit.on_failure for call in job.filters]
            left, _ = aggregate.filtered(inputs.hosts, filtered, policies)
            scored: list[CallResult] = []
            total: Mapping[str, int] = {}
            if left:
                costs = [replace(call, inputs=replace(inputs, hosts=left)) for call in costs]
                scored = self._runner.call(costs, job.deadline, parallel)
                total, _, _ = aggregate.summed(job.wanted_costs, scored, len(job.wanted_costs))
            execution = DriverExecution(
                inputs.hosts, tuple(filtered), tuple(scored), problems,
                vm=inputs.vm, names=inputs.names, packs=_brought(job.subjects, inputs),
            )  # fmt: skip
            if not left and _selects(job):
                return execution
            method = _method_call(job, replace(inputs, hosts=left), total)
            return self._called(method, execution, job)

    def tell_changes(
        self, job: DriverJob, changes: Sequence[StatusChange], until: float, hear: HearChange
    ) -> None:
        """Call a hook for each of the changes that there is time for, one after another.

        Args:
            until: seconds on the monotonic clock, after which no call begins but the first.
            hear: called at once with each change, and with how its call ended.

        Raises:
            UnreadableDocument, Overloaded, ExecutorUnavailable: as for ``run``.
        """
        with self._runner.places.taken(1, job.deadline):
            inputs, problems = self._read(job.subjects, job.replies, job.deadline)
            for number, change in enumerate(changes):
                if number and time.monotonic() >= until:
                    return
                one = job.of(change)
                of_one = _of_change(inputs, one.subjects)
                execution = DriverExecution(
                    inputs.hosts, errors=problems, vm=of_one.vm, names=inputs.names
                )
                hear(change, self._called(_method_call(one, of_one), execution, one))

    def read_hosts(self, page: Document, deadline: float) -> tuple[Pack, dict[str, HostState]]:
        """Read a page of hosts that the engine told of: the hosts packed, and the state of each.

        Raises:
            UnreadableDocument, Overloaded, ExecutorUnavailable: as for ``run``.
        """
        return self._read_page(Unread(Role.HOSTS, page), deadline, messages.unpack_hosts)

    def read_vms(self, page: Document, deadline: float) -> tuple[Pack, dict[str, VmState]]:
        """Read a page of VMs, as ``read_hosts`` does it with hosts."""
        return self._read_page(Unread(Role.VMS, page), deadline, messages.unpack_vms)

    def _read_page(
        self, unread: Unread, deadline: float, unpack: Callable[[object], States]
    ) -> tuple[Pack, States]:
        with self._runner.places.taken(1, deadline):
            packs, (read,), seen = self._runner.read([unread], deadline, tells_states=True)
        if read.problem:
            raise UnreadableDocument(read.problem)
        try:
            return packs[0], unpack(seen)
        except FrameError as error:
            raise UnreadableDocument(str(error)) from None

    def joined(self, packs: Sequence[Pack]) -> Pack:
        """One pack of several; it raises ExecutorUnavailable, where descriptors or memory lack."""
        return packs[0] if len(packs) == 1 else plugin_call.joined(packs)

    def _called(
        self, method: PluginCall, execution: DriverExecution, job: DriverJob
    ) -> DriverExecution:
        (result,) = self._runner.call([method], job.deadline)
        return replace(execution, result=replace(result, value=None), answer=result.value)

    def _filtered(
        self, units: Sequence[UnitCall], calls: Sequence[PluginCall], deadline: float
    ) -> list[CallResult]:
        """Call filters, each on the hosts that those before it left (contract 4.1)."""
        results: list[CallResult] = []
        left: tuple[str, ...] = calls[0].inputs.hosts if calls else ()
        for unit, call in zip(units, calls):
            if left is not call.inputs.hosts:
                call = replace(call, inputs=replace(call.inputs, hosts=left))  # noqa: PLW2901
            (result,) = self._runner.call([call], deadline)
            results.append(result)
            left = aggregate.narrow(left, result, unit.unit.on_failure)
            if not left:
                break
        return results

    def _refuse(self, calls: Sequence[PluginCall], deadline: float, parallel: int) -> None:
        """Check the properties of these calls before any of them runs.

        Raises:
            RefusedProperty: one of these does not take its value (contract 1.5).
        """
        checks = [call.checked() for call in calls if call.has_values]
        if not checks:
            return
        for result in self._runner.call(checks, deadline, parallel):
            if not result.ok:
                raise RefusedProperty(result.message)

    def _read(
        self,
        subjects: Subjects,
        replies: EngineReplies,
        deadline: float,
        known: Mapping[Role, Pack] = MappingProxyType({}),
    ) -> tuple[CallInputs, tuple[str, ...]]:
        """The inputs of a request's calls, and what was wrong in the engine's replies.

        Args:
            known: packs of the caller's documents that were read already.

        Raises:
            UnreadableDocument: of the caller's documents.
            BadParameters: the host whose status has changed is not among the hosts.
        """
        brought = {
            role: document
            for role, document in (
                (Role.HOSTS, subjects.hosts), (Role.VMS, subjects.vms),
                (Role.VM, subjects.vm), (Role.HOST, subjects.host),
            )
            if isinstance(document, Document) and role not in known
        }  # fmt: skip
        by_role = {
            Role.HOSTS: replies.hosts,
            Role.VMS: replies.vms,
            Role.VM: () if replies.vm is None else (replies.vm,),
        }
        packs = self._packs(brought, by_role, deadline)
        packs.update((role, (pack,)) for role, pack in known.items())
        problems = tuple(p for each in by_role.values() for one in each for p in one.problems)
        return _call_inputs(subjects, packs), problems

    def _packs(
        self,
        brought: Mapping[Role, Document],
        by_role: Mapping[Role, Sequence[EngineReply]],
        deadline: float,
    ) -> dict[Role, tuple[Pack, ...]]:
        """The packs of each role: of documents that were read before, or are read now."""
        unread = [Unread(role, document) for role, document in brought.items()]
        due = [
            (each, Unread(Role.VMS if role is Role.VM else role, document, each.asked))
            for role, several in by_role.items()
            for each in several
            if (document := each.document) and each.pack is None and not each.problems
        ]  # the reply on one VM is read as a collection is
        unread += [each for _, each in due]
        found: dict[Role, tuple[Pack, ...]] = {}
        if unread:
            packs: list[Pack] = []
            documents: list[messages.ReadDocument] = []
            for first in range(0, len(unread), frames.MOST_DESCRIPTORS):
                some = unread[first : first + frames.MOST_DESCRIPTORS]
                read, about, _ = self._runner.read(some, deadline)
                packs += read
                documents += about
            left = iter(packs)
            for role, about_it in zip(brought, documents):
                if about_it.problem:
                    raise UnreadableDocument(about_it.problem)
                found[role] = (next(left),)
            for (each, _), about_it in zip(due, documents[len(brought) :]):
                if about_it.problem:
                    each.problems = (f"the engine's reply cannot be read: {about_it.problem}",)
                    continue
                each.problems = (about_it.note,) if about_it.note else ()
                each.pack = next(left)
                if not each.keeps_document:  # it takes more memory than the pack
                    each.document = None
        for role, several in by_role.items():
            kept = tuple(each.pack for each in several if each.pack is not None)
            if kept:
                found[role] = kept if len(kept) <= _MOST_PACKS else (plugin_call.joined(kept),)
        return found


def _call_inputs(subjects: Subjects, packs: dict[Role, tuple[Pack, ...]]) -> CallInputs:
    """The inputs of a request's calls, of its subjects and the packs that were read.

    Raises:
        BadParameters: the host whose status has changed is not among the hosts.
    """
    ids: dict[Role, tuple[str, ...]] = {}
    for role, which in ((Role.HOSTS, subjects.hosts), (Role.VMS, subjects.vms)):
        if isinstance(which, Document):
            which = cast("tuple[str, ...]", packs[role][0].ids)  # noqa: PLW2901
        ids[role] = which
    vm, host = subjects.vm, subjects.host
    if isinstance(vm, Document):
        vm = packs[Role.VM][0].ids[0]
    elif vm is not None and vm in ids[Role.VMS] and Role.VMS in packs:
        packs[Role.VM] = packs[Role.VMS]
    if isinstance(host, Document):
        host = packs[Role.HOST][0].ids[0]
    elif host is not None:
        if host not in ids[Role.HOSTS]:
            raise BadParameters(
                f"host: {host!r:.80} is not among the hosts; give it with them, or "
                "its document here"
            )
        packs[Role.HOST] = packs.get(Role.HOSTS, ())
    return CallInputs(ids[Role.HOSTS], ids[Role.VMS], vm, host, packs)


def _brought(subjects: Subjects, inputs: CallInputs) -> dict[Role, Pack]:
    """The packs of the hosts and the VM that came as documents."""
    return {
        role: inputs.packs[role][0]
        for role, brought in ((Role.HOSTS, subjects.hosts), (Role.VM, subjects.vm))
        if isinstance(brought, Document)
    }


def _of_change(inputs: CallInputs, subjects: Subjects) -> CallInputs:
    """The inputs of a hook's call for one of the changes."""
    vm, host = cast("Optional[str]", subjects.vm), cast("Optional[str]", subjects.host)
    packs = {
        **inputs.packs,
        Role.VM: inputs.packs.get(Role.VMS, ()),
        Role.HOST: inputs.packs.get(Role.HOSTS, ()),
    }
    return replace(inputs, vm=vm, host=host, packs=packs)


def _unit_call(
    call: UnitCall, inputs: CallInputs, engine: Engine, shown: int = OUTPUT_LIMIT
) -> PluginCall:
    unit = call.unit
    return PluginCall(
        unit_function(unit), unit.plugin, unit.limits, inputs, call.properties,
        arguments={}, engine=engine, shown=shown,
    )  # fmt: skip


def unit_function(unit: PolicyUnit) -> Function:
    """The function of a policy unit."""
    return Function(
        unit.name,
        unit.kind.words,
        unit.kind.function,
        _RETURNS[unit.kind],
        unit.class_name,
        unit.kind.parameters,
        takes_ids=unit.class_name is not None,
        properties=unit.properties,
    )


def _method_call(
    job: DriverJob, inputs: CallInputs, costs: Optional[Mapping[str, int]] = None
) -> PluginCall:
    driver = job.driver
    attributes: dict[str, object] = {}
    if driver.interfaces:
        attributes = {
            "costs": costs or {}, "selected": job.selected, "destinations": job.destinations,
        }  # fmt: skip
    return PluginCall(
        _method(job), driver.plugin, driver.limits, inputs, job.properties, job.arguments,
        attributes, job.engine,
    )  # fmt: skip


def _method(job: DriverJob) -> Function:
    """The function of a driver's method: one of an interface, or one that it publishes."""
    driver = job.driver
    defined = driver.defines(job.method)
    return Function(
        driver.name,
        driver.words,
        job.method,
        job.returns,
        driver.class_name,
        None if defined is None else defined.parameters,
        properties=driver.properties,
    )


def _selects(job: DriverJob) -> bool:
    """Whether the method selects a host, so that it finds nothing without hosts."""
    defined = job.driver.defines(job.method)
    return defined is not None and defined.interface == "HostSelector" and bool(defined.parameters)
