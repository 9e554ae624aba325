"""The command line: what each command says, and its exit status."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal

import pytest

from ovirt_scheduler.command import cli
from tests.support.command import run, script, spawned
from tests.support.paths import PROJECT
from tests.support.plugin_texts import GOOD

NIGHT = """\
from ovirt_scheduler.plugin import Driver


class Night(Driver):
    topic = "night"

    def when(self, hours):
        return hours
"""
COMMANDS = (
    "serve", "check", "discover", "filter", "score", "balance", "schedulers", "select", "topics",
    "schedule", "why", "decisions", "status", "clusters", "plan", "try", "new", "replay",
    "snapshot", "simulate", "cert", "setup", "completion",
)  # fmt: skip
HOSTS = str(PROJECT / "demo" / "hosts.xml")
VM = str(PROJECT / "demo" / "vm.xml")

pytestmark = pytest.mark.usefixtures("one_executor")


@pytest.mark.parametrize("command", ["check", "serve"])
def test_all_mistakes_of_the_settings_are_told_a_line_for_each(tmp_path, command):
    conf = tmp_path / "scheduler.conf"
    conf.write_text("log_level = loud\nkept = 1\n[engin]\nurl = x\n")
    status, out, err = run(tmp_path, command, "--config", str(conf))
    assert (status, out) == (78, "")
    assert err.replace("ovirt-scheduler: ", "").splitlines() == [
        f"{conf}:1: log_level: expected one of debug, info, warning, error, not 'loud'",
        f"{conf}:2: kept: there is no such key; did you mean kept_processes?",
        f"{conf}:3: [engin]: there is no such section; did you mean engine?",
    ]


def test_a_mistake_in_the_settings_is_exit_status_78(tmp_path):
    """For check as for serve (contract 6)."""
    (tmp_path / "scheduler.conf").write_text("ssl = perhaps\n")
    for command in ("check", "serve"):
        status, out, err = run(tmp_path, command, "--config", str(tmp_path / "scheduler.conf"))
        assert (status, out) == (78, "")
        assert err.startswith(f"ovirt-scheduler: {tmp_path}/scheduler.conf:1: ssl")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--help"),
        (("dance",), "--help"),
        (("serve", "--colour"), "usage: ovirt-scheduler serve [-h] [--config FILE] [--plugins PATH]"),
        (("discover", "--local", "--url", "https://x"), "--help"),
        (("serve", "plugins"), "unrecognized arguments: plugins; did you mean --plugins?\n"),
        (("-o", "json", "discover"), "there is no command 'json'; there are serve, "),
        (("-o", "json", "discover"), "; options stand after the command\n"),
        (("chekc",), "; did you mean check?\n"),
        (("discover", "--locl"), "unrecognized arguments: --locl; did you mean --local?"),
        (("try", "a.py", "--hosts", HOSTS, "--kind", "fliter"), "did you mean filter?"),
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_status_2(tmp_path, words, told):
    """With the usage, what is wrong, and the word that may be meant."""
    status, out, err = run(tmp_path, *words)
    assert (status, out) == (2, "")
    assert err.startswith("usage: ovirt-scheduler")
    assert told in err


def test_an_empty_word_names_no_vm(tmp_path):
    """A variable of a shell that is not set: another VM's decision would be shown."""
    for words in (("",), ("--decision", "")):
        status, out, err = run(tmp_path, "why", *words)
        assert (status, out) == (2, "")
        assert "name a VM, by its name or id" in err


@pytest.mark.parametrize(
    "words",
    [
        ("--local", "night", "when", "hours=3"),
        ("night", "--local", "when", "hours=3"),
        ("night", "when", "--local", "hours=3"),
        ("night", "when", "hours=3", "--local"),
    ],
)
def test_options_may_stand_anywhere(tmp_path, words):
    """Before, between and after the words of a command."""
    (tmp_path / "night.py").write_text(NIGHT)
    status, out, err = run(tmp_path, "schedule", *words, "--plugins", str(tmp_path))
    assert (status, out, err) == (0, "3\n", "")


def test_the_kinds_of_try_are_those_that_discover_prints(tmp_path):
    """And the words of conf files and of new."""
    (tmp_path / "Good.py").write_text(GOOD.replace("do_filter", "do_score"))
    for words in ("cost function", "cost_function", "score"):
        given = ("--hosts", HOSTS, "--kind", words)
        out = run(tmp_path, "try", str(tmp_path / "Good.py"), *given)[1]
        assert out.startswith("cost function Good: ")


def test_programs_get_the_kind_as_people_read_it(tmp_path):
    """In each command; the history, the log and the metrics have it so, too. A conf file takes it."""
    (tmp_path / "Good.py").write_text(GOOD.replace("do_filter", "do_score"))
    (tmp_path / "Good.conf").write_text("customProperties = a=b\nkinds = cost function\n")
    given = ("--plugins", str(tmp_path), "-o", "json")
    checked = json.loads(run(tmp_path, "check", *given)[1])
    (discovered,) = json.loads(run(tmp_path, "discover", "--local", *given)[1])
    file = str(tmp_path / "Good.py")
    (tried,) = json.loads(run(tmp_path, "try", file, "--hosts", HOSTS, "-o", "json")[1])
    kinds = [each["kind"] for each in (*checked["units"], discovered, tried)]
    assert kinds == ["cost function"] * 3
    assert discovered["properties"] == "a=b"


def test_names_are_shown_one_on_a_line(tmp_path):
    """For a shell's loop; problems go elsewhere."""
    (tmp_path / "Good.py").write_text(GOOD)
    given = ("--local", "--plugins", str(tmp_path), "-o", "names")
    assert run(tmp_path, "discover", *given) == (0, "Good\n", "")
    status, out, err = run(tmp_path, "filter", "Good", "Godo", "--hosts", HOSTS, *given)
    assert (status, out.splitlines()) == (1, ["lynx", "puma", "serval", "ocelot"])
    assert err == "problem: there is no filter named 'Godo'; did you mean Good?\n"
    status, out, _ = run(tmp_path, "filter", "Good", "--hosts", HOSTS, *given[:3], "-o", "table")
    assert (status, out.splitlines()[0].split()) == (0, ["HOST", "ID", "VERDICT"])


def test_a_document_that_cannot_be_read_is_told_with_its_file(tmp_path):
    """Whichever of them it is, and whichever command reads it."""
    (tmp_path / "Good.py").write_text(GOOD)
    (tmp_path / "night.py").write_text(NIGHT)
    bad, vm = tmp_path / "bad.xml", tmp_path / "vm.xml"
    bad.write_text("<hosts>\n<host id='a'>\n</hosts>")
    vm.write_text("<vms/>")
    local = ("--local", "--plugins", str(tmp_path))
    asked = ("--hosts", str(bad), "--vm", VM)
    for words in (("filter", "Good", *asked, *local), ("try", str(tmp_path / "Good.py"), *asked)):
        status, _, err = run(tmp_path, *words)
        assert (status, err.splitlines()[0][:70]) == (
            66,
            f"ovirt-scheduler: {bad}: hosts, line 3"[:70],
        )
    status, _, err = run(tmp_path, "filter", "Good", "--hosts", HOSTS, "--vm", str(vm), *local)
    assert status == 66
    assert err.startswith(f"ovirt-scheduler: {vm}: VM: expected one <vm> in <vms>")
    given = f"hosts=@{bad}"
    status, _, err = run(tmp_path, "schedule", "compute", "select_host", given, f"vm=@{VM}", *local)
    assert (status, err.startswith(f"ovirt-scheduler: {bad}: hosts, line 3")) == (66, True)


def test_help_names_every_command_and_the_version_is_told(tmp_path):
    """For somebody who has just installed it."""
    status, out, _ = run(tmp_path, "--help")
    assert status == 0
    for command in COMMANDS:
        assert any(line.split()[:1] == [command] for line in out.splitlines())
    assert run(tmp_path, "--version")[1].startswith("ovirt-scheduler ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples_and_exit_statuses(tmp_path, command):
    """Each example is one that the parser takes."""
    status, out, _ = run(tmp_path, command, "--help")
    assert status == 0
    assert "exit status:\n  0   " in out
    examples = out.partition("examples:\n")[2].partition("\n\n")[0].splitlines()
    assert examples
    for example in examples:
        words = shlex.split(example)
        assert words[:2] == ["ovirt-scheduler", command]
        assert cli.parser().parse_args(words[1:]).run


def test_no_daemon_is_exit_status_69(tmp_path):
    """And the next step is told."""
    run(tmp_path, "cert", "make")
    status, out, err = run(tmp_path, "discover", "--url", "https://localhost:1")
    assert (status, out) == (69, "")
    assert "is the daemon running" in err
    assert "ovirt-scheduler serve starts one" in err
    assert "--local" in err


def test_the_daemon_is_asked_where_the_settings_have_it_listen(tmp_path, start_daemon):
    """An address that localhost does not lead to."""
    settings = "listening_address = 127.0.0.2\nssl = false\n"
    daemon = start_daemon(settings=settings)
    port = daemon.url.rpartition(":")[2]
    (tmp_path / "scheduler.conf").write_text(f"{settings}listening_port = {port}\n")
    status, out, err = run(tmp_path, "discover", "--config", str(tmp_path / "scheduler.conf"))
    assert (status, err) == (0, "")
    assert "keeps_first" in out


def test_ctrl_c_before_a_command_runs_ends_it_without_a_word():
    """While its words are read, too."""
    code = """\
import os, signal
from ovirt_scheduler.__main__ import main
from ovirt_scheduler.command import arguments
arguments.Parser.parse_known_args = lambda *_: os.kill(os.getpid(), signal.SIGINT)
main()
"""
    ended = script(code, "discover")
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_new_wants_a_kind(tmp_path):
    """A plugin without a function is none."""
    status, _, err = run(tmp_path, "new", "Quiet", "--folder", str(tmp_path))
    assert (status, err.count("--filter")) == (2, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_and_a_pipe_get_the_same_table(tmp_path):
    (tmp_path / "Good.py").write_text(GOOD)
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb") as terminal:
        status, _, _ = spawned(
            tmp_path, "discover", "--local", "--plugins", tmp_path, stdout=theirs
        )
        lines = [terminal.readline().split() for _ in range(2)]
    os.close(theirs)
    assert status == 0
    assert lines == [
        [b"UNIT", b"KIND", b"PROPERTIES", b"DESCRIPTION"],
        [b"Good", b"filter", b"Keep", b"all."],
    ]
    _, piped, _ = spawned(tmp_path, "discover", "--local", "--plugins", tmp_path)
    assert [line.split() for line in piped.encode().splitlines()] == lines
