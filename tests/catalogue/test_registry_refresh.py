"""When the registry looks at the folders, who waits for it, and for how long."""

from __future__ import annotations

import itertools
import operator
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest import mock

import pytest

from ovirt_scheduler.catalogue import registry
from ovirt_scheduler.catalogue.edits import LOOK_TIMES
from ovirt_scheduler.catalogue.loader import LoadedPlugin, Loader, PluginText
from ovirt_scheduler.errors import ExecutorUnavailable
from tests.support.place import AT_ONCE, plugin, versions
from tests.support.waiting import LONG, wait_until


def test_run_calls_see_what_has_come_changed_and_gone(place):
    """Within a second or so, and without a look by discover (contract 4.6)."""
    path = place.first / "a.py"
    place.registry.watch()

    def is_seen(expected: dict[str, str]) -> None:
        wait_until(lambda: versions(place.registry.current()), suits=lambda seen: seen == expected)

    for version in (1, 2):
        path.write_text(plugin(version))
        is_seen({"a": str(version)})
    path.unlink()
    is_seen({})


def test_a_slow_import_holds_up_no_run_call(place, tmp_path):
    """The calls go on with what there is until it has loaded."""
    place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    place.write("slow", plugin(1, f"open({str(gate)!r}).read()"))
    place.registry.watch()
    wait_until(lambda: "slow" in place.analysed)
    assert versions(place.registry.current()) == {"a": "1"}
    gate.open("w").close()
    wait_until(
        lambda: versions(place.registry.current()),
        suits=lambda seen: seen == {"a": "1", "slow": "1"},
    )


def test_imports_do_not_wait_for_one_another(place, tmp_path):
    """Two that each wait for the other load; so those that hang cost their ten seconds together."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    place.write("a", plugin(1, f"open({str(gate)!r}, 'w').close()"))
    place.write("b", plugin(1, f"open({str(gate)!r}).read()"))
    assert place.versions() == {"a": "1", "b": "1"}


def test_a_file_that_the_daemon_cannot_even_read_is_a_fault_of_its_own(place, monkeypatch):
    read = Loader.read

    def fails(loader, file, scan):
        if file.name == "a":
            raise IndexError("out of range")
        return read(loader, file, scan)

    monkeypatch.setattr(Loader, "read", fails)
    place.write("a", plugin(1))
    place.write("b", plugin(2))
    assert place.versions() == {"b": "2"}
    assert "a.py: cannot be looked at, which is a bug of the daemon (IndexErr" in place.faults()[0]


@pytest.mark.usefixtures("without_threads")
def test_without_threads_files_are_loaded_one_by_one(place):
    """The daemon starts all the same."""
    place.write("a", plugin(1))
    place.write("b", plugin(2))
    assert place.versions() == {"a": "1", "b": "2"}


def test_a_load_that_fails_for_lack_of_something_is_tried_once_in_a_refresh(place, monkeypatch):
    """Not once more for each file, as where no thread can be started."""
    place.write("a", plugin(1))
    loads = []

    def fail(*_: object) -> None:
        loads.append(1)
        raise RecursionError("of the loader")

    monkeypatch.setattr(place.registry._loader, "make", fail)
    (fault,) = place.faults()
    assert "a bug of the daemon (RecursionError: of the loader, in test_registry_refresh" in fault
    assert loads == [1]


def test_what_the_daemon_cannot_cope_with_in_a_file_is_that_files_fault_alone(
    place, monkeypatch, caplog
):
    """Told once; the version before it answers, also after a restart."""
    place.write("a", plugin(1))
    place.write("b", plugin(2))
    assert place.versions() == {"a": "1", "b": "2"}
    make = Loader.make

    def fails(loader: Loader, text: PluginText) -> LoadedPlugin:
        if b"odd" in text.candidate.source.text:
            raise IndexError("out of range")
        return make(loader, text)

    monkeypatch.setattr(Loader, "make", fails)
    place.write("a", plugin("odd"))
    place.write("b", plugin(3))
    for restarts in (False, True):
        if restarts:
            place.registry = place.start()
        for _ in range(2):
            assert place.versions() == {"a": "1", "b": "3"}
        (fault,) = place.faults()
        assert "a bug of the daemon (IndexError: out of range, in test_registry_refresh" in fault
        assert caplog.text.count("a plugin cannot be loaded") == 1 + restarts


def test_a_kept_version_that_the_daemon_cannot_cope_with_is_passed_over(place, monkeypatch, caplog):
    place.write("a", plugin(1))
    place.write("b", plugin(2))
    assert place.versions() == {"a": "1", "b": "2"}
    make = Loader.make

    def fails(loader: Loader, text: PluginText) -> LoadedPlugin:
        if text.file.name == "a":
            raise IndexError("out of range")
        return make(loader, text)

    monkeypatch.setattr(Loader, "make", fails)
    place.registry = place.start()
    assert place.versions() == {"b": "2"}
    assert "that was kept cannot be used: out of range" in caplog.text


def test_a_look_that_fails_is_tried_again_later_and_shown_until_one_is_well(
    place, monkeypatch, caplog
):
    """Logged once, and not at each look."""
    place.registry.times = AT_ONCE._replace(every=0.01)
    place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    place.registry.watch()
    failing = place.registry.trouble
    with monkeypatch.context() as patched:
        patched.setattr(registry, "merged", mock.Mock(side_effect=IndexError("odd")))
        wait_until(lambda: failing.failures, suits=lambda n: n >= 3)
        assert failing.problem == "IndexError: odd"
        assert caplog.text.count("looking at the plugins' folders: IndexError: odd") == 1
        assert versions(place.registry.current()) == {"a": "1"}
    wait_until(lambda: failing.problem, suits=operator.not_)
    place.write("a", plugin(2))
    wait_until(lambda: versions(place.registry.current()) == {"a": "2"})


@pytest.fixture
def without_threads(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_with_one_thread_alone_no_file_is_loaded_twice_at_once(place, monkeypatch):
    """A thread that cannot be started is known when its file waits for one already."""
    names = [f"p{number}" for number in range(6)]
    for name in names:
        place.write(name, plugin(1))
    start, make = threading.Thread.start, place.registry._loader.make
    shutdown, ended, main = (
        ThreadPoolExecutor.shutdown,
        threading.Event(),
        threading.current_thread(),
    )

    def start_first(thread: threading.Thread) -> None:
        if thread.name.startswith("load") and thread.name != "load_0":
            raise RuntimeError("can't start new thread")
        start(thread)

    def loaded(text):
        if threading.current_thread() is main:
            assert ended.is_set()
        else:
            assert ended.wait(LONG)
        return make(text)

    def shut_down(pool, *words, **options):
        ended.set()  # whoever loads here from now on waits for the threads first
        shutdown(pool, *words, **options)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shut_down)
    monkeypatch.setattr(threading.Thread, "start", start_first)
    monkeypatch.setattr(place.registry._loader, "make", loaded)
    assert place.versions() == dict.fromkeys(names, "1")


def test_without_processes_what_was_loaded_stays(place, caplog, monkeypatch):
    """A refresh says that there are none; a run call does not fail for it, and the log has it once.

    And once more when it happens again after a look that was well.
    """
    place.registry.times = AT_ONCE._replace(every=0.01)
    place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    looks = itertools.count()

    def analyse(_):
        next(looks)
        raise ExecutorUnavailable("no process")

    def in_use(version: int) -> bool:
        return versions(place.registry.current()) == {"a": str(version)}

    for version in (1, 2):
        with monkeypatch.context() as patched:
            patched.setattr(place.executor, "analyse", analyse)
            place.write("a", plugin(version + 1))
            with pytest.raises(ExecutorUnavailable):
                place.registry.refresh()
            place.registry.watch()
            begun = next(looks)
            wait_until(partial(next, looks), suits=(begun + 5).__lt__)
            assert in_use(version)
            assert caplog.text.count("what was loaded stays") == version
        wait_until(partial(in_use, version + 1))


def test_many_who_ask_at_once_share_a_look(place, tmp_path):
    """A file that never loads is tried again by one look for all of them, not by one for each."""
    tried = tmp_path / "tried"
    loading = f"open({str(tried)!r}, 'a').write('x')\nimport time\ntime.sleep(0.2)\n1 / 0\n"
    place.write("a", plugin(1) + loading)
    place.registry.refresh()
    assert tried.read_text() == "x"
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: place.registry.refresh(), range(8)))
    assert all(len(catalogue.faults) == 1 for catalogue in found)
    assert len(tried.read_text()) <= 4


def test_an_import_that_took_long_to_fail_does_not_hold_up_each_discover(place, tmp_path):
    """It is tried again when it is edited."""
    assert 1 <= LOOK_TIMES.slow <= 5
    place.registry.times = AT_ONCE._replace(slow=0.0)
    tried = tmp_path / "tried"
    path = place.write("a", f"open({str(tried)!r}, 'a').write('x')\n1 / 0\n" + plugin(1))
    for file in (path, place.first):
        os.utime(file, (1, 1))
    for _ in range(2):
        assert len(place.registry.refresh().faults) == 1
    assert tried.read_text() == "x"
    place.write("a", plugin(2))
    assert place.versions() == {"a": "2"}


@pytest.mark.long
def test_a_look_that_began_before_it_was_asked_for_is_not_shared(place, tmp_path):
    """What was written meanwhile may not be in it."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    place.write("a", plugin(1, f"open({str(gate)!r}).read()"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(place.registry.refresh)
        wait_until(lambda: place.analysed)  # so the folder has been listed
        place.write("b", plugin(1))
        second = pool.submit(place.registry.refresh)
        wait_until(second.running)
        gate.open("w").close()
    assert versions(first.result()) == {"a": "1"}
    assert versions(second.result()) == {"a": "1", "b": "1"}


def test_what_did_not_load_is_tried_again_without_a_change_of_its_file(
    place, tmp_path, monkeypatch
):
    """It may have lacked memory; nobody has to ask for discover, or to touch the file."""
    assert 1 <= LOOK_TIMES.retry <= 60
    place.registry.times = AT_ONCE._replace(retry=0.1)
    lacking = tmp_path / "lacking"
    lacking.touch()
    path = place.write(
        "a", plugin(1, f"import os\nif os.path.exists({str(lacking)!r}): raise MemoryError\n")
    )
    for file in (path, place.first):
        os.utime(file, (1, 1))
    assert place.versions() == {}
    lacking.unlink()
    place.registry.watch()
    wait_until(lambda: versions(place.registry.current()), suits=lambda seen: seen == {"a": "1"})
