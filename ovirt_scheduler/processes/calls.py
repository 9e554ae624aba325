"""Calls of plugins' functions, each in a process of its plugin.

::

    make_calls ──► a process of the pool ──► an exchange ──► the call's result
       ▲             none is ready, or it died before the task came: another process ──┐
       └───────────────────────────────────────────────────────────────────────────────┘

A plugin's failure is a result.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional, Union

from ovirt_scheduler.model.plugins import NO_ENGINE, Engine, Limits, PluginCode
from ovirt_scheduler.model.results import CallResult, Outcome
from ovirt_scheduler.model.tasks import (
    CallInputs,
    CallTask,
    CheckTask,
    Function,
    PrintedTask,
    Returns,
    Setup,
    Task,
)
from ovirt_scheduler.model.values.hidden import without_secrets
from ovirt_scheduler.model.values.text import one_line
from ovirt_scheduler.processes import exchange
from ovirt_scheduler.processes.exchange import OUTPUT_LIMIT, Exchange, State
from ovirt_scheduler.processes.pool import TRIES, Pool
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.ending import ABANDONED, ENDED, Ending, Reason
from ovirt_scheduler.processes.protocol.frames import FrameError
from ovirt_scheduler.processes.protocol.messages import Answered

_LATE = "did not start: the request's time was over"
_GRACE = 0.25  # seconds for a process to tell that its properties' values took too long


class PluginCall(NamedTuple):
    """One call of a function of a plugin."""

    function: Function
    plugin: PluginCode
    limits: Limits
    properties: Mapping[str, str]
    arguments: Mapping[str, object] = {}
    attributes: Mapping[str, object] = {}
    inputs: CallInputs = CallInputs()
    engine: Engine = NO_ENGINE
    checks: bool = False  # only whether the properties' values are taken: a truth
    failed: Optional[CallResult] = None  # its result, where that is known before it is made
    shown: int = OUTPUT_LIMIT  # bytes of each of stdout and stderr in its result

    @property
    def kept(self) -> int:
        """Bytes to keep of each stream during the call; a class unit may print its answer."""
        return OUTPUT_LIMIT if self.function.takes_ids else self.shown

    def checked(self) -> PluginCall:
        """A copy that only checks the properties' values, and runs nothing of the plugin."""
        return self._replace(
            function=self.function._replace(returns=Returns.TRUTH),
            inputs=CallInputs(),
            checks=True,
        )

    @property
    def has_values(self) -> bool:
        """Whether it has a value that the function's properties may refuse."""
        properties = self.function.properties
        return properties is not None and any(
            each.name in self.properties for each in properties.properties
        )

    def task(self, seconds: float) -> tuple[Task, list[int]]:
        """The task for its process, and the descriptors that go with it."""
        if self.checks:
            return CheckTask(self.function, self.properties, seconds), []
        inputs = self.inputs
        descriptors: dict[int, int] = {}  # with their places; roles may share packs
        places = {
            role.value: tuple(
                (descriptors.setdefault(pack.descriptor, len(descriptors)), pack.sizes)
                for pack in packs
            )
            for role, packs in inputs.packs.items()
        }
        task = CallTask(
            self.function, inputs.hosts, inputs.vms, inputs.vm, inputs.host, places,
            self.properties, self.arguments, self.attributes, self.engine, seconds,
        )  # fmt: skip
        return task, [*descriptors]


class _Pending(NamedTuple):
    """A call that has no result yet: it waits for a process, or is under way in one.

    Attributes:
        place: of the call among those of its request.
        tried: how often it was handed to a process that did not take it.
        printed: the call's own exchange, if another process has to read its printed answer,
            because the call did not print through Python's streams.
    """

    place: int
    call: PluginCall
    tried: int = 0
    printed: Optional[Exchange] = None


# Why a call's process ends, None if it need not; and the call's result, or what it waits for.
_NextStep = tuple[Optional[Ending], Union[CallResult, _Pending]]


def make_calls(
    pool: Pool, calls: Sequence[PluginCall], deadline: float, parallel: int = 1
) -> list[CallResult]:
    """Make each call in a process of its plugin.

    Args:
        calls: n calls, begun in this order, at most ``parallel`` under way at once.
        deadline: seconds on the monotonic clock, for all of them together.

    Returns:
        n results in the order of the calls. A plugin's failure is a result.

    Raises:
        ExecutorUnavailable: no process is available.
    """
    results: dict[int, CallResult] = {}
    waiting = deque(_Pending(place, call) for place, call in enumerate(calls))
    running: dict[Exchange, _Pending] = {}
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                first = waiting.popleft()
                if first.call.failed is not None:
                    results[first.place] = first.call.failed
                elif first.printed is None and time.monotonic() >= deadline:
                    unit = first.call.function.unit
                    results[first.place] = CallResult(unit, Outcome.TIMED_OUT, message=_LATE)
                else:
                    running[_begin(pool, first, deadline)] = first
            if not running:
                continue
            for ended in exchange.wait([*running]):
                pending = running.pop(ended)
                result = _finished(pool, pending, ended)
                if isinstance(result, CallResult):
                    results[pending.place] = result
                else:
                    waiting.appendleft(result)
    finally:
        for begun in running:
            pool.discard(begun.worker, ABANDONED)
    return [results[place] for place in range(len(calls))]


def _begin(pool: Pool, pending: _Pending, deadline: float) -> Exchange:
    """Hand a call, or what it printed, to a process of its plugin."""
    call, printed = pending.call, pending.printed
    task: Task
    if printed is None:
        seconds = min(call.limits.timeout, deadline - time.monotonic())
        task, descriptors = call.task(seconds)
    else:
        stdout, stderr = bytes(printed.stdout.data), bytes(printed.stderr.data)
        task = PrintedTask(call.function, call.inputs.hosts, stdout, stderr)
        descriptors = []
    nonce = frames.new_nonce()
    frame = frames.pack_task(task, nonce)
    limit = messages.answer_limit(call.function, call.inputs)
    output = call.kept if printed is None else call.shown
    begun = Exchange(frame, nonce, limit, output, descriptors)
    kept = pool.take(Setup(call.plugin, call.limits), deadline, pending.tried)
    try:
        # From here on its time counts. It tells itself which regex was not done in that time.
        until = min(time.monotonic() + call.limits.timeout, deadline)
        until += _GRACE if call.has_values else 0.0
        begun.begin(kept, until if printed is None else printed.deadline)
    except BaseException:
        pool.discard(kept, ABANDONED)
        raise
    return begun


def _finished(pool: Pool, pending: _Pending, done: Exchange) -> Union[CallResult, _Pending]:
    """Take in an exchange that has ended: the call's result, or its next step."""
    if done.state is State.NOT_READY:
        pool.put_back(done.worker)
        return pending._replace(tried=pending.tried + 1)
    why: Optional[Ending] = ABANDONED
    try:
        why, result = (_answered if done.state is State.ANSWERED else _unanswered)(pending, done)
    finally:  # the process is nobody's until the pool knows of its end
        if why:
            pool.discard(done.worker, why)
        else:
            called = not pending.call.checks and pending.printed is None
            pool.give_back(done.worker, done.nonce, called)
    return result


def _unanswered(pending: _Pending, done: Exchange) -> _NextStep:
    """Why the process of a call that was not answered ends; and the call's result or next step.

    Raises:
        ExecutorUnavailable: no process can be started.
    """
    status = done.end_worker()
    if done.state is State.NOT_BEGUN:
        if pending.tried < TRIES - 1:
            return done.ending or ENDED, pending._replace(tried=pending.tried + 1)
        if status is not None and status < 0:
            raise exchange.never_started(status)
    outcome, message = done.how_it_ended(status, pending.call.limits)
    answered = Answered(outcome, message=message)
    return Ending(Reason.FAILED, outcome.value), _result(
        pending.call, pending.printed or done, answered
    )


def _answered(pending: _Pending, done: Exchange) -> _NextStep:
    """Why the process of an answered call ends, None if it need not; and the result or next step.

    The next step is that another process reads the answer, which was printed.
    """
    shown = pending.printed or done
    if done.ending:
        done.worker.end()
    try:
        answered = messages.unpack_answer(done.answer, pending.call.function, pending.call.inputs)
    except FrameError as error:
        done.worker.end()
        message = f"its answer cannot be read: {error}"
        answered = Answered(Outcome.BAD_ANSWER, message=message)
        return Ending(Reason.MISLED, str(error)), _result(pending.call, shown, answered)
    read = (len(shown.stdout.data), len(shown.stderr.data))
    if answered.read is None or answered.read == read or pending.printed is not None:
        return done.ending, _result(pending.call, shown, answered)
    return done.ending, pending._replace(tried=0, printed=done)


def _result(call: PluginCall, done: Exchange, answered: Answered) -> CallResult:
    """The result of a call that was answered, or that failed."""
    most = max(done.stdout.length, done.stderr.length)
    cut: tuple[str, ...] = ()
    if most > OUTPUT_LIMIT:
        cut = (f"printed more than {OUTPUT_LIMIT >> 20} MiB; the rest was cut",)
    value = answered.answer.value
    return CallResult(
        call.function.unit,
        answered.outcome,
        without_secrets(value) if call.function.returns is Returns.VALUE else value,
        without_secrets(answered.message),
        done.seconds,
        tuple(without_secrets([*map(one_line, answered.answer.notes)])),
        (*without_secrets([*answered.remarks]), *cut),
        without_secrets(done.stdout.text(call.shown)),
        without_secrets(done.stderr.text(call.shown)),
        without_secrets(answered.traceback),
        without_secrets(answered.reasons),
    )
