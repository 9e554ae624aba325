"""What a request process has told of its job, message by message, and what it comes to."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import Callable, Dict, Iterator, Optional, Protocol, Tuple, TypeVar

from ovirt_scheduler import driver_frames, frames
from ovirt_scheduler.cluster_seen import Seen
from ovirt_scheduler.drivers import Changes, DriverExecution, DriverJob, StatusChange
from ovirt_scheduler.errors import BadParameters, RefusedProperty, UnreadableDocument
from ovirt_scheduler.model import CallResult, Document, Execution, Job, Kind, Outcome

Message = Tuple[str, frames.Head]
HearChange = Callable[[StatusChange, DriverExecution], None]

# The faults that a request process finds.
_REFUSALS = {
    refusal.fault_code: refusal for refusal in (BadParameters, RefusedProperty, UnreadableDocument)
}


E_co = TypeVar("E_co", covariant=True)


def _unless_refused(messages: Iterator[Message]) -> Iterator[Message]:
    """The messages; one that refuses the job is raised as the fault that it is."""
    for kind, fields in messages:
        if kind == "refused":
            raise _REFUSALS[fields["code"]](fields["message"])
        yield kind, fields


class Listener(Protocol[E_co]):
    """Hears the messages of one request process."""

    opened: bool  # the documents are read: what is asked for has begun

    def take_all(self, messages: Iterator[Message]) -> None: ...
    def whole(self) -> E_co: ...
    def cut_short(self, how: str) -> E_co: ...


class Told:
    """What a request process has told of its job so far."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._began = time.monotonic()
        self._hosts: Optional[Tuple[str, ...]] = None
        self._vm: Optional[str] = None
        self._results: Dict[int, CallResult] = {}
        self._errors: Tuple[str, ...] = ()
        if not isinstance(job.hosts, Document) and not isinstance(job.vm, Document):
            self._hosts, self._vm = job.hosts, job.vm
        self.opened = False

    def take_all(self, messages: Iterator[Message]) -> None:
        """
        Raises:
            UnreadableDocument, RefusedProperty: the request process says so.
        """
        for kind, fields in _unless_refused(messages):
            if kind == "opened":
                self.opened = True
                self._hosts, self._vm = tuple(fields["hosts"]), fields["vm"]
                self._errors = tuple(fields["errors"])
            elif kind == "result":
                position, result = frames.unpack_result(fields, self._job.kind)
                self._results[position] = result

    def whole(self) -> Execution:
        results = tuple(self._results[position] for position in sorted(self._results))
        return Execution(self._hosts or (), self._vm, results, self._errors)

    def cut_short(self, how: str) -> Execution:
        """The same, with a failure for each unit that had not answered."""
        if self._hosts is None:
            raise UnreadableDocument(f"the process that read the documents {how}")
        for position, call in enumerate(self._job.calls):
            self._results.setdefault(position, _cut_off(call.unit.name, how, self._began))
        return self.whole()


def _cut_off(name: str, how: str, began: float) -> CallResult:
    """The failure of a call whose request process ended; how long it ran, nobody else can tell."""
    message = f"the process of its request {how}"
    return CallResult(name, Outcome.KILLED, message=message, seconds=time.monotonic() - began)


class DriverTold:
    """The same of a driver's job."""

    def __init__(self, job: DriverJob) -> None:
        self._job = job
        self._began = time.monotonic()
        self._kinds = (
            *(Kind.FILTER for _ in job.filters),
            *(Kind.COST_FUNCTION for _ in job.cost_functions),
        )
        self._told = DriverExecution()
        self._results: Dict[int, CallResult] = {}
        self.opened = False

    def take_all(self, messages: Iterator[Message]) -> None:
        """
        Raises:
            UnreadableDocument, RefusedProperty, BadParameters: the request process says so.
        """
        for kind, fields in _unless_refused(messages):
            if kind == "opened":
                self.opened = True
                self._told = DriverExecution(tuple(fields["hosts"]), errors=tuple(fields["errors"]))
            elif kind == "result":
                position = int(fields["position"])
                _, self._results[position] = frames.unpack_result(fields, self._kinds[position])
            elif kind == "driver":
                result, answer = driver_frames.unpack_driver(fields, self._job.returns)
                self._told = replace(self._told, result=result, answer=answer)

    def whole(self) -> DriverExecution:
        def results(kind: Kind) -> Tuple[CallResult, ...]:
            places = sorted(self._results)
            return tuple(self._results[at] for at in places if self._kinds[at] is kind)

        return replace(
            self._told, filters=results(Kind.FILTER), cost_functions=results(Kind.COST_FUNCTION)
        )

    def cut_short(self, how: str) -> DriverExecution:
        """The same, as a failure of the driver where it had not answered."""
        if not self.opened and self._job.documents:
            raise UnreadableDocument(f"the process that read the documents {how}")
        if self._told.result is None:
            killed = _cut_off(self._job.driver.name, how, self._began)
            self._told = replace(self._told, result=killed)
        return self.whole()


class ChangesTold:
    """The same of a job that tells a hook of changes: each call's end is heard as it comes."""

    def __init__(self, job: DriverJob, changes: Changes, hear: HearChange) -> None:
        self._job = job
        self._left = deque(changes.all)
        self._hear = hear
        self._began = time.monotonic()
        self.opened = False

    def take_all(self, messages: Iterator[Message]) -> None:
        """
        Raises:
            UnreadableDocument: the request process says so.
        """
        for kind, fields in _unless_refused(messages):
            if kind == "opened":
                self.opened = True
            elif kind == "driver":
                result, answer = driver_frames.unpack_driver(fields, self._job.returns)
                self._told(DriverExecution(result=result, answer=answer))

    def whole(self) -> None:
        """There is nothing left to say."""

    def cut_short(self, how: str) -> None:
        """A failure of the call that was under way; those after it have not begun."""
        if not self.opened:
            raise UnreadableDocument(f"the process that read the documents {how}")
        if self._left:
            killed = _cut_off(self._job.driver.name, how, self._began)
            self._told(DriverExecution(result=killed))

    def _told(self, execution: DriverExecution) -> None:
        self._began = time.monotonic()
        self._hear(self._left.popleft(), execution)


class SeenTold:
    """The same of a survey, which calls no plugin."""

    def __init__(self) -> None:
        self._seen: Optional[Seen] = None
        self.opened = False

    def take_all(self, messages: Iterator[Message]) -> None:
        """
        Raises:
            UnreadableDocument: the request process says so.
        """
        for kind, fields in _unless_refused(messages):
            if kind == "seen":
                self._seen = frames.unpack_seen(fields)

    def whole(self) -> Seen:
        return Seen({}, {}) if self._seen is None else self._seen

    def cut_short(self, how: str) -> Seen:
        """
        Raises:
            UnreadableDocument: always.
        """
        raise UnreadableDocument(f"the process that read the documents {how}")
