"""The command line, as a shell runs it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.paths import PROJECT


def run(tmp_path, *arguments):
    """Exit status, standard output and standard error of one command."""
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
