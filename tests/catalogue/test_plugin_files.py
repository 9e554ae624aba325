"""What a folder of plugins is seen to hold: files, packages, and what tells of a change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ovirt_scheduler.catalogue.plugin_files import listing
from tests.support.place import plugin

LONG_AGO = (10**9, 10**9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "plugin.py", "_help.py", "some/__init__.py", "some/part.py", "some/deep/__init__.py",
        "some/deep/part.py", "some/not-a-name.py", "some/loose/part.py", "loose/part.py",
        "__pycache__/__init__.py", ".hidden/__init__.py", "plugin/__init__.py", "plugin/part.py",
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def found(folder: Path) -> list[tuple[str, str, bool]]:
    """Name, place and whether it is a helper, of each file."""
    return [
        (file.name, str(file.path.relative_to(folder)), file.helper) for file in listing(folder)[0]
    ]


def test_modules_of_packages_are_helpers_named_as_python_does(folder):
    """A plugin's file goes before a package of its name; a folder without __init__.py is none."""
    assert found(folder) == [
        ("_help", "_help.py", True),
        ("plugin", "plugin.py", False),
        ("some", "some/__init__.py", True),
        ("some.deep", "some/deep/__init__.py", True),
        ("some.deep.part", "some/deep/part.py", True),
        ("some.part", "some/part.py", True),
    ]


def test_a_link_up_ends(folder):
    """As a package of itself."""
    before = found(folder)
    (folder / "some" / "up").symlink_to(folder / "some")
    assert found(folder) == before


def test_a_package_that_others_may_write_is_not_looked_into(folder):
    """They could put so much there, and links across, that looking would never end."""
    (folder / "some").chmod(0o777)
    (folder / "loose").chmod(0o777)
    assert found(folder) == [
        ("_help", "_help.py", True),
        ("plugin", "plugin.py", False),
        ("some", "some/__init__.py", True),
    ]


def test_a_package_may_be_a_link(folder, tmp_path_factory):
    """To where it is kept."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "__init__.py").touch()
    (folder / "linked").symlink_to(elsewhere)
    assert ("linked", "linked/__init__.py", True) in found(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "some" / "new.py").touch(),
        lambda folder: (folder / "some" / "part.py").write_text("x = 1"),
        lambda folder: (folder / "some" / "deep" / "__init__.py").unlink(),
        lambda folder: (folder / "loose" / "__init__.py").touch(),
        lambda folder: (folder / "some" / "part.py").chmod(0o600),
    ],
)
def test_stamps_tell_of_changes_anywhere_in_a_package(folder, change):
    """Also in a folder that becomes one; and of nothing else."""
    for path in (*folder.rglob("*"), folder):
        os.utime(path, LONG_AGO)
    before = listing(folder)[1]
    assert listing(folder)[1] == before
    change(folder)
    assert listing(folder)[1] != before


def test_a_package_that_goes_while_it_is_listed_is_passed_over(folder, monkeypatch):
    """The rest is there."""
    scandir = os.scandir

    def gone(path: Path):
        if path.name == "some":
            raise FileNotFoundError
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert [name for name, _, _ in found(folder)] == ["_help", "plugin"]


def test_a_plugin_with_the_name_of_a_module_of_python_is_warned_of_once(place):
    """Plugins that import it get it instead, and so do the libraries that they use."""
    shadow = place.write("json", plugin(1))
    place.write("imports", f"import json\n{plugin(2)}")
    catalogue = place.registry.refresh()
    assert {name for _, name in catalogue.units} == {"json", "imports"}
    (warning,) = map(str, catalogue.warnings)
    assert warning == (
        f"{shadow}: has the name of a module of Python's standard library: plugins that import "
        "it, and their libraries, get this file instead; rename it"
    )


@pytest.mark.parametrize("module", ["time", "math", "email"])  # built in, compiled, a package
def test_a_plugin_that_fails_for_a_file_named_like_a_module_of_python_names_it(place, module):
    shadow = place.write(module, plugin(1))
    place.write("imports", f"import {module}\n{module}.nothing_like_this\n{plugin(2)}")
    (fault,) = place.registry.refresh().faults
    assert "has no attribute 'nothing_like_this'" in fault.message
    assert f"; {shadow}: has the name of a module of Python's" in fault.message
