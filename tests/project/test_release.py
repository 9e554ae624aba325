"""A release is made of a commit: first its version is written, then its files are built."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys

import pytest

from tests.support.command import executed
from tests.support.paths import PROJECT


@pytest.fixture
def clone(tmp_path):
    """The project as it is committed, in a repository of its own."""
    if executed("git", "rev-parse", "--git-dir").returncode:
        pytest.skip("this is no checkout")
    folder = tmp_path / "clone"
    executed("git", "clone", "-q", "--depth", "1", f"file://{PROJECT}", folder, check=True)
    (folder / ".ci" / "release.py").write_bytes((PROJECT / ".ci" / "release.py").read_bytes())
    commit(folder)
    return folder


def commit(folder):
    executed("git", "add", "-A", cwd=folder, check=True)
    identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com")
    executed(
        "git", *identity, "commit", "-q", "--allow-empty", "-m", "A step", cwd=folder, check=True
    )


def release(folder, *words) -> subprocess.CompletedProcess:
    return executed(sys.executable, ".ci/release.py", *words, cwd=folder)


def test_the_first_run_writes_version_and_date(clone):
    """Into each file that has them, and builds nothing."""
    ended = release(clone, "1.0.0", "--date", "2026-12-01")
    assert ended.returncode == 0, ended.stderr
    assert '__version__ = "1.0.0"' in (clone / "ovirt_scheduler" / "__init__.py").read_text()
    spec = (clone / "packaging" / "ovirt-scheduler.spec").read_text()
    assert "\nVersion: 1.0.0\n" in spec
    assert "\n* Tue Dec 01 2026 The ovirt-scheduler project - 1.0.0-1\n" in spec
    assert "\n## 1.0.0 (2026-12-01)\n" in (clone / "CHANGELOG.md").read_text()
    assert "commit them, and run this again" in ended.stdout
    assert not (clone / "build").exists()


@pytest.mark.long
def test_the_second_run_makes_the_files_and_their_checksums(clone, tmp_path):
    """Another clone of the commit makes the same source distribution and wheel."""
    release(clone, "1.0.0", "--date", "2026-12-01")
    commit(clone)
    ended = release(clone, "1.0.0")
    assert ended.returncode == 0, ended.stderr
    folder = clone / "build" / "release"
    sums = re.findall(r"(?m)^(\w{64})  (.+)$", (folder / "SHA256SUMS").read_text())
    assert {name for _, name in sums} >= {
        "ovirt_scheduler-1.0.0-py3-none-any.whl", "ovirt_scheduler-1.0.0.tar.gz",
    }  # fmt: skip
    for system in (9, 10):
        package = f"ovirt-scheduler-1.0.0-1.el{system}.noarch.rpm"
        assert (f"Enterprise Linux {system}: that needs" in ended.stdout) != (
            package in ended.stdout
        )
    for checksum, name in sums:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == checksum
    again = tmp_path / "again"
    executed("git", "clone", "-q", f"file://{clone}", again, check=True)
    assert release(again, "1.0.0").returncode == 0
    for name in (name for _, name in sums if not name.endswith(".rpm")):
        assert (again / "build/release" / name).read_bytes() == (folder / name).read_bytes(), name


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("README.md", "pip install ovirt-scheduler 0.9.0\n"),
        ("CHANGELOG.md", "# Changelog\n\n## 1.1.0 (unreleased)\n\n## 1.0.0 (2026-12-01)\n"),
    ],
)
def test_a_page_of_another_version_is_no_release(clone, file, text):
    """It says which page, and builds nothing."""
    (clone / file).write_text(text)
    commit(clone)
    release(clone, "1.0.0", "--date", "2026-12-01")
    commit(clone)
    ended = release(clone, "1.0.0")
    assert (ended.returncode, f"{file} has the version " in ended.stderr) == (1, True), ended.stderr
    assert not (clone / "build").exists()


@pytest.mark.parametrize(
    ("version", "words"),
    [("1.0", "expected three numbers"), ("9.9.9", "CHANGELOG.md: has no line like")],
)
def test_a_version_that_cannot_be_is_refused(clone, version, words):
    ended = release(clone, version)
    assert ended.returncode != 0
    assert words in ended.stderr
    assert not executed("git", "status", "--porcelain", cwd=clone).stdout


def test_what_is_not_committed_is_no_release(clone):
    (clone / "README.md").write_text("another\n")
    ended = release(clone, "1.0.0")
    assert (ended.returncode, "README.md" in ended.stderr) == (1, True)
