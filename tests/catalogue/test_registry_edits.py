"""Files that are being edited, also while calls and discover run: some good version answers."""

from __future__ import annotations

import shutil
import time
from functools import partial
from typing import Optional

import pytest

from ovirt_scheduler.catalogue import registry
from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.errors import UnknownUnit
from ovirt_scheduler.model.decisions import Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Subjects, WantedUnit
from ovirt_scheduler.model.units import Kind
from tests.support.clients import Clients
from tests.support.place import cost_function, plugin, versions
from tests.support.waiting import wait_until


@pytest.fixture
def look(place, monkeypatch):
    """What the run calls see, however long ago a busy machine made the edit."""

    def now() -> Catalogue:
        with monkeypatch.context() as patched:
            patched.setattr(registry, "_SETTLE", 60.0)
            return place.registry.current()

    return now


def test_an_empty_file_is_not_yet_the_end_of_its_units(place, look):
    """An edit in place passes through it: they go when it has stood for a while."""
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    path.write_text("")
    assert versions(look()) == {"a": "1"}
    path.write_text(plugin(2))
    assert place.versions() == {"a": "2"}
    path.write_text("")
    assert (place.versions(), place.faults()) == ({}, [])


def test_a_file_moved_away_is_not_yet_the_end_of_its_units(place, look):
    """Some editors move the old one first; what comes in its place is held to it."""
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    path.rename(place.first / "a.py~")
    assert versions(look()) == {"a": "1"}
    path.write_text("x = (\n")
    assert place.versions() == {"a": "1"}
    assert "the last version that loaded stays in use" in place.faults()[0]


def test_a_folder_moved_away_is_not_yet_the_end_of_its_units(place, look):
    """Some installers move a new one into its place; without any its plugins go in a while."""
    place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    place.first.rename(place.first.with_name("former"))
    assert versions(look()) == {"a": "1"}
    assert place.versions() == {}


def test_a_file_written_half_keeps_the_version_before_it(place, look):
    """Cut anywhere, what was good stays until the whole is there."""
    place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    whole = plugin(2)
    for cut in (len(whole) // 3, len(whole) // 2, len(whole) - 5):
        place.write("a", whole[:cut])
        assert versions(look()) == {"a": "1"}
    place.write("a", whole)
    assert place.versions() == {"a": "2"}


@pytest.mark.parametrize("edited", ["first/a.py", "first/_help.py", "confs/a.conf"])
def test_half_a_file_that_loads_keeps_the_version_before_it(place, look, edited):
    """What is still being written, or was taken away to be written anew, replaces nothing."""
    path = place.first.parent / edited
    place.write("_help", "x = 1\n")
    place.write("a", plugin(1, "import _help"))
    (place.confs / "a.conf").write_text("timeout = 5\n")
    before = cost_function(place.registry.refresh(), "a")
    path.write_text(path.read_text() + "# half")
    assert cost_function(look(), "a") == before
    path.write_text(path.read_text() + " and all\n")
    after = cost_function(place.registry.refresh(), "a")
    assert after.checksum != before.checksum
    assert after.checksum == cost_function(place.start().refresh(), "a").checksum


def test_a_file_that_is_written_all_the_time_is_used_at_last(place, monkeypatch):
    """A program may write a helper so often; and a plugin may go from such a folder."""
    assert 2 < registry._UNSETTLED_AT_MOST <= 60
    monkeypatch.setattr(registry, "_UNSETTLED_AT_MOST", 1.0)
    path, gone = place.write("a", plugin(1)), place.write("gone", plugin(1))
    assert place.versions() == {"a": "1", "gone": "1"}
    gone.unlink()

    def write_and_look() -> dict[str, str]:
        path.write_text(plugin(2) + f"# {time.monotonic()}\n")
        (place.first / "other.txt").touch()
        (place.first / "other.txt").unlink()
        return versions(place.registry.current())

    wait_until(write_and_look, suits=lambda seen: seen == {"a": "2"})


def test_a_conf_file_moved_away_is_not_yet_gone(place, look):
    """A plugin in shadow does not decide for a moment because an editor writes a new conf file."""
    place.write("a", plugin(1))
    conf = place.confs / "a.conf"
    conf.write_text("shadow = true\n")
    assert place.versions() == {}
    conf.rename(place.confs / "a.conf~")
    assert versions(look()) == {}
    assert place.versions() == {"a": "1"}


def request(name: str) -> Request:
    caller = Caller("r", AnswerForm.DESIGN, "127.0.0.1:1")
    subjects = Subjects(("h",), vm="vm")
    return Request(caller, subjects, {}, {Kind.COST_FUNCTION: (WantedUnit(name),)})


class Crowd(Clients):
    """Threads that call cost functions until told to stop, and hold on to every answer.

    One more discovers all the time.
    """

    def __init__(self, service: DecisionService, units: list[str]) -> None:
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
    registry, service = place.registry, DecisionService(place.registry, place.executor, 60.0)
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
