"""The ends of an executor's processes, by SIGKILL and SIGSTOP as well: what fails then, and what not."""

from __future__ import annotations

import contextlib
import errno
import math
import operator
import os
import resource
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from ovirt_scheduler.errors import ExecutorUnavailable, Overloaded
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.results import CallOutcome
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.processes import pool
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.processes.timing import TIMES
from tests.support.command import script
from tests.support.jobs import HOSTS, LIMITS, job_of, only, running
from tests.support.processes import SPARE_BELOW, offspring, zygote_of
from tests.support.waiting import LONG, wait_until

CLOSED = "closed descriptor 3, which connects its process with the daemon"


def test_a_zygote_killed_in_the_middle_fails_the_calls_under_way_alone(
    executor, unit_named, unit_of, tmp_path
):
    """kill -9: the call under way is a failure at once, and the next one works."""
    unit = unit_of(
        "import time, pathlib\n"
        "def do_filter(hosts, vm, properties):\n"
        f"    pathlib.Path({str(tmp_path / 'running')!r}).touch()\n"
        "    time.sleep(3600)\n"
    )
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(executor.run, job_of([unit]))
        wait_until((tmp_path / "running").exists)
        before = zygote_of(executor)
        os.kill(before, signal.SIGKILL)
        result = only(call.result(LONG))
    assert (result.outcome, result.message) == (CallOutcome.KILLED, "ended with the zygote")
    assert result.seconds > 0
    assert only(executor.run(job_of([unit_named("keeps_all")]))).value == HOSTS
    assert zygote_of(executor) != before


def test_a_stopped_zygote_is_replaced_and_its_request_served_by_the_next(own_with, unit_of):
    """SIGSTOP: it gives no sign of life when a request hears nothing."""
    executor = own_with(quiet=0.2, obey=0.5)
    # Processes that were forked before are used first.
    text = "def do_filter(hosts, vm, properties): return hosts"
    units = [unit_of(text, f"p{number}") for number in range(pool.SPARE + 1)]
    stopped = zygote_of(executor)
    os.kill(stopped, signal.SIGSTOP)
    for unit in units:
        assert only(executor.run(job_of([unit]))).value == HOSTS
    assert zygote_of(executor) != stopped


def test_a_call_that_ends_while_the_zygote_is_stopped_ended_with_it(own_with, unit_of):
    """Nobody could tell how, and the zygote is replaced."""
    own = own_with(end=0.2, obey=0.5)
    unit = unit_of(
        "import os, signal\n"
        "def do_filter(hosts, vm, properties):\n"
        "    os.kill(os.getppid(), signal.SIGSTOP)\n"
        "    os.execv('/bin/sleep', ['sleep', '600'])\n"
    )
    result = only(own.run(job_of([unit])))
    assert (result.outcome, result.message) == (CallOutcome.KILLED, "ended with the zygote")


def test_a_zygote_that_works_is_asked_and_stays(own_with, unit_named):
    """A call that takes its time is no sign of a zygote that hangs."""
    executor = own_with(quiet=0.1, obey=3.0)
    zygote = zygote_of(executor)
    unit = unit_named("sleeps_forever", limits=replace(LIMITS, timeout=1.5))
    assert only(executor.run(job_of([unit]))).outcome is CallOutcome.TIMED_OUT
    assert zygote_of(executor) == zygote


def descriptors_at_rest(zygote: int) -> set[int]:
    """Those of a zygote that forks nothing just now: it has the daemon's socket alone."""
    targets = {}
    for each in Path(f"/proc/{zygote}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets[int(each.name)] = str(each.readlink())
    sockets = [target for target in targets.values() if target.startswith("socket:")]
    return {*targets} if len(sockets) == 1 else set()


def test_a_call_ends_where_another_of_its_request_gets_no_process(unit_named, tmp_path):
    """Nobody waits for it any more; the zygote has no descriptors for the other."""
    for number in range(5):
        (tmp_path / f"p{number}.py").write_text(
            "import os, time\n"
            "def do_score(hosts, vm, properties):\n"
            "    print(os.getpid())\n"
            "    time.sleep(float(properties['seconds']))\n"
            "    return {}\n"
        )
    units = [
        unit_named(f"p{number}", Kind.COST_FUNCTION, replace(LIMITS, timeout=60.0), tmp_path)
        for number in range(5)
    ]
    times = TIMES._replace(patience=5.0)  # the machine may be busy
    with running(parallel=10, max_waiting=8, times=times) as own:
        pid = int(only(own.run(job_of(units[:1], properties={"seconds": "0"}))).stdout)
        taken = wait_until(lambda: descriptors_at_rest(zygote_of(own)))
        room = [number for number in range(len(taken) + 2) if number not in taken][:2]
        few = max(room) + 1  # room for two; each process takes three
        resource.prlimit(zygote_of(own), resource.RLIMIT_NOFILE, (few, few))
        with pytest.raises(ExecutorUnavailable, match="Too many open files"):
            own.run(job_of(units, properties={"seconds": "3600"}))
        wait_until(lambda: offspring(zygote_of(own)), suits=lambda seen: pid not in seen)


def test_a_process_that_cut_documents_is_not_kept_and_its_end_is_no_failure(own):
    """It ends by itself when it has answered."""
    assert own.split("splitting:split", [Document(b"<hosts><host id='a'/></hosts>")]) != [None]
    state = own.state()
    assert (state.of_plugins, state.replaced) == (0, {})


def test_who_replaces_a_zygote_does_not_wait_until_the_next_has_started(own, monkeypatch):
    """A request has its own time; the watching thread tries for minutes."""
    forked = threading.Event()
    waited: list[bool] = []
    monkeypatch.setattr(own._forker, "_on_death", lambda: waited.append(forked.wait(LONG)))
    monkeypatch.setattr(
        own._forker._zygote, "fork", mock.Mock(side_effect=OSError(errno.EPIPE, "Broken pipe"))
    )
    own._forker.fork(math.inf).close()
    forked.set()
    assert wait_until(lambda: waited) == [True]


def test_a_zygotes_death_costs_no_process_of_the_next(own, unit_named):
    """It may be told when the next one has forked already."""
    unit = unit_named("tells_its_pid")
    own.prewarm([(unit.plugin, unit.limits)])
    of_next = wait_until(
        lambda: offspring(zygote_of(own)), suits=lambda seen: len(seen) == 1 + SPARE_BELOW
    )
    own._forker._on_death()
    assert int(only(own.run(job_of([unit]))).stdout) in of_next


def test_closing_leaves_no_descriptor_open():
    """Neither of processes that were used, nor of those that nobody used yet."""
    code = (
        "import gc, os\n"
        "from ovirt_scheduler.processes.executor import Executor\n"
        "from ovirt_scheduler.daemon.watchdog import _PROBE\n"
        "def count():\n"
        "    own = Executor(parallel=2, max_waiting=2)\n"
        "    own.start()\n"
        "    for _ in range(5):\n"
        "        assert own.analyse(_PROBE).fault is None\n"
        "    own.close()\n"
        "    gc.collect()\n"
        "    return len(os.listdir('/proc/self/fd'))\n"
        "print(count() - count())\n"
    )
    ended = script(code)
    assert ended.stdout == "0\n", ended.stderr


def test_closing_ends_every_process(unit_named, unit_of, tmp_path):
    """A call under way and its zygote are gone when close() returns."""
    running = tmp_path / "running"
    unit = unit_of(
        "import pathlib, time\n"
        "def do_filter(hosts, vm, properties):\n"
        f"    pathlib.Path({str(running)!r}).touch()\n"
        "    time.sleep(3600)\n"
    )
    closing = Executor(parallel=1, max_waiting=1)
    closing.start()
    zygote = zygote_of(closing)
    thread = threading.Thread(target=closing.run, args=(job_of([unit]),))
    thread.start()
    wait_until(running.exists)
    below = offspring(zygote)
    closing.close()
    thread.join(LONG)
    assert not thread.is_alive()
    assert [pid for pid in (zygote, *below) if Path(f"/proc/{pid}").exists()] == []
    with pytest.raises(Overloaded, match="shutting down"):
        closing.run(job_of([unit_named("keeps_all")]))


def test_a_request_that_closing_cuts_off_is_told_of_the_end(unit_named):
    """One that had not begun would have been tried again: fault 104 (contract 1.5)."""
    unit = unit_named("keeps_all")
    closing = Executor(parallel=1, max_waiting=1)
    closing.start()
    # All that are forked ahead: one that is not stopped would answer.
    wait_until(lambda: offspring(zygote_of(closing)), suits=lambda seen: len(seen) == SPARE_BELOW)
    for pid in offspring(zygote_of(closing)):
        os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(closing.run, job_of([unit]))
        wait_until(lambda: closing._slots._free, suits=operator.not_)
        closing.close()
        with pytest.raises(Overloaded, match="shutting down"):
            request.result(LONG)


def test_a_plugin_that_closes_its_descriptors_and_works_on_is_ended_at_once(executor, unit_of):
    """Nobody waits for what it still does: it can answer no more."""
    unit = unit_of(
        "import os, time\n"
        "def do_filter(hosts, vm, properties):\n"
        "    os.closerange(3, 256)\n"
        "    time.sleep(3600)\n"
    )
    result = only(executor.run(job_of([unit])))
    assert (result.outcome, result.message) == (CallOutcome.KILLED, CLOSED)


def test_no_answer_is_written_to_a_file_in_the_place_of_the_connection(executor, unit_of, tmp_path):
    """A child holds the connection open, so that nothing but the file itself tells the difference."""
    unit = unit_of(
        "import os\n"
        "def do_filter(hosts, vm, properties):\n"
        "    if not os.fork():\n"
        "        os.read(os.pipe()[0], 1)\n"
        "    os.close(3)\n"
        f"    assert os.open({str(tmp_path / 'file')!r}, os.O_RDWR | os.O_CREAT) == 3\n"
        "    return hosts\n"
    )
    result = only(executor.run(job_of([unit])))
    assert (result.outcome, result.message) == (CallOutcome.KILLED, CLOSED)
    assert (tmp_path / "file").read_bytes() == b""


def test_closing_tells_of_no_single_process(unit_of, caplog):
    """All end with the daemon, and that is no news of any plugin."""
    caplog.set_level("DEBUG")
    unit = unit_of("def do_filter(hosts, vm, properties): return hosts")
    closing = Executor(parallel=2, max_waiting=2)
    closing.start()
    assert only(closing.run(job_of([unit]))).value == HOSTS
    closing.close()
    assert "plugin.py is ended" not in caplog.text  # that of others may say that of their own


def test_an_interpreter_that_cannot_be_run_is_named(monkeypatch, tmp_path):
    """As where another user installed it; whoever reads that knows what to mend."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    told = (
        f"^the process that starts those of plugins cannot be had: {tmp_path}/python: No such file"
    )
    with pytest.raises(ExecutorUnavailable, match=told):
        Executor(parallel=1, max_waiting=1).start()
