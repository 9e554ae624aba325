"""The benchmark itself, run once on its smallest scenarios: that it measures, not what."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from bench import servers
from tests.support.command import executed
from tests.support.paths import PROJECT

pytestmark = pytest.mark.long

SCENARIO = "1 filter, 10 ids"
TOLD = "1 function filter, 100 ids that the engine told of"
SINGLE = "1 filter, 10 ids, calls_per_process = 1, calls 10 ms apart"
PUBLISHED = "1 published filter that logs in, 50 hosts, an engine of 5 ms"
OF_FEW = "the same as a function"
AT_REST = "at rest, sample plugins, after all of this"
EACH = "each further plugin, after all of this"
RUN = (
    SCENARIO,
    TOLD,
    SINGLE,
    PUBLISHED,
    OF_FEW,
    "at rest, 28 plugins more, after all of this",
    AT_REST,
    EACH,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder that the command wrote to; what it printed is in ``printed``."""
    folder = tmp_path_factory.mktemp("bench")
    shutil.copy(PROJECT / "docs" / "benchmarks.md", folder)
    ended = executed(
        sys.executable, "-m", "bench.run", "--smallest", "--only", f"^({'|'.join(RUN)})$",
        "--before", PROJECT, "--json", folder / "results.json", "--docs", folder, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    (folder / "printed").write_text(ended.stdout, "utf-8")
    return folder


@pytest.fixture(scope="module")
def results(run):
    return json.loads((run / "results.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def rows(results):
    return {row["name"]: row for row in results["scenarios"]}


def test_a_scenario_has_every_figure(rows):
    """Of the daemon and of all that it is compared with; and none failed."""
    row = rows[SCENARIO]
    for contender in ("daemon", "noop", "floor", "fresh", "before"):
        figures = row[contender]
        assert (figures["failed"], figures["problem"]) == (0, "")
        assert figures["calls"] >= 1
        assert 0 < figures["median"] <= figures["p99"]
        assert figures["throughput"] > 0
    assert row["daemon"]["memory"] > 1 << 20
    assert row["daemon"]["processor"] > 0
    medians = {name: row[name]["median"] for name in ("daemon", "noop", "floor", "fresh", "before")}
    assert row["ratio"] == pytest.approx(medians["daemon"] / medians["floor"])
    assert row["gain"] == pytest.approx(medians["fresh"] / medians["daemon"])
    assert row["gain_over_before"] == pytest.approx(medians["before"] / medians["daemon"])
    assert row["above_noop"] == pytest.approx(medians["daemon"] - medians["noop"])


@pytest.mark.parametrize("name", [TOLD, SINGLE])
def test_daemons_with_other_settings_answer(rows, name):
    """One that an engine tells of hosts, one whose processes serve one call each."""
    row = rows[name]
    for contender in ("daemon", "noop"):
        assert (row[contender]["failed"], row[contender]["problem"]) == (0, "")
        assert row[contender]["calls"] >= 1


def test_a_published_plugin_is_measured_as_it_stands_and_as_a_function(rows):
    """Each beside a fresh process that calls it as it stands."""
    for name in (PUBLISHED, OF_FEW):
        for contender in ("daemon", "fresh"):
            assert (rows[name][contender]["failed"], rows[name][contender]["problem"]) == (0, "")
    assert rows[PUBLISHED]["daemon"]["median"] > 0.005  # it asks the engine each time
    assert rows[OF_FEW]["daemon"]["median"] < rows[PUBLISHED]["daemon"]["median"]


def test_further_plugins_take_memory_and_give_it_back(rows):
    """They come and go while the daemon runs."""
    assert rows[EACH]["daemon"]["memory"] > 1 << 16
    more = rows["at rest, 28 plugins more, after all of this"]["daemon"]["memory"]
    assert more > rows[AT_REST]["daemon"]["memory"]


def test_the_version_before_runs_its_own_code(tmp_path):
    """With this one's interpreter and libraries; and a folder without it is refused."""
    package = tmp_path / "ovirt_scheduler"
    package.mkdir()
    (package / "__main__.py").write_text(
        "import ovirt_scheduler, sys\n"
        "print(*ovirt_scheduler.__path__, file=sys.stderr)\n"
        "print('listening on http://127.0.0.1:1', file=sys.stderr)\n"
    )
    with servers.daemon(tmp_path / "state", tmp_path, checkout=tmp_path) as server:
        assert server.said.splitlines()[0] == str(package)
    ended = subprocess.run(
        [sys.executable, "-m", "bench.run", "--smallest", "--before", str(package)],
        cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert f"--before {package}: there is no ovirt_scheduler in it" in ended.stderr


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
    assert all(what.startswith(RUN) for what in measured)


def test_the_stages_are_all_there(results):
    """A time for each, of each kind of call; time does not run backwards."""
    assert results["stages"]
    for stages in results["stages"].values():
        assert len(stages) == 10
        assert min(stages) >= 0


def test_the_page_gets_what_was_printed(run):
    """Between its marks; what stands around them stays."""
    page = (run / "benchmarks.md").read_text("utf-8")
    before = (PROJECT / "docs" / "benchmarks.md").read_text("utf-8")
    part = re.compile(r"(<!-- [\w ]+: made by make bench -->\n).*?(<!-- end -->)", re.DOTALL)
    assert part.sub(r"\1\2", page) == part.sub(r"\1\2", before)
    printed = (run / "printed").read_text("utf-8")
    tables = [text.strip() for text in printed.split("\n\n") if "|" in text]
    assert len(tables) == 5
    *tables, beside = tables
    assert all(table in page for table in tables)
    assert "processor before" in beside  # what differs from another checkout is printed alone


@pytest.mark.parametrize("name", ["latency.svg", "throughput.svg"])
def test_the_plots_are_svg(run, name):
    """Well-formed, even where next to nothing was measured."""
    root = ElementTree.parse(run / name).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_looks_at_a_cluster_are_measured_beside_those_of_another_checkout(tmp_path):
    """The table is put into the page, and nothing else of the page changes."""
    page = PROJECT / "docs" / "benchmarks.md"
    shutil.copy(page, tmp_path)
    ended = subprocess.run(
        [sys.executable, "-m", "bench.look", "--hosts", "3", "--vms", "10", "--every", "0.1",
         "--before", str(PROJECT), "--docs", str(tmp_path)],
        cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    after = (tmp_path / "benchmarks.md").read_text("utf-8")
    part = re.compile(
        "(?<=<!-- look: made by python -m bench.look -->\n).*?(?=<!-- end -->)", re.DOTALL
    )
    assert part.sub("", after) == part.sub("", page.read_text("utf-8"))
    rows = re.findall(r"^\| (.+?) +\| +(\S.*?) +\| +(\S.*?) +\|$", ended.stdout, re.MULTILINE)
    assert [row[0] for row in rows if "look: " in row[0]] == [
        f"{kind} look: {what}"
        for kind in ("status", "balancing")
        for what in ("the engine tells", "processor time", "memory")
    ]
    assert ended.stdout.strip() in after


def test_looks_that_plan_are_measured_in_turns():
    """The engine is asked beforehand about each VM of a plan."""
    ended = subprocess.run(
        [sys.executable, "-m", "bench.look", "--hosts", "10", "--vms", "80", "--every", "0.1",
         "--times", "1", "--before", str(PROJECT), "--pairs", "1"],
        cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^\| 1 +\| .* s, [1-9]\d* questions \| .* s, [1-9]\d* questions ",
                     ended.stdout, re.MULTILINE), ended.stdout  # fmt: skip
    assert re.search(r"^\| median +\| .* [+-]\d+\.\d% in a pair \|$", ended.stdout, re.MULTILINE)
