"""What ``new`` writes: a plugin that loads, a test that passes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest

from ovirt_scheduler.command import skeleton
from ovirt_scheduler.errors import BadUsage, NotOverwritten
from ovirt_scheduler.model.plugins import Candidate, Source
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings.config import parse_plugin_conf
from tests.support.paths import PROJECT

SOME = [
    kinds for count in (1, 2, 3) for kinds in itertools.combinations(Kind, count)
]  # every choice there is


@pytest.mark.parametrize("kinds", SOME, ids=lambda kinds: "+".join(kind.value for kind in kinds))
def test_the_plugin_loads_and_its_test_passes(tmp_path, executor, kinds):
    """With exactly the units that were asked for."""
    plugin, conf, test = skeleton.write(tmp_path, "Quiet", kinds)
    candidate = Candidate(Source("Quiet", str(plugin), plugin.read_bytes()), str(tmp_path), ())
    analysis = executor.analyse(candidate)
    assert analysis.fault is None
    assert {unit.kind for unit in analysis.units} == set(kinds)
    assert parse_plugin_conf(conf.read_bytes(), conf).default_values == "20"
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(test)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"Ran {len(kinds) + (Kind.BALANCE in kinds)} test" in ended.stderr


@pytest.mark.parametrize("name", ["", "a-b", "a.b", "../a", "class", "_helper", "x" * 129])
def test_a_name_that_no_plugin_can_have_is_refused(tmp_path, name):
    """And nothing is written."""
    with pytest.raises(BadUsage):
        skeleton.write(tmp_path, name, [Kind.FILTER])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["Quiet.py", "Quiet.conf", "tests/test_Quiet.py"])
def test_nothing_is_overwritten(tmp_path, there):
    """All three or none."""
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("mine")
    with pytest.raises(NotOverwritten, match=there):
        skeleton.write(tmp_path, "Quiet", [Kind.FILTER])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.read_text() for path in files] == ["mine"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    """By its name; what was written before is taken away."""
    (tmp_path / "tests").write_text("a file, no folder")
    with pytest.raises(NotOverwritten, match="tests"):
        skeleton.write(tmp_path, "Quiet", [Kind.FILTER])
    assert [path.name for path in tmp_path.iterdir()] == ["tests"]
