"""The catalogue follows the folders: real files, real processes, the last good version."""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path

import pytest

from ovirt_scheduler.errors import UnknownUnit
from ovirt_scheduler.model.jobs import Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities, RequestedUnit
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings import scheduler_conf
from tests.support.jobs import HOSTS, job_of, only
from tests.support.place import LONG_AGO, cost_function, plugin, versions


def filtering(name: str) -> Request:
    caller = Caller("id", AnswerForm.ENGINE, "a test")
    return Request(caller, Entities(), {}, {Kind.FILTER: (RequestedUnit(name),)})


KEPT = "the last version that loaded stays in use (sha256:"


def test_a_unit_is_found_by_kind_and_name(place):
    """And it is known of which kinds a name is."""
    place.write("a", plugin(1) + "def do_balance(hosts, properties): ...\n")
    catalogue = place.registry.refresh()
    assert cost_function(catalogue, "a").description == "1"
    assert catalogue.units.get((Kind.FILTER, "a")) is None
    assert cost_function(catalogue, "b") is None
    assert catalogue.kinds_of("a") == (Kind.COST_FUNCTION, Kind.BALANCE)
    assert catalogue.kinds_of("b") == ()


def test_a_name_that_no_unit_has_is_told_with_the_next_step(place):
    """The kinds that it has, the capitals that were meant, or where to look."""
    place.write("Few", plugin(1))
    catalogue = place.registry.refresh()
    for kind, name, told in (
        (Kind.FILTER, "Few", "; it is a cost function"),
        (Kind.COST_FUNCTION, "few", "; did you mean Few?"),
        (Kind.COST_FUNCTION, "Many", "; discover lists what there is, ovirt-scheduler check what "),
    ):
        with pytest.raises(UnknownUnit, match=re.escape(f"named {name!r}{told}")):
            catalogue.unit(kind, name)


def test_a_unit_whose_file_does_not_load_is_told_with_the_reason(place):
    """With the line, or the helper or conf file that has the mistake, and until that is mended."""
    for name, text in (
        ("broken", "import os\n\n\ndef do_score(:\n"),
        ("helped", "import _helper\n" + plugin(1)),
        ("_helper", "x = 1\ny = \n"),
        ("set", plugin(1)),
        ("first", plugin(1)),
    ):
        place.write(name, text)
    (place.confs / "set.conf").write_text("timeout = soon\n")
    place.write("first", plugin(1) + "def do_filter(hosts, vm, properties): ...\n", place.second)
    catalogue = place.registry.refresh()
    for name, reason in (
        ("broken", "its file broken.py does not load: line 4: "),
        ("helped", "its file helped.py does not load: _helper.py, line 2: "),
        ("set", "its file set.py does not load: set.conf, line 1: timeout"),
        ("first", "it is a cost function; its file first.py does not load: "),
    ):
        errors = catalogue.job(filtering(name), 0.0).errors[Kind.FILTER]
        assert errors[name][0].startswith(f"there is no filter named '{name}'; {reason}")
    place.write("broken", "def do_filter(hosts, vm, properties): ...\n")
    assert place.registry.refresh().job(filtering("broken"), 0.0).calls


def test_a_file_dropped_in_edited_and_taken_away_is_followed(place):
    """By the next look each time (contract 4.6)."""
    assert place.versions() == {}
    path = place.write("a", plugin(1))
    place.write("b", plugin(1))
    assert place.versions() == {"a": "1", "b": "1"}
    place.write("a", plugin(2))
    assert place.versions() == {"a": "2", "b": "1"}
    path.unlink()
    assert place.versions() == {"b": "1"}
    assert place.faults() == []


def test_a_file_replaced_by_another_is_the_other(place):
    """As editors and installers do; also by an older one of the same size."""
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    new = place.first / "a.new"
    new.write_text(plugin(2))
    os.utime(new, LONG_AGO)
    new.replace(path)
    assert place.versions() == {"a": "2"}


@pytest.mark.parametrize("broken", ["def do_score(:\n", "raise ValueError('no')\n" + plugin(7)])
def test_an_edit_that_does_not_load_leaves_the_version_before_it(place, broken):
    """And says so; the mended one takes its place (contract 4.6)."""
    path = place.write("a", plugin(1))
    before = cost_function(place.registry.refresh(), "a")
    place.write("a", broken)
    catalogue = place.registry.refresh()
    assert cost_function(catalogue, "a") == before
    (fault,) = catalogue.faults
    assert (fault.file, fault.line) == (str(path), 1)
    assert f"; {KEPT}{before.checksum[7:19]})" in fault.message
    place.write("a", plugin(2))
    assert (place.versions(), place.faults()) == ({"a": "2"}, [])


def test_a_plugin_that_never_loaded_is_a_fault_and_nothing_else(place):
    """The others are not affected (contract 5.5)."""
    place.write("good", plugin(1))
    path = place.write("bad", "x = (\n")
    assert place.versions() == {"good": "1"}
    (fault,) = place.faults()
    assert fault.startswith(f"{path}:1: syntax error")
    assert KEPT not in fault
    place.write("bad", plugin(2))
    assert place.versions() == {"bad": "2", "good": "1"}


def test_a_folder_that_vanishes_takes_its_units_along(place):
    """And brings them back when it comes back."""
    place.write("a", plugin(1))
    place.write("b", plugin(1), place.second)
    assert place.versions() == {"a": "1", "b": "1"}
    away = place.first.rename(place.first.with_name("away"))
    assert place.versions() == {"b": "1"}
    assert place.faults() == [
        f"{place.first}: there is no such folder; make it, or mend plugins_path"
    ]
    away.rename(place.first)
    assert (place.versions(), place.faults()) == ({"a": "1", "b": "1"}, [])


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to(path)])
def test_a_folder_that_cannot_be_listed_keeps_its_units_and_their_names(place, make):
    """They may well be there still: a file of that name, a link to itself."""
    place.write("a", plugin(1))
    other = place.write("a", plugin(2), place.second)
    assert place.versions() == {"a": "1"}
    away = place.first.rename(place.first.with_name("away"))
    make(place.first)
    assert place.versions() == {"a": "1"}
    first, second = place.faults()
    assert first.startswith(f"{place.first}: cannot be listed: ")
    assert second.startswith(f"{other}: ")
    place.first.unlink()
    away.rename(place.first)
    assert place.versions() == {"a": "1"}


def test_a_filter_in_a_folder_that_cannot_be_listed_rejects_where_it_is_to(place):
    """At the start nobody knows it but its conf file; one that is known is still in use."""
    place.write("guard", "def do_filter(hosts, vm, properties): ...\n", place.second)
    (place.confs / "guard.conf").write_text("on_failure = reject\n")
    place.second.chmod(0o777)
    assert "guard" in place.registry.refresh().missed
    place.second.chmod(0o755)
    assert not place.registry.refresh().missed
    place.second.chmod(0o777)
    catalogue = place.registry.refresh()
    assert not catalogue.missed
    assert catalogue.units.keys() == {(Kind.FILTER, "guard")}


def test_scheduler_conf_is_no_conf_file_of_a_plugin(place):
    """It may lie beside them, and say on_failure = reject."""
    conf = place.confs / "scheduler.conf"
    folders = f"plugins_path = {place.first}\nplugins_conf_path = {place.confs}\n"
    conf.write_text(f"{folders}on_failure = reject\n")
    place.settings = scheduler_conf.load(conf, {})
    place.registry = place.start()
    assert place.faults() == []
    (place.confs / "gone.conf").touch()
    assert len(place.faults()) == 1


def test_an_edited_helper_makes_a_new_version_of_all_that_import_it(place):
    """And of no other."""
    place.write("_help", "version = 1")
    place.write("a", plugin(1, "import _help"))
    place.write("b", plugin(1))
    before = place.registry.refresh()
    place.write("_help", "version = 22")
    after = place.registry.refresh()
    assert cost_function(before, "a").checksum != cost_function(after, "a").checksum
    assert cost_function(before, "b") == cost_function(after, "b")


def test_a_package_is_followed_as_a_helper_is(place):
    """Completed, edited, broken: the calls get what the last good version had."""
    folder = place.first / "package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    place.write("a", plugin(1, "from package.part import x"))
    (fault,) = place.registry.refresh().faults
    assert "cannot import package.part" in fault.message
    place.write("package/part", "x = 1")
    before = cost_function(place.registry.refresh(), "a")
    place.write("package/part", "x = 2")
    after = cost_function(place.registry.refresh(), "a")
    assert before.checksum != after.checksum
    place.write("package/part", "x = (")
    catalogue = place.registry.refresh()
    assert cost_function(catalogue, "a") == after
    assert KEPT in catalogue.faults[0].message


def test_a_call_runs_the_package_that_was_read(place):
    """Imported late, when the disk has another by then, or none."""
    (place.first / "package").mkdir()
    part = place.write("package/part", "version = 1")
    place.write("package/__init__", "")
    place.write(
        "a",
        "def do_score(hosts, vm, properties):\n"
        "    from package import part\n"
        "    return [(host, part.version) for host in hosts]\n",
    )
    unit = cost_function(place.registry.refresh(), "a")
    part.write_text("version = 2")
    for _ in range(2):
        result = only(place.executor.run(job_of([unit])))
        assert result.value == dict.fromkeys(HOSTS, 1), result
        shutil.rmtree(place.first / "package", ignore_errors=True)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_text("x = (\n")])
def test_a_helper_broken_or_taken_away_leaves_the_last_good_version(place, harm):
    """Which has the helper as it was."""
    helper = place.write("_help", "version = 1")
    place.write("a", plugin(1, "import _help"))
    before = cost_function(place.registry.refresh(), "a")
    harm(helper)
    catalogue = place.registry.refresh()
    assert cost_function(catalogue, "a") == before
    assert [module.name for module in before.plugin.modules] == ["a", "_help"]
    (fault,) = catalogue.faults
    assert KEPT in fault.message


def test_a_helper_that_comes_late_mends_the_plugin_that_lacks_it(place):
    """Without a look by discover: files are copied one by one."""
    place.write("a", plugin(1, "import zhelp"))
    os.utime(place.first, LONG_AGO)
    assert place.versions() == {}
    place.write("zhelp", "x = 1")
    place.registry._update()
    assert versions(place.registry.current()) == {"a": "1"}


@pytest.mark.parametrize("helper", ["_site", "_site/__init__"])
@pytest.mark.parametrize("text", ["from _site import x", "x = __import__('_si' + 'te').x"])
def test_an_optional_helper_that_is_added_belongs_to_the_plugin(place, helper, text):
    """Also a package, and one whose name is computed; and when it is taken away again."""
    place.write("a", plugin(1, f"try:\n    {text}\nexcept ImportError:\n    x = 0\n"))
    without = cost_function(place.registry.refresh(), "a")
    (place.first / "_site").mkdir()
    path = place.write(helper, "x = 1")
    place.registry._update()
    with_helper = cost_function(place.registry.current(), "a")
    assert [module.name for module in with_helper.plugin.modules] == ["a", "_site"]
    assert with_helper.checksum != without.checksum
    path.unlink()
    assert cost_function(place.registry.refresh(), "a").checksum == without.checksum


def test_an_edited_conf_file_is_followed_and_a_broken_one_is_not(place):
    """The version before it stays, with the conf file as it was."""
    place.write("a", plugin(1))
    conf = place.confs / "a.conf"

    def timeout() -> float:
        return cost_function(place.registry.refresh(), "a").limits.timeout

    assert timeout() == 30.0
    conf.write_text("timeout = 5\n")
    assert timeout() == 5.0
    conf.write_text("timeout = soon\n")
    assert timeout() == 5.0
    (fault,) = place.registry.refresh().faults
    assert (fault.file, fault.line) == (str(conf), 1)
    assert KEPT in fault.message
    conf.unlink()
    assert timeout() == 30.0


def test_a_plugin_is_disabled_and_enabled_by_its_conf_file(place, caplog):
    """The log does not say that the file is gone, and whoever names it is told why."""
    caplog.set_level(logging.INFO)
    path = place.write("a", plugin(1))
    assert place.versions() == {"a": "1"}
    (place.confs / "a.conf").write_text("enabled = false\n")
    assert (place.versions(), place.faults()) == ({}, [])
    assert f"unloaded {path}: it has nothing to call any more" in caplog.messages
    with pytest.raises(UnknownUnit, match=r"named 'a'; a\.conf says enabled = false"):
        place.registry.current().unit(Kind.FILTER, "a")
    (place.confs / "a.conf").write_text("enabled = true\ntimeout = soon\n")
    place.registry.refresh()
    with pytest.raises(UnknownUnit, match=r"its file a\.py does not load: .*timeout"):
        place.registry.current().unit(Kind.FILTER, "a")
    (place.confs / "a.conf").write_text("enabled = true\n")
    assert place.versions() == {"a": "1"}


def test_discover_loads_again_what_did_not_load(place, tmp_path):
    """What was wrong may have been mended elsewhere: a package installed, a mount made."""
    needed = tmp_path / "needed"
    place.write("a", plugin(1, f"import pathlib; assert pathlib.Path({str(needed)!r}).exists()"))
    os.utime(place.first, LONG_AGO)
    assert place.versions() == {}
    needed.touch()
    assert (place.versions(), place.faults()) == ({"a": "1"}, [])


def test_a_name_taken_by_a_file_of_an_earlier_folder_is_a_fault(place):
    """Which file has it is said; when that one goes, the other takes over (contract 5.5)."""
    first = place.write("a", plugin(1))
    second = place.write("a", plugin(2), place.second)
    assert place.versions() == {"a": "1"}
    assert place.faults() == [
        f"{second}: {first} has the cost function a already; rename one of them"
    ]
    first.unlink()
    assert (place.versions(), place.faults()) == ({"a": "2"}, [])
    first.write_text(plugin(3))
    assert place.versions() == {"a": "3"}


def test_nothing_is_analysed_again_that_has_not_changed(place):
    """Neither by discover nor by a run call."""
    for name in "abc":
        place.write(name, plugin(1))
    place.registry.refresh()
    assert sorted(place.analysed) == ["a", "b", "c"]
    place.write("b", plugin(2))
    place.registry.refresh()
    place.registry.current()
    assert place.analysed[3:] == ["b"]


def test_what_was_loaded_is_told_by_the_names_of_classes(place, caplog):
    """A function's name is the file's, which is there already."""
    caplog.set_level(logging.INFO)
    text = (
        "class Old:\n"
        "    def do_filter(self, hosts, vm, properties): ...\n"
        "    def do_balance(self, hosts, properties): ...\n"
    )
    path = place.write("a", f"{text}{plugin(1)}")
    place.registry.refresh()
    (loaded,) = caplog.messages
    kinds = "cost function, filter Old, balance Old"
    assert loaded.startswith(f"loaded {path} ({kinds}), sha256:")


def test_each_change_is_logged_once(place, caplog):
    """Loaded, broken, gone; a fault is not repeated at every look."""
    caplog.set_level(logging.INFO)
    path = place.write("a", plugin(1))
    checksum = cost_function(place.registry.refresh(), "a").checksum
    place.registry.refresh()
    place.write("a", "x = (\n")
    place.registry.refresh()
    place.registry.refresh()
    path.unlink()
    place.registry.refresh()
    loaded, broken, gone = caplog.messages
    assert loaded == f"loaded {path} (cost function), {checksum}"
    assert broken.startswith(f"a plugin cannot be loaded: {path}:1: syntax error")
    assert gone == f"unloaded {path}: it is gone"


def test_an_edit_back_to_the_good_version_closes_the_error_in_the_log(place, caplog):
    """Once, of the file that the error named; a new version says it by being loaded."""
    caplog.set_level(logging.INFO)
    path = place.write("a", plugin(1, "import _help"))
    helper = place.write("_help", "x = 1\n")
    conf = place.confs / "a.conf"
    place.registry.refresh()
    for file, good, bad in (
        (path, path.read_text(), "x = (\n"),
        (helper, "x = 1\n", "x = (\n"),
        (conf, "", "timeout = soon\n"),
    ):
        caplog.clear()
        file.write_text(bad)
        place.registry.refresh()
        if good:
            file.write_text(good)
        else:
            file.unlink()
        place.registry.refresh()
        place.registry.refresh()
        broken, mended = caplog.messages
        assert broken.startswith(f"a plugin cannot be loaded: {file}:1: ")
        assert mended == f"{file} {'is in order again' if good else 'is gone'}"
    path.write_text("x = (\n")
    place.registry.refresh()
    caplog.clear()
    path.write_text(plugin(2))
    place.registry.refresh()
    assert [message.partition(" (")[0] for message in caplog.messages] == [f"loaded {path}"]
