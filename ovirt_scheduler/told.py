"""What a request process has told of its job, message by message, and what it comes to."""

from __future__ import annotations

from typing import Dict, Iterator, Optional, Tuple

from ovirt_scheduler import frames
from ovirt_scheduler.errors import RefusedProperty, UnreadableDocument
from ovirt_scheduler.model import CallResult, Document, Execution, Job, Outcome

Message = Tuple[str, frames.Head]

# The faults that a request process finds.
_REFUSALS = {refusal.fault_code: refusal for refusal in (RefusedProperty, UnreadableDocument)}


class Told:
    """What a request process has told of its job so far."""

    def __init__(self, job: Job) -> None:
        self._job = job
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
        for kind, fields in messages:
            if kind == "refused":
                raise _REFUSALS[fields["code"]](fields["message"])
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
            failure = CallResult(
                call.unit.name, Outcome.KILLED, message=f"the process of its request {how}"
            )
            self._results.setdefault(position, failure)
        return self.whole()
