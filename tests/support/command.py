"""The command line, run within the test's process or as a shell runs it."""

from __future__ import annotations

import io
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Union

import pytest

from ovirt_scheduler.command import cli
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.processes.executor import Executor
from tests.support.paths import PROJECT
from tests.support.waiting import LONG

_SETTLE_SECONDS = 10.0
_PLAIN = re.compile(r"ovirt-scheduler [^|<>&;$`#]*")  # a line that needs no shell


class _LeftRunning:
    """The worker's executor in the hands of a command, which neither starts nor ends it."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def start(self) -> None:
        """It runs."""

    def close(self) -> None:
        """It goes on for the next test."""


@pytest.fixture
def one_executor(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has commands that run here use the worker's executor, which spares each a zygote.

    Commands that are spawned, and those with a ``plugin_user``, start their own.
    """
    started_by_command = runtime.Executor

    def of_command(parallel: int, max_waiting: int, user: Any, **more: Any) -> Any:
        if user is not None:
            return started_by_command(parallel, max_waiting, user, **more)
        executor.wait_until_idle(
            _SETTLE_SECONDS
        )  # what other tests called is no matter of this command's
        return _LeftRunning(executor)

    monkeypatch.setattr(runtime, "Executor", of_command)


def run(tmp_path: Path, *arguments: str, folder: Path = PROJECT) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of one command.

    It runs here, which spares the start of an interpreter. Each command is run as a program by
    some test, too.

    Args:
        tmp_path: has the state folder, ``state``.
        folder: where the command is run.
    """
    out, err = io.StringIO(), io.StringIO()
    log = logging.getLogger("ovirt_scheduler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "handlers", log.handlers[:])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
        patch.setenv("COLUMNS", "100")
        patch.chdir(folder)
        try:
            status = cli.main(arguments)
        except SystemExit as ended:  # argparse's, with its status
            status = ended.code
    return status, out.getvalue(), err.getvalue()


def program(
    state: Path,
    *words: Union[str, Path],
    before: Sequence[str] = (),
    env: Mapping[str, str] = MappingProxyType({}),
    **how: Any,
) -> subprocess.Popen:
    """The program in a process of its own.

    Args:
        state: the state folder.
        before: the beginning of a command line that runs the rest.
        env: variables besides those that there are.
        how: what else ``Popen`` takes.
    """
    environment = {**os.environ, "STATE_DIRECTORY": str(state), "COLUMNS": "100", **env}
    command = [*before, sys.executable, "-m", "ovirt_scheduler", *map(str, words)]
    return subprocess.Popen(command, env=environment, **{"cwd": PROJECT, "text": True, **how})


def spawned(tmp_path: Path, *words: Union[str, Path], **how: Any) -> tuple[int, str, str]:
    """Exit status and outputs of the program in a process of its own; ``how`` is ``program``'s.

    Args:
        tmp_path: has the state folder, ``state``.
    """
    given = how.pop("input", None)
    outputs = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with program(tmp_path / "state", *words, **{**outputs, **how}) as process:
        try:
            out, err = process.communicate(given, LONG)
        finally:
            process.kill()
    return process.returncode, out, err


def executed(
    *command: Union[str, Path], check: bool = False, **how: Any
) -> subprocess.CompletedProcess:
    """A command of the machine that has ended; ``how`` is what else ``subprocess.run`` takes."""
    how = {"cwd": PROJECT, "capture_output": True, "text": True, "timeout": LONG, **how}
    return subprocess.run([*map(str, command)], check=check, **how)


def script(
    code: str, *words: Union[str, Path], before: Sequence[str] = (), **how: Any
) -> subprocess.CompletedProcess:
    """A script, executed by an interpreter of its own."""
    return executed(*before, sys.executable, "-c", code, *words, **how)


def of_page(text: str, folder: Path, state: Path) -> Iterator[tuple[int, str, str]]:
    """How the commands of a page's block end, one after another, and what they say.

    What is nothing but our command is run here. A shell runs a block with anything else in it;
    when it ends, so does what it has left in the background.
    """
    commands = text.replace("\\\n", " ").splitlines()
    if all(map(_PLAIN.fullmatch, commands)):
        for command in commands:
            yield run(state.parent, *shlex.split(command)[1:], folder=folder)
        return
    ours = (
        f'ovirt-scheduler() {{ {sys.executable} -m ovirt_scheduler "$@"; }}\n'
        "trap 'kill $(jobs -p) 2> /dev/null || :; wait' EXIT\n"
    )
    with subprocess.Popen(
        ["bash", "-euc", ours + text],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(PROJECT),
            "PYTEST_PLUGINS": "ovirt_scheduler.testing",
            "STATE_DIRECTORY": str(state),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            out, err = shell.communicate(timeout=LONG)
        except BaseException:
            os.killpg(shell.pid, signal.SIGKILL)
            raise
    yield shell.returncode, out, err
