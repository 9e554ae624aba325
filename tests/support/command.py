"""The command line, run within the test's process or as a shell runs it."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Tuple

import pytest

from ovirt_scheduler.command import cli
from tests.support.paths import PROJECT


def run(tmp_path: Path, *arguments: str) -> Tuple[int, str, str]:
    """Exit status, standard output and standard error of one command.

    It runs here, which spares the start of an interpreter. Each command is run as a program by
    some test, too.
    """
    out, err = io.StringIO(), io.StringIO()
    log = logging.getLogger("ovirt_scheduler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "handlers", log.handlers[:])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
        patch.setenv("COLUMNS", "100")
        patch.chdir(PROJECT)
        try:
            status = cli.main(arguments)
        except SystemExit as ended:  # argparse's, with its status
            status = ended.code
    return status, out.getvalue(), err.getvalue()


def spawned(tmp_path: Path, *arguments: str) -> Tuple[int, str, str]:
    """The same of a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "ovirt_scheduler", *arguments],
        cwd=PROJECT,
        env={**os.environ, "STATE_DIRECTORY": str(tmp_path / "state"), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr
