"""Where the kernel has no memory for a process, a task or an answer: an executor loses nothing."""

from __future__ import annotations

import errno
import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from unittest import mock

import pytest

from ovirt_scheduler.daemon.watchdog import _PROBE
from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.results import CallOutcome
from ovirt_scheduler.model.tasks import Setup
from ovirt_scheduler.processes import exchange, pool
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.timing import TIMES
from ovirt_scheduler.processes.worker_handle import Worker
from tests.support.jobs import HOSTS, job_of, only
from tests.support.processes import SPARE_BELOW, offspring, zygote_of
from tests.support.waiting import wait_until


def once(error: BaseException, then: Callable[[Worker], None]) -> Callable[[Worker], None]:
    errors = [error]

    def fail(worker: Worker) -> None:
        if errors:
            raise errors.pop()
        then(worker)

    return fail


def test_a_process_that_cannot_be_set_up_is_given_back(own, unit_named, monkeypatch):
    """The kernel has no memory for what is sent: the call fails, its process ends."""
    unit = unit_named("keeps_all")
    with monkeypatch.context() as patched:
        patched.setattr(
            Worker, "send", mock.Mock(side_effect=OSError(errno.ENOBUFS, "No buffer space"))
        )
        result = only(own.run(job_of([unit])))
    assert result.message == "its task cannot be sent: No buffer space"
    assert own._pool._busy == {}
    assert only(own.run(job_of([unit]))).value == HOSTS


def test_a_reader_whose_task_cannot_be_sent_is_no_fault_of_the_documents(
    own, unit_named, monkeypatch
):
    """The kernel has no memory for what is sent."""
    job = job_of([unit_named("keeps_all")], hosts=Document(b"<hosts><host id='a'/></hosts>"))
    monkeypatch.setattr(
        Worker, "send", mock.Mock(side_effect=OSError(errno.ENOBUFS, "No buffer space"))
    )
    with pytest.raises(ExecutorUnavailable, match="documents cannot be read: its task cannot be"):
        own.run(job)


def test_setups_for_which_there_is_no_memory_leave_no_processes(own, unit_named, monkeypatch):
    """They are tried again now and then, and each would leave one."""
    unit, times, pack_task = unit_named("keeps_all"), [], frames.pack_task
    wait_until(lambda: len(offspring(zygote_of(own))), suits=lambda count: count == SPARE_BELOW)

    def packed(task: object, nonce: int) -> memoryview:
        if isinstance(task, Setup):
            times.append(time.monotonic())
            raise MemoryError  # noqa: TRY004  not for its type
        return pack_task(task, nonce)

    with monkeypatch.context() as patched:
        patched.setattr(frames, "pack_task", packed)
        own.prewarm([(unit.plugin, unit.limits)])
        wait_until(lambda: times, suits=lambda tried: len(tried) > 3)
        assert len(offspring(zygote_of(own))) == SPARE_BELOW
        assert times[3] - times[1] > TIMES.tick  # not again at once
    assert only(own.run(job_of([unit]))).value == HOSTS


def test_a_process_that_cannot_be_set_up_ahead_is_set_up_later(own, unit_named, monkeypatch):
    """It is not lost: no other one is made for it."""
    unit, refused, send = unit_named("keeps_all"), [], Worker.send

    def sends(worker: Worker, *what: object) -> int:
        if not worker.was_called and worker.setup and not refused:
            refused.append(worker)
            raise OSError(errno.ENOBUFS, "No buffer space")
        return send(worker, *what)

    monkeypatch.setattr(Worker, "send", sends)
    own.prewarm([(unit.plugin, unit.limits)])
    wait_until(lambda: refused and refused[0].is_ready)
    wait_until(lambda: offspring(zygote_of(own)), suits=lambda seen: len(seen) == 1 + SPARE_BELOW)
    assert own._pool._idle[refused[0].key] == deque(refused)


@pytest.mark.parametrize(
    ("where", "name"),
    [(frames, "pack_call"), (Worker, "send"), (messages, "unpack_answer")],
    ids=["exchange", "task", "answer"],
)
def test_a_call_for_which_there_is_no_memory_loses_no_process(
    own, unit_named, monkeypatch, where, name
):
    """Neither as it begins nor when it was answered."""
    unit = unit_named("keeps_all")
    with monkeypatch.context() as patched:
        patched.setattr(where, name, mock.Mock(side_effect=MemoryError()))
        with pytest.raises(MemoryError):
            own.run(job_of([unit]))
    assert own._pool._busy == {}
    wait_until(lambda: offspring(zygote_of(own)), suits=lambda seen: len(seen) == SPARE_BELOW)
    assert only(own.run(job_of([unit]))).value == HOSTS


@pytest.mark.parametrize("name", ["dies_by_signal", "leaves_a_child"])
def test_a_process_that_cannot_be_waited_for_is_not_lost(own, unit_named, monkeypatch, name):
    """Memory lacks: neither one that died, nor one that has to end before its answer counts."""
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "end", mock.Mock(side_effect=MemoryError()))
        with pytest.raises(MemoryError):
            own.run(job_of([unit_named(name)]))
    assert own._pool._busy == {}
    wait_until(lambda: offspring(zygote_of(own)), suits=lambda seen: len(seen) == SPARE_BELOW)


def test_where_memory_lacks_while_processes_are_looked_at_none_is_lost(
    own, unit_named, monkeypatch
):
    """Those that were found to be superfluous are ended, the others are kept."""
    units = [unit_named("keeps_all"), unit_named("tells_its_pid")]
    own.prewarm([(unit.plugin, unit.limits) for unit in units])
    wait_until(lambda: offspring(zygote_of(own)), suits=lambda seen: len(seen) == 2 + SPARE_BELOW)
    idle = [own._pool._idle[key][0] for key in own._pool._idle if key != pool.READERS]
    first, last = sorted(idle, key=lambda worker: worker.used)
    drop, left = Worker.drop_output, [MemoryError()]

    def drops(worker):
        if worker is last and left:
            raise left.pop()
        drop(worker)

    monkeypatch.setattr(Worker, "drop_output", drops)
    with own._pool._lock:
        first.born -= TIMES.life
    own._pool.maintenance.wake()
    wait_until(lambda: not left and first.channel.fileno() == -1)
    assert last.channel.fileno() != -1
    wait_until(lambda: offspring(zygote_of(own)), suits=lambda seen: len(seen) == 2 + SPARE_BELOW)


def test_an_analysis_for_which_there_is_no_memory_leaves_no_descriptor(own, monkeypatch):
    """Nobody else knows of its process."""
    for where, name in ((exchange, "_wait"), (messages, "unpack_analysis")):
        spare = wait_until(lambda: own._pool._spare[:], suits=lambda seen: len(seen) == pool.SPARE)
        with monkeypatch.context() as patched:
            patched.setattr(where, name, mock.Mock(side_effect=MemoryError()))
            with pytest.raises(MemoryError):
                own.analyse(_PROBE)
        assert spare[-1].channel.fileno() == -1


def test_a_process_that_cannot_be_made_is_not_counted_as_started(own, monkeypatch):
    """There is no memory for it."""
    wait_until(lambda: len(own._pool._spare), suits=lambda seen: seen == pool.SPARE)
    wait_until(lambda: own._pool._idle)
    before = own.state().started
    fails = mock.Mock(side_effect=OSError(errno.ENOMEM, "Cannot allocate memory"))
    monkeypatch.setattr(own._forker._zygote, "fork", fails)
    with pytest.raises(ExecutorUnavailable):
        own._forker.fork(math.inf)
    assert own.state().started == before


def test_where_the_end_of_a_process_cannot_be_noted_another_zygote_is_started(
    own, unit_named, monkeypatch, caplog
):
    """Nobody would hear of any end again."""
    unit, zygote = unit_named("tells_its_pid"), own._forker._zygote
    monkeypatch.setattr(zygote, "_on_end", once(MemoryError(), zygote._on_end))
    os.kill(int(only(own.run(job_of([unit]))).stdout), signal.SIGKILL)
    wait_until(lambda: "an end cannot be noted: MemoryError()" in caplog.text)
    assert only(own.run(job_of([unit]))).outcome is CallOutcome.OK
    assert zygote_of(own) not in (None, zygote.pid)


def test_a_spare_process_whose_end_could_not_be_noted_is_not_kept(own, monkeypatch):
    """It would stand below those that are used, and nobody would ever find it."""
    spare = wait_until(lambda: own._pool._spare[:], suits=lambda seen: len(seen) == pool.SPARE)
    zygote = own._forker._zygote
    monkeypatch.setattr(zygote, "_on_end", once(MemoryError(), zygote._on_end))
    spare[0].kill()
    wait_until(
        lambda: own._pool._spare[:], suits=lambda seen: len({*seen} - {*spare}) == pool.SPARE
    )
    assert [each.channel.fileno() for each in spare] == [-1, -1]
