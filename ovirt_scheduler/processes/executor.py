"""Runs the jobs of requests: reads their documents, and calls their plugins in order.

::

    documents ──► a reader ──► packs
    hosts ──► filters, one after another ──► cost functions, side by side ──► a balance, or a
              on the hosts that are left      their weighted sum: self.costs   driver's method

This module decides which calls there are, and on what; the others make them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple, Optional, TypeVar, Union

from ovirt_scheduler.errors import (
    ExecutorUnavailable,
    Overloaded,
    RefusedProperty,
    UnreadableDocument,
)
from ovirt_scheduler.log.trouble import Trouble
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.analysis import Analysis
from ovirt_scheduler.model.decisions import Execution
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.plugins import (
    NO_ENGINE,
    Candidate,
    Engine,
    Limits,
    PluginCode,
    PluginUser,
)
from ovirt_scheduler.model.requests import Document, Entities
from ovirt_scheduler.model.results import CallResult, Outcome
from ovirt_scheduler.model.tasks import (
    CallInputs,
    EngineReplies,
    Function,
    Pack,
    Returns,
    Role,
    Setup,
    Unread,
)
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.processes import readers, single_use
from ovirt_scheduler.processes.calls import PluginCall, make_calls
from ovirt_scheduler.processes.exchange import OUTPUT_LIMIT
from ovirt_scheduler.processes.inputs import joined, packs_of, read_inputs
from ovirt_scheduler.processes.places import Places
from ovirt_scheduler.processes.pool import Pool
from ovirt_scheduler.processes.zygotes import Zygotes

States = TypeVar("States")

# Functions that answer with some of the given hosts; without hosts they are not called.
_OF_GIVEN_HOSTS = (Returns.MIGRATION, Returns.SELECTION, Returns.TRUTH)


class ProcessesState(NamedTuple):
    """The processes below the daemon, and the calls in them."""

    kept: int
    started: int
    replaced: Mapping[str, int]  # by reason
    zygotes_started: int  # that were started, the present one included
    running: int  # places for calls
    places: int
    waiting: int  # requests
    refused: int  # requests, for the daemon was at its limit


class Job(NamedTuple):
    """The calls of a request, and their inputs.

    Attributes:
        deadline: seconds on the monotonic clock, for all calls together.
        calls: of policy units.
        method: of a driver, to be called after them; its inputs are the job's.
        strict: a property's value that is refused ends it all (contract 1.5).
        rejected: a filter that is missing accepts no host, so nothing is called (contract 4.2).
        packs: of documents that were read already.
    """

    entities: Entities
    deadline: float
    calls: tuple[UnitCall, ...] = ()
    method: Optional[PluginCall] = None
    strict: bool = True
    rejected: bool = False
    replies: EngineReplies = EngineReplies()
    engine: Engine = NO_ENGINE
    packs: Mapping[Role, Pack] = {}

    def of(self, kind: Kind) -> list[UnitCall]:
        """The calls of units of one kind."""
        return [call for call in self.calls if call.unit.kind is kind]


class Executor:
    """Runs jobs. Safe to use from many threads.

    Args:
        parallel: plugin calls that may run at once, over all requests.
        max_waiting: requests that may wait for one of them to end.
        user: whom plugins run as, which takes root; None: this process's own user.
        adopts: this process has no other children than the executor's, so it kills all that a
            dead zygote leaves behind.
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
        self._zygotes.start(self._pool.ended, self._pool.zygote_died)
        self._pool.start()

    def close(self) -> None:
        """End everything below this process; returns when it is gone."""
        self._pool.stop()
        self._zygotes.close()
        self._pool.close()

    def state(self) -> ProcessesState:
        """The state of the processes, with counts since the start."""
        pool, zygotes, places = self._pool, self._zygotes, self._places
        return ProcessesState(
            pool.kept, zygotes.forked, pool.endings.counts(), zygotes.started,
            places.busy, places.capacity, places.waiting, places.refused,
        )  # fmt: skip

    @property
    def trouble(self) -> Trouble:
        """The failures of the thread that keeps processes ready."""
        return self._pool.keeper.trouble

    def keep(self, most: int) -> None:
        """Change how many processes of plugins are kept between calls."""
        self._pool.keep(most)

    def settle(self, seconds: float) -> Sequence[str]:
        """Wait until each process that was called has compared its state.

        Args:
            seconds: to wait at most.

        Returns:
            Why processes have ended by themselves since the last call of this, in words.
        """
        return self._pool.settle(seconds)

    def want(self, plugins: Sequence[tuple[PluginCode, Limits]]) -> None:
        """Have a process of each of these plugins ready before it is called."""
        self._pool.want([Setup(*each) for each in plugins])

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
            RefusedProperty: a value that a unit or the driver refuses, where the job is strict.
            Overloaded: no place became free in time, too many wait, or the executor is closed.
            ExecutorUnavailable: no process is available for it.
        """
        with self._taken(len(job.of(Kind.COST_FUNCTION)), job.deadline) as parallel:
            return self._run(job, parallel)

    @property
    def is_free(self) -> bool:
        """Whether a request would have a place at once."""
        return self._places.is_free

    def run_shadow(self, job: Job) -> Execution:
        """Call units in shadow one after another, like ``run``, but without taking places.

        So no request waits for them.
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
        inputs, problems = read_inputs(
            self._pool, job.entities, job.replies, job.deadline, job.packs
        )
        return self._call_all(job, inputs, parallel)._replace(
            hosts=inputs.hosts,
            errors=problems,
            vm=inputs.vm,
            names=inputs.names,
            packs=packs_of(job.entities, inputs),
            vm_sizes=next((pack.states for pack in inputs.packs.get(Role.VM, ())), None),
        )

    def _call_all(self, job: Job, inputs: CallInputs, parallel: int) -> Execution:
        """Make the calls: an execution with their results, and the hosts that are left."""
        if job.rejected or (not inputs.hosts and job.method is None):
            return Execution(rejected=job.rejected)
        # Calls that print much would fill the daemon's memory: together they keep what one may.
        shown = OUTPUT_LIMIT // max(1, len(job.calls))
        calls = [
            [_unit_call(call, inputs, job.engine, shown) for call in job.of(kind)] for kind in Kind
        ]
        if job.method is not None:
            calls[-1].append(job.method._replace(inputs=inputs, engine=job.engine))
        if job.strict:
            checked = iter(self._checked([*chain(*calls)], job.deadline, parallel))
            calls = [[*islice(checked, len(each))] for each in calls]
        filters, costs, last = calls
        filtered, left = self._filtered(job, filters, inputs.hosts)
        if left is not inputs.hosts:
            inputs = inputs._replace(hosts=left)
            costs = [call._replace(inputs=inputs) for call in costs]
            last = [call._replace(inputs=inputs) for call in last]
        scored = make_calls(self._pool, costs, job.deadline, parallel) if left else []
        result = None
        if last and (left or last[0].function.returns not in _OF_GIVEN_HOSTS):
            result = self._called(_with_costs(last[0], job, scored, left), job.deadline)
        return Execution(
            filters=tuple(filtered), cost_functions=tuple(scored), result=result, remaining=left
        )

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
        calls = [
            PluginCall(
                Function(owner.name, owner.label, "", Returns.TRUTH, properties=owner.properties),
                owner.plugin,
                owner.limits,
                values,
                checks=True,
            )
            for owner in owners
        ]
        calls = [call for call in calls if call.has_values]
        if not calls:
            return None
        with self._taken(1, deadline):
            results = make_calls(self._pool, calls, deadline)
        return next((result for result in results if result.outcome is not Outcome.OK), None)

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
        with self._taken(1, deadline):
            unread = Unread(role, page, report=report)
            packs, (read,), (reported,) = readers.read(self._pool, [unread], deadline)
        if read.problem:
            raise UnreadableDocument(read.problem)
        return packs[0], reported

    def joined(self, packs: list[Pack]) -> Pack:
        """One pack of several, as ``inputs.joined`` makes it; of one it is that."""
        return packs[0] if len(packs) == 1 else joined(packs)

    def _called(self, call: PluginCall, deadline: float) -> CallResult:
        (result,) = make_calls(self._pool, [call], deadline)
        return result

    def _filtered(
        self, job: Job, calls: Sequence[PluginCall], hosts: tuple[str, ...]
    ) -> tuple[list[CallResult], tuple[str, ...]]:
        """Call filters, each on the hosts that those before it left (contract 4.1).

        Returns:
            The results of those that ran, and the hosts that all of them left.
        """
        results: list[CallResult] = []
        left = hosts
        for unit, call in zip(job.of(Kind.FILTER), calls):
            if not left:
                break
            if left is not hosts:
                call = call._replace(inputs=call.inputs._replace(hosts=left))  # noqa: PLW2901
            result = self._called(call, job.deadline)
            results.append(result)
            left = aggregate.narrow(left, result, unit.unit.on_failure)
        return results, left

    def _checked(
        self, calls: Sequence[PluginCall], deadline: float, parallel: int
    ) -> Sequence[PluginCall]:
        """Check the properties of these calls before any of them runs.

        Returns:
            The calls; a call whose plugin hung has failed already, and does not wait again.

        Raises:
            RefusedProperty: one of these does not take its value (contract 1.5).
        """
        places = [place for place, call in enumerate(calls) if call.has_values]
        if not places:
            return calls
        checked = [*calls]
        checks = [calls[place].checked() for place in places]
        for place, result in zip(places, make_calls(self._pool, checks, deadline, parallel)):
            if result.outcome is Outcome.REFUSED:
                raise RefusedProperty(result.message)
            if result.outcome is Outcome.TIMED_OUT:
                checked[place] = calls[place]._replace(failed=result)
        return checked


def _unit_call(call: UnitCall, inputs: CallInputs, engine: Engine, shown: int) -> PluginCall:
    unit = call.unit
    function = Function(
        unit.name,
        unit.kind.label,
        unit.kind.function,
        unit.kind.returns,
        unit.class_name,
        unit.kind.parameters,
        takes_ids=unit.class_name is not None,
        properties=unit.properties,
    )
    return PluginCall(
        function, unit.plugin, unit.limits, call.properties,
        inputs=inputs, engine=engine, shown=shown,
    )  # fmt: skip


def _with_costs(
    last: PluginCall, job: Job, scored: Sequence[CallResult], hosts: Sequence[str]
) -> PluginCall:
    """The last call; a scheduler's has the weighted sum of the costs as ``self.costs``.

    Args:
        hosts: that the filters left; one that no function scored costs 0 (contract 4.4).
    """
    if not scored:
        return last
    total, _ = aggregate.summed(job.of(Kind.COST_FUNCTION), scored)
    costs = {host: total.get(host, 0) for host in hosts}
    return last._replace(attributes={**last.attributes, "costs": costs})
