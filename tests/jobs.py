"""Jobs for an executor, what comes of them, and waiting for that."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Callable, Sequence

from ovirt_scheduler.model import CallResult, Execution, Job, Kind, PolicyUnit, UnitCall

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
    return replace(job, **changes)


def only(execution: Execution) -> CallResult:
    (result,) = execution.results
    return result


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for what other processes do; fail when it does not come."""
    give_up = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < give_up, "it did not happen in time"
        pause.wait(0.01)
