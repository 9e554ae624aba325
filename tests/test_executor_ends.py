"""The ends of an executor's processes, by SIGKILL and SIGSTOP as well: what fails then, and what not."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LIMITS, offspring, processes_with
from jobs import HOSTS, job_of, only
from waiting import wait_until

from ovirt_scheduler import zygote_client
from ovirt_scheduler.errors import Overloaded
from ovirt_scheduler.executor import Executor
from ovirt_scheduler.model import Document, Outcome


def test_a_zygote_killed_in_the_middle_fails_the_calls_under_way_alone(
    executor, unit_named, marker, tmp_path
):
    """kill -9: the call under way is a failure at once, the next one works, nothing is left."""
    path = tmp_path / "tells_and_sleeps.py"
    path.write_text(
        "import subprocess, time, pathlib\n"
        "def do_filter(hosts, vm, properties):\n"
        "    subprocess.Popen(['sleep', properties['marker']], start_new_session=True)\n"
        f"    pathlib.Path({str(tmp_path / 'running')!r}).touch()\n"
        "    time.sleep(3600)\n"
    )
    unit = unit_named(path.stem, folder=tmp_path)
    found = []
    thread = threading.Thread(
        target=lambda: found.append(executor.run(job_of([unit], properties={"marker": marker})))
    )
    thread.start()
    wait_until((tmp_path / "running").exists)
    before = executor.zygote_pid
    os.kill(before, signal.SIGKILL)
    thread.join(timeout=5)
    (execution,) = found
    assert only(execution).outcome is Outcome.KILLED
    assert only(execution).message == "the process of its request ended with the zygote"
    assert only(execution).seconds > 0
    assert only(executor.run(job_of([unit_named("keeps_all")]))).value == HOSTS
    assert executor.zygote_pid != before
    wait_until(lambda: processes_with(marker) == [])


def test_a_stopped_zygote_is_replaced_and_its_request_served_by_the_next(
    executor, unit_named, monkeypatch
):
    """SIGSTOP: it gives no sign of life when a request hears nothing."""
    monkeypatch.setattr(zygote_client, "_QUIET", 0.2)
    monkeypatch.setattr(zygote_client, "_OBEY_SECONDS", 0.5)
    stopped = executor.zygote_pid
    unit = unit_named("keeps_all")
    os.kill(stopped, signal.SIGSTOP)
    found = executor.run(job_of([unit], hosts=Document(b"<hosts><host id='a'/></hosts>")))
    assert only(found).value == ("a",)
    assert executor.zygote_pid != stopped


def test_a_zygote_that_works_is_asked_and_stays(executor, unit_named, monkeypatch):
    """A call that takes its time is no sign of a zygote that hangs."""
    monkeypatch.setattr(zygote_client, "_QUIET", 0.1)
    monkeypatch.setattr(zygote_client, "_OBEY_SECONDS", 3.0)
    zygote = executor.zygote_pid
    unit = unit_named("sleeps_forever", limits=replace(LIMITS, timeout=1.5))
    assert only(executor.run(job_of([unit]))).outcome is Outcome.TIMED_OUT
    assert executor.zygote_pid == zygote


def test_a_request_process_killed_in_the_middle_fails_that_request_alone(
    executor, unit_named, marker, tmp_path
):
    """kill -9 of the request's process: what it was running goes with it."""
    path = tmp_path / "kills_its_parent.py"
    path.write_text(
        "import os, signal, subprocess, time\n"
        "def do_filter(hosts, vm, properties):\n"
        "    subprocess.Popen(['sleep', properties['marker']], start_new_session=True)\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(3600)\n"
    )
    unit = unit_named(path.stem, folder=tmp_path)
    units = [unit, unit_named("keeps_all")]
    first, second = executor.run(job_of(units, properties={"marker": marker})).results
    assert first.message == second.message == "the process of its request died by SIGKILL"
    wait_until(lambda: processes_with(marker) == [])
    assert only(executor.run(job_of([unit_named("keeps_all")]))).value == HOSTS


def test_closing_ends_every_process(unit_named, tmp_path):
    """A call under way and its zygote are gone when close() returns."""
    running = tmp_path / "running"
    (tmp_path / "tells_and_sleeps.py").write_text(
        "import pathlib, time\n"
        "def do_filter(hosts, vm, properties):\n"
        f"    pathlib.Path({str(running)!r}).touch()\n"
        "    time.sleep(3600)\n"
    )
    unit = unit_named("tells_and_sleeps", folder=tmp_path)
    closing = Executor(parallel=1, max_waiting=1)
    closing.start()
    zygote = closing.zygote_pid
    thread = threading.Thread(target=closing.run, args=(job_of([unit]),))
    thread.start()
    wait_until(running.exists)
    below = offspring(zygote)
    closing.close()
    thread.join(timeout=5)
    assert not thread.is_alive()
    assert [pid for pid in (zygote, *below) if Path(f"/proc/{pid}").exists()] == []
    with pytest.raises(Overloaded, match="shutting down"):
        closing.run(job_of([unit_named("keeps_all")]))


def test_a_request_that_closing_cuts_off_is_told_of_the_end(unit_named):
    """One that had not begun would have been tried again: fault 104 (contract 1.5)."""
    unit = unit_named("keeps_all")
    closing = Executor(parallel=1, max_waiting=1)
    closing.start()
    for pid in wait_until(lambda: offspring(closing.zygote_pid)):  # forked when it is asked to
        os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(closing.run, job_of([unit]))
        wait_until(lambda: not closing._slots._free)
        closing.close()
        with pytest.raises(Overloaded, match="shutting down"):
            request.result(30)
