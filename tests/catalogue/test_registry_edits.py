"""Files that are being edited, also while calls and discover run: some good version answers."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from functools import partial
from typing import Optional

import pytest

from ovirt_scheduler.catalogue import plugin_files
from ovirt_scheduler.catalogue.edits import LOOK_TIMES, LookTimes
from ovirt_scheduler.catalogue.loader import Loader
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.errors import UnknownUnit
from ovirt_scheduler.model.jobs import Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities, RequestedUnit
from ovirt_scheduler.model.units import Kind
from tests.support.clients import Clients
from tests.support.place import AT_ONCE, cost_function, plugin, versions
from tests.support.waiting import wait_until


def test_an_empty_file_is_not_yet_the_end_of_its_units(place):
    """An edit in place passes through it: they go when it has stood for a while."""
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    path.write_text("")
    assert versions(place.look()) == {"a": "1"}
    path.write_text(plugin(2))
    assert place.versions() == {"a": "2"}
    path.write_text("")
    assert (place.versions(), place.faults()) == ({}, [])


def test_a_file_moved_away_is_not_yet_the_end_of_its_units(place):
    """Some editors move the old one first; what comes in its place is held to it."""
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    path.rename(place.first / "a.py~")
    assert versions(place.look()) == {"a": "1"}
    path.write_text("x = (\n")
    assert place.versions() == {"a": "1"}
    assert "the last version that loaded stays in use" in place.faults()[0]


def test_a_folder_moved_away_is_not_yet_the_end_of_its_units(place):
    """Some installers move a new one into its place; without any its plugins go in a while."""
    place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    place.first.rename(place.first.with_name("former"))
    assert versions(place.look()) == {"a": "1"}
    assert place.versions() == {}


def test_a_file_written_half_keeps_the_version_before_it(place):
    """Cut anywhere, what was good stays until the whole is there."""
    place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    whole = plugin(2)
    for cut in (len(whole) // 3, len(whole) // 2, len(whole) - 5):
        place.write("a", whole[:cut])
        assert versions(place.look()) == {"a": "1"}
    place.write("a", whole)
    assert place.versions() == {"a": "2"}


@pytest.mark.parametrize("edited", ["first/a.py", "first/_help.py", "confs/a.conf"])
def test_half_a_file_that_loads_keeps_the_version_before_it(place, edited):
    """What is still being written, or was taken away to be written anew, replaces nothing."""
    path = place.first.parent / edited
    place.write("_help", "x = 1\n")
    place.write("a", plugin(1, "import _help"))
    (place.confs / "a.conf").write_text("timeout = 5\n")
    before = cost_function(place.registry.refresh(), "a")
    path.write_text(path.read_text() + "# half")
    assert cost_function(place.look(), "a") == before
    path.write_text(path.read_text() + " and all\n")
    after = cost_function(place.registry.refresh(), "a")
    assert after.checksum != before.checksum
    assert after.checksum == cost_function(place.start().refresh(), "a").checksum


def test_a_file_that_is_written_all_the_time_is_used_at_last(place):
    """A program may write a helper so often; and a plugin may come to such a folder, or go."""
    assert 2 < LOOK_TIMES.unsettled <= 60
    place.write("_help", "x = 1\n")
    gone = place.write("gone", plugin(1, "import _help"))
    place.write("a", plugin(1, "import _help"))
    assert place.versions() == {"a": "1", "gone": "1"}
    gone.unlink()
    place.write("a", plugin(2, "import _help"))
    place.write("new", plugin(1, "import _help"))
    assert versions(place.look()) == {"a": "1", "gone": "1"}
    place.registry.times = AT_ONCE._replace(unsettled=0.0)
    place.write("_help", "x = 2\n")
    assert versions(place.look()) == {"a": "2", "new": "1"}


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_half_a_file_does_not_count_whatever_its_clock_says(place, hours):
    """As on NFS, where another machine sets the times."""
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    path.write_text(plugin(2))
    os.utime(path, (time.time() + hours * 3600,) * 2)
    assert versions(place.look()) == {"a": "1"}
    assert versions(place.look()) == {"a": "1"}
    assert place.versions() == {"a": "2"}


def test_an_edit_counts_when_half_a_second_has_not_changed_it(place):
    """And discover waits for that, also for a file that is new."""
    place.registry.times = LOOK_TIMES
    assert LOOK_TIMES.settle == 0.5
    path = place.write("a", plugin(1))
    started = time.monotonic()
    assert place.versions() == {"a": "1"}
    path.write_text(plugin(2))
    place.write("new", plugin(1))
    place.registry._update()
    began = time.monotonic()
    assert place.versions() == {"a": "2", "new": "1"}
    assert time.monotonic() - began > 0.4 or began - started > 0.4


def test_a_new_file_counts_when_it_is_whole(place, caplog):
    """So half of one is no fault."""
    assert place.versions() == {}
    place.write("a", "x = (\n")
    catalogue = place.look()
    assert (versions(catalogue), catalogue.faults) == ({}, [])
    place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    assert caplog.text == ""


@pytest.mark.parametrize("later", [1, 2])
def test_what_counted_at_a_start_is_read_again(place, monkeypatch, later):
    """Another write may leave the same times; what is the same is not analysed again."""
    path = place.write("a", plugin(1))
    monkeypatch.setattr(plugin_files, "stamp", lambda _: (0, 0))
    assert versions(place.look()) == {"a": "1"}
    path.write_text(plugin(later))
    assert place.versions() == {"a": str(later)}
    assert place.analysed == ["a"] * later
    path.write_text(plugin(3))
    assert place.versions() == {"a": str(later)}  # it was steady: the stamp alone tells


def test_a_file_that_changes_while_it_is_read_does_not_count(place, monkeypatch):
    """The look had seen it as it was before."""
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    path.write_text(plugin(2))
    read = place.registry._loader.read

    def write_and_read(file, scan):
        path.write_text(plugin(3)[:-1])
        return read(file, scan)

    with monkeypatch.context() as patched:
        patched.setattr(place.registry._loader, "read", write_and_read)
        place.registry._update()
    assert versions(place.registry.current()) == {"a": "1"}
    path.write_text(plugin(4))
    assert place.versions() == {"a": "4"}


def test_a_folder_that_a_reload_adds_counts_at_once(place):
    """As at a start: else there would be no unit for a moment where folders are renamed."""
    place.write("a", plugin(1))
    place.write("b", plugin(1), place.second)
    both = place.settings
    place.settings = replace(both, plugins_path=(place.first,))
    place.registry = place.start()
    assert place.versions() == {"a": "1"}
    place.registry.renew(Loader(both, place.analyse))
    assert versions(place.look()) == {"a": "1", "b": "1"}


def test_a_filter_that_comes_back_rejects_until_it_counts(place):
    """Its conf file says that nothing passes without it."""
    conf = place.confs / "guard.conf"
    conf.write_text("on_failure = reject\n")
    assert "guard" in place.registry.refresh().missed
    place.write("guard", "def do_filter(hosts, vm, properties): ...\n")
    assert "guard" in place.look().missed
    assert not place.registry.refresh().missed


def test_a_conf_file_moved_away_is_not_yet_gone(place):
    """A plugin in shadow does not decide for a moment because an editor writes a new conf file."""
    place.write("a", plugin(1))
    conf = place.confs / "a.conf"
    conf.write_text("shadow = true\n")
    assert place.versions() == {}
    conf.rename(place.confs / "a.conf~")
    assert versions(place.look()) == {}
    assert place.versions() == {"a": "1"}


def request(name: str) -> Request:
    caller = Caller("r", AnswerForm.DESIGN, "127.0.0.1:1")
    entities = Entities(("h",), vm="vm")
    return Request(caller, entities, {}, {Kind.COST_FUNCTION: (RequestedUnit(name),)})


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
    registry.times = LookTimes(every=0.1, settle=0.2)
    good = [1]
    steady = place.write("steady", plugin(1))
    moves = place.write("moves", plugin(1))
    registry.refresh()

    registry.watch()

    def new() -> str:
        good.append(good[-1] + 1)
        return plugin(good[-1])

    def put_another(text: str) -> None:
        fresh = place.first / "fresh"
        fresh.write_text(text)
        fresh.replace(steady)

    def move_away_and_write(text: str) -> None:
        steady.rename(place.first / "steady.py~")
        steady.write_text(text)

    with Crowd(service, ["steady", "moves", "moved"]) as crowd:
        crowd.wait(1)
        for turn in range(turns):
            for edit in (steady.write_text, put_another, move_away_and_write):
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
