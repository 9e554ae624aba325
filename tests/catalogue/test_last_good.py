"""The versions that are kept over a restart: which, how they are used, and when they go."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace

import pytest

from ovirt_scheduler.catalogue.loader import Loader
from ovirt_scheduler.model.units import Kind
from tests.support.place import Place, cost_function, plugin, versions

KEPT = "the last version that loaded stays in use (sha256:"


def test_after_a_restart_the_last_good_version_is_still_in_use(place):
    """With the helper that it had, and the limits of now; the last, and not the first."""
    place.write("a", plugin(0))
    place.registry.refresh()
    place.write("_help", "version = 1")
    place.write("a", plugin(1, "import _help"))
    (place.confs / "a.conf").write_text("timeout = 5\n")
    before = cost_function(place.registry.refresh(), "a")
    place.write("a", "x = (\n")
    (place.first / "_help.py").unlink()
    (place.confs / "a.conf").write_text("timeout = 6\n")
    expected = replace(before, limits=replace(before.limits, timeout=6.0))
    for registry in (place.registry, place.start(), place.start()):
        catalogue = registry.refresh()
        assert cost_function(catalogue, "a") == expected
        assert KEPT in catalogue.faults[0].message


def test_a_plugin_with_a_long_name_is_kept_too(place, caplog):
    """Of a class unit: its own name is short."""
    name = "é" * 120
    place.write(name, "class Few:\n    def do_filter(self, hosts, vm, properties): ...\n")
    assert place.versions() == {"Few": ""}
    place.write(name, "x = (\n")
    assert versions(place.start().refresh()) == {"Few": ""}
    assert "kept for a restart" not in caplog.text


def test_after_a_restart_an_edited_file_counts_not_the_kept_one(place):
    """What loads is always what the folder holds."""
    place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    place.write("a", plugin(2))
    place.registry = place.start()
    assert place.versions() == {"a": "2"}


def test_a_file_taken_away_is_forgotten(place):
    """A later one of its name starts anew."""
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    assert len(list(place.state.iterdir())) == 1
    path.unlink()
    assert place.versions() == {}
    assert list(place.state.iterdir()) == []
    path.write_text("x = (\n")
    place.registry = place.start()
    assert place.versions() == {}


@pytest.mark.parametrize(
    "rubbish", ["", "[]", '{"path": 1}', '{"sources": [], "conf": null}', "\xff"]
)
def test_a_kept_version_that_cannot_be_read_is_told_and_passed_over(place, rubbish, caplog):
    """The fault of the file is the same."""
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    place.write("a", "x = (\n")
    (kept,) = place.state.iterdir()
    kept.write_text(rubbish)
    place.registry = place.start()
    assert place.versions() == {}
    assert KEPT not in place.faults()[0]
    told = [message for message in caplog.messages if "that was kept cannot be used" in message]
    assert len(told) == 1
    assert str(path) in told[0]


def test_a_state_folder_that_cannot_be_written_is_told_and_no_more(place, caplog):
    """The plugin works."""
    place.state.touch()
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    assert any(f"{path} cannot be kept for a restart" in message for message in caplog.messages)
    path.unlink()
    assert place.versions() == {}


def test_what_could_not_be_kept_is_kept_and_told_once_when_it_can_be(place, caplog):
    """In each round; the version that is kept then is the last."""
    caplog.set_level("INFO")
    for turn in (1, 2):
        place.state.touch()
        path = place.write("a", plugin(turn))
        for _ in range(3):
            assert place.versions() == {"a": str(turn)}
        assert caplog.text.count(f"{path} cannot be kept for a restart") == turn
        place.state.unlink()
        for _ in range(3):
            place.registry.refresh()
        assert caplog.text.count(f"{path} is kept for a restart again") == turn
        place.write("a", BROKEN)
        assert restarted(place) == {"a": str(turn)}
        shutil.rmtree(place.state)


def test_what_is_kept_is_for_the_daemons_user_alone(place):
    """Plugins may hold what others shall not read."""
    place.write("a", plugin(1))
    place.registry.refresh()
    assert place.state.stat().st_mode & 0o777 == 0o700


BROKEN = "x = (\n"
GUARD = "class Guard:\n    def do_filter(self, hosts, vm, properties): ...\n"


def restarted(place: Place) -> dict[str, str]:
    """What is in use after a restart."""
    place.registry = place.start()
    return place.versions()


def kept(place: Place) -> list[str]:
    """The files of which versions are kept."""
    return sorted(path.name.rpartition("-")[0] for path in place.state.iterdir())


def test_a_plugin_deleted_while_nobody_looked_does_not_come_back(place):
    """When a later file of its name does not load; and nothing is kept of it from then on."""
    path = place.write("a", plugin(1))
    place.write("b", plugin(1))
    assert place.versions() == {"a": "1", "b": "1"}
    path.unlink()
    assert restarted(place) == {"b": "1"}
    assert kept(place) == ["b"]
    place.write("a", BROKEN)
    assert restarted(place) == {"b": "1"}


def test_nothing_is_kept_of_a_folder_that_is_used_no_more(place):
    """By another plugins_path, at a start and at a reload; nor what a killed daemon began."""
    place.write("a", plugin(1))
    place.write("b", plugin(1), place.second)
    both = place.settings
    first = replace(both, plugins_path=(place.first,))
    assert place.versions() == {"a": "1", "b": "1"}
    (place.state / ".b-0123456789abcdef.json.new").touch()
    (place.state / "of somebody else").touch()
    place.registry.renew(Loader(first, place.analyse))
    assert place.versions() == {"a": "1"}
    assert kept(place) == ["", "a"]
    place.settings = both
    assert restarted(place) == {"a": "1", "b": "1"}
    place.settings = first
    assert restarted(place) == {"a": "1"}
    assert kept(place) == ["", "a"]


def test_versions_of_a_folder_that_cannot_be_read_stay(place):
    """They are there still, for all that anybody knows."""
    place.write("a", plugin(1))
    path = place.write("b", plugin(1), place.second)
    assert place.versions() == {"a": "1", "b": "1"}
    place.second.chmod(0o777)
    assert restarted(place) == {"a": "1"}
    path.write_text(BROKEN)
    place.second.chmod(0o755)
    assert place.versions() == {"a": "1", "b": "1"}


@pytest.mark.parametrize("running", [True, False])
def test_of_a_plugin_whose_conf_file_stands_alone_its_filters_names_are_kept(place, running):
    """And its code is not; when the conf file goes, nothing is kept."""
    path = place.write("guard", GUARD)
    conf = place.confs / "guard.conf"
    conf.write_text("on_failure = reject\n")
    assert place.versions() == {"Guard": ""}
    path.unlink()
    if not running:
        place.registry = place.start()
    for _ in range(2):
        assert set(place.registry.refresh().missed) == {"guard", "Guard"}
        assert kept(place) == ["guard"]
        place.registry = place.start()
    place.write("guard", BROKEN)
    for _ in range(2):
        catalogue = place.registry.refresh()
        assert (versions(catalogue), set(catalogue.missed)) == ({}, {"guard", "Guard"})
        place.registry = place.start()
    path.unlink()
    conf.unlink()
    place.registry.refresh()
    assert kept(place) == []


def test_what_could_not_be_removed_is_removed_later(place, monkeypatch):
    """As on a disk that was read-only for a while."""

    def refuse(_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    path.unlink()
    with monkeypatch.context() as patched:
        patched.setattr(type(path), "unlink", refuse)
        assert place.versions() == {}
    assert kept(place) == ["a"]
    assert place.versions() == {}
    assert kept(place) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_broken_plugin_is_put_in_shadow_and_back(place, restarts):
    """By its conf file, though the version in use is an older one; its limits are those of now."""
    place.write("a", plugin(1))
    conf = place.confs / "a.conf"
    assert place.versions() == {"a": "1"}
    place.write("a", BROKEN)
    for _ in range(2):
        conf.write_text("shadow = true\ntimeout = 5\n")
        if restarts:
            place.registry = place.start()
        assert place.versions() == {}
        shadow = place.registry.current().shadows[Kind.COST_FUNCTION, "a"]
        assert (shadow.description, shadow.limits.timeout) == ("1", 5.0)
        conf.write_text("shadow = soon\n")
        assert place.versions() == {}
        conf.unlink()
        if restarts:
            place.registry = place.start()
        assert place.versions() == {"a": "1"}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("broken", [BROKEN, None])
def test_a_broken_plugin_is_switched_off_and_on_again(place, restarts, broken):
    """The version that was in use before is in use again; also where its file cannot be read."""
    path = place.write("a", plugin(1))
    conf = place.confs / "a.conf"
    assert place.versions() == {"a": "1"}
    if broken is None:
        path.chmod(0o777)
    else:
        place.write("a", broken)
    assert place.versions() == {"a": "1"}
    for _ in range(2):
        conf.write_text("enabled = false\n")
        if restarts:
            place.registry = place.start()
        assert (place.versions(), place.faults()) == ({}, [])
        conf.write_text("enabled = flase\n")
        assert (place.versions(), len(place.faults())) == ({}, 1)
        conf.write_text("enabled = true\n")
        if restarts:
            place.registry = place.start()
        assert place.versions() == {"a": "1"}
        assert KEPT in place.faults()[0]


def test_after_a_restart_the_log_tells_that_the_former_version_is_in_use(place, caplog):
    """Not that the file, which has a mistake, was loaded."""
    caplog.set_level("INFO")
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    place.write("a", BROKEN)
    place.registry = place.start()
    caplog.clear()
    assert place.versions() == {"a": "1"}
    fault, in_use = caplog.messages
    assert fault.startswith(f"a plugin cannot be loaded: {path}:")
    assert in_use.startswith(f"the former {path} is in use (cost function), sha256:")


def test_a_version_that_does_not_load_either_is_not_tried_at_each_look(place, caplog):
    """It is run in a process of its own each time, and told each time."""
    place.write("a", plugin(1, "import _help"))
    helper = place.write("_help", "import os\nassert not os.path.exists(__file__ + '.off')\n")
    assert place.versions() == {"a": "1"}
    helper.with_name("_help.py.off").touch()
    place.write("a", BROKEN)
    place.registry = place.start()
    for _ in range(3):
        assert place.versions() == {}
    assert caplog.text.count("that was kept cannot be used") == 1
