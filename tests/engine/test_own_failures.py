"""Queries that fail for a reason of their own: the engine is not away, and others are answered."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import AnswerLate, AnswersTooLarge, ConfigError
from ovirt_scheduler.model.answer_memory import AnswerMemory
from ovirt_scheduler.model.tasks import Sought
from tests.support.rest_server import Host, Reply, RestServer, Vm, id_of
from tests.support.waiting import LONG, soon

WEB, MAIL = Sought(vm=id_of("web")), Sought(vm=id_of("mail"))
KIB = 1 << 10


@pytest.fixture
def engine(tmp_path):
    hosts = [Host(f"node{number}") for number in range(250)]
    vms = [Vm("web", host="lynx"), Vm("mail")]
    with RestServer(tmp_path, hosts, vms, tls=False) as server:
        yield server


@pytest.fixture
def without_gc():
    """What is given back goes at once, and not when Python looks for cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_request_without_time_left_fails_alone(engine):
    """That the caller came late is no fault of the engine: the next one is answered."""
    asking = Inventory(engine.settings())
    with pytest.raises(AnswerLate, match="no time was left to ask it"):
        asking.look_up(WEB, time.monotonic() - 1)
    assert asking.look_up(WEB, soon()).vm is not None
    assert asking.state().problem == ""


def test_an_engine_is_not_away_for_others_after_a_query_with_little_time_left(engine):
    asking = Inventory(engine.settings())
    engine.answering.clear()
    with pytest.raises(AnswerLate, match="timed out"):
        asking.look_up(WEB, soon(1))
    engine.answering.set()
    assert asking.look_up(WEB, soon()).vm is not None
    assert asking.state().problem == ""


def test_a_query_with_little_time_is_no_try_whether_an_engine_is_back(engine):
    """The next one that has time tries."""
    asking = Inventory(engine.settings(cache_seconds=3600))
    asking.patience = 0.5
    engine.answering.clear()
    with pytest.raises(AnswerLate):
        asking.look_up(WEB, soon())
    asking._retry_at = 0.0  # as when the pause is over
    with pytest.raises(AnswerLate):
        asking.look_up(WEB, soon(0.4))
    engine.answering.set()
    assert asking.look_up(WEB, soon()).vm is not None


def test_who_waits_for_the_query_of_another_that_had_less_time_asks_itself(engine):
    asking = Inventory(engine.settings())
    engine.answering.clear()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(asking.look_up, WEB, soon(2))
        assert engine.arrived.acquire(timeout=LONG)
        second = threads.submit(asking.look_up, WEB, soon(60))
        assert isinstance(first.exception(LONG), AnswerLate)
        assert engine.arrived.acquire(timeout=LONG)
        engine.answering.set()
        assert second.result().vm is not None


def test_a_request_whose_answers_are_too_large_together_fails_and_gives_them_back(
    engine, without_gc
):
    """Though each of them is not."""
    memory = AnswerMemory(most_each=200 * KIB)
    asking = Inventory(engine.settings(), memory=memory)
    engine.broken = Reply(200, "application/xml", "x" * (90 * KIB))
    assert len(asking.look_up(Sought(tuple(engine.ids()[:200])), soon()).hosts) == 2
    asking = Inventory(engine.settings(), memory=memory)
    assert memory.used == 0
    sought, told = Sought(tuple(engine.ids()[:200]), id_of("web")), ""
    try:
        asking.look_up(sought, soon())
    except AnswersTooLarge as error:  # pytest.raises would keep it
        told = str(error)
    assert "to one look or request take more than 0 MiB" in told
    assert memory.used == 0
    assert asking.look_up(WEB, soon()).vm is not None


def test_all_requests_under_way_have_a_bound_together(engine, without_gc):
    memory = AnswerMemory(most_in_all=200 * KIB)
    askings = [Inventory(engine.settings(cache_seconds=0), memory=memory) for _ in range(2)]
    engine.broken = Reply(200, "application/xml", "x" * (150 * KIB))
    under_way = askings[0].look_up(WEB, soon())
    with pytest.raises(AnswersTooLarge, match="all looks and requests that are under way"):
        askings[1].look_up(WEB, soon())
    del under_way
    assert memory.used == 0
    assert askings[1].look_up(WEB, soon()).vm is not None


def test_an_answer_that_is_too_large_alone_stops_no_other(engine):
    asking = Inventory(engine.settings())
    engine.broken = Reply(200, "application/xml", "x" * ((64 << 20) + 1))
    with pytest.raises(AnswersTooLarge, match="an answer of more than 64 MiB"):
        asking.look_up(WEB, soon())
    engine.broken = None
    assert asking.look_up(MAIL, soon()).vm is not None


@pytest.mark.parametrize("mended_by", ["a look at the settings", "an answer"])
def test_a_password_that_can_be_read_again_is_no_trouble_any_more(engine, mended_by):
    """And once it cannot be read again, it is."""
    asking, path = Inventory(engine.settings()), engine.password_file
    for _ in range(2):
        path.rename(path.with_name("away"))
        with pytest.raises(ConfigError):
            asking.check_password()
        assert "password_file" in asking.state().problem
        path.with_name("away").rename(path)
        if mended_by == "an answer":
            asking.look_up(WEB, soon())
        else:
            asking.check_password()
        assert asking.state().problem == ""
        asking.close()
        asking = Inventory(engine.settings())
