"""Processes below the daemon that are killed or stopped: it costs the calls that they carry.

docs/testing.md has the table of such troubles.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable
from xmlrpc.client import Fault

import pytest

from tests.support.daemon import Daemon
from tests.support.keeping import AT_REST, HOSTS, IDS, KEEPS, assert_well, at_rest, kept, until
from tests.support.processes import offspring, processes_with
from tests.support.waiting import LONG

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def sturdy(start_daemon) -> Daemon:
    """A daemon for many tests, with a filter whose process starts another, and waits."""
    waits = (
        "import subprocess, time\n"
        "def do_filter(hosts, vm, properties):\n"
        "    subprocess.Popen(['sleep', properties['marker']], start_new_session=True)\n"
        "    time.sleep(3600)\n"
    )
    return start_daemon({"Keeps": KEEPS.format(1), "Waits": waits})


def killed(daemon: Daemon, marker: str, victims: Callable[[], Iterable[int]]) -> list[str]:
    """Kill while a call is under way; the ids that it is answered with."""
    with daemon.proxy() as proxy, ThreadPoolExecutor() as pool:
        call = pool.submit(proxy.runFilters, ["Waits"], IDS, "vm-1", {"marker": marker})
        until(lambda: processes_with(marker), daemon)
        for pid in victims():
            with contextlib.suppress(ProcessLookupError):  # the one above it was faster
                os.kill(pid, signal.SIGKILL)
        return call.result(LONG)


@pytest.mark.parametrize("victims", ["process", "zygote", "both"])
def test_what_is_killed_in_a_call_is_an_error_of_that_call_alone(sturdy, marker, victims):
    """No process of the call lives on, whoever is killed with it; the next call works."""

    def chosen() -> list[int]:
        (sleeper,) = processes_with(marker)
        process, zygote = above(sleeper, sturdy.pid)
        return {"process": [process], "zygote": [zygote], "both": [zygote, process]}[victims]

    assert killed(sturdy, marker, chosen) == IDS
    assert re.search(
        "filter Waits killed after .*(died by SIGKILL|ended with the zygote)", sturdy.log
    )
    until(lambda: not processes_with(marker), sturdy)
    assert kept(sturdy) == 1
    at_rest(sturdy, 2)
    assert "Traceback" not in sturdy.log


def above(pid: int, top: int) -> list[int]:
    """The pids of the parents of a process, up to the child of ``top``."""
    found = []
    while True:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
        pid = int(stat[stat.rindex(")") + 2 :].split()[1])
        if pid == top:
            return found
        found.append(pid)


def test_what_is_stopped_costs_a_call_its_time_and_no_more(start_daemon):
    """SIGSTOP of what waits for a call or a document: it is killed when its time is over."""
    daemon = start_daemon({"Keeps": KEEPS.format(1)}, "plugin_timeout = 1\nrequest_timeout = 2")
    assert kept(daemon) == 1
    stopped = set(at_rest(daemon)) - {daemon.zygote}
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    failed = 0
    assert kept(daemon) == len(IDS)
    with daemon.proxy() as proxy:
        for hosts in (IDS, HOSTS):
            answer: object = None
            while answer != IDS[:1]:
                failed += 1
                assert failed <= len(stopped)
                with contextlib.suppress(Fault):  # of a document
                    answer = proxy.runFilters(["Keeps"], hosts, "vm-1", {})
                    assert answer in (IDS, IDS[:1])
    assert_well(daemon)


def kill_one(chosen: random.Random, daemon: Daemon) -> None:
    with contextlib.suppress(ProcessLookupError, IndexError):  # IndexError: none is there just now
        os.kill(chosen.choice(offspring(daemon.pid)), signal.SIGKILL)


def test_processes_killed_at_random_cost_only_the_calls_they_carry(sturdy):
    """A call is answered rightly, or with what the contract has for one that was killed."""
    chosen = random.Random(7)
    answers: Counter[int] = Counter()
    done = threading.Event()

    def call() -> None:
        with sturdy.proxy() as proxy:
            while not done.is_set():
                with contextlib.suppress(Fault):
                    answers[
                        len(proxy.runFilters(["Keeps"], chosen.choice([IDS, HOSTS]), "v", {}))
                    ] += 1

    with ThreadPoolExecutor() as pool:
        callers = [pool.submit(call) for _ in range(4)]
        try:
            for _ in range(25):
                good = answers[1]
                kill_one(chosen, sturdy)
                until(lambda good=good: answers[1] > good, sturdy)
        finally:
            done.set()
        for caller in callers:
            caller.result(LONG)
    assert set(answers) <= {1, 3}
    assert kept(sturdy) == 1
    until(lambda: len(offspring(sturdy.pid)) <= AT_REST + 2, sturdy)
    assert "Traceback" not in sturdy.log
