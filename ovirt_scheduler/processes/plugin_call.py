"""One call of a function of a plugin, and what came of it as the daemon itself saw it."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field, replace
from typing import Dict, List, Mapping, Optional, Tuple

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import NO_ENGINE, Engine, Limits, PluginCode
from ovirt_scheduler.model.results import CallResult, Outcome
from ovirt_scheduler.model.tasks import CallInputs, CallTask, CheckTask, Function, Returns, Task
from ovirt_scheduler.model.text import one_line
from ovirt_scheduler.processes.exchange import Capture, Exchange, State
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.protocol.messages import Answered
from ovirt_scheduler.processes.workers import Worker

OUTPUT_LIMIT = 1 << 20  # bytes kept of each of a call's stdout and stderr (contract 5.4)


@dataclass(frozen=True)
class PluginCall:
    """One call of a function of a plugin."""

    function: Function
    plugin: PluginCode
    limits: Limits
    inputs: CallInputs
    properties: Mapping[str, str]
    arguments: Mapping[str, object]
    attributes: Mapping[str, object] = field(default_factory=dict)
    engine: Engine = NO_ENGINE
    checks: bool = False  # only whether the properties' values are taken: a truth
    shown: int = OUTPUT_LIMIT  # bytes of each of stdout and stderr in its result

    @property
    def kept(self) -> int:
        """Bytes to keep of each while it runs: a class unit may print its answer."""
        return OUTPUT_LIMIT if self.function.takes_ids else self.shown

    def checked(self) -> PluginCall:
        """The same, but that nothing of the plugin runs."""
        return replace(
            self,
            function=self.function._replace(returns=Returns.TRUTH),
            inputs=CallInputs(),
            checks=True,
        )

    @property
    def has_values(self) -> bool:
        """Whether there is a value that the function's properties may refuse."""
        properties = self.function.properties
        return properties is not None and any(
            each.name in self.properties for each in properties.properties
        )

    def task(self, seconds: float) -> Tuple[Task, List[int]]:
        """What its process is told, and the descriptors that go with it."""
        if self.checks:
            return CheckTask(self.function, self.properties, seconds), []
        inputs = self.inputs
        descriptors: List[int] = []
        places: Dict[str, Tuple[int, ...]] = {}
        for role, packs in inputs.packs.items():
            first = len(descriptors)
            descriptors += [pack.descriptor for pack in packs]
            places[role.value] = tuple(range(first, len(descriptors)))
        task = CallTask(
            self.function, inputs.hosts, inputs.vms, inputs.vm, inputs.host, places,
            self.properties, self.arguments, self.attributes, self.engine, seconds,
        )  # fmt: skip
        return task, descriptors


def result(call: PluginCall, done: Exchange, told: Answered) -> CallResult:
    """A call's result, with what the daemon itself saw of it."""
    most = max(done.stdout.length, done.stderr.length)
    cut: Tuple[str, ...] = ()
    if most > OUTPUT_LIMIT:
        cut = (f"printed more than {OUTPUT_LIMIT >> 20} MiB; the rest was cut",)
    return CallResult(
        call.function.unit,
        told.outcome,
        told.answer.value,
        told.message,
        done.seconds,
        (*map(one_line, told.answer.notes), *cut),
        printed(done.stdout, call.shown),
        printed(done.stderr, call.shown),
        told.traceback,
    )


def never_started(status: int) -> ExecutorUnavailable:
    return ExecutorUnavailable(f"a process cannot be had: {os.strerror(-status)}")


def printed(capture: Capture, most: int = OUTPUT_LIMIT) -> str:
    return capture.data[:most].decode("utf-8", "replace")


def not_started(call: PluginCall) -> CallResult:
    message = "did not start: the request's time was over"
    return CallResult(call.function.unit, Outcome.TIMED_OUT, message=message)


def how_it_ended(
    done: Exchange, status: Optional[int], bounds: Limits, worker: Worker
) -> Tuple[Outcome, str]:
    """A process without an answer: what happened to it, for an administrator."""
    if done.state is State.MISLED:
        return Outcome.BAD_ANSWER, done.problem
    if done.state is State.TIMED_OUT:
        message = f"was killed after {done.seconds:.1f} s; its timeout is {bounds.timeout:g} s"
        if done.seconds < bounds.timeout:
            message += ", the request's time was over before"
        return Outcome.TIMED_OUT, message
    if status is None:
        return Outcome.KILLED, "ended with the zygote" if not worker.zygote_lives else "ended"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return Outcome.KILLED, f"used up its cpu_limit of {bounds.cpu} s of processor time"
        return Outcome.KILLED, f"died by {frames.signal_name(number)}"
    code = os.WEXITSTATUS(status)
    return Outcome.KILLED, f"ended its process without an answer (exit status {code})"


def how_a_reader_ended(done: Exchange, status: Optional[int]) -> str:
    """How the process ended that read documents."""
    if done.state is State.TIMED_OUT:
        return "did not answer in time"
    if done.state is State.MISLED:
        return f"answered what cannot be read ({done.problem})"
    if status is None:
        return "ended" if done.worker.zygote_lives else "ended with the zygote"
    if os.WIFSIGNALED(status):
        return f"died by {frames.signal_name(os.WTERMSIG(status))}"
    if os.WEXITSTATUS(status) == frames.OUT_OF_MEMORY:
        return "ran out of memory"
    return f"ended with exit status {os.WEXITSTATUS(status)}"
