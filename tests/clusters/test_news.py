"""What has happened while the thread of a cluster did something else."""

from __future__ import annotations

import threading
import time

from ovirt_scheduler.clusters import engine_events
from ovirt_scheduler.clusters.engine_events import Events
from ovirt_scheduler.clusters.news import News
from tests.support.waiting import LONG


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
