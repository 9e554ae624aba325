"""What check tells: units, plugins that do not load, what the settings name, and its exit status."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd

import pytest

from tests.support.command import run
from tests.support.plugin_texts import GOOD

pytestmark = pytest.mark.usefixtures("one_executor")


def test_check_lists_the_units_and_is_content(tmp_path):
    """Certificate, name, kind, file and the first line of the description; exit status 0."""
    (tmp_path / "Good.py").write_text(GOOD)
    status, out, err = run(tmp_path, "check", "--plugins", str(tmp_path))
    assert (status, err) == (0, "")
    certificate, port, headings, unit, of_drivers, driver, *warnings, verdict = out.splitlines()
    assert certificate.endswith("certificate.pem: made on first start")
    assert port.startswith("port 18781 of localhost: ")
    assert headings.split() == ["UNIT", "KIND", "FILE", "DESCRIPTION"]
    assert unit.split() == ["Good", "filter", f"{tmp_path}/Good.py", "Keep", "all."]
    assert of_drivers.split() == ["DRIVER", "TOPIC", "INTERFACES", "FILE", "DESCRIPTION"]
    assert driver.split()[:3] == ["default", "compute", "HostSelector,"]
    if importlib.util.find_spec("pyflakes"):
        assert (warnings, verdict) == ([], "all is well")
    else:
        assert [warning.split(": ")[1] for warning in warnings] == [
            "the names in the plugins' files are not looked at"
        ]
        assert verdict == "nothing to mend, but see the warnings"
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
    assert out.endswith("\nnothing to mend, but see above\n")


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


def test_check_tells_of_a_function_that_is_almost_one_of_a_unit(tmp_path):
    """With its line, beside those that are called."""
    (tmp_path / "Good.py").write_text(f"{GOOD}\n\ndef do_scroe(hosts, vm, properties):\n    0\n")
    status, out, _ = run(tmp_path, "check", "--plugins", str(tmp_path))
    assert status == 0
    place = f"{tmp_path}/Good.py:6"
    assert f"warning: {place}: do_scroe is never called; did you mean do_score?\n" in out


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
