"""Turns at reading the history: few at a time, each for a bounded time."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from ovirt_scheduler.errors import HistoryUnreadable, Overloaded
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import FILE
from ovirt_scheduler.history.turns import Turn, Turns
from tests.support.site import MadeSite, call, record
from tests.support.waiting import LONG

PLACES, WAITING = 2, 8


def test_a_few_have_a_turn_a_few_wait_and_the_others_are_refused() -> None:
    turns, go_on = Turns(LONG), threading.Event()
    inside: list[int] = []
    most, refused, lock = [0], threading.Semaphore(0), threading.Lock()

    def take(number: int) -> None:
        try:
            with turns.next_turn():
                with lock:
                    inside.append(number)
                    most.append(len(inside))
                go_on.wait(LONG)
                with lock:
                    inside.remove(number)
        except Overloaded:
            refused.release()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for _ in range(len(threads) - PLACES - WAITING):
        assert refused.acquire(timeout=LONG)
    go_on.set()
    for thread in threads:
        thread.join(LONG)
    assert max(most) == PLACES
    assert len(most) - 1 == PLACES + WAITING
    assert not refused.acquire(blocking=False)


def test_who_waits_too_long_for_a_turn_is_refused() -> None:
    turns = Turns(0.1)
    with (
        turns.next_turn(),
        turns.next_turn(),
        pytest.raises(Overloaded, match="others read the history"),
    ):
        turns.next_turn().__enter__()


def test_who_waited_in_vain_leaves_a_place_to_wait_for_others() -> None:
    turns, has_turn = Turns(0.5), threading.Event()

    def take() -> None:
        with turns.next_turn():
            has_turn.set()

    with turns.next_turn():
        with turns.next_turn():
            for _ in range(WAITING):
                turns._seconds = 0.001
                with pytest.raises(Overloaded), turns.next_turn():
                    pass
            turns._seconds = LONG
            waiter = threading.Thread(target=take)
            waiter.start()
            assert not has_turn.wait(0.05)
        assert has_turn.wait(LONG)
    waiter.join(LONG)


def test_a_turn_that_ends_in_an_error_is_given_back() -> None:
    turns = Turns(0.1)
    for _ in range(2 * PLACES):
        with contextlib.suppress(HistoryUnreadable), turns.next_turn():
            raise HistoryUnreadable("no")
    begun = []
    with turns.next_turn():
        begun.append(1)
        with turns.next_turn():
            begun.append(2)
    assert begun == [1, 2]


class Ending(Turn):
    """Its time is up after so many checks."""

    def __init__(self, checks: int) -> None:
        super().__init__(LONG)
        self._checks = checks

    def check(self) -> None:
        self._checks -= 1
        if self._checks < 0:
            raise HistoryUnreadable("over")


def test_unpacking_counts_as_time_of_the_query(tmp_path: Path) -> None:
    records = [record([call("Night")], id=f"{number:016x}") for number in range(3)]
    MadeSite(tmp_path, records)
    reader = RecordReader(tmp_path / FILE)
    rows = 1 + len(records)  # checks before the query, and for each of its rows
    for checks in (rows, rows + 1):
        with pytest.raises(HistoryUnreadable, match="over"):
            reader.decisions(Query(), Ending(checks))
    assert len(reader.decisions(Query(), Ending(100))) == len(records)
