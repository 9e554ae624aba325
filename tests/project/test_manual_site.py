"""The manual as a site: make manual builds it, and checks where its links lead."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.support.command import executed
from tests.support.paths import PROJECT

pytest.importorskip("mkdocs", reason="mkdocs is not installed (make test installs it)")


@pytest.fixture
def project(tmp_path):
    for file in (PROJECT / "Makefile", PROJECT / "mkdocs.yml", *PROJECT.glob("*.md")):
        shutil.copy(file, tmp_path)
    for folder in ("docs", "etc", ".ci"):
        shutil.copytree(PROJECT / folder, tmp_path / folder)
    return tmp_path


def make_manual(project: Path):
    """What make says, with the mkdocs that is installed beside this Python."""
    return executed(
        "make", "-C", str(project), "-o", ".venv/.test", f"BIN={Path(sys.executable).parent}",
        "manual",
    )  # fmt: skip


def test_the_manual_is_built_without_a_warning(project):
    ended = make_manual(project)
    assert ended.returncode == 0, ended.stderr
    assert "WARNING" not in ended.stderr
    site = project / "build" / "manual" / "site"
    pages = {path.relative_to(project).with_suffix("") for path in project.glob("docs/*.md")}
    built = {path.relative_to(site).with_suffix("") for path in site.glob("docs/*.html")}
    assert built == pages - {Path("docs/README")} | {Path("docs/index")}
    assert (site / "docs" / "pages-decision.png").exists()


@pytest.mark.parametrize("link", ["docs/engine.md#no-such-heading", "docs/no-such-page.md"])
def test_a_link_that_leads_nowhere_is_a_mistake(project, link):
    with (project / "README.md").open("a") as readme:
        readme.write(f"[more]({link})\n")
    ended = make_manual(project)
    assert ended.returncode != 0
    assert link in ended.stderr


def test_a_page_that_no_reader_is_led_to_is_a_mistake(project):
    (project / "docs" / "hidden.md").write_text("# Hidden\n")
    ended = make_manual(project)
    assert ended.returncode != 0
    assert "hidden.md" in ended.stderr
