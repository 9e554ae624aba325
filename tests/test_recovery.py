"""What the daemon lacks for a while: it is degraded, says so, and is well again afterwards.

Each trouble is a real one: a full disk, a folder that is gone, a limit of the kernel, SIGKILL.
docs/reliability.md has the table of them.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest
from conftest import PROJECT, Daemon

IDS = ["host-1", "host-2", "host-3"]
LONG = 30.0  # seconds; what is awaited comes much sooner

KEEPS = "def do_filter(hosts, vm, properties):\n    return hosts[:{}]\n"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A folder with one plugin, a filter that keeps one host."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "Keeps.py").write_text(KEEPS.format(1))
    return folder


def limit(pid: int, which: int, soft: int) -> None:
    """Set a soft limit of a running process; the hard one stays as it is."""
    _, hard = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (soft, hard))


def until(condition: Callable[[], object], daemon: Daemon) -> None:
    give_up = time.monotonic() + LONG
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < give_up, daemon.log
        assert daemon.process.poll() is None, daemon.log
        pause.wait(0.02)


def kept(daemon: Daemon, name: str = "Keeps") -> int:
    """How many hosts the filter keeps, asked over a new connection."""
    with daemon.proxy() as proxy:
        return len(proxy.runFilters([name], IDS, "vm-1", {}))


def assert_well(daemon: Daemon) -> None:
    """It answers rightly, ends as it should, and nothing unforeseen stands in its log."""
    assert kept(daemon) == 1
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.log, daemon.log


# The disk


@pytest.fixture
def small_disk(start_daemon, plugins, tmp_path) -> Iterator[Daemon]:
    """A daemon whose log file and state folder are on a disk of its own, of 256 KiB."""
    (tmp_path / "state").mkdir()
    mount = 'mount -t tmpfs -o size=256k none "$1" && shift && exec "$@"'
    before = ["unshare", "-m", "sh", "-c", mount, "sh", str(tmp_path / "state")]
    if os.geteuid() != 0 or subprocess.run([*before, "true"], check=False).returncode:
        pytest.skip("only root may mount a disk")
    return start_daemon(
        plugins,
        f"ssl = false\nlog_file = {tmp_path}/state/log",
        before=before,
        folder=tmp_path,
    )


def test_a_full_disk_stops_no_call_and_is_told_on_standard_error(small_disk, plugins, tmp_path):
    """An edit is used all the same; when there is room again, log and last good version follow."""
    seen = Path(f"/proc/{small_disk.pid}/root{tmp_path}/state")
    filler = seen / "filler"

    def log() -> str:
        return (seen / "log").read_text("utf-8")

    with pytest.raises(OSError) as caught, filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)
    assert caught.value.errno == errno.ENOSPC
    told = f"the log {tmp_path}/state/log cannot be written: No space left on device"
    until(lambda: kept(small_disk) == 1 and told in small_disk.log, small_disk)
    assert kept(small_disk) == 1
    assert small_disk.log.count(told) == 1
    assert "runFilters" in small_disk.log.partition(told)[2]
    (plugins / "Keeps.py").write_text("# " + "long " * 2000 + "\n" + KEEPS.format(2))
    until(lambda: kept(small_disk) == 2, small_disk)
    assert "Keeps.py cannot be kept for a restart: " in small_disk.log
    filler.unlink()
    until(lambda: kept(small_disk) and "kept for a restart again" in log(), small_disk)
    assert re.search(r"lines that could not be written here: \d+ \(No space left", log())
    assert len(list((seen / "plugins").glob("Keeps-*.json"))) == 1
    (plugins / "Keeps.py").write_text(KEEPS.format(1))
    until(lambda: kept(small_disk) == 1, small_disk)
    assert_well(small_disk)


def test_a_missing_log_folder_stops_the_start(tmp_path):
    """Exit status 78; the message has the file, the reason and the key."""
    config = tmp_path / "scheduler.conf"
    config.write_text(f"listening_port = 0\nlog_file = {tmp_path}/none/log\n")
    ended = subprocess.run(
        [sys.executable, "-m", "ovirt_scheduler", "serve", "--config", str(config)],
        cwd=PROJECT, env={**os.environ, "STATE_DIRECTORY": str(tmp_path / "state")},
        capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert ended.returncode == 78
    assert f"{tmp_path}/none/log: the log cannot be written: No such file" in ended.stderr
    assert "log_file" in ended.stderr


def test_a_log_folder_that_is_taken_away_and_comes_back(start_daemon, plugins, tmp_path):
    """The lines come to standard error meanwhile; the file says how many it has missed."""
    folder = tmp_path / "logs"
    folder.mkdir()
    daemon = start_daemon(plugins, f"log_file = {folder}/log")
    folder.rename(tmp_path / "away")
    assert kept(daemon) == 1
    assert f"the log {folder}/log cannot be written: No such file or directory" in daemon.log
    assert "runFilters" in daemon.log
    folder.mkdir()
    assert kept(daemon) == 1
    assert "lines that could not be written here: " in (folder / "log").read_text("utf-8")
    assert_well(daemon)
    assert "stopping on SIGTERM" in (folder / "log").read_text("utf-8")


def test_a_full_disk_behind_standard_error_ends_nothing(start_daemon, plugins):
    """Not even a reload, which tells of the certificate there; the exit status is good."""
    daemon = start_daemon(plugins)
    room = len(daemon.log)
    limit(daemon.pid, resource.RLIMIT_FSIZE, room)
    assert [kept(daemon) for _ in range(3)] == [1] * 3
    daemon.process.send_signal(signal.SIGHUP)
    assert [kept(daemon) for _ in range(3)] == [1] * 3
    assert len(daemon.log) == room
    limit(daemon.pid, resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: "SIGHUP: settings, certificates and plugins are read again" in daemon.log, daemon)
    assert_well(daemon)
