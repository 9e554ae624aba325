"""Jobs for an executor, and what comes of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from ovirt_scheduler.model.jobs import Execution, Job, Request
from ovirt_scheduler.model.plugins import Limits
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.units import PolicyUnit, UnitCall
from ovirt_scheduler.processes.executor import Executor

LIMITS = Limits(timeout=10.0, memory=512 << 20, cpu=10, open_files=256)
HOSTS = ("host-1", "host-2", "host-3")


def job_of(units: Sequence[PolicyUnit], seconds: float = 20.0, **changes: object) -> Job:
    """A job of the design form: a value that a unit refuses ends it."""
    properties = changes.pop("properties", {})
    entities = Entities(changes.pop("hosts", HOSTS), vm=changes.pop("vm", "vm-1"))
    calls = tuple(UnitCall(unit, properties) for unit in units)
    request = Request(Caller("test", AnswerForm.DESIGN, "a test"), entities, properties)
    return Job(request, time.monotonic() + seconds, calls, **changes)


def only(execution: Execution) -> CallResult:
    (result,) = execution.results
    return result


@contextlib.contextmanager
def running(parallel: int = 4, max_waiting: int = 16, **how: object) -> Iterator[Executor]:
    """An executor, as long as the body of the ``with`` takes."""
    executor = Executor(parallel, max_waiting, **how)
    executor.start()
    try:
        yield executor
    finally:
        executor.close()
