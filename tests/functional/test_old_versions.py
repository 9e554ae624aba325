"""A file that does not load any more: whoever asks is told that an older version answers."""

from __future__ import annotations

import datetime
import json
import re

import pytest

from tests.support.command import run
from tests.support.paths import PROJECT

GOOD = "def do_filter(hosts, vm, properties):\n    return hosts\n"
OTHER = "def do_score(hosts, vm, properties):\n    return []\n"
BOTH = f"{GOOD}{OTHER}"
HOSTS = str(PROJECT / "demo" / "hosts.xml")
TOLD = re.compile(
    r"Quiet: the version of (\d\d:\d\d:\d\d) answers; the file has not loaded since (\d\d:\d\d:\d\d): "
    r"line 5: syntax error: .*"
)


@pytest.fixture(scope="module")
def asked(start_daemon):
    """A daemon whose plugin Quiet was edited to what does not load, and the commands' options."""
    daemon = start_daemon({"Quiet": BOTH, "Other": OTHER})
    (daemon.plugins / "Quiet.py").write_text(f"{BOTH}def = 1\n")
    daemon.design.discover()
    config = daemon.state.parent / "local.conf"
    port = daemon.url.rpartition(":")[2]
    config.write_text(f"listening_port = {port}\nplugins_path = {daemon.plugins}\n")
    named = ("--config", str(config))
    return lambda command, *arguments: run(
        daemon.state.parent, command, *arguments, *(() if command == "status" else named)
    )


@pytest.mark.parametrize(
    "arguments", [("discover",), ("filter", "Quiet", "Other", "--hosts", HOSTS)]
)
def test_a_call_notes_that_an_older_version_answers(asked, arguments):
    """On standard error, so that the answer is as ever; with both times and the line; once a file."""
    status, out, err = asked(*arguments)
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert status in (0, 1)
    assert "Quiet" in out or "problem: " in out
    assert len(notes) == 1
    assert TOLD.fullmatch(notes[0][len("note: ") :])


def test_a_call_of_other_units_notes_nothing(asked):
    """Whoever asks for Other is not told of Quiet."""
    _, _, err = asked("score", "Other=2", "--hosts", HOSTS)
    assert "note" not in err


def test_check_notes_that_an_older_version_answers(asked, one_executor):
    """Once, beside what is wrong with the file."""
    _, out, _ = asked("check")
    assert len([line for line in out.splitlines() if TOLD.fullmatch(line[len("note: ") :])]) == 1


def test_check_of_other_plugins_does_not_say_that_all_is_well_beside_such_a_note(
    asked, one_executor, tmp_path
):
    """The daemon is another matter than what is checked; yet it is not well."""
    _, out, _ = asked("check", "--plugins", str(tmp_path))
    assert TOLD.search(out)
    assert out.endswith("\nnothing to mend, but see above\n")


def test_status_tells_of_the_older_version_once(asked):
    """As one problem of the file that names its units, and not as a file without a unit besides."""
    status, out, _ = asked("status", "-o", "json")
    told = json.loads(out)
    assert status == 1
    # Another test has asked for a filter that is a cost function.
    (old,) = [problem for problem in told["problems"] if problem["kind"] != "other kind"]
    assert old["kind"] == "old version"
    assert old["what"] == "an older version of Quiet (cost function, filter) answers"
    assert "; 1 of an older version: Quiet, since " in told["line"]
    units = [unit for unit in told["units"] if unit["name"] == "Quiet"]
    assert len(units) == 2
    for unit in units:
        assert TOLD.fullmatch(f"Quiet: {unit['because']}")
        since, version = (datetime.datetime.fromisoformat(unit[key].rstrip("Z"))
                          for key in ("since", "version_of"))  # fmt: skip
        assert version <= since


def test_the_time_of_the_version_outlives_a_restart(place):
    """It is that of the first load; the fault's begins anew when the version does."""
    place.write("Quiet", GOOD)
    place.registry.refresh()
    path = place.write("Quiet", "def = 1\n")
    first = place.registry.refresh().outdated[str(path)]
    later = place.start().refresh().outdated[str(path)]
    assert later.version == pytest.approx(first.version, abs=0.5)
    assert first.version <= first.since <= later.since
    place.write("Quiet", GOOD)
    assert place.registry.refresh().outdated == {}
