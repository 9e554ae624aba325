"""The thread that keeps processes ready: whatever happens, it goes on, in measure, and says so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import PluginCode, ProcessKey
from ovirt_scheduler.model.tasks import Setup
from ovirt_scheduler.processes import pool_maintenance
from ovirt_scheduler.processes.pool import READERS, SPARE, Pool
from ovirt_scheduler.processes.pool_maintenance import (
    MOST_A_SECOND,
    Allowance,
    Delays,
    Maintenance,
)
from ovirt_scheduler.processes.worker_handle import Worker
from tests.support.jobs import HOSTS, LIMITS, job_of, only
from tests.support.processes import SPARE_BELOW, offspring, zygote_of
from tests.support.waiting import LONG, wait_until

NO_CODE = PluginCode("forged", "/", ())  # as no analysis that is read can give it


class Turns:
    """The turns of the maintenance: when each began; the first ``failing`` of them raise."""

    def __init__(self, failing: int) -> None:
        self.times: list[float] = []
        self._failing = failing

    def take(self) -> float:
        self.times.append(time.monotonic())
        if len(self.times) <= self._failing:
            raise IndexError("odd")
        return 0.01


@pytest.fixture
def kept() -> Iterator[list[Maintenance]]:
    """Those to be stopped."""
    keepers: list[Maintenance] = []
    yield keepers
    for each in keepers:
        each.stop()
        each.join(60)


def test_after_a_turn_that_raised_it_pauses_longer_each_time_whoever_wakes_it(kept, caplog):
    """Counted, shown and logged once; the turn after those goes on as ever."""
    turns = Turns(failing=3)
    busy = Maintenance(lambda: 0.0, turns.take)
    kept.append(busy)
    busy.start()
    wait_until(lambda: busy.wake() or len(turns.times), suits=lambda count: count == 3)
    assert busy.trouble.problem == "IndexError: odd"
    wait_until(lambda: busy.wake() or len(turns.times), suits=lambda count: count > 6)
    first, second, third, fourth = turns.times[:4]
    assert second - first >= 0.25
    assert third - second >= 0.5
    assert fourth - third >= 1.0
    assert (busy.trouble.failures, busy.trouble.problem) == (3, "")
    assert caplog.text.count("keeping processes ready: IndexError: odd") == 1


def test_so_many_processes_are_made_a_second_and_one_for_each_that_a_call_used(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(pool_maintenance.time, "monotonic", lambda: now)
    allowance = Allowance()
    allowance.earn()  # nothing is saved up
    assert sum(allowance.spend() for _ in range(5 * MOST_A_SECOND)) == MOST_A_SECOND
    now += 0.999
    assert not allowance.spend()
    for _ in range(3):
        allowance.earn()
    assert sum(allowance.spend() for _ in range(10)) == 3
    now += 0.001
    assert sum(allowance.spend() for _ in range(5 * MOST_A_SECOND)) == MOST_A_SECOND - 3


def test_beyond_that_bound_none_is_made_ahead_and_calls_have_theirs_all_the_same(
    own, unit_named, monkeypatch
):
    monkeypatch.setattr(Allowance, "spend", lambda _: False)
    unit = unit_named("keeps_all")
    own.prewarm([(unit.plugin, unit.limits)])
    while own._pool._spare:  # what was there before
        own._pool._spare.pop().abandon()
    assert only(own.run(job_of([unit]))).value == HOSTS
    own.wait_until_idle(60)
    assert own._pool._spare == []


def test_a_call_that_used_up_a_process_lets_another_one_be_made(own, unit_named):
    """Else many such calls a second would find none ready."""
    unit = unit_named("keeps_all")
    unit = replace(unit, limits=replace(unit.limits, calls_per_process=1))
    wait_until(lambda: len(own._pool._spare) == SPARE)
    own._pool.maintenance.stop()
    made = len(own._pool._allowance._times)
    assert only(own.run(job_of([unit]))).value == HOSTS
    assert len(own._pool._allowance._times) == made - 1


def test_delays_grow_and_begin_anew_when_a_load_went_well_or_all_are_to_be_tried():
    """Each plugin's by itself."""
    one, other = (ProcessKey.of(PluginCode(name, "/", ()), LIMITS) for name in "ab")
    delays = Delays()
    for end in (partial(delays.forget, one), delays.clear):
        for seconds in (10, 20, 40):
            delays.put_off(one, 10)
            assert seconds - 1 < delays.shortest() <= seconds
        delays.put_off(other, 10)
        assert delays.holds_up(one)
        end()
        assert not delays.holds_up(one)
        assert delays.holds_up(other) == (end != delays.clear)
        delays.forget(other)
    delays.put_off(one, 10)
    assert delays.shortest() <= 10


def test_a_plugin_that_is_ready_for_a_while_is_no_longer_put_off(own, unit_named):
    unit = unit_named("keeps_all")
    own.prewarm([(unit.plugin, unit.limits)])
    wait_until(lambda: own.state().of_plugins)
    own.wait_until_idle(LONG)
    own._pool.maintenance.stop()
    with own._pool._lock:
        (key,) = (key for key in own._pool._idle if key != READERS)
        own._pool._failed.put_off(key, 3600)
        own._pool._look()
        assert own._pool._failed.holds_up(key)
        own._pool._idle[key][0].ready_by = 0.0
        own._pool._look()
        assert not own._pool._failed.holds_up(key)


def test_a_plugin_whose_process_cannot_be_made_loses_none_and_keeps_no_other_away(own, unit_named):
    """Neither one that is made ahead, nor one that a call takes."""
    unit = unit_named("keeps_all")
    wait_until(lambda: offspring(zygote_of(own)), suits=lambda seen: len(seen) == SPARE_BELOW)
    own.prewarm([(NO_CODE, LIMITS), (unit.plugin, unit.limits)])
    wait_until(lambda: own.state().of_plugins)
    failures = wait_until(lambda: own.trouble.failures)
    for _ in range(20):
        with pytest.raises(IndexError):
            own._pool.take(Setup(NO_CODE, LIMITS), time.monotonic() + 60)
    wait_until(lambda: own.trouble.failures, suits=lambda count: count > failures)
    assert own._pool._busy == {}
    assert own.trouble.problem.startswith("IndexError: ")
    own.prewarm([(unit.plugin, unit.limits)])
    wait_until(
        lambda: own._forker._zygote._workers, suits=lambda all_: len(all_) == 1 + SPARE_BELOW
    )
    assert only(own.run(job_of([unit]))).value == HOSTS
    wait_until(lambda: own.trouble.problem == "")


def test_an_idle_process_is_not_lost_where_the_end_of_another_raises(own, unit_named, monkeypatch):
    """Those that are to end with it end at the next look."""
    units = [unit_named("keeps_all"), unit_named("tells_its_pid")]
    own.prewarm([(unit.plugin, unit.limits) for unit in units])
    wait_until(lambda: offspring(zygote_of(own)), suits=lambda seen: len(seen) == 2 + SPARE_BELOW)
    own.wait_until_idle(60)
    raised, kill = [], Worker.kill

    def kills(worker: Worker) -> None:
        if not raised:
            raised.append(worker)
            raise MemoryError
        kill(worker)

    monkeypatch.setattr(Worker, "kill", kills)
    pool: Pool = own._pool
    with pool._lock:
        for idle in pool._idle.values():
            for worker in idle:
                worker.born -= 10**6
    pool.maintenance.wake()
    wait_until(lambda: pool.maintenance.trouble.failures)
    wait_until(lambda: own.state().replaced.get("served"), suits=lambda count: count and count >= 1)
    wait_until(lambda: offspring(zygote_of(own)), suits=lambda seen: len(seen) == 2 + SPARE_BELOW)
    assert raised[0].channel.fileno() == -1
    assert not pool._over
    assert not pool._ending


def test_without_a_thread_for_it_nothing_starts(monkeypatch):
    def refuse(thread: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pool_maintenance.threading.Thread, "start", refuse)
    with pytest.raises(ExecutorUnavailable, match="no thread to keep processes with"):
        Maintenance(lambda: 0.0, lambda: 1.0).start()
