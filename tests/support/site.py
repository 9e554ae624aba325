"""A site over a real history, for tests: what the daemon's parts would tell is made up."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ovirt_scheduler.engine.inventory import EngineState
from ovirt_scheduler.history import ranking
from ovirt_scheduler.history.query import written
from ovirt_scheduler.history.record import Host, Record, UnitRecord
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import FILE, History, HistoryState
from ovirt_scheduler.model.losses import Loss, UnplacedVm, WorstLoss
from ovirt_scheduler.model.plans import ClusterLook, Obstacle, Refusal
from ovirt_scheduler.model.requests import Pages
from ovirt_scheduler.processes.executor import ProcessesState
from ovirt_scheduler.server.http.routes import Response
from ovirt_scheduler.server.pages.daemon_state import (
    DaemonState,
    ThreadState,
    UnitState,
    UnloadedFile,
)
from ovirt_scheduler.server.pages.site import Site

DECISION = "0123456789abcdef"
VM = {"id": "8a6e5b90-3f27-4d1c-8e44-91b7c05d2b01", "name": "web"}

STATE = DaemonState(
    version="1.0.0",
    started=time.time() - 7500,
    plugins_path="/etc/ovirt/scheduler/plugins",
    units=(),
    processes=ProcessesState(9, 29, {"killed": 1}, 1, 0, 4, 0, 0),
    history=HistoryState(0, 4096, 0, 0),
)


WORST_LOSS = WorstLoss(Loss("lynx", (UnplacedVm("web", True, ""),)), 1_800_000_000.0)


def unit_state(name: str, kind: str = "filter", **further: Any) -> UnitState:
    return UnitState(name, kind, f"/plugins/{name}.py", "sha256:0123456789abcdef", **further)


def call(name: str, kind: str = "filter", outcome: str = "ok", **further: Any) -> UnitRecord:
    return {
        "name": name, "kind": kind, "checksum": "sha256:0123456789abcdef", "mode": "live",
        "outcome": outcome, "milliseconds": 1.5, **further,
    }  # fmt: skip


def record(units: Sequence[UnitRecord], hosts: Sequence[Host] = (), **further: Any) -> Record:
    """A decision, as the history is given it."""
    made = {
        "id": DECISION, "time": written(time.time()), "milliseconds": 2.5, "caller": "127.0.0.1:1",
        "method": "runFilters", "form": "engine", "vm": VM, "units": list(units),
        "hosts": list(hosts), "answer": [], **further,
    }  # fmt: skip
    ranking.put_totals(made)
    return made


class MadeSite:
    """Pages about these decisions, and about a daemon in this state."""

    def __init__(
        self, folder: Path, records: Iterable[Record] = (), pages: Pages = Pages.LOOPBACK,
        **state: Any,
    ) -> None:  # fmt: skip
        history = History(folder / FILE)
        for each in records:
            history.put(lambda made=each: made)  # type: ignore[misc]
        history.start()
        history.close(30)
        self.tally = history.tally
        self.state = STATE._replace(**state)
        names = ["Scheduler.example.org"]
        reader = RecordReader(folder / FILE)
        self.site = Site(
            pages, names, lambda: self.state, lambda: self.state.stuck, history.tally, reader
        )

    def get(
        self, target: str, peer: str = "127.0.0.1", headers: Mapping[str, str] = {},
        local: str = "127.0.0.1",
    ) -> Response:  # fmt: skip
        sent = {"host": "localhost:18781", **headers}
        path, _, query = target.partition("?")
        return self.site.answer(path, query, sent, peer, local)

    def text(self, target: str) -> str:
        page = self.get(target)
        assert page.status == 200, page.body
        return page.body.decode()


@pytest.fixture
def full_site(tmp_path: Path) -> MadeSite:
    """Of which each metric that there is has a value."""
    hosts = [{"id": "l", "name": "lynx", "verdicts": [{"unit": "Night", "verdict": "removed"}]}]
    units = [call("Night", outcome="raised", message="oh"), call("EvenVms", "cost function")]
    return MadeSite(
        tmp_path, [record(units, hosts, decisive=["EvenVms"])],
        units=(unit_state("Night"), unit_state("EvenVms", "cost function", old_since=1.0)),
        unloaded=(UnloadedFile("/plugins/Bad.py", "Bad.py:1: syntax error"),),
        processes=ProcessesState(9, 29, {"killed": 1, "older": 2}, 3, 1, 4, 2, 5),
        certificate_ends=1_900_000_000.0,
        engine=EngineState("https://engine/api", "", None, {"ok": 7, "failed": 1}),
        history=HistoryState(1, 4096, 0, 2),
        threads=(ThreadState("keeping processes ready", 4),),
        followed={"yes": 3, "no": 1},
        clusters=(ClusterLook("East", "on", 1_800_000_000.0, imbalance=23.4, worst_loss=WORST_LOSS),),
    )  # fmt: skip


def refusal(
    vm: str = "web", host: str = "puma", obstacle: Obstacle = Obstacle.REFUSED, **changes: Any
) -> Refusal:
    """Of a VM and a host with these names."""
    values = {"reason": "VM is being backed up.", "since": 1_800_000_000.0, **changes}
    since = values["since"]
    return Refusal(f"id of {vm}", host and f"id of {host}", obstacle, str(values["reason"]), vm,
                   host or "any host", since, since)  # fmt: skip
