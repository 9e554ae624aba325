"""What the daemon lacks for a while: it is degraded, says so, and is well again afterwards.

Each trouble is a real one: a full disk, a folder that is gone, a limit of the kernel.
docs/testing.md has the table of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xmlrpc.client import Fault, ProtocolError

import pytest

from tests.support.command import spawned
from tests.support.daemon import Daemon
from tests.support.keeping import AT_REST, HOSTS, IDS, KEEPS, assert_well, at_rest, kept, until
from tests.support.paths import PROJECT
from tests.support.processes import STRANGER, as_stranger, offspring
from tests.support.waiting import LONG

pytestmark = pytest.mark.long

NOT_PLAIN = HOSTS.replace("/></hosts>", "><memory>1<b/></memory></host></hosts>")


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


def zygotes(daemon: Daemon) -> list[int]:
    """One, but while it is replaced."""
    titles = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in offspring(daemon.pid)}
    return [pid for pid, title in titles.items() if title.startswith("ovirt-scheduler: zygote")]


def descriptors(daemon: Daemon) -> int:
    """How many it has, before the first number that is free."""
    taken = {int(each.name) for each in Path(f"/proc/{daemon.pid}/fd").iterdir()}
    return min(set(range(len(taken) + 1)) - taken)


# The disk


@pytest.fixture
def small_disk(start_daemon, plugins, tmp_path) -> Iterator[Daemon]:
    """A daemon whose log file and state folder are on a disk of its own, of 1 MiB."""
    (tmp_path / "state").mkdir()
    mount = 'mount -t tmpfs -o size=1m,mode=700 none "$1" && shift && exec "$@"'
    before = ["unshare", "-m", "sh", "-c", mount, "sh", str(tmp_path / "state")]
    if os.geteuid() != 0 or subprocess.run([*before, "true"], check=False).returncode:
        pytest.skip("only root may mount a disk")
    return start_daemon(
        plugins, f"ssl = false\nlog_file = {tmp_path}/state/log", before=before, folder=tmp_path
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
    assert len(list((seen / "plugins").glob("Keeps-*.json"))) == 1
    (plugins / "Keeps.py").write_text(KEEPS.format(1))
    until(lambda: kept(small_disk) == 1, small_disk)
    assert_well(small_disk)


def test_a_missing_log_folder_stops_the_start(tmp_path):
    """Exit status 78; the message has the file, the reason and the key."""
    config = tmp_path / "scheduler.conf"
    config.write_text(f"listening_port = 0\nlog_file = {tmp_path}/none/log\n")
    status, _, said = spawned(tmp_path, "serve", "--config", config)
    assert status == 78
    assert f"{tmp_path}/none/log: the log cannot be written: No such file" in said
    assert "log_file" in said


def test_a_log_folder_that_is_taken_away_and_comes_back(start_daemon, plugins, tmp_path):
    """The lines come to standard error meanwhile, and to the file afterwards."""
    folder = tmp_path / "logs"
    folder.mkdir()
    daemon = start_daemon(plugins, f"log_file = {folder}/log")
    folder.rename(tmp_path / "away")
    assert kept(daemon) == 1
    assert f"the log {folder}/log cannot be written: No such file or directory" in daemon.log
    assert "runFilters" in daemon.log
    folder.mkdir()
    assert kept(daemon) == 1
    assert "runFilters" in (folder / "log").read_text("utf-8")
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


# Descriptors


def test_without_descriptors_calls_are_refused_and_nobody_is_killed(start_daemon, plugins):
    """The zygote, which is well, stays; connections that wait are served when there are some."""
    daemon = start_daemon(plugins, "max_parallel_calls = 1")
    zygote = daemon.zygote
    with daemon.proxy() as proxy:
        proxy.runFilters(["Keeps"], IDS, "vm-1", {})
        at_rest(daemon)
        limit(daemon.pid, resource.RLIMIT_NOFILE, descriptors(daemon))
        with pytest.raises(Fault, match="Too many open files") as caught:
            proxy.runFilters(["Keeps"], HOSTS, "vm-1", {})
        assert caught.value.faultCode == -32603
        assert proxy.runFilters(["Keeps"], IDS, "vm-1", {}) == IDS[:1]  # what is kept needs none
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: "SIGHUP: " in daemon.log, daemon)
        many = 12  # more than the descriptors of the processes that it had to do without
        with ThreadPoolExecutor(many) as pool:
            waiting = [pool.submit(kept, daemon) for _ in range(many)]
            until(lambda: "accepted: Too many open files" in daemon.log, daemon)
            limit(daemon.pid, resource.RLIMIT_NOFILE, 1024)
            assert [one.result(LONG) for one in waiting] == [1] * many
    assert daemon.zygote == zygote
    assert re.search("no process for plugin calls: .*: Too many open files", daemon.log)
    assert_well(daemon)


# Processes


@pytest.fixture
def strangers_daemon(start_daemon) -> Iterator[Daemon]:
    """A daemon of a user without rights: limits on the number of processes hold for no other."""
    before = as_stranger() if os.geteuid() == 0 else []
    command = [*before, sys.executable, "-c", "import ovirt_scheduler.command.cli"]
    if not before or subprocess.run(command, cwd=PROJECT, check=False).returncode:
        pytest.skip("only root may have another user's daemon")
    with tempfile.TemporaryDirectory(prefix="ovirt-scheduler-") as name:
        folder = Path(name)
        (folder / "plugins").mkdir()
        (folder / "plugins" / "Keeps.py").write_text(KEEPS.format(1))
        for path in (folder, *folder.rglob("*")):
            os.chown(path, STRANGER, STRANGER)
        yield start_daemon(folder / "plugins", before=before, folder=folder)


def limit_processes(daemon: Daemon, soft: int) -> None:
    """Set the limit, as the user whose processes they are."""
    number = str(STRANGER)
    for pid in (daemon.pid, *zygotes(daemon)):  # those that fork
        subprocess.run(
            ["setpriv", "--reuid", number, "--regid", number, "--clear-groups",
             "prlimit", "--pid", str(pid), f"--nproc={'unlimited' if soft < 0 else soft}:"],
            check=True,
        )  # fmt: skip


def test_without_processes_calls_are_refused_and_told(strangers_daemon):
    """RLIMIT_NPROC: neither threads nor processes; what is kept works, and what is spare."""
    daemon = strangers_daemon
    with daemon.proxy() as proxy:
        proxy.runFilters(["Keeps"], IDS, "vm-1", {})
        at_rest(daemon)
        limit_processes(daemon, 1)
        with pytest.raises(Fault, match="no process can be started"):
            for _ in range(AT_REST):
                assert proxy.runFilters(["Keeps"], NOT_PLAIN, "vm-1", {}) == IDS[:1]

        def answered() -> bool:
            with contextlib.suppress(Fault):  # what is kept compares itself after each call
                return proxy.runFilters(["Keeps"], IDS, "vm-1", {}) == IDS[:1]
            return False

        until(answered, daemon)
        assert (
            "no process for plugin calls: no process can be started: Resource temporarily unavailable"
        ) in daemon.log
        with pytest.raises(OSError):
            kept(daemon)
        until(lambda: "no connection can be accepted: can't start new thread" in daemon.log, daemon)
        limit_processes(daemon, resource.getrlimit(resource.RLIMIT_NPROC)[1])
    assert kept(daemon) == 1
    assert_well(daemon)


# Memory


def large(size: int) -> str:
    """A hosts document of at least so many bytes."""
    host = "<host id='{}'><comment>" + "x" * 4000 + "</comment></host>"
    return "<hosts>" + "".join(host.format(number) for number in range(size // 4000)) + "</hosts>"


def virtual_size(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[0]) * resource.getpagesize()


def test_a_daemon_without_memory_refuses_what_is_large_and_serves_what_is_small(
    start_daemon, plugins
):
    """RLIMIT_AS, a little above what it has: HTTP 503 or a fault, told, and well again."""
    daemon = start_daemon(plugins)
    document = large(12 << 20)
    with daemon.proxy() as proxy:
        proxy.runFilters(["Keeps"], IDS, "vm-1", {})
        limit(daemon.pid, resource.RLIMIT_AS, virtual_size(daemon.pid) + (10 << 20))
        with pytest.raises((Fault, ProtocolError, OSError)) as caught:
            proxy.runFilters(["Keeps"], document, "vm-1", {})
        assert "memory" in str(caught.value) + daemon.log
    assert daemon.design.runFilters(["Keeps"], IDS, "vm-1", {}) == IDS[:1]
    limit(daemon.pid, resource.RLIMIT_AS, resource.RLIM_INFINITY)
    assert len(daemon.design.runFilters(["Keeps"], document, "vm-1", {})) == 1
    assert_well(daemon)


def test_a_reader_without_memory_costs_its_call_alone(start_daemon, plugins):
    """RLIMIT_AS of the zygote, which it inherits: fault 102 says why."""
    daemon = start_daemon(plugins)
    document = large(24 << 20)
    zygote = daemon.zygote
    for each in zygotes(daemon):
        size = virtual_size(each) + (24 << 20)
        resource.prlimit(each, resource.RLIMIT_AS, (size, size))
    with daemon.proxy() as proxy:

        def read() -> object:
            try:
                return proxy.runFilters(["Keeps"], document, "vm-1", {})
            except Fault as fault:
                return fault

        def refused() -> bool:
            found = read()  # spare processes are from before
            return isinstance(found, Fault) and found.faultCode == 102 and "memory" in str(found)

        until(refused, daemon)
        assert proxy.runFilters(["Keeps"], IDS, "vm-1", {}) == IDS[:1]
        assert proxy.runFilters(["Keeps"], HOSTS, "vm-1", {}) == IDS[:1]
        assert daemon.zygote == zygote
        os.kill(zygote, signal.SIGKILL)  # the next has no such limit
        until(lambda: read() == ["0"], daemon)
    assert_well(daemon)


def test_without_memory_the_kernel_ends_calls_before_the_daemon(start_daemon, plugins):
    """What is below the daemon counts as larger than it is (proc(5), oom_score_adj)."""
    daemon = start_daemon(plugins)

    def adjusted(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text("ascii"))

    assert {adjusted(pid) for pid in at_rest(daemon)} == {max(500, adjusted(daemon.pid))}


# More than there is room for


def test_when_as_many_wait_as_may_the_next_is_refused_at_once(start_daemon, plugins):
    """Fault 104 with the number, and no wait (contract 1.5); those that wait are served."""
    (plugins / "Waits.py").write_text(
        "import pathlib, time\n"
        "def do_filter(hosts, vm, properties):\n"
        "    while not pathlib.Path(properties['until']).exists():\n"
        "        time.sleep(0.01)\n"
        "    return hosts[:1]\n"
    )
    daemon = start_daemon(plugins, "max_parallel_calls = 1\nmax_waiting = 2")
    go = {"until": str(plugins / "go")}

    def call() -> object:
        with daemon.proxy() as proxy:
            try:
                return len(proxy.runFilters(["Waits"], IDS, "vm-1", go))
            except Fault as fault:
                return fault

    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(call) for _ in range(4)]  # one runs, two wait
        until(lambda: any(one.done() for one in calls), daemon)
        (plugins / "go").touch()
        answers = [one.result(LONG) for one in calls]
    (refused,) = [answer for answer in answers if isinstance(answer, Fault)]
    assert refused.faultCode == 104
    assert "as many requests wait already as max_waiting allows, 2;" in refused.faultString
    assert answers.count(1) == 3
    assert_well(daemon)
