"""Expectations of replays and simulations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lxml import etree

from ovirt_scheduler.errors import ScenarioError
from ovirt_scheduler.workbench import expectations, scenario
from ovirt_scheduler.workbench.comparison import Comparison
from ovirt_scheduler.workbench.expectations import Figure, Finding
from tests.support.command import run
from tests.support.paths import PROJECT
from tests.support.snapshots import filled

FIGURES = {
    "migrations": Figure(9, 30), "same": Figure(0.985, 1), "median": Figure(None, None),
    "share.of.nothing": Figure(0, 0),
}  # fmt: skip
# What readers of JUnit rely on.
JUNIT = etree.RelaxNG(
    etree.fromstring("""
<element name="testsuite" xmlns="http://relaxng.org/ns/structure/1.0"
         datatypeLibrary="http://www.w3.org/2001/XMLSchema-datatypes">
 <attribute name="name"/>
 <attribute name="tests"><data type="nonNegativeInteger"/></attribute>
 <attribute name="failures"><data type="nonNegativeInteger"/></attribute>
 <attribute name="errors"><data type="nonNegativeInteger"/></attribute>
 <oneOrMore><element name="testcase">
  <attribute name="classname"/><attribute name="name"/>
  <optional><choice>
   <element name="failure"><attribute name="message"/></element>
   <element name="error"><attribute name="message"/></element>
  </choice></optional>
 </element></oneOrMore>
</element>""")
)


def finding(text: str) -> Finding:
    (expectation,) = expectations.of_options([text], FIGURES)
    return expectation.finding(FIGURES)


@pytest.mark.parametrize(
    ("text", "difference"),
    [
        ("migrations <= 9", 0), ("migrations<=8.5", 0.5), ("migrations >= 9", 0),
        ("migrations >= 12", -3), ("migrations = 9", 0), ("migrations = 10", -1),
        ("migrations = 8", 1), ("migrations <= 30 %", 0), ("migrations <= 28 %", 2),
        ("same >= 98.5%", 0), ("same >= 99 %", -0.5), ("same <= 0.9", 0.085),
        ("share.of.nothing <= 0 %", 0),
    ],
)  # fmt: skip
def test_a_figure_holds_or_is_told_by_how_much_it_does_not(text, difference):
    assert (finding(text).difference, finding(text).holds) == (difference, not difference)


def test_a_figure_that_has_no_number_does_not_hold():
    assert not finding("median <= 5").holds
    assert "nothing was counted" in finding("median <= 5").line()


@pytest.fixture
def cluster(tmp_path):
    """A full host beside an empty one."""
    filled(lynx=[(4, 1)] * 10, puma=[]).write(tmp_path / "cluster.xml")
    return str(tmp_path / "cluster.xml")


@pytest.mark.parametrize(
    ("command", "text", "told"),
    [
        ("simulate", "unplaced < 1", "expected FIGURE = VALUE, FIGURE <= VALUE or FIGURE >= VALUE"),
        ("simulate", "unplaced = none", "expected FIGURE = VALUE"),
        ("simulate", "migration = 1", "no figure migration; did you mean migrations?"),
        ("simulate", "closed <= 1 %", "there is no percentage of closed; leave out the %"),
        ("simulate", "colour = 1", "no figure colour; there are after.broken, after.hosts, "),
        ("replay", "difer <= 2 %", "no figure difer; did you mean differ?"),
        ("replay", "after.milliseconds.median <= 2 %", "no percentage of after.milliseconds.median"),
    ],
)  # fmt: skip
def test_what_cannot_be_expected_is_refused_before_anything_is_run(command, text, told, tmp_path):
    """Nothing of the missing snapshot or history is told."""
    files = ["no-such-file"] if command == "simulate" else []
    status, out, err = run(tmp_path, command, *files, "--expect", text)
    assert (status, out) == (2, "")
    assert f"--expect {text!r}: " in err
    assert told in err


@pytest.mark.usefixtures("one_executor")
def test_the_exit_status_the_lines_json_and_junit_say_what_does_not_hold(tmp_path, cluster):
    junit = tmp_path / "junit.xml"
    words = ("simulate", cluster, "--set", "policy=evenly_distribute", "--junit", str(junit))
    words += ("--expect", "unplaced = 0", "--expect", "after.imbalance.used <= 50 %")
    status, out, _ = run(tmp_path, *words)
    assert (status, out.count("\nas expected: ")) == (0, 2)
    migrations = int(
        json.loads(run(tmp_path, *words, "-o", "json")[1])["policies"][0]["migrations"]
    )
    assert migrations > 1
    status, out, _ = run(tmp_path, *words, "--expect", "migrations = 1")
    line = f"NOT as expected: migrations = 1: it is {migrations}, too high by {migrations - 1}"
    assert (status, out.splitlines()[-1]) == (1, line)
    document = etree.parse(str(junit))
    JUNIT.assertValid(document)
    suite = document.getroot()
    assert dict(suite.attrib) == {
        "name": "ovirt-scheduler simulate", "tests": "4", "failures": "1", "errors": "0",
    }  # fmt: skip
    assert len(suite) == 4
    assert [case.get("message") for case in suite.iter("failure")] == [line]
    told = json.loads(run(tmp_path, *words, "-o", "json")[1])["expected"]
    assert [each["holds"] for each in told] == [True, True]


@pytest.mark.usefixtures("one_executor")
def test_a_plugin_that_fails_is_an_error_in_junit_though_all_holds(tmp_path, cluster):
    """The exit status says so, too."""
    (tmp_path / "Breaks.py").write_text(
        "def do_filter(hosts, vm, properties):\n    raise OSError('\\x01 broken')\n"
    )
    (tmp_path / "one.conf").write_text("[vms]\n[[new]]\n[expect]\nunplaced = 0\n")
    junit = tmp_path / "junit.xml"
    status, out, _ = run(
        tmp_path, "simulate", cluster, "--plugins", str(tmp_path), "--set", "filters=Breaks",
        "--scenario", str(tmp_path / "one.conf"), "--junit", str(junit),
    )  # fmt: skip
    assert (status, "as expected: unplaced = 0" in out) == (1, True)
    document = etree.parse(str(junit))
    JUNIT.assertValid(document)
    assert (document.getroot().get("failures"), document.getroot().get("errors")) == ("0", "1")
    assert "broken" in next(document.getroot().iter("error")).get("message")


@pytest.mark.usefixtures("one_executor")
def test_with_two_policies_the_second_is_tested(tmp_path, cluster):
    words = ("simulate", cluster, "--set", "policy=evenly_distribute", "--expect", "migrations = 0")
    assert run(tmp_path, *words)[0] == 1
    assert run(tmp_path, *words, "--against", "policy=none")[0] == 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("migration = 1", "migration: there is no such key; did you mean migrations?"),
        ("migrations = <= six", "[expect] migrations: expected FIGURE = VALUE"),
        ("before.hour = 0 %", "there is no percentage of before.hour"),
    ],
)
def test_a_mistake_in_a_scenarios_expectations_is_told_with_its_line(line, told, tmp_path: Path):
    path, figures = tmp_path / "scenario.conf", expectations.of_nothing()
    path.write_text(f"hours = 1\n[expect]\nunplaced = 0\n{line}\n")
    with pytest.raises(ScenarioError) as raised:
        expectations.of_section(scenario.read(path, figures).expect, figures)
    assert told in str(raised.value)
    assert str(raised.value).startswith(f"{path}:4: ")


def test_all_mistakes_in_a_scenarios_expectations_are_told_at_once(tmp_path: Path):
    path, figures = tmp_path / "scenario.conf", expectations.of_nothing()
    path.write_text("hours = 1\n[expect]\nunplaced = few\nmigrations = <= six\n")
    with pytest.raises(ScenarioError) as raised:
        expectations.of_section(scenario.read(path, figures).expect, figures)
    assert [mistake.line for mistake in raised.value.mistakes] == [3, 4]


def test_every_number_of_a_replay_is_a_figure():
    """By its name in JSON; a text, a truth and what is within a list is none."""
    figures = expectations.of_replay(Comparison(changed=True))
    top = {name for name in figures if "." not in name}
    assert top == Comparison(changed=True).fields().keys() - {"changed", "before", "after"}
    assert {"after.milliseconds.median", "before.wins", "differ.no_host"} <= figures.keys()


def test_the_page_of_policies_is_named_where_it_is_looked_for():
    for page in ("README.md", "docs/replay.md", "docs/simulate.md"):
        assert "policies.md" in (PROJECT / page).read_text("utf-8")
