"""Plugins edited while calls and discover run: each answer is that of some good version."""

from __future__ import annotations

import shutil
from functools import partial
from typing import Optional

import pytest

from ovirt_scheduler.decisions.units import UnitService
from ovirt_scheduler.errors import UnknownUnit
from ovirt_scheduler.model.requests import AnswerForm, Caller, Request, WantedUnit
from ovirt_scheduler.model.units import Kind
from tests.support.clients import Clients
from tests.support.place import plugin
from tests.support.waiting import wait_until


def request(name: str) -> Request:
    caller = Caller("r", AnswerForm.DESIGN, "127.0.0.1:1")
    return Request(caller, Kind.COST_FUNCTION, (WantedUnit(name),), ("h",), "vm", {})


class Crowd(Clients):
    """Threads that call cost functions until told to stop, and hold on to every answer.

    One more discovers all the time.
    """

    def __init__(self, service: UnitService, units: list[str]) -> None:
        super().__init__([*(partial(self._call, name) for name in units), self._discover])
        self.answers: dict[str, list[Optional[int]]] = {name: [] for name in units}
        self.problems: list[str] = []
        self._service = service

    def _call(self, name: str) -> None:
        while not self.stopped.is_set():
            try:
                decision = self._service.decide(request(name))
            except UnknownUnit:
                self.answers[name].append(None)
                continue
            except Exception as error:  # noqa: BLE001  shown by the test
                self.problems.append(repr(error))
                return
            if decision.unit_errors:
                self.problems.append(repr(decision.unit_errors))
            self.answers[name].append(decision.answer["h"])

    def _discover(self) -> None:
        while not self.stopped.is_set():
            self._service.discover()

    def wait(self, calls: int) -> None:
        """Until each thread has had so many more answers."""
        goal = {name: len(answers) + calls for name, answers in self.answers.items()}
        wait_until(
            lambda: (
                self.problems or all(len(self.answers[name]) >= many for name, many in goal.items())
            )
        )


@pytest.mark.parametrize("turns", [1, pytest.param(3, marks=pytest.mark.long)])
def test_calls_beside_edits_get_what_some_good_version_gives(place, turns):
    """Edited, broken, mended, replaced, renamed, removed: every answer is a good version's.

    ``steady`` is always there in a good version; ``moves`` and ``moved`` come and go.
    """
    registry, service = place.registry, UnitService(place.registry, place.executor, 60.0)
    good = [1]
    steady = place.write("steady", plugin(1))
    moves = place.write("moves", plugin(1))
    registry.refresh()

    def new() -> str:
        good.append(good[-1] + 1)
        return plugin(good[-1])

    def replace(text: str) -> None:
        fresh = place.first / "fresh"
        fresh.write_text(text)
        fresh.replace(steady)

    def move_away_and_write(text: str) -> None:
        steady.rename(place.first / "steady.py~")
        steady.write_text(text)

    with Crowd(service, ["steady", "moves", "moved"]) as crowd:
        crowd.wait(1)
        for turn in range(turns):
            for edit in (steady.write_text, replace, move_away_and_write):
                edit(new())
                wait_until(lambda: crowd.answers["steady"][-1], suits=lambda seen: seen == good[-1])
                edit(plugin(9000 + turn)[:-8])  # half of it
                crowd.wait(1)
                edit(plugin(8000 + turn, "raise SystemExit"))
                crowd.wait(1)
            moves.rename(place.first / "moved.py")
            wait_until(lambda: crowd.answers["moved"][-1], suits=lambda seen: seen == 1)
            (place.first / "moved.py").unlink()
            wait_until(lambda: crowd.answers["moved"][-1] is None)
            moves.write_text(plugin(1))
            steady.write_text(new())
            wait_until(lambda: crowd.answers["steady"][-1], suits=lambda seen: seen == good[-1])
        registry.refresh()
        crowd.wait(2)
    assert crowd.problems == []
    seen = crowd.answers["steady"]
    assert set(seen) <= set(good)
    assert seen == sorted(seen)
    assert seen[-1] == good[-1]
    assert len(set(seen)) > 3
    for name in ("moves", "moved"):
        assert set(crowd.answers[name]) <= {None, 1}
    assert crowd.answers["moves"][-1] == 1
    shutil.rmtree(place.first)
    assert place.versions() == {}
