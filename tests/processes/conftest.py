"""What these tests share: executors of their own, as they kill and count processes; other users."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.processes.timing import TIMES
from tests.support.command import executed
from tests.support.jobs import running
from tests.support.processes import NOBODY, for_all_users, open_folder


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


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    """A folder for each module, which other users reach."""
    with open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def as_root() -> None:
    """Skips where the tests cannot change users."""
    if os.geteuid() != 0:
        pytest.skip("plugin_user takes root")
    command = for_all_users("setpriv", "--reuid", NOBODY.pw_name, "--clear-groups", "--")
    command += [sys.executable, "-c", "import ovirt_scheduler.command.cli"]
    able = executed(*command)
    if able.returncode:
        pytest.skip(f"no other user can be had: {shlex.join(command)}: {able.stderr}")
