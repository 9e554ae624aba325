"""The check of ``make lint`` that keeps names out of the package that do not say what they hold."""

from __future__ import annotations

import runpy
import sys

import pytest

from tests.support.command import executed
from tests.support.paths import PROJECT

SCRIPT = PROJECT / ".ci" / "words.py"

# What binds a vague name in each way there is.
BINDINGS = [
    "found = 1", "found: int = 1", "self.found = 1", "_found = 1", "a, *found = 1, 2",
    "for found in (): pass", "with open() as found: pass", "import a as found", "found += 1",
    "def f(found): pass", "def f(*, found=1): pass", "lambda found: 1", "def found(): pass",
    "class found: pass", "try: pass\nexcept OSError as found: pass", "if (found := 1): pass",
    "[\n    found for found in ()\n]",
]  # fmt: skip


@pytest.fixture
def main():
    return runpy.run_path(str(SCRIPT))["main"]


def written(folder, **files):
    """A project whose package has modules with this source, by their names."""
    for name, source in files.items():
        path = folder / "ovirt_scheduler" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    return folder


@pytest.mark.parametrize("source", BINDINGS)
def test_a_vague_name_is_printed_with_its_place(tmp_path, capsys, main, source):
    assert main(written(tmp_path, room=source), {}) == 1
    line = 2 if source.startswith(("try", "[")) else 1
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert printed[0].startswith(f"ovirt_scheduler/room.py:{line}: ")
    assert printed[0].endswith("found")


@pytest.mark.parametrize("source", ["[found for found in ()]", "found.hosts = f(found)", "'found'"])
def test_a_short_comprehension_and_a_mere_use_are_no_mistakes(tmp_path, capsys, main, source):
    assert main(written(tmp_path, room=source), {}) == 0
    assert not capsys.readouterr().out


def test_a_room_may_have_what_is_allowed_and_neither_more_nor_less(tmp_path, capsys, main):
    project = written(tmp_path, room="left = 1\nleft = 2", other="hosts = 1")
    assert main(project, {"room.py": 2}) == 0
    assert not capsys.readouterr().out
    assert main(project, {"room.py": 1}) == 1
    assert "ovirt_scheduler/room.py:2: left" in capsys.readouterr().out
    assert main(project, {"room.py": 2, "other.py": 1}) == 1
    assert capsys.readouterr().out.startswith("other.py: 0 vague names, no longer 1")


def test_make_lint_runs_it_on_the_project(tmp_path):
    assert ".ci/words.py\n" in (PROJECT / "Makefile").read_text()
    ended = executed(sys.executable, SCRIPT, cwd=written(tmp_path, room="left = 1"))
    assert ended.returncode == 1
    assert ended.stdout.startswith("ovirt_scheduler/room.py:1: left\n")
