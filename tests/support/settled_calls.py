"""Calls of one plugin, each when the process of the one before it has been compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Callable

import pytest

from ovirt_scheduler.model.results import CallOutcome, CallResult
from ovirt_scheduler.model.units import PolicyUnit
from ovirt_scheduler.processes.executor import Executor
from tests.support.jobs import HOSTS, job_of, only
from tests.support.waiting import wait_until


class Calls:
    """Those of a unit."""

    def __init__(self, executor: Executor, unit: PolicyUnit) -> None:
        self._executor = executor
        self.unit = unit
        self.folder = Path(unit.plugin.folder)
        self._pool = executor._pool
        executor.prewarm([(unit.plugin, unit.limits)])
        self._ahead = 2 if unit.limits.calls_per_process == 1 else 1
        self.settle()
        self._before = executor.state().replaced

    @property
    def replaced(self) -> dict[str, int]:
        """How many processes have ended since, by the reason."""
        counts = Counter(self._executor.state().replaced)
        counts.subtract(self._before)
        return {reason: count for reason, count in counts.items() if count}

    def settle(self) -> None:
        """Wait until the process of the latest call has been compared."""
        wait_until(self._settled)

    def _settled(self) -> bool:
        """Looks as the thread that keeps the pool does, which would do so only later."""
        with self._pool._lock:
            settled = self._pool._look()
            self._pool._end_over()
            return settled and self._pool.of_plugins == self._ahead

    def call(self, settles: bool = True, **properties: str) -> CallResult:
        result = only(self._executor.run(job_of([self.unit], properties=properties)))
        if settles:
            self.settle()
        return result


@pytest.fixture
def calls_of(
    executor: Executor,
    unit_named: Callable[..., PolicyUnit],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Calls]:
    # Those of the test before end at once.
    monkeypatch.setattr(executor._pool, "times", executor._pool.times._replace(idle=0.0))

    def made(source: str, calls_per_process: int = 1000, **changes: object) -> Calls:
        (tmp_path / "Changes.py").write_text(source)
        unit = unit_named("Changes", folder=tmp_path)
        limits = replace(unit.limits, calls_per_process=calls_per_process, **changes)
        unit = replace(unit, limits=limits)
        if "class Changes" in source:
            unit = replace(unit, class_name="Changes")
        return Calls(executor, unit)

    return made


def seen(result: CallResult) -> list[str]:
    """The pid of the call's process, and what it found there."""
    assert (result.outcome, result.value) == (CallOutcome.OK, HOSTS), result
    return result.stdout.strip().split(" ", 1)


def ordinary(body: str, imports: str = "") -> str:
    """A filter that does this, and tells its pid."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return (
        f"import os\n{imports}\n"
        "def do_filter(hosts, vm, properties):\n"
        f"{lines}    print(os.getpid(), end='')\n    return hosts\n"
    )
