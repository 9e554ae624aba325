"""One request's process: reads its documents once, calls its units, tells how each ended.

::

    daemon ──(socket: Job)──► request process ──fork──► call, call, ...
           ◄─(socket: OPENED, RESULT per call, DONE)─┘   ▲ stdout, stderr, answer: pipes

The entities are read before the calls are forked, so they share them by copy-on-write.
Filters run one after another, each on the hosts that are left; cost functions side by side.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, replace
from typing import (
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    cast,
)

from ovirtsdk4 import types

from ovirt_scheduler import aggregate, call, entities, frames, limits, properties
from ovirt_scheduler.errors import RefusedProperty, RequestError, UnreadableDocument
from ovirt_scheduler.model import (
    Analysis,
    CallResult,
    CallTask,
    Candidate,
    Document,
    Engine,
    FileFault,
    Job,
    Kind,
    Known,
    Limits,
    Migration,
    Outcome,
    PolicyUnit,
    UnitCall,
)
from ovirt_scheduler.supervisor import OUTPUT_LIMIT, Abandoned, Ended, Pipes, Supervisor, Work

_AHEAD = 3  # calls that wait for the next request
_MOST_TASKS = 1000  # of one process
_TASK_LIMIT = 1 << 30  # bytes
_CHUNK = 1 << 20

_MOST_IDS = 200  # more are read once, and shared by a fork

# For the entities of a request: so much, or so many times the documents' size.
_READING_MEMORY = 1 << 30
_READING_FACTOR = 24

_ANALYSIS_LIMITS = Limits(timeout=10.0, memory=512 << 20, cpu=10, open_files=256)


def serve(client: socket.socket, lifeline: int) -> NoReturn:
    """Be the request process: one task from the daemon's socket, then the end.

    Args:
        client: the daemon's end is closed when it waits no more.
        lifeline: the reading end of a pipe that the zygote holds open.
    """
    status = 0
    try:
        limits.become_subreaper()
        limits.reset_signals()
        limits.close_all_but({client.fileno(), lifeline})
        _RequestProcess(client, lifeline).run()
    except (Abandoned, OSError):  # nobody is there to be told
        status = os.EX_UNAVAILABLE
    except BaseException:  # noqa: BLE001  our own fault: say where, and end
        traceback.print_exc()
        status = os.EX_SOFTWARE
    finally:
        sys.stderr.flush()
        os._exit(status)


class _RequestProcess:
    def __init__(self, client: socket.socket, lifeline: int) -> None:
        self._client = client
        self._supervisor = Supervisor(client.fileno(), lifeline, call.wait_for_task)

    def run(self) -> None:
        """Serve tasks until one came with documents.

        What reads documents is not used again: they come from outside, and what they did to
        the memory of this process must not be seen by another request.
        """
        for served in range(_MOST_TASKS, 0, -1):
            task = self._receive()
            again = isinstance(task, Job) and not _documents(task) and served > 1
            if isinstance(task, Job):
                self._work(task)
            elif isinstance(task, Candidate):
                self._send(self._analyse(task))
            self._send(frames.pack("done", again=again))
            if not again:
                break
        self._supervisor.close()
        if limits.children():  # one could not be killed in time: the zygote goes on trying
            os._exit(os.EX_TEMPFAIL)

    def _receive(self) -> frames.Task:
        unframer = frames.Unframer(_TASK_LIMIT)
        while True:
            self._supervisor.await_client(_AHEAD)
            data = self._client.recv(_CHUNK)
            if not data:
                raise Abandoned
            for payload in unframer.feed(data):
                return frames.unpack_task(payload)

    def _send(self, payload: bytes) -> None:
        self._client.sendall(b"".join(frames.frame(payload)))

    def _analyse(self, candidate: Candidate) -> bytes:
        work = _work(_ANALYSIS_LIMITS, lambda: call.run_analysis(candidate))
        deadline = time.monotonic() + _ANALYSIS_LIMITS.timeout
        ((_, ended),) = self._supervisor.run([work], deadline)
        if ended.payload is not None:
            try:
                _, fields = frames.unpack(ended.payload)
                return frames.pack_analysis(frames.unpack_analysis(fields))
            except frames.FrameError as error:
                ended = replace(ended, problem=str(error))
        message = f"loading it failed: {_how_it_ended(ended, _ANALYSIS_LIMITS)[1]}"
        last_words = _text(ended.stderr).strip().rpartition("\n")[2]
        if last_words:
            message += f"; it said: {call.one_line(last_words)}"
        path = candidate.source.path
        return frames.pack_analysis(Analysis(fault=FileFault(path, None, message)))

    def _work(self, job: Job) -> None:
        try:
            if job.strict:
                for unit_call in job.calls:
                    _check_properties(unit_call)
            given = _given(job)
        except RequestError as error:
            self._send(frames.pack("refused", code=error.fault_code, message=str(error)))
            return
        self._send(frames.pack("opened", hosts=given.ids, vm=given.vm_id, errors=given.problems))
        if given.ids and job.calls:
            run = self._filter if job.kind is Kind.FILTER else self._side_by_side
            run(job, given)

    def _filter(self, job: Job, given: _Given) -> None:
        left = given.ids
        for position, unit_call in enumerate(job.calls):
            for _, answered in self._results([unit_call], left, given, job):
                result = _checked(answered, left)
                self._tell(position, result)
                left = aggregate.narrow(left, result, unit_call.unit.on_failure)
            if not left:
                return

    def _side_by_side(self, job: Job, given: _Given) -> None:
        for position, result in self._results(job.calls, given.ids, given, job):
            self._tell(position, _checked(result, given.ids))

    def _results(
        self, calls: Sequence[UnitCall], ids: Tuple[str, ...], given: _Given, job: Job
    ) -> Iterator[Tuple[int, CallResult]]:
        """Call units on some of the hosts, and read what class units printed as their answer."""
        willing: List[int] = []
        for position, unit_call in enumerate(calls):
            try:
                _check_properties(unit_call)
                willing.append(position)
            except RefusedProperty as error:
                name = unit_call.unit.name
                yield position, CallResult(name, Outcome.REFUSED, message=str(error))
        printed: List[Tuple[int, Ended]] = []
        works = [_work_of(calls[position], ids, given, job.engine) for position in willing]
        for index, ended in self._supervisor.run(works, job.deadline, job.parallel):
            position = willing[index]
            if ended.payload == frames.pack("printed"):
                printed.append((position, ended))
            else:
                yield position, _result(calls[position].unit, ended)
        works = [_reading_of(calls[position].unit, ended) for position, ended in printed]
        for index, reading in self._supervisor.run(works, job.deadline, job.parallel):
            position, ended = printed[index]
            ended = replace(ended, payload=reading.payload, problem=reading.problem)
            yield position, _result(calls[position].unit, ended)

    def _tell(self, position: int, result: CallResult) -> None:
        self._send(frames.pack_result(result, position))


def _check_properties(unit_call: UnitCall) -> None:
    """
    Raises:
        RefusedProperty: a value that the unit's custom properties refuse.
    """
    unit = unit_call.unit
    refused = unit.properties and properties.refused(unit.properties, unit_call.properties)
    if refused:
        raise RefusedProperty(f"{unit.kind.words} {unit.name}: {refused}")


@dataclass(frozen=True)
class _Given:
    """What the units of a job are called with."""

    ids: Tuple[str, ...]
    vm_id: Optional[str]
    # None where nothing but few ids is known: then each call makes its own entities, and may
    # have been forked before.
    hosts: Optional[Mapping[str, types.Host]] = None
    vm: Optional[types.Vm] = None
    problems: Sequence[str] = ()  # with what the engine told


def _given(job: Job) -> _Given:
    """Read what a job brings.

    Raises:
        UnreadableDocument: of the caller's documents (contract 1.5, fault 102).
    """
    documents = _documents(job)
    if not documents:
        ids, vm_id = cast("Tuple[str, ...]", job.hosts), cast("Optional[str]", job.vm)
        if len(ids) <= _MOST_IDS:
            return _Given(ids, vm_id)
    size = sum(len(document.data) for document in documents)
    gc.disable()  # nothing of what reading makes is garbage
    limits.limit_memory(max(_READING_MEMORY, _READING_FACTOR * size))
    problems: List[str] = []
    try:
        if isinstance(job.hosts, Document):
            hosts = entities.read_hosts(job.hosts)
        else:
            hosts = _known_hosts(job.hosts, job.known, problems)
        if isinstance(job.vm, Document):
            vm = entities.read_vm(job.vm)
        else:
            vm = _known_vm(job.vm, job.known, problems)
    except MemoryError:
        raise UnreadableDocument(
            f"reading the documents ({size} bytes) takes more memory than they may have"
        ) from None
    finally:
        limits.unlimit_memory()
        gc.enable()
    gc.freeze()  # a collection in a call would touch, and so copy, every entity
    by_id = {cast("str", host.id): host for host in hosts}
    return _Given(tuple(by_id), vm and vm.id, by_id, vm, problems)


def _documents(job: Job) -> List[Document]:
    parts = (job.hosts, job.vm, job.known.vm, *job.known.hosts)
    return [part for part in parts if isinstance(part, Document)]


def _known_hosts(ids: Sequence[str], known: Known, problems: List[str]) -> List[types.Host]:
    """Hosts that came as ids, as the engine told them; else they hold only their id."""
    told: Dict[str, types.Host] = {}
    for document in known.hosts:
        try:
            told.update((host.id, host) for host in entities.read_hosts(document))
        except UnreadableDocument as error:
            problems.append(f"what the engine told cannot be read: {error}")
    return [told.get(host.id, host) for host in entities.hosts_of_ids(ids)]


def _known_vm(vm_id: Optional[str], known: Known, problems: List[str]) -> Optional[types.Vm]:
    if vm_id is None:
        return None
    if known.vm is not None:
        try:
            return entities.read_vm(known.vm)
        except UnreadableDocument as error:
            problems.append(f"what the engine told cannot be read: {error}")
    return entities.vm_of_id(vm_id)


def _work_of(unit_call: UnitCall, ids: Tuple[str, ...], given: _Given, engine: Engine) -> Work:
    bounds = unit_call.unit.limits
    if given.hosts is None:
        task = CallTask(unit_call, ids, given.vm_id, engine)
        return replace(_work(bounds, lambda: call.run_task(task)), task=frames.pack_task(task))
    hosts = [given.hosts[host] for host in ids]
    return _work(bounds, lambda: call.run_unit(unit_call, hosts, given.vm, engine))


def _reading_of(unit: PolicyUnit, ended: Ended) -> Work:
    stdout, stderr = _text(ended.stdout), _text(ended.stderr)
    return _work(unit.limits, lambda: call.read_printed(unit, stdout, stderr))


def _work(bounds: Limits, payload: Callable[[], bytes]) -> Work:
    """What a process under these limits does: give one message as its answer."""

    def enter(pipes: Pipes) -> NoReturn:
        call.enter(pipes)
        limits.apply(bounds)
        call.answer_and_exit(pipes.answer, payload)

    return Work(enter, bounds)


def _result(unit: PolicyUnit, ended: Ended) -> CallResult:
    """How a unit's process ended, as the result of its call."""
    result = None
    if ended.payload is not None:
        try:
            _, fields = frames.unpack(ended.payload)
            _, result = frames.unpack_result(fields, unit.kind)
        except frames.FrameError as error:
            ended = replace(ended, problem=f"its answer cannot be read: {error}")
    if result is None:
        outcome, message = _how_it_ended(ended, unit.limits)
        result = CallResult(unit.name, outcome, message=message)
    cut = (f"printed more than {OUTPUT_LIMIT >> 20} MiB; the rest was cut",) if ended.cut else ()
    return replace(
        result,
        unit=unit.name,
        seconds=ended.seconds,
        notes=result.notes + cut,
        stdout=_text(ended.stdout),
        stderr=_text(ended.stderr),
    )


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")


def _how_it_ended(ended: Ended, bounds: Limits) -> Tuple[Outcome, str]:
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
    if not strangers:
        return replace(result, value=value)
    shown = ", ".join(strangers[:3]) + (", ..." if len(strangers) > 3 else "")
    note = f"answered with hosts that it was not given ({len(strangers)} dropped: {shown:.200})"
    return replace(result, value=value, notes=(*result.notes, call.one_line(note)))
