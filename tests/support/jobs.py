"""Jobs for an executor, and what comes of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from ovirt_scheduler.model.decisions import Execution, Job
from ovirt_scheduler.model.plugins import Limits
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.processes.executor import Executor

LIMITS = Limits(timeout=10.0, memory=512 << 20, cpu=10, open_files=256)
HOSTS = ("host-1", "host-2", "host-3")


def job_of(units: Sequence[PolicyUnit], seconds: float = 20.0, **changes: object) -> Job:
    properties = changes.pop("properties", {})
    job = Job(
        kind=units[0].kind if units else Kind.FILTER,
        calls=tuple(UnitCall(unit, properties) for unit in units),
        hosts=HOSTS,
        vm="vm-1",
        deadline=time.monotonic() + seconds,
    )
    return job._replace(**changes)


def only(execution: Execution) -> CallResult:
    (result,) = execution.results
    return result


@contextlib.contextmanager
def running(max_waiting: int = 16) -> Iterator[Executor]:
    """An executor, as long as the body of the ``with`` takes."""
    executor = Executor(parallel=4, max_waiting=max_waiting)
    executor.start()
    yield executor
    executor.close()
