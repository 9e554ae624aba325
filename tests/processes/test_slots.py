"""Slots: held at most so many, given in order, refused in time."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Callable

import pytest

from ovirt_scheduler.errors import Overloaded
from ovirt_scheduler.processes.slots import Slots
from tests.support.waiting import LONG, wait_until


def soon() -> float:
    """A deadline that no test reaches: nobody is served just because time went by."""
    return time.monotonic() + LONG


def start(slots: Slots, then: Callable[[], object]) -> threading.Thread:
    """A thread that waits for its turn; when this returns it stands in the queue."""
    waiting = len(slots._queue)

    def run() -> None:
        with slots.hold(1, soon()):
            then()

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: slots._queue, suits=lambda seen: len(seen) == waiting + 1)
    return thread


@pytest.mark.parametrize(("wanted", "held"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_an_asker_gets_what_it_wants_or_half_of_what_is_free(wanted, held):
    """And gives all of it back."""
    slots = Slots(6, 0)
    for _ in range(3):
        with slots.hold(wanted, soon()) as got:
            assert got == held


@pytest.mark.parametrize(("places", "held"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_half_is_rounded_up_and_leaves_a_place_where_there_are_two(places, held):
    """Whoever holds its places for long does not keep the next one waiting."""
    with Slots(places, 0).hold(9, soon()) as got:
        assert got == held


def test_the_second_gets_half_of_what_the_first_left():
    """One free place is enough to begin with."""
    slots = Slots(4, 0)
    with slots.hold(9, soon()) as first, slots.hold(9, soon()) as second:
        assert (first, second) == (2, 1)


def test_who_is_served_while_others_wait_has_an_equal_share():
    """Of the places that come free at once, each of three gets some, and one is left."""
    slots = Slots(9, 10)
    held: list[int] = []
    together = threading.Barrier(3, timeout=LONG)

    def ask() -> None:
        with slots.hold(9, soon()) as got:
            held.append(got)
            together.wait()

    threads = [threading.Thread(target=ask) for _ in range(3)]
    with contextlib.ExitStack() as others:
        with slots.hold(5, soon()):
            for _ in range(4):
                others.enter_context(slots.hold(1, soon()))
            for thread in threads:
                thread.start()
            wait_until(lambda: slots._queue, suits=lambda seen: len(seen) == 3)
        for thread in threads:
            thread.join(LONG)
    assert sorted(held) == [1, 1, 2]


def test_places_are_given_back_when_the_holder_fails():
    """Whatever it raises."""
    slots = Slots(1, 0)
    with contextlib.suppress(ZeroDivisionError), slots.hold(1, soon()):
        raise ZeroDivisionError
    with slots.hold(1, soon()) as got:
        assert got == 1


def test_no_more_wait_than_may():
    """The one beyond is refused at once, and told what holds it up (fault 104)."""
    slots = Slots(1, 1)
    with slots.hold(1, soon()):
        thread = start(slots, lambda: None)
        refused = pytest.raises(Overloaded, match="as many requests wait already as max_waiting")
        with refused, slots.hold(1, soon()):
            raise AssertionError
    thread.join(LONG)
    assert not thread.is_alive()


def test_who_waits_for_nothing_to_become_free_is_refused_when_the_time_is_over():
    """And leaves the queue as it was."""
    slots = Slots(1, 5)
    with slots.hold(1, soon()):
        refused = pytest.raises(Overloaded, match="no plugin process became free")
        with refused, slots.hold(1, time.monotonic() + 0.05):
            raise AssertionError
        assert len(slots._queue) == 0
    with slots.hold(1, time.monotonic() - 1):  # free: no time is needed
        pass


def test_turns_come_in_the_order_of_asking():
    """Twenty threads, one place."""
    slots = Slots(1, 100)
    order: list[int] = []
    with slots.hold(1, soon()):
        threads = [start(slots, lambda number=number: order.append(number)) for number in range(20)]
    for thread in threads:
        thread.join(LONG)
    assert order == list(range(20))


def test_one_who_gives_up_lets_the_next_have_the_turn():
    """The head of the queue leaves it, and who stood behind is served."""
    slots = Slots(1, 10)
    gave_up = threading.Event()

    def impatient() -> None:
        with pytest.raises(Overloaded), slots.hold(1, time.monotonic() + 1.0):
            raise AssertionError
        gave_up.set()

    first = threading.Thread(target=impatient)
    with slots.hold(1, soon()):
        first.start()
        wait_until(lambda: slots._queue, suits=lambda seen: len(seen) == 1)
        served = threading.Event()
        second = start(slots, served.set)
        assert gave_up.wait(LONG)
        assert not served.is_set()
    assert served.wait(LONG)
    first.join(LONG)
    second.join(LONG)


def test_several_places_given_back_at_once_serve_several():
    """Each that is served wakes the next, as long as places are free."""
    slots = Slots(4, 10)
    together = threading.Barrier(4, timeout=LONG)
    with slots.hold(2, soon()), slots.hold(1, soon()), slots.hold(1, soon()):
        threads = [start(slots, together.wait) for _ in range(4)]
    for thread in threads:
        thread.join(LONG)
    assert not together.broken


def test_never_more_than_the_capacity_is_held():
    """Under a crowd that wants different numbers, and nothing is left over after it."""
    slots = Slots(4, 1000)
    lock = threading.Lock()
    held_now, most = [0], [0]

    def work(number: int) -> None:
        for turn in range(50):
            with slots.hold(1 + (number + turn) % 6, soon()) as held:
                with lock:
                    held_now[0] += held
                    most[0] = max(most[0], held_now[0])
                with lock:
                    held_now[0] -= held

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert most[0] <= 4
    assert (slots._free, len(slots._queue)) == (4, 0)
