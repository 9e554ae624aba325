"""Records of small decisions, written into a history."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

from ovirt_scheduler.history import query
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.store import History
from tests.support.waiting import LONG


def made(number: int, moment: float, hosts: int = 1) -> Callable[[], Record]:
    record = {
        "id": f"{number:016x}", "time": query.written(moment), "milliseconds": 1.0, "caller": "here",
        "method": "runFilters", "form": "design", "vm": {"id": f"vm {number}"}, "units": [],
        "hosts": [{"id": f"host {number} {each}"} for each in range(hosts)], "answer": [],
    }  # fmt: skip
    return lambda: record


def written(path: Path, *records: Callable[[], Record]) -> History:
    history = History(path)
    history.start()
    for record in records:
        history.put(record)
    history.close(LONG)
    return history
