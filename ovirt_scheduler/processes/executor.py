"""Runs the jobs of requests: reads their documents, and calls their plugins in order.

::

    documents ──► a reader ──► packs
    hosts ──► filters, one after another ──► cost functions, side by side ──► a driver's method
              on the hosts that are left      their weighted sum: self.costs

The processes are those of ``processes``; here is which calls there are, on what.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Callable, Optional, TypeVar

from ovirt_scheduler.errors import (
    ExecutorUnavailable,
    Overloaded,
    RefusedProperty,
    UnreadableDocument,
)
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.analysis import Analysis
from ovirt_scheduler.model.cluster_state import HostState, VmState
from ovirt_scheduler.model.daemon_state import ProcessesState
from ovirt_scheduler.model.decisions import Execution, Job
from ovirt_scheduler.model.drivers import (
    DriverExecution,
    DriverJob,
    DriverRequest,
    StatusChange,
    Subjects,
)
from ovirt_scheduler.model.plugins import Candidate, Engine, Limits, PluginCode, PluginUser
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.tasks import (
    CallInputs,
    EngineReplies,
    Function,
    Pack,
    Returns,
    Role,
    Unread,
)
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.processes import single_use
from ovirt_scheduler.processes.calls import PluginCall, make_calls
from ovirt_scheduler.processes.exchange import OUTPUT_LIMIT
from ovirt_scheduler.processes.inputs import of_change, packs_of, read_inputs
from ovirt_scheduler.processes.kept_process import key_of
from ovirt_scheduler.processes.places import Places
from ovirt_scheduler.processes.pool import Pool
from ovirt_scheduler.processes.protocol import messages
from ovirt_scheduler.processes.protocol.frames import FrameError
from ovirt_scheduler.processes.zygotes import Zygotes

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
        self._places = Places(parallel, max_waiting)
        self._zygotes = Zygotes(user, adopts)
        self._pool = Pool(self._zygotes.fork, kept, parallel)

    def start(self) -> None:
        """Start the zygote and what keeps processes ready.

        Raises:
            ExecutorUnavailable: the zygote does not start.
        """
        self._zygotes.start(self._pool.ended, self._pool.clear)
        self._pool.start()

    def close(self) -> None:
        """End everything below this process; returns when it is gone."""
        self._pool.stop()
        self._zygotes.close()
        self._pool.close()

    @property
    def zygote_pid(self) -> Optional[int]:
        """The process id of the zygote; None where there is none just now."""
        return self._zygotes.pid

    def state(self) -> ProcessesState:
        """How the processes are, and what came to pass since the start."""
        pool, zygotes, places = self._pool, self._zygotes, self._places
        return ProcessesState(
            pool.kept, zygotes.forked, pool.replaced, zygotes.started,
            places.busy, places.capacity, places.waiting, places.refused,
        )  # fmt: skip

    def keep(self, most: int) -> None:
        """Change how many processes of plugins are kept between calls."""
        self._pool.keep(most)

    def settle(self, seconds: float) -> Sequence[str]:
        """Wait until each process that was called has been compared with what it was before.

        Args:
            seconds: to wait at most.

        Returns:
            Why processes have ended by themselves since this was asked last, in words.
        """
        return self._pool.settle(seconds)

    def want(self, plugins: Sequence[tuple[PluginCode, Limits]]) -> None:
        """Have a process of each of these plugins ready before it is called."""
        self._pool.want({key_of(*each): each for each in plugins})

    def analyse(self, candidate: Candidate) -> Analysis:
        """Look at a plugin's file in a process of its own; a fault in it is in the result.

        Raises:
            ExecutorUnavailable: no process is to be had for it.
        """
        return single_use.analyse(self._pool, candidate)

    def split(self, documents: Sequence[Document]) -> list[Optional[list[bytes]]]:
        """Cut documents that were read into their elements: ``single_use.split``."""
        return single_use.split(self._pool, documents)

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
        with self._taken(wanted, job.deadline) as parallel:
            return self._run(job, parallel)

    @property
    def is_free(self) -> bool:
        """Whether a request would have a place at once."""
        return self._places.is_free

    def look_on(self, job: Job) -> Execution:
        """Call policy units one after another as ``run`` does, but hold no place.

        So no request waits for them. The units are in shadow.
        """
        return self._run(job, 1)

    @contextlib.contextmanager
    def _taken(self, wanted: int, deadline: float) -> Iterator[int]:
        """Hold places, as ``Places.taken`` gives them.

        Raises:
            Overloaded: too many wait, none became free in time, or this is closed.
        """
        with self._places.taken(wanted, deadline) as held:
            try:
                yield held
            except ExecutorUnavailable:
                if not self._zygotes.closed:
                    raise
                raise Overloaded(
                    "the daemon is shutting down; ask again when it has started"
                ) from None

    def _run(self, job: Job, parallel: int) -> Execution:
        by_ids = all(call.unit.class_name is not None for call in job.calls)
        replies = EngineReplies() if by_ids else job.replies
        subjects = Subjects(hosts=job.hosts, vm=job.vm)
        inputs, problems = read_inputs(self._pool, subjects, replies, job.deadline, job.packs)
        packs = packs_of(subjects, inputs)
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
            results = make_calls(self._pool, calls, job.deadline, parallel)
        return Execution(inputs.hosts, inputs.vm, tuple(results), problems, inputs.names, packs)

    def run_driver(self, job: DriverJob) -> DriverExecution:
        """Call a method of a driver, and before it the policy units that it asks for.

        Raises:
            BadParameters: the host whose status has changed is not among the hosts.
            And what ``run`` raises.
        """
        with self._taken(len(job.cost_functions), job.deadline) as parallel:
            inputs, problems = read_inputs(
                self._pool, job.request.subjects, job.replies, job.deadline
            )
            filters = [_unit_call(call, inputs, job.engine) for call in job.filters]
            costs = [_unit_call(call, inputs, job.engine) for call in job.cost_functions]
            method = _method_call(job, inputs)
            if job.request.strict:
                self._refuse([*filters, *costs, method], job.deadline, parallel)
            filtered = self._filtered(job.filters, filters, job.deadline) if inputs.hosts else []
            left, _ = aggregate.filtered(inputs.hosts, filtered, job.filters)
            scored: list[CallResult] = []
            total: Mapping[str, int] = {}
            if left:
                costs = [replace(call, inputs=inputs._replace(hosts=left)) for call in costs]
                scored = make_calls(self._pool, costs, job.deadline, parallel)
                total, _, _ = aggregate.summed(job.cost_functions, scored, len(costs))
            execution = DriverExecution(
                inputs.hosts, tuple(filtered), tuple(scored), problems,
                vm=inputs.vm, names=inputs.names, packs=packs_of(job.request.subjects, inputs),
            )  # fmt: skip
            if not left and _selects(job.request):
                return execution
            method = _method_call(job, inputs._replace(hosts=left), total)
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
        with self._taken(1, job.deadline):
            inputs, problems = read_inputs(
                self._pool, job.request.subjects, job.replies, job.deadline
            )
            for number, change in enumerate(changes):
                if number and time.monotonic() >= until:
                    return
                one = job._replace(request=job.request.of(change))
                of_one = of_change(inputs, one.request.subjects)
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
        with self._taken(1, deadline):
            packs, (read,), seen = single_use.read(
                self._pool, [unread], deadline, tells_states=True
            )
        if read.problem:
            raise UnreadableDocument(read.problem)
        try:
            return packs[0], unpack(seen)
        except FrameError as error:
            raise UnreadableDocument(str(error)) from None

    def joined(self, packs: Sequence[Pack]) -> Pack:
        """One pack of several; it raises ExecutorUnavailable, where descriptors or memory lack."""
        return packs[0] if len(packs) == 1 else single_use.joined(packs)

    def _called(
        self, method: PluginCall, execution: DriverExecution, job: DriverJob
    ) -> DriverExecution:
        (result,) = make_calls(self._pool, [method], job.deadline)
        return execution._replace(result=result._replace(value=None), answer=result.value)

    def _filtered(
        self, units: Sequence[UnitCall], calls: Sequence[PluginCall], deadline: float
    ) -> list[CallResult]:
        """Call filters, each on the hosts that those before it left (contract 4.1)."""
        results: list[CallResult] = []
        left: tuple[str, ...] = calls[0].inputs.hosts if calls else ()
        for unit, call in zip(units, calls):
            if left is not call.inputs.hosts:
                call = replace(call, inputs=call.inputs._replace(hosts=left))  # noqa: PLW2901
            (result,) = make_calls(self._pool, [call], deadline)
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
        for result in make_calls(self._pool, checks, deadline, parallel):
            if not result.ok:
                raise RefusedProperty(result.message)


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
    request, driver = job.request, job.request.driver
    attributes: dict[str, object] = {}
    if driver.interfaces:
        attributes = {
            "costs": costs or {}, "selected": job.selected, "destinations": request.destinations,
        }  # fmt: skip
    return PluginCall(
        _method(request), driver.plugin, driver.limits, inputs, request.properties,
        request.arguments, attributes, job.engine,
    )  # fmt: skip


def _method(request: DriverRequest) -> Function:
    """The function of a driver's method: one of an interface, or one that it publishes."""
    driver, defined = request.driver, request.defined
    return Function(
        driver.name,
        driver.words,
        request.method,
        request.returns,
        driver.class_name,
        None if defined is None else defined.parameters,
        properties=driver.properties,
    )


def _selects(request: DriverRequest) -> bool:
    """Whether the method selects a host, so that it finds nothing without hosts."""
    defined = request.defined
    return defined is not None and defined.interface == "HostSelector" and bool(defined.parameters)
