"""The engine's events: how long migrations took, queries that fail, and what waits for a thread."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from ovirt_scheduler.clusters import engine_events
from ovirt_scheduler.clusters.engine_events import MOST, Events, News, ask, migration_ends, read
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import EngineUnavailable
from tests.support.rest_server import Host, Reply, RestServer
from tests.support.waiting import LONG

WEB, MAIL = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
MARK = "ovirt-scheduler-s0199ab12cd3-here-0001-00aa"


def event(number, code, moment, vm=WEB):
    """As the engine writes it, with what is of no interest here."""
    return (
        f"<event href='/ovirt-engine/api/events/{number}' id='{number}'>"
        f"<description>Migration started (VM: code&gt;63).</description><code>{code}</code>"
        f"<severity>normal</severity><time>{moment}</time>"
        f"<host href='/ovirt-engine/api/hosts/{MAIL}' id='{MAIL}'/>"
        f"<vm href='/ovirt-engine/api/vms/{vm}' id='{vm}'/></event>"
    )


def seconds(*events):
    """By the VMs whose migration began after event 5."""
    document = f"<events>{''.join(events)}</events>".encode()
    ends = migration_ends(document, {WEB: 5, MAIL: 5}, MARK)
    return {vm: end.seconds for vm, end in ends.items() if end.seconds is not None}


START = event(7, 62, "2026-01-31T08:00:00.500+01:00")
DONE = event(9, 63, "2026-01-31T07:00:14.2Z")


@pytest.mark.parametrize("events", [(START, DONE), (DONE, START), (DONE, START, DONE, START)])
def test_a_migration_took_from_its_start_to_its_end(events):
    """Whatever the order, the zone, and the digits of the fraction; an event may come twice."""
    assert seconds(*events) == {WEB: pytest.approx(13.7)}


def test_the_next_migration_takes_its_own_time():
    """Until it is done it is not known."""
    again = event(11, 62, "2026-01-31T08:00:00.000Z")
    assert seconds(START, DONE, again) == {}
    assert seconds(START, DONE, again, event(13, 63, "2026-01-31T08:00:02.000Z")) == {WEB: 2}


def test_a_migration_that_began_before_is_another():
    """So is one of a VM that is not asked about."""
    assert seconds(event(4, 62, "2026-01-31T08:00:00.000Z"), DONE) == {}
    assert migration_ends(f"{START}{DONE}".encode(), {MAIL: 5}, MARK) == {}


@pytest.mark.parametrize(
    "other",
    [
        event(9, 65, "2026-01-31T07:00:14.000Z"),
        event(9, 63, "2026-01-31T07:00:14.000Z", MAIL),
        event(9, 63, "2026-99-31T07:00:14.000Z"),
        event(9, 63, "soon"),
        event(9, 63, "2026-01-31T07:00:14.000Z", "web"),
        "<event id='9'/>",
        "<event>",
    ],
)
def test_what_is_no_end_of_it_is_passed_over(other):
    """Other events and other VMs, and what is not of the engine's form."""
    assert seconds(START, other) == {}


def failure(number, code=65, mark=MARK, vm=WEB, words="Migration failed &amp; ended.\n (VM: web)"):
    return event(number, code, "2026-01-31T07:00:14.000Z", vm).replace(
        "<description>Migration started (VM: code&gt;63).</description>",
        f"<correlation_id>{mark}</correlation_id><description>{words}</description>",
    )


@pytest.mark.parametrize("code", [65, 120])
def test_a_failure_is_told_in_the_words_of_its_event(code):
    """In one line."""
    document = f"{START}{failure(9, code)}".encode()
    assert migration_ends(document, {WEB: 5}, MARK)[WEB].failure == (
        "Migration failed & ended. (VM: web)"
    )


@pytest.mark.parametrize(
    "other",
    [failure(4), failure(9, mark="another"), failure(9, vm=MAIL), failure(9, code=66)],
    ids=["before", "of others", "of another VM", "of another kind"],
)
def test_another_failure_says_nothing_of_a_migration(other):
    assert migration_ends(f"{START}{other}".encode(), {WEB: 5}, MARK) == {}


def test_after_a_failure_the_next_migration_is_its_own():
    again = event(11, 62, "2026-01-31T08:00:00.000Z") + event(13, 63, "2026-01-31T08:00:02.000Z")
    end = migration_ends(f"{START}{failure(9)}{again}".encode(), {WEB: 5}, MARK)[WEB]
    assert (end.seconds, end.failure) == (2, "")


def test_events_that_cannot_be_read_stop_no_other_query(tmp_path):
    """And an engine that is away is not asked for events either."""
    with RestServer(tmp_path, [Host("lynx")], tls=False) as engine:
        asking = Inventory(engine.settings())
        page = partial(asking.read_pages, "hosts", "name=lynx", lambda _: {})
        engine.broken = Reply(200, "text/html", "<html>")
        with pytest.raises(EngineUnavailable, match="/events: answered HTTP 200 OK with text/html"):
            ask(asking, None, time.monotonic() + 20)
        engine.broken = None
        assert page() == {}
        assert asking.state().problem == ""
        assert asking.state().answers == {"failed": 1, "ok": 1}
        engine.broken = Reply(503, "text/html", "<html>")
        with pytest.raises(EngineUnavailable, match="/hosts: answered HTTP 503"):
            page()
        with pytest.raises(EngineUnavailable, match="/hosts: answered HTTP 503"):
            ask(asking, None, time.monotonic() + 20)
        assert len(engine.asked("events")) == 1
        asking.close()


@pytest.mark.parametrize(("count", "are_all_told"), [(MOST - 1, True), (MOST, False)])
def test_as_many_events_as_a_query_asks_for_may_not_be_all(count, are_all_told):
    """Then which VMs and hosts they name is not known."""
    document = f"<events>{''.join(event(number, 62, '') for number in range(count))}</events>"
    events = read(document.encode())
    assert events.latest == count - 1
    assert events.named == (frozenset({WEB, MAIL}) if are_all_told else None)


def test_all_that_happened_comes_at_once_and_then_nothing():
    news = News()
    news.put(Events(1, frozenset("ab"), frozenset({"x"})))
    news.put(Events(2, frozenset("bc"), frozenset({"y"})))
    assert news.take(0.0) == Events(2, frozenset("abc"), frozenset({"x", "y"}))
    assert news.take(0.0) is None


def test_that_anything_may_have_happened_is_not_forgotten():
    news = News()
    news.put(Events(None, None))
    news.put(Events(3, frozenset("a")))
    assert news.take(0.0).named is None


def test_what_waits_is_bounded(monkeypatch):
    """While a look hangs; then anything may have happened."""
    monkeypatch.setattr(engine_events, "_MOST_TOGETHER", 3)
    news = News()
    for number in range(100):
        news.put(Events(number, frozenset({f"{number}"}), frozenset({f"mark {number}"})))
        assert len(news._events.correlation_ids) <= 3
        assert len(news._events.named or ()) <= 3
    assert news.take(0.0).named is None


def test_who_waits_hears_at_once():
    news = News()
    threading.Timer(0.05, news.put, [Events(1)]).start()
    assert news.take(time.monotonic() + LONG) == Events(1)
