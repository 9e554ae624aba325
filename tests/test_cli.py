"""The command line, as a shell runs it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import PROJECT

GOOD = 'def do_filter(hosts, vm, properties):\n    """Keep all."""\n    return hosts\n'


def run(tmp_path, *arguments):
    """Exit status, standard output and standard error of one command."""
    ended = subprocess.run(
        [sys.executable, "-m", "ovirt_scheduler", *arguments],
        cwd=PROJECT,
        env={**os.environ, "STATE_DIRECTORY": str(tmp_path / "state"), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_check_lists_the_units_and_is_content(tmp_path):
    """Name, kind and the first line of the description; exit status 0."""
    (tmp_path / "Good.py").write_text(GOOD)
    status, out, err = run(tmp_path, "check", "--plugins", str(tmp_path))
    assert (status, err) == (0, "")
    assert out.split() == ["Good", "filter", "Keep", "all."]
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def do_filter(hosts, vm, properties):\n    print 'x'\n", ":2: this line is Python 2: "),
        ("import no_such_library\n" + GOOD, ":1: cannot import no_such_library: install it for"),
        (
            "def do_filter(hosts):\n    return hosts\n",
            ":1: do_filter(hosts) cannot be called with 3",
        ),
        (GOOD + "\nx = (\n", ":5: syntax error: "),
        (
            GOOD + "\nraise RuntimeError('not today')\n",
            ":5: loading it raised RuntimeError: not today",
        ),
    ],
)
def test_check_tells_what_cannot_be_loaded(tmp_path, source, told):
    """File, line and what to do, for each file; the others are listed; exit status 1 (5.5)."""
    (tmp_path / "Good.py").write_text(GOOD)
    (tmp_path / "Bad.py").write_text(source)
    status, out, err = run(tmp_path, "check", "--plugins", str(tmp_path))
    assert (status, err) == (1, "")
    listed, fault = out.splitlines()
    assert listed.startswith("Good")
    assert fault.startswith(f"{tmp_path}/Bad.py{told}")


def test_check_says_where_it_looked(tmp_path):
    """Nothing found is not a fault, but it is told."""
    status, out, _ = run(tmp_path, "check", "--plugins", str(tmp_path))
    assert (status, out) == (0, f"no policy units; looked in {tmp_path}\n")


def test_a_mistake_in_the_settings_is_exit_status_78(tmp_path):
    """For check as for serve (contract 6)."""
    (tmp_path / "scheduler.conf").write_text("ssl = perhaps\n")
    for command in ("check", "serve"):
        status, out, err = run(tmp_path, command, "--config", str(tmp_path / "scheduler.conf"))
        assert (status, out) == (78, "")
        assert err.startswith(f"ovirt-scheduler: {tmp_path}/scheduler.conf:1: ssl")


@pytest.mark.parametrize("arguments", [[], ["dance"], ["serve", "--colour"]])
def test_wrong_usage_is_exit_status_2(tmp_path, arguments):
    """With the usage on standard error."""
    status, out, err = run(tmp_path, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("usage: ovirt-scheduler")


def test_help_names_every_command_and_the_version_is_told(tmp_path):
    """For somebody who has just installed it."""
    status, out, _ = run(tmp_path, "--help")
    assert status == 0
    assert "serve" in out
    assert "check" in out
    assert run(tmp_path, "--version")[1].startswith("ovirt-scheduler ")
