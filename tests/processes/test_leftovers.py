"""What calls leave behind, and what stands in the way of its end: nobody else notices."""

from __future__ import annotations

import ctypes
import logging
import math
import operator
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Callable
from unittest import mock

import pytest

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.results import CallOutcome, CallResult
from ovirt_scheduler.model.units import PolicyUnit
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.timing import TIMES
from tests.support.jobs import HOSTS, LIMITS, job_of, only, running
from tests.support.processes import SPARE_BELOW, offspring, processes_with, zygote_of
from tests.support.waiting import LONG, wait_until

pytestmark = pytest.mark.long

CHAIN = """
import os, time

def link():
    os.setsid()
    open({trace!r}, "a").close()
    time.sleep({pause})

def chain():
    while True:
        if os.fork():
            os._exit(0)
        link()

def do_filter(hosts, vm, properties):
    for _ in range({chains}):
        if not os.fork():
            chain()
    while not os.path.exists({trace!r}):
        time.sleep(0.01)
    {then}
    return hosts
"""


class Chains:
    """A plugin whose call starts processes that fork, exit, and are a session's leaders each."""

    def __init__(self, folder: Path, unit_named: Callable[..., PolicyUnit]) -> None:
        self._folder = folder
        self._unit_named = unit_named
        self.trace = folder / "trace"

    def unit(self, chains: int, pause: float, then: str = "pass") -> PolicyUnit:
        code = CHAIN.format(trace=str(self.trace), pause=pause, chains=chains, then=then)
        (self._folder / "Chains.py").write_text(code)
        return self._unit_named("Chains", folder=self._folder, limits=replace(LIMITS, timeout=2.0))

    def are_over(self, executor: Executor) -> bool:
        """Whether no link is left: none leaves a trace, in the time of another call."""
        self.trace.unlink(missing_ok=True)
        assert only(executor.run(job_of([self._unit_named("keeps_all")]))).value == HOSTS
        return not self.trace.exists()


@pytest.fixture
def chains(tmp_path, unit_named) -> Chains:
    return Chains(tmp_path, unit_named)


@pytest.mark.parametrize(("number", "pause"), [(1, 0.0), (3, 0.002), (1, 0.05)])
def test_a_chain_of_forks_does_not_outlive_its_call(own, chains, number, pause):
    """Each link is another process, in a session of its own, whose parent is gone."""
    for _ in range(3):
        result = only(own.run(job_of([chains.unit(number, pause)])))
        assert (result.outcome, result.value) == (CallOutcome.OK, HOSTS)
        assert chains.are_over(own)


def test_a_chain_of_forks_does_not_keep_its_call_past_its_time(own, chains):
    """Nor what the call itself does."""
    unit = chains.unit(2, 0.001, then="time.sleep(3600)")
    result = only(own.run(job_of([unit])))
    assert result.outcome is CallOutcome.TIMED_OUT
    assert re.fullmatch(
        r"was killed after 2\.\d s, in do_filter \(\w+\.py:\d+\); its timeout is 2 s",
        result.message,
    )
    assert chains.are_over(own)


def test_chains_of_forks_confuse_nobody_who_reaps(own, chains, unit_named):
    """How other processes end is told rightly, while thousands come and go."""
    chained = chains.unit(2, 0.0)
    units = [unit_named(name) for name in ("exits_at_once", "dies_by_signal", "keeps_all")]
    done = threading.Event()

    def chain() -> int:
        times = 0
        while not done.is_set():
            assert only(own.run(job_of([chained]))).value == HOSTS
            times += 1
        return times

    with ThreadPoolExecutor(2) as threads:
        chain_calls = threads.submit(chain)
        found = set()
        for _ in range(10):
            for unit in units:
                result = only(own.run(job_of([unit])))
                found.add((result.unit, result.message))
        done.set()
        assert chain_calls.result(LONG) > 0
    assert found == {
        ("exits_at_once", "ended its process without an answer (exit status 0)"),
        ("dies_by_signal", "died by SIGSEGV"),
        ("keeps_all", ""),
    }


def test_hundreds_of_processes_that_a_call_leaves_are_gone_with_it(own, unit_of):
    """Some have ended, which nobody has reaped; others are in sessions of their own."""
    unit = unit_of(
        "import os, time\n"
        "def do_filter(hosts, vm, properties):\n"
        "    for number in range(400):\n"
        "        if not os.fork():\n"
        "            if number % 5 == 0:\n"
        "                os.setsid()\n"
        "                time.sleep(3600)\n"
        "            os._exit(0)\n"
        "    return hosts\n",
        timeout=60.0,
    )
    result = only(own.run(job_of([unit], seconds=60.0)))
    assert result.value == HOSTS
    assert len(offspring(zygote_of(own))) <= 2 + SPARE_BELOW


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the call has its number")
def test_a_child_that_a_call_made_the_zygotes_is_ended(own, unit_of):
    """Its parent in the kernel's eyes is the zygote, so the call's process does not see it."""
    unit = unit_of(
        "import ctypes, signal, time\n"
        "CLONE, CLONE_PARENT = 56, 0x8000\n"
        "def do_filter(hosts, vm, properties):\n"
        "    flags = CLONE_PARENT | signal.SIGCHLD\n"
        "    pid = ctypes.CDLL(None).syscall(CLONE, flags, 0, 0, 0, 0)\n"
        "    if not pid:\n"
        "        time.sleep(3600)\n"
        "    print(pid)\n"
        "    return hosts\n"
    )
    own.prewarm([(unit.plugin, unit.limits)])  # no process ends, which would have the zygote look
    wait_until(lambda: own._pool.of_plugins)
    zygote = own._forker._zygote
    for _ in range(3):
        result = only(own.run(job_of([unit])))
        assert result.value == HOSTS
        own.wait_until_idle(LONG)
        # With something to do all the time it has no leisure in which it would look by itself.
        child = Path(f"/proc/{int(result.stdout)}")
        wait_until(lambda its=child: zygote.check_alive() and not its.exists())


def test_the_zygote_is_told_to_sweep_only_if_it_may_have_others(own_with, unit_named, monkeypatch):
    """Its children are read with each answer, and are its workers."""
    own = own_with(patience=5.0)  # the machine may be busy
    unit = unit_named("keeps_all")
    own.prewarm([(unit.plugin, unit.limits)])
    wait_until(lambda: len(offspring(zygote_of(own))), suits=lambda count: count == 1 + SPARE_BELOW)
    own.wait_until_idle(LONG)
    zygote = own._forker._zygote
    told: list[bytes] = []
    control = zygote._control
    send = mock.Mock(side_effect=lambda data, *_: told.append(data) or control.send(data))
    monkeypatch.setattr(zygote, "_control", mock.Mock(wraps=control, send=send))

    def sweeps() -> int:
        return sum(order[:1] == frames.SWEEP for order in told)

    wait_until(lambda: own.run(job_of([unit])) and zygote._is_settled)
    told.clear()
    for _ in range(20):
        own.run(job_of([unit]))
    assert sweeps() == 0
    one_more = own._forker.fork(math.inf)
    wait_until(lambda: len(offspring(zygote.pid)), suits=lambda count: count == 2 + SPARE_BELOW)
    own.run(job_of([unit]))
    assert sweeps() == 1
    one_more.abandon()


SEIZE = 0x4206  # ptrace(2)


class Held:
    """A process that cannot end entirely: who traces it keeps it from being reaped."""

    def __init__(self, pid: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        if libc.ptrace(SEIZE, pid, None, None) != 0:
            pytest.skip(f"no process can be traced: {os.strerror(ctypes.get_errno())}")
        self._pid = pid

    def let_go(self) -> None:
        os.waitpid(self._pid, 0x40000000)  # __WALL


def call_whose_child_is_held(
    executor: Executor, unit: PolicyUnit, marker: str, go: Path
) -> tuple[Held, CallResult]:
    with ThreadPoolExecutor(1) as threads:
        properties = {"marker": marker, "go": str(go)}
        call = threads.submit(executor.run, job_of([unit], properties=properties))
        (pid,) = wait_until(lambda: processes_with(marker))
        held = Held(pid)
        go.touch()
        return held, only(call.result(LONG))


def test_what_cannot_be_ended_is_told_and_holds_up_its_own_call_alone(
    own, unit_named, unit_of, marker, tmp_path, caplog
):
    """In the log; the call's answer waits some seconds for it, and nobody else's does."""
    unit = unit_of(
        "import os, subprocess, time\n"
        "def do_filter(hosts, vm, properties):\n"
        "    subprocess.Popen(['sleep', properties['marker']], start_new_session=True)\n"
        "    while not os.path.exists(properties['go']):\n"
        "        time.sleep(0.01)\n"
        "    return hosts\n"
    )
    held, result = call_whose_child_is_held(own, unit, marker, tmp_path / "go")
    try:
        assert result.value == HOSTS
        assert f"what a call of {tmp_path / 'plugin.py'} left behind does not end" in caplog.text
        caplog.clear()
        for _ in range(
            3
        ):  # each of which ends a process; what is left of another is not told again
            assert (
                only(own.run(job_of([unit_named("dies_by_signal")]))).message == "died by SIGSEGV"
            )
        assert "does not end" not in caplog.text
    finally:
        held.let_go()
    wait_until(lambda: processes_with(marker), suits=operator.not_)
    wait_until(lambda: offspring(zygote_of(own)), suits=lambda seen: len(seen) <= 2 + SPARE_BELOW)


def test_a_plugins_process_that_does_not_end_is_told(
    own_with, unit_named, unit_of, tmp_path, caplog
):
    """Killed, and still there: the call is over all the same."""
    own = own_with(end=0.5)
    running = tmp_path / "running"
    unit = unit_of(
        "import os, pathlib, time\n"
        "def do_filter(hosts, vm, properties):\n"
        f"    pathlib.Path({str(running)!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(3600)\n",
        timeout=1.0,
    )
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(own.run, job_of([unit]))
        held = Held(int(wait_until(lambda: running.exists() and running.read_text())))
        try:
            assert only(call.result(LONG)).outcome is CallOutcome.TIMED_OUT
            assert (
                f"a process of {tmp_path / 'plugin.py'} was killed and does not end" in caplog.text
            )
            zygote = zygote_of(own)
            assert only(own.run(job_of([unit_named("keeps_all")]))).value == HOSTS
            assert zygote_of(own) == zygote
        finally:
            held.let_go()


def test_closing_does_not_wait_for_a_zygote_that_is_starting():
    """It is ended, though it has not said yet that it lives."""
    starting = Executor(parallel=1, max_waiting=1)
    failed: list[ExecutorUnavailable] = []

    def start() -> None:
        try:
            starting.start()
        except ExecutorUnavailable as error:
            failed.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    zygote = wait_until(lambda: zygote_of(starting))
    os.kill(zygote, signal.SIGSTOP)
    began = time.monotonic()
    starting.close()
    assert time.monotonic() - began < TIMES.start / 2
    thread.join(5)
    assert not thread.is_alive()
    assert len(failed) == 1
    assert not Path(f"/proc/{zygote}").exists()


def stopped_while_it_starts(executor):
    """The pid of a new zygote, which stands still; the former one is killed."""
    before = zygote_of(executor)
    os.kill(before, signal.SIGKILL)
    starting = wait_until(lambda: zygote_of(executor) not in (None, before) and zygote_of(executor))
    os.kill(starting, signal.SIGSTOP)
    return starting


def test_a_zygote_that_is_killed_while_it_starts_costs_no_request(own, unit_named):
    """Who waits for it gets the next one."""
    unit = unit_named("keeps_all")
    starting = stopped_while_it_starts(own)
    with ThreadPoolExecutor(1) as threads:
        request = threads.submit(own.run, job_of([unit]))
        os.kill(starting, signal.SIGKILL)
        assert only(request.result(LONG)).value == HOSTS
    wait_until(lambda: zygote_of(own) != starting)  # its end may be heard of later


def test_a_zygote_that_is_killed_whenever_it_starts_is_told_as_that():
    """It has said nothing, and nobody is sent to look for that."""
    starting = Executor(parallel=1, max_waiting=1, times=TIMES._replace(starts=1))
    with ThreadPoolExecutor(1) as threads:
        started = threads.submit(starting.start)
        os.kill(wait_until(lambda: zygote_of(starting)), signal.SIGKILL)
        with pytest.raises(ExecutorUnavailable, match=r"^the zygote died by SIGKILL while"):
            started.result()
    starting.close()


def test_who_waits_for_a_zygote_that_starts_waits_no_longer_than_its_time(own, unit_named):
    """However long that takes; who has more time is served when it has started."""
    unit = unit_named("keeps_all")
    starting = stopped_while_it_starts(own)
    with ThreadPoolExecutor(1) as threads:
        patient = threads.submit(own.run, job_of([unit]))
        began = time.monotonic()
        with pytest.raises(ExecutorUnavailable, match=f"{starting}.* was not ready in time"):
            own.run(job_of([unit], seconds=0.2))
        assert time.monotonic() - began < TIMES.start / 2
        os.kill(starting, signal.SIGCONT)
        assert only(patient.result(LONG)).value == HOSTS
    assert zygote_of(own) == starting


def test_a_zygote_that_is_not_ready_in_time_is_told_as_that():
    """It has said nothing: the message sends nobody to look for that."""
    starting = Executor(parallel=1, max_waiting=1, times=TIMES._replace(start=0.001))
    with pytest.raises(ExecutorUnavailable, match=r"not ready after 0.001 s, and was killed"):
        starting.start()
    starting.close()


def test_a_stopped_zygote_holds_up_nobody_who_has_a_message_for_it(unit_named, caplog):
    """However many there are already: it is replaced."""
    caplog.set_level(logging.ERROR)
    with running(parallel=4, max_waiting=64, times=TIMES._replace(obey=1.0)) as stuck:
        zygote = zygote_of(stuck)
        os.kill(zygote, signal.SIGSTOP)
        worker = stuck._pool.take(None, math.inf)
        for _ in range(5000):
            worker.kill()
            if "gives no sign of life" in caplog.text:
                break
        worker.close()
        document = Document(b"<hosts><host id='a'/></hosts>")
        result = only(stuck.run(job_of([unit_named("keeps_all")], hosts=document)))
        assert result.value == ("a",)
        assert zygote_of(stuck) != zygote
