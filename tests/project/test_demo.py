"""The demonstration that ``make run`` shows, in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support.paths import PROJECT
from tests.support.processes import offspring
from tests.support.waiting import wait_until


def is_there(pid: int) -> bool:
    """Whether a process runs: who has ended may wait to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.long
def test_a_closed_terminal_ends_the_demonstration_with_all_that_it_started(tmp_path):
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, str(PROJECT / "demo" / "run.py")], cwd=tmp_path, stdin=theirs,
        stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no threads here
    ) as demonstration:  # fmt: skip
        os.close(theirs)
        shown = b""
        while b"Serving on" not in shown:
            shown += os.read(ours, 1 << 16)
        started = [*offspring(demonstration.pid)]
        started += [pid for daemon in started for pid in offspring(daemon)]
        os.close(ours)
        wait_until(lambda: not any(map(is_there, (demonstration.pid, *started))))
    assert len(started) > 1
