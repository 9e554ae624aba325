"""The command line: what each command says, and its exit status."""

from __future__ import annotations

import json
import os
import pty
import pwd
import shlex
import signal

import pytest

from ovirt_scheduler.command import cli
from tests.support.command import run, script, spawned
from tests.support.paths import PROJECT

GOOD = 'def do_filter(hosts, vm, properties):\n    """Keep all."""\n    return hosts\n'
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


def test_check_lists_the_units_and_is_content(tmp_path):
    """Certificate, name, kind, file and the first line of the description; exit status 0."""
    (tmp_path / "Good.py").write_text(GOOD)
    status, out, err = run(tmp_path, "check", "--plugins", str(tmp_path))
    assert (status, err) == (0, "")
    certificate, port, headings, unit, of_drivers, driver, verdict = out.splitlines()
    assert certificate.endswith("certificate.pem: made on first start")
    assert port.startswith("port 18781 of localhost: ")
    assert headings.split() == ["UNIT", "KIND", "FILE", "DESCRIPTION"]
    assert unit.split() == ["Good", "filter", f"{tmp_path}/Good.py", "Keep", "all."]
    assert of_drivers.split() == ["DRIVER", "TOPIC", "INTERFACES", "FILE", "DESCRIPTION"]
    assert driver.split()[:3] == ["default", "compute", "HostSelector,"]
    assert verdict == "all is well"
    assert not (tmp_path / "state").exists()


def test_check_does_not_say_that_all_is_well_beside_a_warning(tmp_path):
    """Of a conf file that is not read."""
    (tmp_path / "Good.py").write_text(GOOD)
    (tmp_path / "Good.conf").write_text("timeout = 3\n")
    (tmp_path / "s.conf").write_text(
        f"plugins_path = {tmp_path}\nplugins_conf_path = {tmp_path}/x\n"
    )
    status, out, _ = run(tmp_path, "check", "--config", str(tmp_path / "s.conf"))
    assert (status, "Good.conf: is not read: move it" in out) == (0, True)
    assert out.endswith("\nnothing to mend, but see the warnings\n")


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


def test_check_tells_of_clusters_that_no_scheduler_fits(tmp_path):
    """With file and line, whether the daemon is to look after clusters yet or not."""
    mistakes = {
        "scheduler = mine": "scheduler: there is no scheduler 'mine'; write one of default",
        "policy = evenly":
            "policy: 'evenly' is no policy of default; write one of none, evenly_distribute",
        "filters = Nobody": "filters: there is no filter 'Nobody'; ",
        "cost_functions = Nobody = 2": "cost_functions: there is no cost function 'Nobody'; ",
        "properties = low_utilization=81":
            "properties: low_utilization is 81, and high_utilization 80; set the first to",
    }  # fmt: skip
    sections = "".join(f"[[Bad{number}]]\n{line}\n" for number, line in enumerate(mistakes))
    conf = tmp_path / "scheduler.conf"
    conf.write_text(f"ssl = false\nlistening_port = 0\n[clusters]\n[[Good]]\n{sections}")
    status, out, err = run(tmp_path, "check", "--config", str(conf))
    assert (status, err) == (1, "")
    for number, told in enumerate(mistakes.values()):
        assert f"{conf}:{6 + 2 * number}: [clusters] [[Bad{number}]] {told}" in out
    assert out.endswith("5 to mend\n")


def test_check_tells_what_cannot_be_loaded(tmp_path):
    """File, line and what to do, for each file; the others are listed; exit status 1 (5.5)."""
    (tmp_path / "Good.py").write_text(GOOD)
    bad = {
        "Old": (
            "def do_filter(hosts, vm, properties):\n    print 'x'\n",
            ":2: this line is Python 2: ",
        ),
        "Open": (f"{GOOD}\nx = (\n", ":5: syntax error: "),
    }
    for name, (source, _) in bad.items():
        (tmp_path / f"{name}.py").write_text(source)
    status, out, err = run(tmp_path, "check", "--plugins", str(tmp_path))
    assert (status, err) == (1, "")
    _, _, _, listed, *_, verdict = out.splitlines()
    assert listed.startswith("Good")
    assert verdict == "2 to mend"
    for name, (_, told) in bad.items():
        assert f"\n{tmp_path}/{name}.py{told}" in out


def test_check_tells_once_what_keeps_a_helper_and_its_plugins_from_loading(tmp_path):
    """It is one line to mend, however many import it."""
    (tmp_path / "helps.py").write_text("def = 1\n")
    for name in ("One", "Two"):
        (tmp_path / f"{name}.py").write_text(f"import helps\n{GOOD}")
    status, out, err = run(tmp_path, "check", "--plugins", str(tmp_path))
    assert (status, err) == (1, "")
    assert out.count(f"{tmp_path}/helps.py:1: syntax error: ") == 1
    assert out.endswith("1 to mend\n")


def test_check_tells_of_files_that_may_be_meant_as_plugins(tmp_path):
    """A misspelt function; not a helper that is imported, and none named as one or as a test."""
    (tmp_path / "Good.py").write_text(f"import helps\n{GOOD}")
    for name in ("helps", "_private", "Off", "test_Good"):
        (tmp_path / f"{name}.py").write_text("x = 1\n")
    (tmp_path / "confs").mkdir()
    (tmp_path / "confs" / "Off.conf").write_text("enabled = false\n")
    (tmp_path / "Typo.py").write_text(GOOD.replace("do_filter", "do_filtre"))
    (tmp_path / "s.conf").write_text(f"plugins_conf_path = {tmp_path}/confs\n")
    given = ("--plugins", str(tmp_path), "--config", str(tmp_path / "s.conf"))
    status, out, _ = run(tmp_path, "check", *given)
    assert status == 0
    assert [line for line in out.splitlines() if "nothing in it is called" in line] == [
        (
            f"{tmp_path}/Typo.py: nothing in it is called, and no plugin that loads imports it; a "
            "unit has do_filter, do_score or do_balance"
        )
    ]
    assert json.loads(run(tmp_path, "check", "-o", "json", *given)[1])["unused"] == [
        f"{tmp_path}/Typo.py"
    ]


def test_check_tells_what_the_settings_name_and_is_not_there(tmp_path):
    """It counts, and a program is told too."""
    (tmp_path / "Good.py").write_text(GOOD)
    (tmp_path / "s.conf").write_text("log_file = /nowhere/log\n")
    given = ("--plugins", str(tmp_path), "--config", str(tmp_path / "s.conf"))
    status, out, _ = run(tmp_path, "check", *given)
    problem = "/nowhere/log: there is no folder /nowhere; mend log_file"
    assert (status, out.splitlines()[-2:]) == (1, [problem, "1 to mend"])
    told = json.loads(run(tmp_path, "check", "-o", "json", *given)[1])
    assert (told["ok"], told["settings"]) == (False, [problem])


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
def test_check_says_that_root_reads_more_than_the_daemon(tmp_path):
    """Whose state folder tells who the daemon's user is."""
    (tmp_path / "plugins").mkdir()
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    said = []
    for owner in (0, pwd.getpwnam("nobody").pw_uid):
        os.chown(state, owner, -1)
        said.append(run(tmp_path, "check", "--plugins", str(tmp_path / "plugins"))[1])
    assert ["sudo -u nobody ovirt-scheduler check" in each for each in said] == [False, True]


def test_check_says_where_it_looked(tmp_path, monkeypatch):
    """Nothing found is not a fault, but it is told; the default folder need not be there."""
    status, out, _ = run(tmp_path, "check", "--plugins", str(tmp_path))
    assert status == 0
    assert f"\nno plugins but our own; looked in {tmp_path}\n" in out
    (tmp_path / "scheduler.conf").write_text("")
    monkeypatch.setenv("PYTHONPATH", "/none")
    _, out, _ = run(tmp_path, "check", "--config", str(tmp_path / "scheduler.conf"))
    assert "looked in /none/ovirt_scheduler/plugins (not there)\n" in out


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


def test_check_tells_of_a_function_that_is_almost_one_of_a_unit(tmp_path):
    """With its line, beside those that are called."""
    (tmp_path / "Good.py").write_text(f"{GOOD}\n\ndef do_scroe(hosts, vm, properties):\n    0\n")
    status, out, _ = run(tmp_path, "check", "--plugins", str(tmp_path))
    assert status == 0
    place = f"{tmp_path}/Good.py:6"
    assert f"warning: {place}: do_scroe is never called; did you mean do_score?\n" in out


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


def test_check_tells_a_program_the_same(tmp_path):
    """Units, faults and certificates as JSON; the exit status is the same."""
    (tmp_path / "Good.py").write_text(GOOD)
    (tmp_path / "Bad.py").write_text("x = (\n")
    status, out, err = run(tmp_path, "check", "--plugins", str(tmp_path), "-o", "json")
    told = json.loads(out)
    assert (status, err, told["ok"]) == (1, "", False)
    (unit,) = told["units"]
    assert (unit["name"], unit["kind"], unit["file"]) == ("Good", "filter", f"{tmp_path}/Good.py")
    (fault,) = told["faults"]
    assert (fault["file"], fault["line"]) == (f"{tmp_path}/Bad.py", 1)
    (certificate,) = told["certificates"]
    assert (certificate["setting"], certificate["days_left"]) == ("ssl_certificate", None)


def test_cert_makes_shows_and_checks(tmp_path):
    """Made once; shown with names, days and fingerprint; checked against --days."""
    status, out, _ = run(tmp_path, "cert", "check")
    assert status == 1
    assert "there is none yet" in out
    status, out, err = run(tmp_path, "cert", "make")
    assert (status, err) == (0, "")
    assert f"ssl_certificate  {tmp_path}/state/certificate/certificate.pem\n" in out
    assert run(tmp_path, "cert", "make")[1] == out  # the one that is there stays
    status, shown, _ = run(tmp_path, "cert", "show", "-o", "json")
    (fields,) = json.loads(shown)
    assert status == 0
    assert "localhost" in fields["names"]
    assert fields["days_left"] > 3600
    assert fields["sha256"] in out
    assert run(tmp_path, "cert", "check")[0] == 0
    status, out, _ = run(tmp_path, "cert", "check", "--days", "4000")
    assert status == 1
    assert "days left; ovirt-scheduler cert renew before" in out


def test_cert_export_gives_callers_what_they_are_to_trust(tmp_path):
    """The certificates of the file alone, which may hold the key as well."""
    status, out, err = run(tmp_path, "cert", "export")
    assert (status, out) == (66, "")
    assert "there is none yet: ovirt-scheduler cert make" in err
    run(tmp_path, "cert", "make")
    made = tmp_path / "state" / "certificate"
    certificate = (made / "certificate.pem").read_text()
    assert run(tmp_path, "cert", "export") == (0, certificate, "")
    both = tmp_path / "both.pem"
    both.write_text((made / "key.pem").read_text() + certificate)
    both.chmod(0o600)
    conf = tmp_path / "s.conf"
    conf.write_text(f"ssl_certificate = {both}\nssl_key = {both}\n")
    assert run(tmp_path, "cert", "export", "--config", str(conf)) == (0, certificate, "")
    conf.write_text("ssl = false\n")
    assert run(tmp_path, "cert", "export", "--config", str(conf))[0] == 78


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
