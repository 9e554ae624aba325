"""Files to policy units: what is found in the folders, what is loaded, and what is refused."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Callable

import pytest

from ovirt_scheduler.catalogue.loader import LoadedPlugin, Loader
from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.plugins import Property
from ovirt_scheduler.model.units import Kind, OnFailure, PolicyUnit
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings import scheduler_conf
from tests.support.place import LONG_AGO, Place, huge
from tests.support.processes import open_files

ALL = (
    "def do_filter(hosts, vm, properties): return hosts\n"
    "def do_score(hosts, vm, properties): return {}\n"
    "def do_balance(hosts, properties): return None\n"
)


MIXED = """
from ovirt_scheduler.plugin import Scheduler

class Best(Scheduler):
    name = "best"
    def select_host(self, hosts, vm, properties): ...

class Out:
    def do_filter(self, hosts, vm, args_map): ...
"""


class Loading(Place):
    """Its loader, where the settings of the daemon are not the defaults."""

    def __init__(self, base: Path, executor: Executor) -> None:
        limits = "plugin_timeout = 7\nmemory_limit = 100 MiB\ncpu_limit = 8\nfiles_limit = 90\n"
        super().__init__(base, executor, limits)
        self.loader = Loader(self.settings, executor.analyse)

    def load(self, name: str = "plugin") -> LoadedPlugin:
        scan = self.loader.scan()
        (file,) = [file for file in scan.files if file.name == name]
        return self.loader.load(file, scan)

    def refusal(self, name: str = "plugin") -> tuple[str, int, str]:
        with pytest.raises(PluginError) as caught:
            self.load(name)
        error = caught.value
        return error.file, error.line, error.message


@pytest.fixture
def place(tmp_path, executor) -> Loading:
    return Loading(tmp_path, executor)


def unit(loaded: LoadedPlugin, kind: Kind) -> PolicyUnit:
    (found,) = [unit for unit in loaded.units if unit.kind is kind]
    return found


def test_a_look_lists_python_files_by_folder_and_name(place):
    """Hidden files and others are passed over."""
    for name in ("b.py", "a.py", "_help.py", "note.txt", ".#a.py", "c.py~", "d.pyc"):
        (place.first / name).touch()
    (place.second / "a.py").touch()
    (place.first / "linked.py").symlink_to(place.second / "a.py")
    scan = place.loader.scan()
    found = [(file.path.parent.name, file.name, file.helper) for file in scan.files]
    assert found == [
        ("first", "_help", True),
        ("first", "a", False),
        ("first", "b", False),
        ("first", "linked", False),
        ("second", "a", False),
    ]
    assert (scan.problems, scan.unreadable) == ([], [])


def test_a_folder_that_is_not_there_is_a_problem(place):
    """With what to do; the other folder is looked at all the same."""
    place.first.rmdir()
    (place.second / "a.py").touch()
    scan = place.loader.scan()
    assert [str(problem) for problem in scan.problems] == [
        f"{place.first}: there is no such folder; make it, or mend plugins_path"
    ]
    assert [file.name for file in scan.files] == ["a"]
    assert scan.unreadable == []


def test_a_link_to_nothing_does_not_load(place):
    """With what to do; a lock that an editor left is no file."""
    path = place.first / "plugin.py"
    path.symlink_to("nothing.py")
    (place.first / ".#plugin.py").symlink_to("ada@host.1")
    assert [file.name for file in place.loader.scan().files] == ["plugin"]
    assert place.refusal() == (str(path), None, "links to nothing; mend the link, or remove it")


def test_a_folder_of_the_default_may_be_missing(tmp_path, executor):
    """Those that come from PYTHONPATH are passed over (contract 6)."""
    conf = tmp_path / "scheduler.conf"
    conf.touch()
    settings = scheduler_conf.load(conf, {"PYTHONPATH": str(tmp_path)})
    assert Loader(settings, executor.analyse).scan().problems == []


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to(path)])
def test_a_folder_that_cannot_be_listed_is_told_apart_from_one_that_is_gone(place, make):
    """A file of that name, or a link to itself."""
    place.first.rmdir()
    make(place.first)
    scan = place.loader.scan()
    (problem,) = scan.problems
    assert problem.message.startswith("cannot be listed: ")
    assert scan.unreadable == [place.first]


def stamps_after(place: Loading, change: Callable[[], object]) -> tuple[dict, dict]:
    """The stamps before and after a change, of files written long ago."""
    path = place.first / "plugin.py"
    path.write_text(ALL)
    for written in (path, place.first, place.second):
        os.utime(written, LONG_AGO)
    before = place.loader.scan().stamps
    change()
    return before, place.loader.scan().stamps


def test_stamps_stay_the_same_while_nothing_changes(place):
    """A look does not change what it looks at."""
    before, after = stamps_after(place, lambda: None)
    assert before == after
    assert before[place.confs / "plugin.conf"] is None


@pytest.mark.parametrize("size", [len(ALL), 3])
def test_the_stamp_of_an_edited_file_differs(place, size):
    """Of the same size, and with its old time put back, too."""
    path = place.first / "plugin.py"

    def edit() -> None:
        path.write_text("#" * size)
        os.utime(path, LONG_AGO)

    before, after = stamps_after(place, edit)
    assert before[path] != after[path]


def test_stamps_tell_of_conf_files_and_of_the_folder(place):
    """A conf file that comes, a file that comes."""
    before, after = stamps_after(place, (place.confs / "plugin.conf").touch)
    assert before[place.confs / "plugin.conf"] is None
    assert after[place.confs / "plugin.conf"] is not None
    before, after = stamps_after(place, (place.first / "another.py").touch)
    assert before[place.first] != after[place.first]


def test_a_plugin_without_a_conf_file_has_the_settings_limits(place):
    """And no properties; the checksum is the file's."""
    (place.first / "plugin.py").write_text(ALL)
    loaded = place.load()
    checksum = f"sha256:{hashlib.sha256(ALL.encode()).hexdigest()}"
    assert [found.kind for found in loaded.units] == list(Kind)
    for found in loaded.units:
        assert (found.name, found.checksum, found.properties) == ("plugin", checksum, None)
        limits = type(found.limits)(7.0, 100 << 20, 8, 90, timeout_key=" (plugin_timeout)")
        assert found.limits == limits
        assert found.on_failure is OnFailure.IGNORE


def test_the_conf_file_says_more(place):
    """Its text belongs to the checksum (contract 2.1, 5.8)."""
    (place.first / "plugin.py").write_text(ALL)
    conf = (
        "name = Heat\ncustomProperties = ip=[0-9.]+;low={0-9}\ndefaultValues = 1.2.3.4\n"
        "kinds = filter\ntimeout = 3\nmemory_limit = 50 MiB\non_failure = reject\n"
    )
    (place.confs / "plugin.conf").write_text(conf)
    loaded = place.load()
    found = unit(loaded, Kind.FILTER)
    assert found.checksum == f"sha256:{hashlib.sha256((ALL + conf).encode()).hexdigest()}"
    assert found.properties.name == "Heat"
    assert found.properties.properties == (
        Property("ip", "[0-9.]+", "1.2.3.4"),
        Property("low", "{0-9}"),
    )
    assert (found.limits.timeout, found.limits.memory) == (3.0, 50 << 20)
    assert found.on_failure is OnFailure.REJECT
    assert unit(loaded, Kind.BALANCE).properties is None
    assert unit(loaded, Kind.BALANCE).limits.timeout == 3.0


def test_a_class_declares_its_own_properties(place):
    """The conf file's win over them (contract 5.3, 5.8)."""
    (place.first / "plugin.py").write_text(
        "class old:\n    properties_validation = 'count=[0-9]*'\n"
        "    def do_filter(self, hosts_ids, vm_id, args_map): ...\n"
    )
    assert place.load().units[0].properties.properties == (Property("count", "[0-9]*"),)
    (place.confs / "plugin.conf").write_text("customProperties = a=b\n")
    assert place.load().units[0].properties.properties == (Property("a", "b"),)


def test_a_disabled_plugin_has_no_units_and_is_not_run(place):
    """Not even to be analysed."""
    (place.first / "plugin.py").write_text("def do_filter(:\n")
    (place.confs / "plugin.conf").write_text("enabled = false\n")
    assert place.load().units == ()


def test_a_scheduler_cannot_be_in_shadow(place, caplog):
    """It is left out, which is noted once; the units of its file are in shadow, and never reject."""
    path, conf = place.write("plugin", MIXED), place.confs / "plugin.conf"
    conf.write_text("shadow = true\non_failure = reject\n")
    loaded = place.load()
    assert loaded.drivers == ()
    assert [(unit.shadow, unit.on_failure) for unit in loaded.units] == [(True, OnFailure.IGNORE)]
    for _ in range(2):
        place.registry.refresh()
    (noted,) = caplog.messages
    assert noted == (
        f"a plugin should be looked at: {path}: the scheduler best is left out: its conf file says shadow = true, which "
        "is for policy units alone"
    )


def test_the_helpers_that_it_imports_belong_to_its_checksum(place):
    """Others of the folder do not, nor do those of another folder (contract 5.1)."""
    (place.first / "plugin.py").write_text(f"import helper\n{ALL}")
    (place.first / "helper.py").write_text("x = 1")
    (place.first / "other.py").write_text("x = 1")
    first = place.load().units[0].checksum
    (place.first / "other.py").write_text("x = 2")
    assert place.load().units[0].checksum == first
    (place.first / "helper.py").write_text("x = 2")
    assert place.load().units[0].checksum != first
    (place.first / "helper.py").rename(place.second / "helper.py")
    assert place.refusal()[2].startswith("cannot import helper: ")


def test_a_helper_that_is_refused_is_told_where_it_is_imported(place):
    """With the reason, whatever it is; a plugin that does not import it is not harmed."""
    (place.first / "plugin.py").write_text(f"\nimport _helper\n{ALL}")
    (place.first / "other.py").write_text(ALL)
    helper = place.first / "_helper.py"
    huge(helper)
    file, line, message = place.refusal()
    assert (file, line) == (str(place.first / "plugin.py"), 2)
    assert message == (
        f"imports _helper, which is left out: {helper}: is longer than 1024 KiB; make it shorter"
    )
    assert len(place.load("other").units) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "is not a plain file; put one in its place"),
        (os.mkdir, "is not a plain file; put one in its place"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a plain file; put one in its place"),
        (huge, "is longer than 1024 KiB; make it shorter"),
    ],
)
def test_what_is_no_file_of_a_fair_size_is_refused(place, make, message):
    """Without waiting for it, and without keeping it open."""
    path = place.first / "plugin.py"
    make(path)
    assert place.refusal() == (str(path), None, message)
    assert place.refusal() == (str(path), None, message)
    assert not {str(path), str(path.resolve())} & {*open_files().values()}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, huge])
def test_such_a_neighbour_harms_nobody(place, make):
    """It is just not there to be imported."""
    make(place.first / "neighbour.py")
    (place.first / "plugin.py").write_text(ALL)
    assert len(place.load().units) == 3


def test_a_neighbour_that_has_gone_since_the_look_harms_nobody(place):
    """An editor's file that comes and goes."""
    (place.first / "plugin.py").write_text(ALL)
    (place.first / "neighbour.py").touch()
    scan = place.loader.scan()
    (place.first / "neighbour.py").unlink()
    assert len(place.loader.load(scan.files[1], scan).units) == 3


def test_a_plugin_that_has_gone_since_the_look_is_no_fault(place):
    """The registry knows it by this."""
    (place.first / "plugin.py").write_text(ALL)
    scan = place.loader.scan()
    (place.first / "plugin.py").unlink()
    with pytest.raises(FileNotFoundError):
        place.loader.load(scan.files[0], scan)


@pytest.mark.parametrize("name", ["a.b", "line\nfeed", "escape\x1b[2J", os.fsdecode(b"\xff\xfe")])
def test_a_name_that_cannot_be_a_units_is_refused(place, name):
    """And shown so that log and terminal can show it."""
    (place.first / f"{name}.py").write_text(ALL)
    file, line, message = place.refusal(name)
    assert (file, line) == (str(place.first), None)
    assert message == (
        f"rename {f'{name}.py'!r}: no dot and no control character may be in the name of a plugin"
    )
    assert message.isprintable()


def test_a_name_that_the_engine_cannot_take_is_refused(place):
    """More than 128 characters (contract 3.1)."""
    (place.first / f"{'n' * 128}.py").write_text(ALL)
    assert len(place.load("n" * 128).units) == 3
    path = place.first / f"{'n' * 129}.py"
    path.write_text(ALL)
    file, line, message = place.refusal("n" * 129)
    assert (file, line) == (str(path), 1)
    assert message.endswith(
        " cannot be the name of a unit: expected at most 128 printable characters; rename it"
    )


@pytest.mark.parametrize(
    ("conf", "line", "begins"),
    [
        ("timeout = soon\n", 1, "timeout: "),
        ("\ncolour = blue\n", 2, "colour: "),
        ("timeout = 5\ncustomProperties = a=(\n", 2, "property a: "),
        ("customProperties = a={1-5}\ndefaultValues = 7\n", 2, "property a: as its default "),
        ("customProperties = a={1-5}\n#\ndefaultValues = 4;5\n", 3, "more default values than"),
    ],
)
def test_a_mistake_in_the_conf_file_is_told_in_the_conf_file(place, conf, line, begins):
    """With its line, be it in what a property allows."""
    (place.first / "plugin.py").write_text(ALL)
    (place.confs / "plugin.conf").write_text(conf)
    file, its_line, message = place.refusal()
    assert (file, its_line) == (str(place.confs / "plugin.conf"), line)
    assert message.startswith(begins)


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, huge, lambda path: path.symlink_to("/nowhere")]
)
def test_a_conf_file_that_is_none_is_refused(place, make):
    """It is a mistake, not an absent file."""
    (place.first / "plugin.py").write_text(ALL)
    make(place.confs / "plugin.conf")
    assert place.refusal()[0] == str(place.confs / "plugin.conf")


def test_a_fault_of_the_analysis_is_the_files(place):
    """File, line and sentence come through."""
    path = place.first / "plugin.py"
    path.write_text("\n1 / 0\ndef do_filter(hosts, vm, properties): ...\n")
    file, line, message = place.refusal()
    assert (file, line) == (str(path), 2)
    assert message.startswith("loading it raised ZeroDivisionError")


def test_a_name_that_cannot_be_shown_is_no_name_of_a_unit(place):
    """It would stand in the log, and in every answer of discover."""
    (place.first / "plugin.py").write_text(
        "def do_filter(self, hosts_ids, vm_id, args_map): ...\n"
        "name = 'two\\nlines'\n"
        "globals()[name] = type(name, (), {'do_filter': do_filter, '__module__': __name__})\n"
        "del do_filter\n"
    )
    assert place.refusal()[2] == (
        "'two\\nlines' cannot be the name of a unit: expected at most 128 printable characters; "
        "rename it"
    )
