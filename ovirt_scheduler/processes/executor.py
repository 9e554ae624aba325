"""Runs the jobs of requests: reads their documents, and calls their plugins in order.

::

    documents ──► a reader ──► packs
    hosts ──► filters, one after another ──► cost functions, side by side ──► a balance, or a
              on the hosts that are left      their weighted sum: self.costs   driver's method

This module decides which calls there are, and on what; the others make them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Optional, Union

from ovirt_scheduler.errors import ExecutorUnavailable, Overloaded, UnreadableDocument
from ovirt_scheduler.log.trouble import Trouble
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.analysis import Analysis
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.jobs import DriverCall, Execution, Job
from ovirt_scheduler.model.plugins import Candidate, Limits, PluginCode, PluginUser
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.tasks import CallInputs, Pack, Returns, Role, Setup, Unread
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.processes import document_reading, single_use
from ovirt_scheduler.processes.forker import Forker
from ovirt_scheduler.processes.inputs import joined, read_inputs
from ovirt_scheduler.processes.plugin_calls import check_values, has_values, make_calls
from ovirt_scheduler.processes.pool import Pool
from ovirt_scheduler.processes.slots import Slots
from ovirt_scheduler.processes.timing import TIMES, ProcessTimes

# Functions that answer with some of the given hosts; without hosts they are not called.
_OF_GIVEN_HOSTS = (Returns.MIGRATION, Returns.SELECTION, Returns.TRUTH)


class ProcessesState(NamedTuple):
    """The processes below the daemon, and the calls in them."""

    of_plugins: int
    started: int
    replaced: Mapping[str, int]  # by reason
    zygotes_started: int  # that were started, the present one included
    running: int  # slots for calls that are held
    slots: int
    waiting: int  # requests
    refused: int  # requests, for the daemon was at its limit


class Executor:
    """Runs jobs. Safe to use from many threads.

    Args:
        parallel: plugin calls that may run at once, over all requests.
        max_waiting: requests that may wait for one of them to end.
        user: whom plugins run as, which takes root; None: this process's own user.
        adopts: this process has no other children than the executor's, so it kills all that a
            dead zygote leaves behind.
        most_processes: of plugins, that are kept between calls.
        times: how long processes are kept, and waited for.
    """

    def __init__(
        self,
        parallel: int,
        max_waiting: int,
        user: Optional[PluginUser] = None,
        adopts: bool = False,
        most_processes: int = 64,
        times: ProcessTimes = TIMES,
    ) -> None:
        self._slots = Slots(parallel, max_waiting)
        self._forker = Forker(user, adopts, times)
        self._pool = Pool(self._forker.fork, most_processes, parallel, times)

    def start(self) -> None:
        """Start the zygote and what keeps processes ready.

        Raises:
            ExecutorUnavailable: the zygote does not start.
        """
        self._forker.start(self._pool.ended, self._pool.zygote_died)
        self._pool.start()

    def close(self) -> None:
        """End everything below this process; returns when it is gone."""
        self._pool.stop()
        self._forker.close()
        self._pool.close()

    def state(self) -> ProcessesState:
        """The state of the processes, with counts since the start."""
        pool, forker, slots = self._pool, self._forker, self._slots
        return ProcessesState(
            pool.of_plugins, forker.forked, pool.endings.counts(), forker.started,
            slots.busy, slots.capacity, slots.waiting, slots.refused,
        )  # fmt: skip

    @property
    def trouble(self) -> Trouble:
        """The failures of the thread that keeps processes ready."""
        return self._pool.maintenance.trouble

    def keep_at_most(self, most: int) -> None:
        """Change how many processes of plugins are kept between calls."""
        self._pool.keep_at_most(most)

    def wait_until_idle(self, seconds: float) -> Sequence[str]:
        """Wait until each process that was called has compared its state.

        Args:
            seconds: to wait at most.

        Returns:
            Why processes have ended by themselves since the last call of this, in words.
        """
        return self._pool.wait_until_idle(seconds)

    def prewarm(self, plugins: Sequence[tuple[PluginCode, Limits]]) -> None:
        """Have a process of each of these plugins ready before it is called."""
        self._pool.prewarm([Setup(*each) for each in plugins])

    def analyse(self, candidate: Candidate) -> Analysis:
        """Look at a plugin's file in a process of its own; a fault in it is in the result.

        Raises:
            ExecutorUnavailable: no process is available for it.
        """
        return single_use.analyse(self._pool, candidate)

    def split(self, cut: str, documents: Sequence[Document]) -> list[Optional[list[bytes]]]:
        """Cut documents that were read into their elements: ``single_use.split``."""
        return single_use.split(self._pool, cut, documents)

    def run(self, job: Job) -> Execution:
        """Call the plugins of a job.

        Returns:
            How the calls ended. A plugin's failure is a result.

        Raises:
            UnreadableDocument: the hosts or the VMs cannot be read.
            BadParameters: the host whose status has changed is not among the hosts.
            RefusedProperty: a value that a unit or the driver refuses, where its form is strict.
            Overloaded: no slot became free in time, too many wait, or the executor is closed.
            ExecutorUnavailable: no process is available for it.
        """
        with self._slots_held(len(job.of(Kind.COST_FUNCTION)), job.deadline) as parallel:
            return self._run(job, parallel, job.request.strict)

    @property
    def is_free(self) -> bool:
        """Whether a request would have a slot at once."""
        return self._slots.is_free

    def run_shadow(self, job: Job) -> Execution:
        """Call units in shadow one after another, like ``run``, but without taking slots.

        So no request waits for them. A value that they refuse is their failure.
        """
        return self._run(job, 1, strict=False)

    @contextlib.contextmanager
    def _slots_held(self, requested: int, deadline: float) -> Iterator[int]:
        """Hold slots, as ``Slots.hold`` gives them.

        Raises:
            Overloaded: too many wait, none became free in time, or this is closed.
        """
        with self._slots.hold(requested, deadline) as count:
            try:
                yield count
            except ExecutorUnavailable:
                if not self._forker.closed:
                    raise
                raise Overloaded(
                    "the daemon is shutting down; ask again when it has started"
                ) from None

    def _run(self, job: Job, parallel: int, strict: bool) -> Execution:
        """Call the plugins of a job, at most so many at once.

        Args:
            strict: a value of a property that is refused ends it all (contract 1.5).
        """
        inputs, problems = read_inputs(self._pool, job)
        of_vm = inputs.packs.get(Role.VM, ())
        about = Execution(
            inputs.hosts,
            errors=problems,
            vm=inputs.vm,
            names=inputs.names,
            packs={
                role: packs[0]
                for role, packs in inputs.packs.items()
                if role in (Role.HOSTS, Role.VM) and job.request.came_as_document(role)
            },
            vm_sizes=of_vm[0].states if of_vm else None,
            rejected=job.rejected,
        )
        if job.rejected or (not inputs.hosts and job.request.driver_call is None):
            return about
        return self._call_all(job, inputs, about, parallel, strict)

    def _call_all(
        self, job: Job, inputs: CallInputs, about: Execution, parallel: int, strict: bool
    ) -> Execution:
        """Make the calls: filters, each on the hosts that those before it left; then the others.

        Args:
            about: what is known of the execution before.
        """
        call_all = functools.partial(make_calls, self._pool, job, parallel=parallel, strict=strict)
        filters: list[CallResult] = []
        costs: list[CallResult] = []
        balance = driver = None
        for call in job.of(Kind.FILTER):
            if inputs.hosts:
                filters += call_all([call], inputs)
                remaining = aggregate.narrow(inputs.hosts, filters[-1], call.unit.on_failure)
                if remaining is not inputs.hosts:
                    inputs = inputs._replace(hosts=remaining)
        if inputs.hosts:
            costs = call_all(job.of(Kind.COST_FUNCTION), inputs)
            for call in job.of(Kind.BALANCE):
                (balance,) = call_all([call], inputs)
        driver_call = job.request.driver_call
        if driver_call and (inputs.hosts or driver_call.returns not in _OF_GIVEN_HOSTS):
            (driver,) = call_all([_with_costs(driver_call, job, costs, inputs.hosts)], inputs)
        return about._replace(
            filters=tuple(filters), cost_functions=tuple(costs), balance=balance,
            driver_call=driver, remaining=inputs.hosts,
        )  # fmt: skip

    def match(
        self,
        owners: Sequence[Union[PolicyUnit, DriverUnit]],
        values: Mapping[str, str],
        deadline: float,
    ) -> Optional[CallResult]:
        """Match values of properties with what units and drivers declare, in their processes.

        Returns:
            The result of the first that refuses one, or that cannot tell; None if all take them.

        Raises:
            Overloaded, ExecutorUnavailable: as for ``run``.
        """
        owners = [owner for owner in owners if has_values(owner.properties, values)]
        if not owners:
            return None
        with self._slots_held(1, deadline):
            results = check_values(self._pool, owners, values, deadline)
        return next((result for result in results if not result.ok), None)

    def read_page(
        self, role: Role, page: Document, report: str, deadline: float
    ) -> tuple[Pack, object]:
        """Read a page of the engine's hosts or VMs.

        Args:
            report: as in ``Unread``.

        Returns:
            The entities packed; and what the report says of them, unchecked.

        Raises:
            UnreadableDocument, Overloaded, ExecutorUnavailable: as for ``run``.
        """
        with self._slots_held(1, deadline):
            unread = Unread(role, page, report=report)
            packs, (read,), (reported,) = document_reading.read(self._pool, [unread], deadline)
        if read.problem:
            raise UnreadableDocument(read.problem)
        return packs[0], reported

    def joined(self, packs: list[Pack]) -> Pack:
        """One pack of several, as ``inputs.joined`` makes it; of one it is that."""
        return packs[0] if len(packs) == 1 else joined(packs)


def _with_costs(
    call: DriverCall, job: Job, results: Sequence[CallResult], hosts: Sequence[str]
) -> DriverCall:
    """A driver's call with the weighted sum of the costs.

    Args:
        results: of the cost functions.
        hosts: that no filter removed; one that no function scored costs 0 (contract 4.4).
    """
    if not results:
        return call
    total, _ = aggregate.summed(job.of(Kind.COST_FUNCTION), results)
    return call._replace(costs={host: total.get(host, 0) for host in hosts})
