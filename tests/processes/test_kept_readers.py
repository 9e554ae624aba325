"""Readers are kept for the documents of the same thread, which serves one connection."""

from __future__ import annotations

import contextlib
import operator
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import List

import pytest

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes import pool
from ovirt_scheduler.processes.executor import Executor
from tests.support.jobs import job_of, only
from tests.support.processes import SPARE_BELOW, offspring, title
from tests.support.waiting import wait_until

SMALL = Document(b"<hosts><host id='a'/></hosts>")
LARGE = Document(b"<hosts>" + b"".join(b"<host id='%d'/>" % n for n in range(40_000)) + b"</hosts>")
REFUSED = Document(b"<hosts><host id='a'/><host id='a'/></hosts>")
OF_VERSION_3 = Document(b"<hosts><host id='a'><status><state>up</state></status></host></hosts>")


def readers(executor: Executor) -> List[int]:
    below = offspring(executor.zygote_pid)
    return [pid for pid in below if title(pid) == "ovirt-scheduler: reader"]


def read(executor: Executor, unit: object, document: Document = SMALL) -> List[int]:
    """The readers that there are when a document has been read."""
    assert only(executor.run(job_of([unit], hosts=document))).ok
    return readers(executor)


def test_a_thread_has_a_reader_of_its_own(own, unit_named):
    """It reads one request's documents after another; no other thread's come to it."""
    unit = unit_named("keeps_all")
    (mine,) = read(own, unit)
    assert read(own, unit) == [mine]
    with ThreadPoolExecutor(1) as other:
        both = other.submit(read, own, unit).result()
        assert len(both) == 2
        assert mine in both
        assert sorted(other.submit(read, own, unit).result()) == sorted(both)
    assert mine in read(own, unit)


def test_a_reader_ends_when_its_thread_has_ended(own, unit_named, monkeypatch):
    """A connection that comes later, in a thread of the same number, has another."""
    monkeypatch.setattr(pool, "_REST", 0.05)
    thread = threading.Thread(target=read, args=(own, unit_named("keeps_all")))
    thread.start()
    thread.join()
    assert wait_until(lambda: readers(own), suits=operator.not_) == []


def test_a_reader_ends_when_it_is_idle(own, unit_named, monkeypatch):
    """Its memory is needed for the time of a caller that asks again and again."""
    monkeypatch.setattr(pool, "_REST", 0.05)
    monkeypatch.setattr(pool, "_READER_SECONDS", 0.2)
    read(own, unit_named("keeps_all"))
    assert wait_until(lambda: readers(own), suits=operator.not_) == []


@pytest.mark.parametrize("document", [LARGE, REFUSED, OF_VERSION_3], ids=["large", "refused", "3"])
def test_a_reader_ends_with_documents_that_leave_more_behind(
    own, unit_named, document, monkeypatch
):
    """Much memory, the place of a mistake, or the SDK and its libraries."""
    monkeypatch.setattr(pool, "_READER_SECONDS", 3600.0)
    unit = unit_named("keeps_all")
    read(own, unit)
    with contextlib.suppress(UnreadableDocument):
        own.run(job_of([unit], hosts=document))
    assert wait_until(lambda: readers(own), suits=operator.not_) == []


def test_a_reader_that_is_killed_between_requests_fails_none(own, unit_named):
    """The next documents are read by another."""
    unit = unit_named("keeps_all")
    killed = set()
    for _ in range(3):
        (mine,) = read(own, unit)
        assert mine not in killed
        os.kill(mine, signal.SIGKILL)
        killed.add(mine)


def test_idle_there_are_spare_processes_and_one_of_each_plugin(own, unit_named, monkeypatch):
    """Nothing else is kept: a reader ends soon after its caller's last documents."""
    monkeypatch.setattr(pool, "_READER_SECONDS", 0.1)
    monkeypatch.setattr(pool, "_REST", 0.05)
    unit = unit_named("keeps_all")
    own.want([(unit.plugin, unit.limits)])
    for _ in range(3):
        own.run(job_of([unit], hosts=SMALL))
    wait_until(lambda: offspring(own.zygote_pid), suits=lambda seen: len(seen) == 1 + SPARE_BELOW)
    assert [*map(title, offspring(own.zygote_pid))].count("ovirt-scheduler: plugin keeps_all") == 1
