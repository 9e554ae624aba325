"""The executor of each module here is its own: these tests kill and count its processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ovirt_scheduler.processes.executor import Executor
from tests.support.jobs import running


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with running() as started:
        yield started


@pytest.fixture
def own() -> Iterator[Executor]:
    """One for a single test."""
    with running(max_waiting=64) as started:
        yield started
