"""The benchmark itself, run once on its smallest scenario: that it measures, not what."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from conftest import PROJECT

SCENARIO = "1 filter, 10 ids"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder that the command wrote to; what it printed is in ``printed``."""
    folder = tmp_path_factory.mktemp("bench")
    shutil.copy(PROJECT / "docs" / "performance.md", folder)
    ended = subprocess.run(
        [sys.executable, "-m", "bench.run", "--smallest", "--only", f"^{SCENARIO}$",
         "--json", str(folder / "results.json"), "--docs", str(folder)],
        cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    (folder / "printed").write_text(ended.stdout, "utf-8")
    return folder


@pytest.fixture(scope="module")
def results(run):
    return json.loads((run / "results.json").read_text("utf-8"))


def test_a_scenario_has_every_figure(results):
    """Of the daemon, of the bare limit and of a process for each call; and none failed."""
    (row,) = results["scenarios"]
    assert row["name"] == SCENARIO
    for contender in ("daemon", "floor", "fresh"):
        figures = row[contender]
        assert (figures["failed"], figures["problem"]) == (0, "")
        assert figures["calls"] >= 1
        assert 0 < figures["median"] <= figures["p99"]
        assert figures["throughput"] > 0
        assert figures["memory"] > 1 << 20
    assert row["daemon"]["processor"] > 0
    assert row["ratio"] == pytest.approx(row["daemon"]["median"] / row["floor"]["median"])
    assert row["gain"] == pytest.approx(row["fresh"]["median"] / row["daemon"]["median"])


def test_the_bare_limits_are_measured(results):
    """Each is some time, and some memory."""
    limits = results["limits"]
    assert min(limits["start"], limits["fork"], limits["pipe"], limits["memory"]) > 0
    assert limits["decoding"].keys() == limits["reading"].keys() == {"10"}


def test_goals_that_were_not_measured_are_neither_passed_nor_short(results):
    """And those that were are one of the two."""
    verdicts = {goal["what"]: goal["verdict"] for goal in results["goals"]}
    assert verdicts.pop("failed calls, all scenarios") == "pass"
    measured = {what for what, verdict in verdicts.items() if verdict in ("pass", "short")}
    assert measured
    assert all(what.startswith(SCENARIO) for what in measured)


def test_the_stages_are_all_there(results):
    """A time for each, of each kind of call; time does not run backwards."""
    assert results["stages"]
    for stages in results["stages"].values():
        assert len(stages) == 10
        assert min(stages) >= 0


def test_the_page_gets_what_was_printed(run):
    """Between its marks; what stands around them stays."""
    page = (run / "performance.md").read_text("utf-8")
    before = (PROJECT / "docs" / "performance.md").read_text("utf-8")
    part = re.compile(r"(<!-- [\w ]+: made by make bench -->\n).*?(<!-- end -->)", re.DOTALL)
    assert part.sub(r"\1\2", page) == part.sub(r"\1\2", before)
    printed = (run / "printed").read_text("utf-8")
    tables = [text.strip() for text in printed.split("\n\n") if "|" in text]
    assert len(tables) == 4
    assert all(table in page for table in tables)


@pytest.mark.parametrize("name", ["latency.svg", "throughput.svg"])
def test_the_plots_are_svg(run, name):
    """Well-formed, even where next to nothing was measured."""
    root = ElementTree.parse(run / name).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
