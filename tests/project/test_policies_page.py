"""The example of docs/policies.md: a rule is changed, and its tests say what would have been."""

from __future__ import annotations

import re
import shutil
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ovirt_scheduler.workbench import expectations
from ovirt_scheduler.workbench.comparison import Comparison
from tests.support.command import of_page
from tests.support.daemon import StartDaemon
from tests.support.paths import PROJECT

PAGE = (PROJECT / "docs" / "policies.md").read_text("utf-8")
COOKBOOK = (PROJECT / "docs" / "cookbook.md").read_text("utf-8")
BLOCK = re.compile(r"^```sh\n(.*\n)```\n\n((?: {4}.*\n)+)", re.MULTILINE)
RULE = re.compile(r"^```\w+\n# (Reserve\.\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  [0-9a-f]{16}")


@pytest.fixture
def repository(start_daemon: StartDaemon, tmp_path: Path) -> Path:
    """The site's repository, with a recording of the rules that are in use."""
    shutil.copytree(PROJECT / "demo", tmp_path / "demo")
    (scenario_text,) = re.findall(r"^```ini\n# loss.conf\n(.*?)^```$", PAGE, re.M | re.S)
    (tmp_path / "loss.conf").write_text(scenario_text, "utf-8")
    for folder in ("live", "plugins"):
        (tmp_path / folder).mkdir()
        for name, text in RULE.findall(COOKBOOK):
            changed = text.replace('"25"', '"40"') if folder == "plugins" else text
            (tmp_path / folder / name).write_text(changed, "utf-8")
    live = tmp_path / "live"
    live, daemon_folder = tmp_path / "live", tmp_path / "daemon"
    daemon_folder.mkdir()
    settings = f"plugins_conf_path = {live}\n"
    daemon = start_daemon(live, f"ssl = false\nrecord = true\n{settings}", folder=daemon_folder)
    documents = [(tmp_path / "demo" / name).read_text("utf-8") for name in ("hosts.xml", "vm.xml")]
    daemon.design.runFilters(["Reserve"], *documents, {})
    daemon.process.terminate()
    daemon.process.wait()
    (live / "scheduler.conf").write_text(f"plugins_path = {live}\n{settings}", "utf-8")
    daemon.state.rename(tmp_path / "recording")
    return tmp_path


def test_the_example_shows_what_the_page_shows(repository: Path):
    """Each line of the page in its order, but for time and id; the last command fails."""
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == 2
    for (command, page), expected_status in zip(blocks, (0, 1)):
        ((status, out, err),) = of_page(command, repository, repository / "recording")
        assert status == expected_status, out + err
        shown = iter(VARIES.sub("", out).splitlines())
        for line in textwrap.dedent(VARIES.sub("", page)).splitlines():
            assert line in shown, out  # which goes on behind that line
    failures = [
        [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
        for suite in (ElementTree.parse(repository / name) for name in ("loss.xml", "week.xml"))
    ]
    assert failures == [[], ["differ <= 10 %"]]


def test_the_figures_that_the_page_names_are_there():
    """Each of them can be expected."""
    named = set(
        re.findall(r"`((?:after|differ)[\w.]*|unplaced|migrations|broken_rules|same)`", PAGE)
    )
    there = {*expectations.of_nothing(), *expectations.of_replay(Comparison(changed=True))}
    assert len(named) > 6
    assert named <= there
