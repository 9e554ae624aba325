"""The executor of each module here is its own: these tests kill and count its processes."""

from __future__ import annotations

from typing import Iterator

import pytest

from ovirt_scheduler.processes.executor import Executor


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    started = Executor(parallel=4, max_waiting=16)
    started.start()
    yield started
    started.close()
