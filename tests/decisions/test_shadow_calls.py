"""Calls of units in shadow, without a daemon: when they are made, skipped or given up."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.decisions.shadows import Shadows
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.store import FILE, History
from ovirt_scheduler.model.jobs import Decision, Execution, Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities
from ovirt_scheduler.model.tasks import Sought
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.model.values import hidden
from tests.support.jobs import HOSTS
from tests.support.rest_server import Host, RestServer
from tests.support.waiting import LONG, wait_until

LOOKS = "def do_filter(hosts, vm, properties):\n    return hosts\n"


def test_a_stop_while_the_engine_is_asked_for_it_is_heeded(executor, unit_named, tmp_path: Path):
    """The engine may take many seconds."""
    units = [dataclasses.replace(unit_named("keeps_all"), shadow=True) for _ in range(2)]
    history = History(tmp_path / FILE)
    history.start()
    times: list[int] = []

    def stop_at_the_second() -> None:
        times.append(1)
        if len(times) == 2:
            shadows.stop()

    shadows = Shadows(executor, history, stop_at_the_second)
    decision = decision_of(units)
    history.decided(decision)
    shadows.decided(decision)
    (kept,) = wait_until(lambda: completed(history, len(units)))
    shadows.close()
    history.close()
    assert [unit["outcome"] for unit in kept["units"]] == ["ok", "not asked"]
    assert kept["units"][1]["message"] == "in shadow, and the daemon stops"


def test_a_property_with_a_token_of_the_daemons_is_in_no_record(
    executor, unit_named, tmp_path: Path
):
    unit = dataclasses.replace(unit_named("keeps_all"), shadow=True)
    hidden.remember("the-token")
    history = History(tmp_path / "history.sqlite")
    history.start()
    shadows = Shadows(executor, history)
    decision = decision_of([unit], {"said": "the-token"})
    history.decided(decision)
    shadows.decided(decision)
    (kept,) = wait_until(lambda: completed(history, 1))
    shadows.close()
    history.close()
    assert [(unit["name"], unit["outcome"]) for unit in kept["units"]] == [(unit.name, "ok")]
    assert kept["properties"] == {"said": hidden.HIDDEN}


@pytest.mark.parametrize("comes_another", [True, False])
def test_without_a_thread_a_decision_waits_for_the_next(
    executor, unit_named, tmp_path: Path, monkeypatch, comes_another: bool
):
    """Or for the end. Its request ends as ever, and no memory counts as taken for good."""
    unit = dataclasses.replace(unit_named("keeps_all"), shadow=True)
    history = History(tmp_path / "history.sqlite")
    history.start()
    shadows = Shadows(executor, history)

    decisions = [decision_of([unit], request_id=digit * 16) for digit in "12"[: 1 + comes_another]]
    for decision in decisions:
        history.decided(decision)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        shadows.decided(decisions[0])
    if comes_another:
        shadows.decided(decisions[1])
        wait_until(lambda: len(completed(history, 1)) == 2)
    shadows.close()
    history.close()
    assert len(completed(history, 1)) == len(decisions)
    assert shadows._bytes == 0


def decision_of(
    units: Sequence[PolicyUnit],
    properties: Mapping[str, str] = {},
    request_id: str = "0" * 16,
) -> Decision:
    """A decision of a request that names no unit, with these units in shadow."""
    caller = Caller(request_id, AnswerForm.ENGINE, "here")
    request = Request(caller, Entities(HOSTS, vm="vm-1"), properties, {Kind.FILTER: ()})
    calls = tuple(UnitCall(unit, properties) for unit in units)
    return Decision(request, Execution(HOSTS), HOSTS, time=time.time(), shadows=calls)


def completed(history: History, count: int) -> list[Record]:
    """The records to which so many units in shadow were added."""
    return [each for each in history.reader.decisions(Query()) if len(each["units"]) == count]


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_short_timeout_makes_no_slow_engine_an_absent_one(place, executor, tmp_path: Path):
    """For seconds after a query that failed, every request would go without the engine."""
    place.write("New", LOOKS)
    (place.confs / "New.conf").write_text("shadow = true\ntimeout = 0.1\n")
    place.registry.refresh()
    history = History(tmp_path / "history.sqlite")
    history.start()
    with RestServer(tmp_path, [Host("lynx"), Host("puma")], tls=False) as engine:
        inventory = Inventory(engine.settings(cache_seconds=0))
        lynx, puma = engine.ids()
        inventory.look_up(Sought((puma,)), time.monotonic() + LONG)  # logs in
        assert engine.arrived.acquire(timeout=LONG)
        engine.answering.clear()
        shadows = Shadows(executor, history, lambda: inventory)
        decided = (history.decided, shadows.decided)
        service = DecisionService(place.registry, executor, LONG, inventory, decided)
        caller = Caller("0" * 16, AnswerForm.ENGINE, "here")
        service.decide(Request(caller, Entities((lynx,)), {}, {Kind.FILTER: ()}))
        assert engine.arrived.acquire(timeout=LONG)
        threading.Event().wait(0.5)  # seconds: longer than the unit's timeout
        engine.answering.set()
        assert inventory.look_up(Sought((puma,)), time.monotonic() + LONG).hosts
        wait_until(lambda: completed(history, 1))
        assert inventory.state().answers == {"ok": 3}
        shadows.close()
        inventory.close()
    history.close()
