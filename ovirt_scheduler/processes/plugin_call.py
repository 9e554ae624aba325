"""One call of a plugin's function: its task, and its result as the daemon saw it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import NO_ENGINE, Engine, Limits, PluginCode
from ovirt_scheduler.model.results import CallResult, Outcome
from ovirt_scheduler.model.tasks import (
    CallInputs,
    CallTask,
    CheckTask,
    Function,
    Pack,
    Returns,
    Task,
)
from ovirt_scheduler.model.text import one_line
from ovirt_scheduler.processes.exchange import Capture, Exchange, State
from ovirt_scheduler.processes.handles import Worker
from ovirt_scheduler.processes.kernel import memory_files
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.protocol.messages import Answered

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
        """Bytes to keep of each stream while it runs: a class unit may print its answer."""
        return OUTPUT_LIMIT if self.function.takes_ids else self.shown

    def checked(self) -> PluginCall:
        """A copy that only checks the properties' values, and runs nothing of the plugin."""
        return replace(
            self,
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


def joined(packs: Sequence[Pack]) -> Pack:
    """Copy several packs into one file, one after another.

    Raises:
        ExecutorUnavailable: descriptors or memory lack.
    """
    sizes = tuple(pack.size for pack in packs)
    contents = (os.pread(pack.descriptor, size, 0) for pack, size in zip(packs, sizes))
    try:
        descriptor = memory_files.sealed(contents)
    except OSError as error:
        raise ExecutorUnavailable(f"documents cannot be passed on: {error.strerror}") from None
    one = Pack(descriptor, tuple(each for pack in packs for each in pack.ids), sizes)
    for pack in packs:
        one.names.update(pack.names)
    return one


def result(call: PluginCall, done: Exchange, answered: Answered) -> CallResult:
    """The result of a call that was answered, or that failed."""
    most = max(done.stdout.length, done.stderr.length)
    cut: tuple[str, ...] = ()
    if most > OUTPUT_LIMIT:
        cut = (f"printed more than {OUTPUT_LIMIT >> 20} MiB; the rest was cut",)
    return CallResult(
        call.function.unit,
        answered.outcome,
        answered.answer.value,
        answered.message,
        done.seconds,
        (*map(one_line, answered.answer.notes), *cut),
        printed(done.stdout, call.shown),
        printed(done.stderr, call.shown),
        answered.traceback,
        answered.reasons,
    )


def never_started(status: int) -> ExecutorUnavailable:
    """The error for a process that could not be forked."""
    return ExecutorUnavailable(f"no process can be started: {os.strerror(-status)}")


def printed(capture: Capture, most: int = OUTPUT_LIMIT) -> str:
    """The text of captured output."""
    return capture.data[:most].decode("utf-8", "replace")


def not_started(call: PluginCall) -> CallResult:
    """The result of a call for which the request had no time left."""
    message = "did not start: the request's time was over"
    return CallResult(call.function.unit, Outcome.TIMED_OUT, message=message)


def how_it_ended(
    done: Exchange, status: Optional[int], bounds: Limits, worker: Worker
) -> tuple[Outcome, str]:
    """Why a call has no answer, in a sentence for an administrator."""
    if done.state is State.MISLED:
        return Outcome.BAD_ANSWER, done.problem
    if done.state is State.TIMED_OUT:
        message = f"was killed after {done.seconds:.1f} s; its timeout is {bounds.timeout:g} s"
        if done.seconds < bounds.timeout:
            message += ", the request's time was over before"
        return Outcome.TIMED_OUT, message
    code = None if status is None else os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        message = f"used up its cpu_limit of {bounds.cpu} s of processor time"
    elif code == frames.DISCONNECTED or (code == -signal.SIGKILL and worker.was_killed):
        message = "closed descriptor 3, which connects its process with the daemon"
    else:
        message = _ending(worker, code, "its process ")
    return Outcome.KILLED, message


def how_a_reader_ended(done: Exchange, status: Optional[int]) -> str:
    """Why a reader of documents has no answer, as the end of a sentence."""
    if done.state is State.TIMED_OUT:
        return "did not answer in time"
    if done.state is State.MISLED:
        return f"answered what cannot be read ({done.problem})"
    return _ending(done.worker, None if status is None else os.waitstatus_to_exitcode(status))


def _ending(worker: Worker, code: Optional[int], which: str = "") -> str:
    if code is None:
        return "ended" if worker.zygote.alive else "ended with the zygote"
    if code < 0:
        return f"died by {frames.signal_name(-code)}"
    if code == frames.OUT_OF_MEMORY:
        return "ran out of memory"
    return f"ended {which}without an answer (exit status {code})"
