"""The units of a job, called in processes of their own; what came of each.

Filters run one after another, each on the hosts that are left; cost functions side by side.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Callable, Iterator, List, NoReturn, Optional, Sequence, Tuple, cast

from ovirt_scheduler import aggregate, call, frames, limits, properties
from ovirt_scheduler.answers import one_line, read_printed
from ovirt_scheduler.errors import RefusedProperty, SlowProperty
from ovirt_scheduler.given import Given
from ovirt_scheduler.model import (
    CallResult,
    CallTask,
    Engine,
    Job,
    Kind,
    Limits,
    Migration,
    Outcome,
    PolicyUnit,
    UnitCall,
)
from ovirt_scheduler.supervisor import OUTPUT_LIMIT, Ended, Pipes, Supervisor, Work

Positioned = Iterator[Tuple[int, CallResult]]  # the place of a unit among the job's, and its result


def run(supervisor: Supervisor, job: Job, given: Given) -> Positioned:
    """Call a job's units on the hosts that are given; each result as soon as it is there.

    Answers are held against the hosts that the unit was given (contract 3.6). Without hosts
    nothing runs. Of what the units printed, no more is kept than one may print: many that print
    a lot would else fill the daemon's memory.
    """
    if not given.ids:
        return
    each = _one_after_another if job.kind is Kind.FILTER else _side_by_side
    kept = OUTPUT_LIMIT // max(1, len(job.calls))
    for position, result in each(supervisor, job, given):
        shown = replace(result, stdout=result.stdout[:kept], stderr=result.stderr[:kept])
        yield position, shown


def _side_by_side(supervisor: Supervisor, job: Job, given: Given) -> Positioned:
    for position, result in _results(supervisor, job, job.calls, given):
        yield position, _checked(result, given.ids)


def _one_after_another(supervisor: Supervisor, job: Job, given: Given) -> Positioned:
    left = given.ids
    for position, unit_call in enumerate(job.calls):
        for _, answered in _results(supervisor, job, [unit_call], replace(given, ids=left)):
            result = _checked(answered, left)
            yield position, result
            left = aggregate.narrow(left, result, unit_call.unit.on_failure)
        if not left:
            return


def _results(
    supervisor: Supervisor, job: Job, calls: Sequence[UnitCall], given: Given
) -> Positioned:
    """Call units on the hosts, and read what class units printed as their answer."""
    willing: List[int] = []
    for position, unit_call in enumerate(calls):
        begun = time.monotonic()
        try:
            if not job.strict:  # else it was checked before anything ran
                check_properties(unit_call, job.deadline)
            willing.append(position)
        except RefusedProperty as error:
            slow = isinstance(error, SlowProperty)
            yield (
                position,
                CallResult(
                    unit_call.unit.name,
                    Outcome.TIMED_OUT if slow else Outcome.REFUSED,
                    message=str(error),
                    seconds=time.monotonic() - begun,
                ),
            )
    told: List[Tuple[int, Ended]] = []
    works = [_work_of(calls[position], given, job.engine) for position in willing]
    for index, ended in supervisor.run(works, job.deadline, job.parallel):
        position = willing[index]
        result = _result(calls[position].unit, ended)
        if result is None:
            told.append((position, ended))
        else:
            yield position, result
    works = [_reading_of(calls[position].unit, ended) for position, ended in told]
    for index, reading in supervisor.run(works, job.deadline, job.parallel):
        position, ended = told[index]
        ended = replace(ended, payload=reading.payload, problem=reading.problem)
        yield position, cast("CallResult", _result(calls[position].unit, ended))


def check_properties(unit_call: UnitCall, deadline: float) -> None:
    """
    Raises:
        RefusedProperty: a value that the unit's custom properties refuse.
        SlowProperty: they did not find out in the unit's time, or by the deadline.
    """
    unit = unit_call.unit
    if unit.properties is not None:
        seconds = min(unit.limits.timeout, deadline - time.monotonic())
        owner = f"{unit.kind.words} {unit.name}"
        properties.check(owner, unit.properties, unit_call.properties, seconds)


def _work_of(unit_call: UnitCall, given: Given, engine: Engine) -> Work:
    bounds = unit_call.unit.limits
    task = CallTask(unit_call, given.ids, given.vm_id, engine)
    if given.hosts is None:
        return replace(work(bounds, lambda: call.run_task(task)), task=frames.pack_task(task))
    hosts = [given.hosts[host] for host in given.ids]
    return work(bounds, lambda: call.run_unit(task, lambda: (hosts, given.vm)))


def _reading_of(unit: PolicyUnit, ended: Ended) -> Work:
    stdout, stderr = printed(ended.stdout), printed(ended.stderr)
    return work(unit.limits, lambda: frames.pack_result(read_printed(unit, stdout, stderr), 0))


def work(bounds: Limits, payload: Callable[[], bytes]) -> Work:
    """What a process under these limits does: give one message as its answer."""

    def enter(pipes: Pipes) -> NoReturn:
        call.enter(pipes)
        limits.apply(bounds)
        call.answer_and_exit(pipes.answer, payload)

    return Work(enter, bounds)


def _result(unit: PolicyUnit, ended: Ended) -> Optional[CallResult]:
    """How a unit's process ended, as the result of its call.

    None where the answer is in what was printed, and its process did not see all of that.
    """
    result = None
    shown = [len(ended.stdout), len(ended.stderr)]
    if ended.payload is not None:
        try:
            _, fields = frames.unpack(ended.payload)
            if fields.get("read", shown) != shown:
                return None
            _, result = frames.unpack_result(fields, unit.kind)
        except frames.FrameError as error:
            ended = replace(ended, problem=f"its answer cannot be read: {error}")
    return completed(result, unit.name, unit.limits, ended)


def completed(result: Optional[CallResult], name: str, bounds: Limits, ended: Ended) -> CallResult:
    """A call's result with what its process shows of it.

    Args:
        result: what it answered; None where nothing came that can be read.
        name: of what was called; it has the last word on that.
    """
    if result is None:
        outcome, message = how_it_ended(ended, bounds)
        result = CallResult(name, outcome, message=message)
    cut = (f"printed more than {OUTPUT_LIMIT >> 20} MiB; the rest was cut",) if ended.cut else ()
    # It stands as the plugin wrote it: the pipe of its answer is open to it.
    return replace(
        result,
        unit=name,
        message=one_line(result.message),
        traceback=result.traceback[-call.TRACEBACK_LIMIT :],
        seconds=ended.seconds,
        notes=cut,
        stdout=printed(ended.stdout),
        stderr=printed(ended.stderr),
    )


def printed(output: bytes) -> str:
    return output.decode("utf-8", "replace")


def how_it_ended(ended: Ended, bounds: Limits) -> Tuple[Outcome, str]:
    """A process without an answer: what happened to it, for an administrator."""
    if ended.problem:
        return Outcome.KILLED if ended.status is None else Outcome.BAD_ANSWER, ended.problem
    if ended.status is None:
        return Outcome.TIMED_OUT, "did not start: the request's time was over"
    if ended.timed_out:
        message = f"was killed after {ended.seconds:.1f} s; its timeout is {bounds.timeout:g} s"
        if ended.seconds < bounds.timeout:
            message += ", the request's time was over before"
        return Outcome.TIMED_OUT, message
    if os.WIFSIGNALED(ended.status):
        number = os.WTERMSIG(ended.status)
        if number == signal.SIGXCPU:
            return Outcome.KILLED, f"used up its cpu_limit of {bounds.cpu} s of processor time"
        return Outcome.KILLED, f"died by {frames.signal_name(number)}"
    code = os.WEXITSTATUS(ended.status)
    return Outcome.KILLED, f"ended its process without an answer (exit status {code})"


def _checked(result: CallResult, given: Sequence[str]) -> CallResult:
    """A good answer without the hosts that were not given (contract 3.6)."""
    value = result.value
    if not result.ok or value is None:
        return result
    if isinstance(value, Migration):
        kept, strangers = aggregate.among(given, value.hosts)
        # An empty list means any host: dropping hosts must not make it so.
        value = None if value.hosts and not kept else Migration(value.vm, kept)
    elif isinstance(value, tuple):
        value, strangers = aggregate.among(given, value)
    else:
        kept, strangers = aggregate.among(given, tuple(value))
        value = {host: value[host] for host in kept}
    notes = note_of_strangers("hosts", strangers)
    return replace(result, value=value, notes=(*result.notes, *notes))


def note_of_strangers(what: str, strangers: Sequence[str]) -> Tuple[str, ...]:
    """What to say of answered hosts or VMs that were not given; nothing where there are none."""
    if not strangers:
        return ()
    shown = ", ".join(strangers[:3]) + (", ..." if len(strangers) > 3 else "")
    note = f"answered with {what} that it was not given ({len(strangers)} dropped: {shown:.200})"
    return (one_line(note),)
