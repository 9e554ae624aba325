"""What ``new`` writes: a plugin that loads, tests that pass."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from functools import partial

import pytest

from ovirt_scheduler.command import skeleton
from ovirt_scheduler.errors import BadUsage, NotOverwritten
from ovirt_scheduler.model.plugins import Candidate, Source
from ovirt_scheduler.settings import plugin_conf
from tests.support.command import run, spawned
from tests.support.paths import PROJECT

UNITS = {"filter": "do_filter", "score": "do_score", "balance": "do_balance"}
TESTS = {"filter": 1, "score": 1, "balance": 2, "scheduler": 2, "driver": 1}


@pytest.mark.parametrize(
    "parts", [*([part] for part in skeleton.PARTS), [*skeleton.PARTS]], ids="+".join
)
def test_the_plugin_loads(tmp_path, executor, parts):
    """With exactly the units and drivers that were asked for."""
    plugin, conf, _ = skeleton.write(tmp_path, "Quiet", parts)
    candidate = Candidate(Source("Quiet", str(plugin), plugin.read_bytes()), str(tmp_path), ())
    analysis = executor.analyse(candidate)
    assert analysis.fault is None
    assert {unit.kind.function for unit in analysis.units} == {
        UNITS[part] for part in parts if part in UNITS
    }
    assert len(analysis.drivers) == len({"scheduler", "driver"} & {*parts})
    assert plugin_conf.parse(conf.read_bytes(), conf).default_values == (
        "" if parts == ["driver"] else "20"
    )
    assert ("on_failure" in conf.read_text("utf-8")) is ("filter" in parts)  # which alone has it


def test_what_a_new_plugin_is_to_be_tried_on_is_told_with_how_to_get_it(tmp_path):
    """A cluster of the engine has both hosts and VMs; a driver needs neither."""
    told = run(tmp_path, "new", "A", "--filter", "--folder", str(tmp_path / "a b"))[1]
    assert f"or ovirt-scheduler try '{tmp_path}/a b/A.py' --cluster cluster" in told  # for a shell
    saves = "ovirt-scheduler snapshot CLUSTER -f cluster.xml.gz"
    for part in skeleton.PARTS:
        out = run(tmp_path, "new", f"A_{part}", f"--{part}", "--folder", str(tmp_path))[1]
        assert f"or ovirt-scheduler try {tmp_path}/A_{part}.py --c" in out
        assert ("--cluster cluster.xml.gz\n" in out, saves in out) == (part != "driver",) * 2


def test_what_the_tests_need_is_told(tmp_path, monkeypatch):
    """A daemon is installed without pytest."""
    assert run(tmp_path, "new", "One", "--filter", "--folder", str(tmp_path))[1].count("pip") == 0
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pytest")
    out = run(tmp_path, "new", "Two", "--filter", "--folder", str(tmp_path))[1]
    assert f"{tmp_path}/tests/test_Two.py (after: pip install pytest), or" in out


def test_the_tests_pass(tmp_path):
    """Those of a plugin of each part, and those of one with all."""
    every = [[part] for part in skeleton.PARTS] + [[*skeleton.PARTS]]
    for parts in every:
        _, _, test = skeleton.write(tmp_path, "And".join(["Quiet", *parts]), parts)
    told = {"PYTHONPATH": str(PROJECT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # as from an RPM
    ended = pytest_of(sys.executable, test.parent, ["-W", "error"], **told)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{2 * sum(TESTS.values())} passed" in ended.stdout


@pytest.mark.long
def test_the_tests_pass_in_a_clean_environment(tmp_path):
    """With this package and pytest alone, whose fixtures pytest finds by itself."""
    source = tmp_path / "source"
    for folder in ("ovirt_scheduler", "plugins", "etc", "systemd", "docs", "completion"):
        leftovers = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / folder, source / folder, ignore=leftovers)
    for file in (
        *PROJECT.glob("*.py"),
        *PROJECT.glob("*.toml"),
        *PROJECT.glob("*.md"),
        PROJECT / "LICENSE",
    ):
        shutil.copy(file, source)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    quiet = ["--quiet", "--disable-pip-version-check"]
    installed = subprocess.run(
        [python, "-m", "pip", "install", *quiet, source, "pytest>=8"],
        env=environment(), capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    if "No matching distribution" in installed.stderr:
        pytest.skip("no package index can be reached")
    assert installed.returncode == 0, installed.stderr
    _, _, test = skeleton.write(tmp_path / "drafts", "Quiet", [*skeleton.PARTS])
    test.write_text(test.read_text("utf-8").replace("pytest_plugins =", "unused ="), "utf-8")
    ended = pytest_of(python, test, [])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{sum(TESTS.values())} passed" in ended.stdout


def pytest_of(python, tests, options, **variables):
    """Run a plugin's tests, or the folder of them, where its author stands."""
    folder = tests.parent if tests.is_dir() else tests.parents[1]
    return subprocess.run(
        [python, "-m", "pytest", *options, tests.relative_to(folder)],
        cwd=folder, env=environment(**variables),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def environment(**variables):
    """That of these tests, without what would bring the project in."""
    mine = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "PYTHON"))
    }
    return {**mine, **variables}


@pytest.mark.parametrize("name", ["", "a-b", "a.b", "../a", "class", "_helper", "1x", "x" * 129])
def test_a_name_that_no_plugin_can_have_is_refused(tmp_path, name):
    """And nothing is written."""
    with pytest.raises(BadUsage, match=r"begin with a letter, .* no keyword|takes 128"):
        skeleton.write(tmp_path, name, ["filter"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["Quiet.py", "Quiet.conf", "tests/test_Quiet.py"])
def test_nothing_is_overwritten(tmp_path, there):
    """All three or none."""
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("mine")
    with pytest.raises(NotOverwritten, match=there):
        skeleton.write(tmp_path, "Quiet", ["filter"])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.read_text() for path in files] == ["mine"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    """By its name; what was written before is taken away."""
    (tmp_path / "tests").write_text("a file, no folder")
    with pytest.raises(NotOverwritten, match="tests"):
        skeleton.write(tmp_path, "Quiet", ["filter"])
    assert [path.name for path in tmp_path.iterdir()] == ["tests"]


def test_a_disk_that_takes_nothing_is_told(tmp_path):
    """With the file that was to be written; none is left."""
    no_room = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    plugins = tmp_path / "plugins"
    words = ("new", "Quiet", "--filter", "--folder", plugins)
    status, out, err = spawned(tmp_path, *words, preexec_fn=no_room)
    assert (status, out) == (73, "")
    assert f"ovirt-scheduler: {plugins}/Quiet.py: cannot be written: File too large; choose" in err
    assert not [*plugins.iterdir()]
