"""Filters that are not loaded, and reject every host where they are to (contract 4.2)."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.daemon import refusal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

HOSTS = ["11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"]
VM = "33333333-3333-3333-3333-333333333333"
KEEPS_ALL = "def do_filter(hosts, vm, properties):\n    return hosts\n"
CLASS = "class Guard:\n    def do_filter(self, hosts, vm, args):\n        return hosts\n"
BROKEN = "def do_filter(hosts, vm, properties)\n"


class Folders:
    """A daemon over one folder of plugins and one of conf files."""

    def __init__(self, base, start_daemon):
        self.base, self.plugins, self.confs = base, base / "plugins", base / "confs"
        self._start = start_daemon
        self.open = contextlib.ExitStack()
        for folder in (self.plugins, self.confs):
            folder.mkdir()
        (self.plugins / "keeps_all.py").write_text(KEEPS_ALL)

    def write(self, text, conf=None, name="guard"):
        (self.plugins / f"{name}.py").write_text(text)
        if conf is not None:
            (self.confs / f"{name}.conf").write_text(conf)

    def start(self, settings=""):
        settings = f"ssl = false\nplugins_conf_path = {self.confs}\n{settings}"
        self.daemon = self._start(self.plugins, settings, folder=self.base)
        self.engine, self.design = (
            self.open.enter_context(self.daemon.proxy(path)) for path in ("/engine", "/design")
        )

    def kept(self, name="guard"):
        """The hosts that are left, and what is said of the filter."""
        answer = self.engine.runFilters(["keeps_all", name], HOSTS, VM, {})
        return answer["result"], answer.get("plugin_errors", {}).get(name, [""])[0]


@pytest.fixture
def folders(tmp_path, start_daemon):
    made = Folders(tmp_path, start_daemon)
    with made.open:
        yield made
    made.daemon.stop()


@pytest.mark.parametrize(
    ("text", "conf", "settings"),
    [
        (BROKEN, "on_failure = reject\n", ""),
        (BROKEN, None, "on_failure = reject"),
        (KEEPS_ALL, "on_failure = reject\ntmeout = 3\n", ""),
        (None, "on_failure = reject\n", ""),
        (None, "timeout = 3\n", "on_failure = reject"),
    ],
)
def test_a_filter_that_is_not_loaded_accepts_no_host_where_it_is_to_reject(
    folders, text, conf, settings
):
    """Its file or its conf file is wrong, or only the conf file is there."""
    folders.write(text or "", conf)
    if text is None:
        (folders.plugins / "guard.py").unlink()
    folders.start(settings)
    kept, told = folders.kept()
    assert kept == []
    assert "its filter accepts no host (on_failure = reject)" in told
    assert str(folders.confs if text in (None, KEEPS_ALL) else folders.plugins) in told


@pytest.mark.parametrize(
    ("text", "conf", "settings"),
    [
        (BROKEN, None, ""),
        (KEEPS_ALL, "on_failure = ignore\ntmeout = 3\n", ""),
        (BROKEN, "on_failure = reject\nenabled = false\n", "on_failure = reject"),
        (None, "on_failure = reject\nenabled = false\n", "on_failure = reject"),
    ],
)
def test_it_is_left_out_where_it_is_not_to_reject_or_is_disabled(folders, text, conf, settings):
    """As though it had not been asked for."""
    folders.write(text or "", conf)
    if text is None:
        (folders.plugins / "guard.py").unlink()
    folders.start(settings)
    kept, told = folders.kept()
    assert kept == HOSTS
    assert told != ""


@pytest.mark.parametrize("spoil", ["a folder", "utf-16", "a colon", "a link to nothing", "mode"])
def test_a_conf_file_that_cannot_be_read_counts_as_reject_for_all_filters_of_its_file(
    folders, spoil
):
    """For those that are classes, too, though nothing was ever kept of them."""
    folders.write(CLASS)
    conf = folders.confs / "guard.conf"
    if spoil == "a folder":
        conf.mkdir()
    elif spoil == "a link to nothing":
        conf.symlink_to("nowhere")
    elif spoil == "a colon":
        conf.write_text("on_failure: reject\n")
    else:
        conf.write_text("on_failure = reject\n", "utf-16" if spoil == "utf-16" else "utf-8")
        conf.chmod(0o666 if spoil == "mode" else 0o644)
    folders.start()
    for name in ("guard", "Guard"):
        kept, told = folders.kept(name)
        assert kept == []
        assert "its filter accepts no host" in told
        assert "not known" not in told
        assert str(conf) in told


def test_names_of_classes_that_the_state_folder_lost_are_told_as_not_known(folders):
    """Both where the plugin does not load and where it is gone; no word where they are known."""
    folders.write(CLASS, "on_failure = reject\n")
    folders.start()
    (folders.plugins / "guard.py").write_text(BROKEN)
    folders.daemon.stop()
    kept_versions = folders.daemon.state / "plugins"
    for version in kept_versions.iterdir():
        version.unlink()
    folders.start()
    unknown = "if it has filters that are classes, their names are not known"
    assert unknown in folders.kept("guard")[1]
    assert unknown in folders.daemon.log
    assert folders.kept("Guard")[0] == HOSTS
    (folders.plugins / "guard.py").unlink()
    folders.design.discover()
    assert unknown in folders.kept("guard")[1]
    folders.write(CLASS)
    folders.design.discover()
    (folders.plugins / "guard.py").unlink()
    folders.design.discover()
    kept, told = folders.kept("Guard")
    assert (kept, unknown in told) == ([], False)


def test_an_unknown_name_rejects_nothing(folders):
    """Whatever scheduler.conf says: there is no file and no conf file of it."""
    folders.start("on_failure = reject")
    assert folders.kept("nobody")[0] == HOSTS


def test_the_default_of_scheduler_conf_holds_for_a_filter_that_fails(folders):
    """A conf file may say otherwise."""
    folders.write("def do_filter(hosts, vm, properties):\n    return 1 // 0\n")
    folders.write((folders.plugins / "guard.py").read_text(), "on_failure = ignore\n", "mild")
    folders.start("on_failure = reject")
    assert folders.kept()[0] == []
    assert folders.kept("mild")[0] == HOSTS


def test_a_class_filter_whose_file_is_gone_rejects_after_a_restart_too(folders):
    """Its name is kept in the state folder."""
    folders.write(CLASS, "on_failure = reject\n")
    folders.start()
    assert folders.kept("Guard") == (HOSTS, "")
    (folders.plugins / "guard.py").unlink()
    folders.design.discover()
    assert folders.kept("Guard")[0] == []
    folders.daemon.stop()
    folders.start()
    assert folders.kept("Guard")[0] == []
    folders.write(CLASS)
    folders.design.discover()
    assert folders.kept("Guard") == (HOSTS, "")
    for file in (folders.plugins / "guard.py", folders.confs / "guard.conf"):
        file.unlink()
        folders.design.discover()
    assert folders.kept("Guard")[0] == HOSTS
    (folders.confs / "guard.conf").write_text("on_failure = reject\n")
    folders.design.discover()
    assert folders.kept("guard")[0] == []


def test_the_design_form_has_its_fault_all_the_same(folders):
    """There is no such filter (contract 4.3)."""
    folders.write(BROKEN, "on_failure = reject\n")
    folders.start()
    assert "guard" in refusal(101, folders.design.runFilters, ["guard"], HOSTS, VM, {})


def test_a_scheduler_gets_no_host_either(folders):
    """A selection that such a filter comes before finds none."""
    folders.write(BROKEN, "on_failure = reject\n")
    folders.start("pages = loopback\n")
    answer = folders.engine.selectHost("default", HOSTS, VM, {"filters": "guard"})
    assert answer["result"] == ""
    assert "accepts no host" in answer["plugin_errors"]["guard"][0]
    (kept,) = wait_until(lambda: folders.design.decisions({"method": "selectHost"}))
    assert [host["verdicts"] for host in kept["hosts"]] == [
        [{"unit": "guard", "verdict": "removed"}] for _ in HOSTS
    ]
