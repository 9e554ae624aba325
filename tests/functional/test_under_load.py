"""What is done to the daemon while callers do not pause: it costs no call that was not running there."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Union
from xmlrpc.client import Fault

import pytest

from tests.support.clients import Clients
from tests.support.daemon import Daemon
from tests.support.keeping import HOSTS, IDS, KEEPS
from tests.support.processes import offspring
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

TIMES = 10  # that each harm is done


@pytest.fixture(scope="module")
def plugins(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    for name in ("Keeps", "Other"):
        (folder / f"{name}.py").write_text(KEEPS.format(1))
    return folder


@pytest.fixture(scope="module")
def daemon(start_daemon, plugins) -> Daemon:
    return start_daemon(plugins)


class Load(Clients):
    """Callers without a pause.

    Attributes:
        answers: how often so many hosts were kept, or there was a fault of that code (< 0).
    """

    def __init__(self, daemon: Daemon, hosts: Union[str, list[str]], callers: int = 4) -> None:
        super().__init__([self._call] * callers)
        self._daemon, self._hosts = daemon, hosts
        self.answers: Counter[int] = Counter()

    def __enter__(self) -> Load:
        super().__enter__()
        self.after(1)
        return self

    def _call(self) -> None:
        with self._daemon.proxy() as proxy:
            while not self.stopped.is_set():
                try:
                    kept = proxy.runFilters(["Keeps"], self._hosts, "vm-1", {})
                    self.answers[len(kept)] += 1
                except Fault as fault:
                    self.answers[-abs(fault.faultCode)] += 1

    def after(self, answer: int) -> None:
        """Wait until that was answered so often that each caller has begun a call after this."""
        before = self.answers[answer]
        wait_until(lambda: self.answers[answer] >= before + 8)


def called(daemon: Daemon, title: str) -> list[int]:
    """The processes below the daemon with that title."""
    found = []
    for pid in offspring(daemon.pid):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
            if line == f"ovirt-scheduler: {title}".encode():
                found.append(pid)
    return found


def kill(pids: list[int]) -> int:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


@pytest.mark.parametrize("hosts", [IDS, HOSTS], ids=["ids", "documents"])
def test_an_edit(daemon, plugins, hosts):
    """Each call is answered by the old version or by the new one."""
    with Load(daemon, hosts) as found:
        for number in range(TIMES):
            version = 1 + (number + 1) % 2
            (plugins / "Keeps.py").write_text(KEEPS.format(version))
            found.after(version)
    assert set(found.answers) == {1, 2}


def test_a_reload(daemon):
    """SIGHUP: as if there were none."""
    with Load(daemon, IDS) as found:
        for _ in range(TIMES):
            told = daemon.log.count("SIGHUP: ")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda told=told: daemon.log.count("SIGHUP: ") > told)
        found.after(1)
    assert set(found.answers) == {1}


def test_another_plugins_process_is_killed(daemon):
    """It is there again soon, and nobody else noticed."""
    with Load(daemon, IDS) as found, daemon.proxy() as proxy:
        for _ in range(TIMES):
            assert kill(wait_until(lambda: called(daemon, "plugin Other")))
            found.after(1)
            assert proxy.runFilters(["Other"], IDS, "vm-1", {}) == IDS[:1]
    assert set(found.answers) == {1}


def test_readers_are_killed(daemon):
    """Who gave no document does not notice; the others' calls are served, or fault 102."""
    many = "".join(f"<host id='host-{number}'/>" for number in range(5000))
    with Load(daemon, IDS, 2) as by_ids, Load(daemon, f"<hosts>{many}</hosts>", 2) as by_documents:
        killed = 0  # of those that take long enough to be seen
        while killed < TIMES:
            killed += kill(called(daemon, "reader"))
        by_ids.after(1)
        by_documents.after(1)
    assert set(by_ids.answers) == {1}
    assert set(by_documents.answers) <= {1, -102}


def test_the_zygote_is_killed(daemon):
    """What runs below it fails; whoever calls after that is served."""
    with Load(daemon, IDS) as found:
        for _ in range(3):
            (zygote,) = wait_until(
                lambda: called(daemon, "zygote"), suits=lambda found: len(found) == 1
            )
            failed = sum(found.answers.values()) - found.answers[1]
            os.kill(zygote, signal.SIGKILL)
            found.after(1)
            more = sum(found.answers.values()) - found.answers[1]
            assert more - failed <= 4  # one for each caller
    assert set(found.answers) <= {1, 3}
