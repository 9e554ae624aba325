"""Recorded decisions, made again: as they were, and with another policy."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from ovirt_scheduler.command import cli
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.workbench.comparison import Comparison
from ovirt_scheduler.workbench.replay import Changes
from tests.support.command import program, spawned
from tests.support.daemon import StartDaemon
from tests.support.processes import for_all_users, open_folder
from tests.support.recordings import H0, H1, H2, LYNX, OTHER_PLUGINS, PUMA, Recording, recorded
from tests.support.rest_server import Host, RestServer, Vm

pytestmark = pytest.mark.usefixtures("one_executor")


@pytest.fixture(scope="module")
def recording(start_daemon: StartDaemon, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Of a daemon with an engine; both have ended."""
    folder = tmp_path_factory.mktemp("recording")
    hosts, vms = [Host("lynx"), Host("puma")], [Vm("web", host="lynx")]
    with RestServer(folder, hosts, vms) as engine:
        return recorded(start_daemon, folder, 30, engine)


def settings(of: Recording) -> Path:
    """Writes a scheduler.conf for what was recorded."""
    config, conf = of.today.parent / "scheduler.conf", of.today.parent / "conf"
    config.write_text(f"plugins_path = {of.today}\nplugins_conf_path = {conf}\n", "utf-8")
    return config


@pytest.fixture
def replay(recording: Recording, monkeypatch, capsys):
    """Runs the command on the recording; gives what it shows, and ends with that status."""

    def run(*options: str, of: Recording = recording, status: int = 0) -> Any:
        monkeypatch.setenv("STATE_DIRECTORY", str(of.state))
        config = settings(of)
        assert cli.main(["replay", "--config", str(config), *options]) == status
        shown = capsys.readouterr().out
        return json.loads(shown) if "json" in options else shown

    return run


def named(told: Any) -> dict[str, Any]:
    """The decisions that a report names, by VM."""
    return {each["vm"].get("name"): each for each in told["differ"]}


def expected(of: Recording) -> dict[str, Any]:
    """Those that the changed rule decides otherwise, and how."""
    both = {vm: (each.left(25), each.left(40)) for vm, each in of.asked.items()}
    return {vm: answers for vm, answers in both.items() if answers[0] != answers[1]}


def check_report(replay: Any, of: Recording, page: Path) -> None:
    options = ("--plugins", str(of.other), "--unit", "Reserve", "--html", str(page))
    told = replay(*options, "-o", "json", of=of)
    told["differ"] = [each for each in told["differ"] if each["method"] == "runFilters"]
    wanted = expected(of)
    assert told["decisions"] - len(of.asked) in (0, 1)  # a scheduler was asked with it, too
    assert (told["same"], told["unsteady"], told["uncertain"]) == (1.0, {}, [])
    differ = named(told)
    assert {vm: (each["old"], each["new"]) for vm, each in differ.items()} == wanted
    assert wanted
    for vm, (old, new) in wanted.items():
        out = [host for host in of.asked[vm].hosts if host in old and host not in new]
        assert differ[vm]["refused"] == [{"id": host, "name": f"h{host[-1]}"} for host in out]
        assert differ[vm]["no_host"] is not bool(new)
        assert differ[vm]["units"] == ["Reserve"]
    html = page.read_text("utf-8")
    listed = re.findall(r"<summary>\S+ runFilters for VM (vm\d+): (.*)</summary>", html)
    assert {vm for vm, _ in listed} == set(wanted)
    assert {vm for vm, brief in listed if brief == "no host is left"} == {
        vm for vm, (_, new) in wanted.items() if not new
    }
    assert "<svg" in html
    assert not re.search(r"<script|https?:|src=|@import|url\(", html)


def test_a_changed_rule_is_told_by_exactly_the_decisions_that_it_changes(
    replay, recording, tmp_path
):
    """A rule of the cookbook, on a recording that a daemon made; worked out by hand besides."""
    check_report(replay, recording, tmp_path / "report.html")


def test_ctrl_c_shows_what_is_known_by_then(replay, monkeypatch):
    """No other decision is begun."""
    add = Comparison.add

    def interrupted(comparison: Comparison, *decision: Any) -> None:
        add(comparison, *decision)
        signal.raise_signal(signal.SIGINT)  # in this thread, at once

    monkeypatch.setattr(Comparison, "add", interrupted)
    told = replay("-o", "json", status=130)
    assert (told["stopped"], told["decisions"]) == (True, 1)


@pytest.mark.long
def test_a_changed_rule_on_a_thousand_decisions(replay, start_daemon: StartDaemon, tmp_path: Path):
    """The same, on as many as a day may have; and Ctrl-C ends it with what is known by then."""
    of = recorded(start_daemon, tmp_path, 1000)
    check_report(replay, of, tmp_path / "report.html")
    terminal, theirs = os.openpty()
    words = ("replay", "--config", tmp_path / "scheduler.conf")
    with program(of.state, *words, stdout=subprocess.PIPE, stderr=theirs) as running:
        os.close(theirs)
        progress = b""
        while not re.search(rb"[1-9]\d* of 1000 decisions", progress):
            progress += os.read(terminal, 1000)
        running.send_signal(signal.SIGINT)
        shown = running.communicate()[0]
    os.close(terminal)
    stopped = re.match(r"stopped: (\d+) of 1000 decisions were replayed\n", shown)
    assert stopped
    assert f"as it was: {stopped[1]} of {stopped[1]} decisions come out the same" in shown
    assert running.returncode == 130


def test_what_uses_chance_or_the_engine_is_told(replay, recording):
    """And is left out of what a change does; all else comes out the same."""
    told = replay("--without", "Reserve", "-o", "json")
    # Where no unit is asked any more, all hosts are left.
    said = {each["why"][-1] for each in told["differ"] if each["method"] == "runFilters"}
    assert {re.sub(r"\d+", "N", each) for each in said} == {"now: N hosts: N left"}
    assert told["unsteady"] == {"Chance": 1, "Asks": 1}
    assert told["same"] == 39 / 41
    assert len(told["uncertain"]) == 2
    assert not {"by chance \x9b", "of the engine"} & {*named(told)}
    shown = replay("--unit", "Chance")
    assert "as it was: 0 of 1 decisions come out the same (0.0 %)\n" in shown
    assert (
        "  Chance answers otherwise: it uses time, chance or the engine (decisions: 1)\n" in shown
    )
    assert "today: 1 of 1 decisions differ;" in shown
    assert "runFilters for VM by chance " in shown
    assert "\x9b" not in shown


def test_factors_and_units_can_be_changed(replay):
    """Each total, worked out by hand."""
    options = ("--vm", "scored", "-o", "json")

    (told,) = replay("--set", "Free=4", *options)["differ"]
    assert (told["old"], told["new"]) == ([H2, H1, H0], [H0, H1, H2])  # -56, -48, -44
    (told,) = replay("--without", "Large", *options)["differ"]
    assert (told["old"], told["new"]) == ([H2, H1, H0], [H0, H1, H2])
    assert told["winners"] == [{"id": H2, "name": "h2"}, {"id": H0, "name": "h0"}]
    assert told["vm"] == {"id": "v", "name": "scored"}
    assert told["units"] == ["Large"]
    assert told["why"][0] == "h0: 4 = Free 2 × (-30) + Large 1 × 64; now -60 = Free 2 × (-30)"
    assert told["why"][-2:] == ["before: 3 hosts: h2 is best", "now: 3 hosts: h0 is best"]


def test_a_unit_is_added_where_units_of_its_kind_were_asked():
    """A selection without filters gets none."""
    catalogue = SimpleNamespace(kinds_of=lambda _: (Kind.FILTER,))
    changes = Changes(added={"Few": None})
    scored = {"units": [{"name": "Even", "kind": "cost function"}]}
    filtered = {"units": [{"name": "Other", "kind": "filter"}]}
    assert changes.units(Kind.FILTER, scored, catalogue) == ()
    assert [each.name for each in changes.units(Kind.FILTER, filtered, catalogue)] == ["Other", "Few"]  # fmt: skip


def test_a_schedulers_selection_is_made_again(replay, recording):
    """With the units before it, which can be changed, too."""
    options = ("--vm", "selected", "-o", "json")
    (differ,) = replay("--without", "Large", "--with", "Free=2", *options)["differ"]
    assert (differ["old"], differ["new"]) == ([H1, H0], [H0, H1])
    assert [each["name"] for each in differ["winners"]] == ["h1", "h0"]
    (differ,) = replay("--plugins", str(recording.other), *options)["differ"]
    assert [each["id"] for each in differ["refused"]] == [H0, H1]
    assert differ["no_host"]
    assert differ["units"] == ["Reserve"]
    options = ("--vm", "by both", "-o", "json")
    (differ,) = replay("--with", "First", "--with", "Large", *options)["differ"]
    assert differ["units"] == ["First", "Large"]  # and not Both, which filters and scores


def test_a_unit_that_is_gone_and_a_plugin_that_does_not_load_are_named(replay, tmp_path):
    """And the exit status says that something is wrong."""
    (tmp_path / "Free.py").write_text(OTHER_PLUGINS["Free"], "utf-8")
    (tmp_path / "Broken.py").write_text("import nowhere\n\ndef do_score(): pass\n", "utf-8")
    options = ("--plugins", str(tmp_path), "-o", "json")
    told = replay("--vm", "engine's", *options, status=1)
    assert [each["units"] for each in told["differ"]] == [["Large"]]
    assert "Broken.py:1: " in told["problems"][0]
    # In the form that refuses a request with a unit that is not there.
    told = replay("--vm", "scored", *options, status=1)
    assert told["differ"][0]["new"] == {"refused": mock.ANY}
    assert told["after"]["milliseconds"]["median"] is None


def test_a_unit_that_fails_is_told(replay, recording, tmp_path):
    """Else a rule that never answers would be one that changes nothing."""
    (tmp_path / "Falls.py").write_text(
        "def do_filter(hosts, vm, properties):\n    return hosts[99]\n", "utf-8"
    )
    shutil.copy(recording.today / "Reserve.py", tmp_path)
    options = ("--plugins", str(tmp_path), "--with", "Falls", "--unit", "Reserve", "--limit", "3")
    (problem,) = replay(*options, "-o", "json", status=1)["problems"]
    assert problem.startswith(
        "Falls raised: IndexError: list index out of range (Falls.py:2) (deci"
    )


def test_a_unit_in_shadow_counts_when_it_is_added(replay, recording):
    """What it said when the decision was made changes nothing."""
    told = replay("--with", "First", "--unit", "Reserve", "-o", "json")
    assert (told["same"], told["unsteady"]) == (1.0, {})
    left = {vm: each.left(25) for vm, each in recording.asked.items()}
    differ = {vm: each for vm, each in named(told).items() if vm in left}
    assert {vm: each["new"] for vm, each in differ.items()} == {
        vm: hosts[:1] for vm, hosts in left.items() if len(hosts) > 1
    }
    assert all(each["units"] == ["First"] for each in differ.values())


@pytest.mark.long
def test_a_unit_that_is_added_is_asked_where_its_kind_was(replay):
    """Filters where filters were, with those that were there."""
    told = replay("--with", "Named", "-o", "json")
    methods = {each["method"] for each in told["differ"]}
    assert methods == {"runFilters", "selectHost"}
    assert all(each["new"] == [] and each["no_host"] for each in told["differ"])
    assert "web" not in {*named(told)}  # where Named was asked already


def test_a_factor_or_unit_that_is_none_is_refused(recording, monkeypatch, capsys):
    """With what is there."""
    monkeypatch.setenv("STATE_DIRECTORY", str(recording.state))
    given = ["replay", "--config", str(settings(recording))]
    unknown = f"no plugin in {recording.today} has this unit; did you mean Large?"
    for options, words in (
        (["--with", "Larg=2"], f"--with Larg: {unknown}"),
        (["--without", "Larg"], f"--without Larg: {unknown}"),
        (["--set", "Larg=2"], f"--set Larg: {unknown}"),
        (["--set", "Chance=2"], "--set Chance=2: it is no cost function, and has no factor"),
        (["--with", "Away"], "--with Away: only a filter or a cost function can be added"),
        (["--set", "Free"], "--set Free: write the factor, too: --set Free=2"),
        (["--set", "Free=x"], "--set Free=x: the factor of Free has to be an integer"),
        (["--set", "Free=2147483648"], "Free=2147483648: the factor of Free is beyond 32 bits"),
        (["--vm", "nobody"], "no recorded decision fits"),
    ):
        assert cli.main([*given, *options]) != 0
        assert words in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(
    "damage",
    ["UPDATE recordings SET request = '{'", "UPDATE elements SET data = substr(data, 1, 9)",
     "DELETE FROM elements WHERE number = 2"],
)  # fmt: skip
def test_a_damaged_recording_is_told(recording, tmp_path, monkeypatch, capsys, damage):
    """And not taken for what the plugins do otherwise."""
    for part in recording.state.glob("history.*"):
        shutil.copy(part, tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "history.sqlite")) as db:
        db.execute(damage)
        db.commit()
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    assert cli.main(["replay", "--plugins", str(recording.today)]) == 1
    assert "history.sqlite is damaged: " in capsys.readouterr().err


@pytest.mark.long
def test_a_replay_as_root_runs_plugins_as_plugin_user(start_daemon: StartDaemon):
    """As the daemon does; it was recorded by one without it."""
    with open_folder() as folder:
        text = "import os\ndef do_filter(hosts, vm, properties):\n    return hosts[: os.getuid()]\n"
        daemon = start_daemon({"Who": text}, "ssl = false\nrecord = true", folder=folder)
        assert daemon.design.runFilters(["Who"], [LYNX, PUMA], "v", {}) == []  # root's number is 0
        daemon.process.terminate()
        daemon.process.wait()
        conf = folder / "other.conf"
        conf.write_text(f"plugins_path = {folder / 'plugins'}\nplugin_user = nobody\n", "utf-8")
        words = ("replay", "--config", conf, "-o", "json")
        told = spawned(daemon.state.parent, *words, before=for_all_users())[1]
    (differ,) = json.loads(told)["differ"]
    assert (differ["old"], differ["new"]) == ([], [LYNX, PUMA])
