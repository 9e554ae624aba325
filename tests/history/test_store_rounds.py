"""What the history tells when its trouble comes, goes and comes again."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from ovirt_scheduler.history import query, store
from ovirt_scheduler.history.database import Database
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.store import History, HistoryState
from tests.support.waiting import LONG, wait_until

_numbers = itertools.count(1)


def next_record() -> Callable[[], Record]:
    record = {
        "id": f"{next(_numbers):016x}", "time": query.written(time.time()), "milliseconds": 1.0,
        "caller": "here", "method": "runFilters", "form": "design", "vm": {"id": "vm"},
        "units": [], "hosts": [], "answer": [],
    }  # fmt: skip
    return lambda: record


def full(*_: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    started = History(tmp_path / store.FILE)
    started.start()
    yield started
    started.close(LONG)


def put(history: History, counter: Callable[[HistoryState], int]) -> None:
    """Put a record, and wait until it is counted."""
    before = counter(history.state())
    history.put(next_record())
    wait_until(lambda: counter(history.state()), suits=(before + 1).__eq__)


def written(state: HistoryState) -> int:
    return state.decisions


def lost(state: HistoryState) -> int:
    return state.dropped


def troubles(state: HistoryState) -> tuple[str, str]:
    return state.problem, state.undeleted


@pytest.mark.parametrize(
    ("what", "trouble", "over"),
    [
        ("write", "the history cannot be written", "the history is written again; "),
        ("keep_within", "the history grows, as its oldest decisions cannot be deleted", ""),
    ],
)
def test_each_trouble_is_told_once_and_so_is_its_end(
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    what: str,
    trouble: str,
    over: str,
) -> None:
    caplog.set_level("INFO")
    put(history, written)
    for turn in (1, 2):
        with monkeypatch.context() as patched:
            patched.setattr(Database, what, full)
            for _ in range(2):
                put(history, lost if what == "write" else written)
            wait_until(lambda: "disk is full" in "".join(troubles(history.state())))
        put(history, written)
        wait_until(lambda: troubles(history.state()) == ("", ""))
        assert caplog.text.count(trouble) == turn
        if over:
            told = [message for message in caplog.messages if over in message]
            assert [message.rpartition(" ")[2] for message in told] == ["2", "4"][:turn]
