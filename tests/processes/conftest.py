"""The executor of each module here is its own: these tests kill and count its processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Callable

import pytest

from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.processes.timing import TIMES
from tests.support.jobs import running


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with running() as started:
        yield started


@pytest.fixture
def own_with() -> Iterator[Callable[..., Executor]]:
    """Starts one for a single test, with some other times."""
    with contextlib.ExitStack() as stack:

        def start(**times: float) -> Executor:
            return stack.enter_context(running(max_waiting=64, times=TIMES._replace(**times)))

        yield start


@pytest.fixture
def own() -> Iterator[Executor]:
    """One for a single test."""
    with running(max_waiting=64) as started:
        yield started
