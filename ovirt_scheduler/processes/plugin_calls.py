"""Calls of plugins' functions, each in a process of its plugin.

::

    make_calls ──► an exchange with a process of the pool ──► the call's result
       ▲             the call printed its answer otherwise than by Python's streams:
       └───────────── another process reads what it printed

A plugin's failure is a result.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Optional, Union

from ovirt_scheduler.errors import RefusedProperty
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.jobs import DriverCall, Job
from ovirt_scheduler.model.plugins import Engine, Limits, PropertySet
from ovirt_scheduler.model.results import CallOutcome, CallResult
from ovirt_scheduler.model.tasks import (
    CallInputs,
    CheckTask,
    Function,
    PrintedTask,
    Returns,
    Setup,
    Task,
)
from ovirt_scheduler.model.units import PolicyUnit, UnitCall
from ovirt_scheduler.model.values.hidden import without_secrets
from ovirt_scheduler.processes.exchange import OUTPUT_LIMIT, Exchange, ExchangeState, completed
from ovirt_scheduler.processes.pool import Pool
from ovirt_scheduler.processes.protocol import frames, messages, stacks
from ovirt_scheduler.processes.protocol.ending import Ending, Reason
from ovirt_scheduler.processes.protocol.frames import FrameError

_SHOWN_AS_EQUAL = 0.05  # seconds, of two times that a message has
_GRACE = 0.25  # seconds for a process to tell that its properties' values took too long


class _Call(Exchange):
    """A task of a plugin's process: a call of a function, or what is to be done instead of one.

    Args:
        place: of the call among those of its request.
        task: what is done instead; nothing of the plugin runs then.
        shown: bytes of each of stdout and stderr in the result.

    Attributes:
        fields: of the ``CallTask``, but for the inputs and the time: properties, arguments,
            attributes and whether it is strict.
        printing: the call that printed what this reads: the result has its output and time.
        explained: the reasons of that call, and remarks on them.
    """

    fields: tuple[object, ...]
    engine: Engine

    def __init__(
        self,
        place: int,
        function: Function,
        setup: Setup,
        deadline: float,
        inputs: CallInputs,
        task: Optional[Task] = None,
        shown: int = OUTPUT_LIMIT,
    ) -> None:
        super().__init__(setup, deadline, messages.answer_limit(function, inputs), task)
        self.place, self.function, self.inputs = place, function, inputs
        self.plugin, self.shown = setup, shown
        # A class unit may print its answer.
        self.kept_output = OUTPUT_LIMIT if function.takes_ids and task is None else shown
        self.runs_plugin = task is None
        self.printing: Optional[_Call] = None  # not itself: a cycle would keep the inputs
        self.explained: tuple[Mapping[str, str], tuple[str, ...]] = ({}, ())
        if task is None or isinstance(task, CheckTask):
            self.timeout = setup.limits.timeout

    def _packed(self) -> tuple[memoryview, Sequence[int]]:
        if self._task is not None:
            return super()._packed()
        descriptors: dict[int, int] = {}  # with their places; roles may share packs
        packs = {
            role.value: tuple(
                (descriptors.setdefault(pack.descriptor, len(descriptors)), pack.sizes)
                for pack in packs
            )
            for role, packs in self.inputs.packs.items()
        }
        seconds = min(self.timeout, self.deadline - time.monotonic())
        frame = frames.pack_call(
            self.nonce, self.function, self.engine, *self.inputs[:4], packs, seconds, *self.fields
        )
        return frame, [*descriptors]

    def result(self) -> Union[CallResult, _Call]:
        """The result of the call; or, if it printed its answer, what has another process read it.

        That is only so if it did not print through Python's streams.
        """
        if self.state is not ExchangeState.ANSWERED:
            return self._failure(*how_it_ended(self, self.plugin.limits))
        try:
            result, read = messages.unpack_answer(
                self.payloads[frames.ANSWER], self.function, self.inputs
            )
        except FrameError as error:
            self.worker.end()
            self.ending = Ending(Reason.MISLED, str(error))
            message = f"its answer cannot be read: {error}"
            return self._failure(CallOutcome.BAD_ANSWER, message)
        stdout, stderr = self.output
        if self.printing and result.ok:
            reasons, remarks = self.explained
            result = result._replace(reasons=reasons, remarks=remarks)
        if read is None or self.printing or read == (len(stdout), len(stderr)):
            return (self.printing or self).with_output(result)
        task = PrintedTask(self.function, self.inputs.hosts, bytes(stdout), bytes(stderr))
        reader = _Call(
            self.place, self.function, self.plugin, self.until, self.inputs, task, self.shown
        )
        reader.printing, reader.explained = self, (result.reasons, result.remarks)
        return reader

    def _failure(self, outcome: CallOutcome, message: str) -> CallResult:
        return (self.printing or self).with_output(
            CallResult(self.function.unit, outcome, message=message, traceback=self.traceback)
        )

    def with_output(self, result: CallResult) -> CallResult:
        """A result of this call with its time and output, and without secrets."""
        remarks, value = result.remarks, result.value
        if max(self.printed) > OUTPUT_LIMIT:
            remarks += (f"printed more than {OUTPUT_LIMIT >> 20} MiB; the rest was cut",)
        if self.function.returns is Returns.VALUE:
            value = without_secrets(value)
        stdout = self.output[0][: self.shown].decode("utf-8", "replace")
        stderr = self.output[1][: self.shown].decode("utf-8", "replace")
        texts = (result.message, result.traceback, result.reasons, result.notes, remarks)
        message, traceback, reasons, notes, remarks, stdout, stderr = without_secrets(
            (*texts, stdout, stderr)
        )
        return CallResult(
            result.unit, result.outcome, value, message, self.seconds, tuple(notes),
            tuple(remarks), stdout, stderr, traceback, reasons,
        )  # fmt: skip


def how_it_ended(exchange: Exchange, limits: Limits) -> tuple[CallOutcome, str]:
    """Why a call, or an analysis, has no answer, in a sentence for an administrator."""
    if exchange.state is ExchangeState.TOO_LATE:
        return CallOutcome.TIMED_OUT, "did not start: the request's time was over"
    if exchange.state in (ExchangeState.MISLED, ExchangeState.NOT_SENT):
        return CallOutcome.BAD_ANSWER, exchange.problem
    if exchange.state is ExchangeState.TIMED_OUT:
        place = exchange.traceback and stacks.place(exchange.traceback, exchange.worker.file)
        where = f", in {place}" if place else ""
        message = f"was killed after {exchange.seconds:.1f} s{where}; "
        message += f"its timeout is {limits.timeout:g} s{limits.timeout_key}"
        if exchange.seconds + _SHOWN_AS_EQUAL < limits.timeout:
            message += ", the request's time was over before"
        return CallOutcome.TIMED_OUT, message
    status = exchange.status
    code = None if status is None else os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        message = f"used up its cpu_limit of {limits.cpu} s of processor time"
    elif code == frames.DISCONNECTED or (code == -signal.SIGKILL and exchange.worker.was_killed):
        message = "closed descriptor 3, which connects its process with the daemon"
    else:
        message = exchange.how_the_worker_ended("its process ")
    return CallOutcome.KILLED, message


def make_calls(
    pool: Pool,
    job: Job,
    calls: Sequence[Union[UnitCall, DriverCall]],
    inputs: CallInputs,
    parallel: int,
    strict: bool,
) -> list[CallResult]:
    """Make calls of a job, each in a process of its plugin.

    Args:
        calls: n calls, begun in this order, at most ``parallel`` under way at once.
        strict: a value that cannot be checked in time is refused, as a wrong one is; and one that
            is refused ends it all.

    Returns:
        n results in the order of the calls. A plugin's failure is a result.

    Raises:
        RefusedProperty: a unit or the driver refuses a value, and ``strict``.
        ExecutorUnavailable: no process is available.
    """
    # Calls that print much would fill the daemon's memory: together they keep what one may.
    shown = OUTPUT_LIMIT // max(1, len(job.calls))
    exchanges: deque[_Call] = deque()
    for place, call in enumerate(calls):
        owner: Union[PolicyUnit, DriverUnit]
        if isinstance(call, UnitCall):
            owner, function, values = call.unit, call.unit.function, call.properties
            fields: tuple[object, ...] = (values, {}, {}, strict)
        else:
            owner, function = call.driver, call.driver.function(call.method)
            values = job.request.properties
            fields = (values, call.arguments, call.attributes, strict)
        exchange = _Call(place, function, owner.setup, job.deadline, inputs, shown=shown)
        exchange.engine, exchange.fields = job.engine, fields
        if has_values(owner.properties, values):
            exchange.grace = _GRACE
        exchanges.append(exchange)
    results = _results(pool, exchanges, parallel)
    for result in results:
        if strict and result.outcome is CallOutcome.REFUSED:
            raise RefusedProperty(result.message)
    return results


def check_values(
    pool: Pool,
    owners: Sequence[Union[PolicyUnit, DriverUnit]],
    values: Mapping[str, str],
    deadline: float,
) -> list[CallResult]:
    """Match values with the properties of units and drivers, each in a process of its plugin.

    Returns:
        n results in the order of the n owners.

    Raises:
        ExecutorUnavailable: no process is available.
    """
    exchanges: deque[_Call] = deque()
    for place, owner in enumerate(owners):
        function = Function(owner.name, owner.label, "", Returns.TRUTH, properties=owner.properties)
        task = CheckTask(function, values, min(owner.limits.timeout, deadline - time.monotonic()))
        exchange = _Call(place, function, owner.setup, deadline, CallInputs(), task)
        exchange.grace = _GRACE
        exchanges.append(exchange)
    return _results(pool, exchanges)


def has_values(properties: Optional[PropertySet], values: Mapping[str, str]) -> bool:
    """Whether there is a value that these properties may refuse."""
    return properties is not None and any(prop.name in values for prop in properties.properties)


def _results(pool: Pool, exchanges: deque[_Call], parallel: int = 1) -> list[CallResult]:
    results: dict[int, CallResult] = {}
    for call in completed(pool, exchanges, parallel):
        result = call.result()
        if isinstance(result, CallResult):
            results[call.place] = result
        else:
            exchanges.appendleft(result)
    return [results[place] for place in sorted(results)]
