"""Which modules of its folder a plugin's file loads, and from where else it imports."""

from __future__ import annotations

import sysconfig
import zipfile
from pathlib import Path

import pytest

from ovirt_scheduler.model.analysis import Analysis

GOOD = "def do_filter(hosts, vm, properties): return hosts\n"


def names(analysis: Analysis) -> list:
    assert analysis.fault is None
    plugin, *helpers = (module.name for module in analysis.modules)
    return [plugin, *sorted(helpers)]


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("import early", ["early"]),
        ("from early import x", ["early"]),
        ("def f():\n    import late", ["late"]),
        ("def f():\n    from late import x", ["late"]),
        ("if 0:\n    import late", ["late"]),
        ("import early\ndef f():\n    import late, early", ["early", "late"]),
        ("import leads_on", ["leads_on", "early"]),
        ("def f():\n    import leads_on_later", ["leads_on_later", "late"]),
        ("import one_way", ["one_way", "other_way"]),
        ("import importlib\nimportlib.import_module('early')", ["early"]),
        ("def f():\n    from . import early", []),
        ("import json", []),
        ("def f(name):\n    __import__(name)",
         ["early", "late", "leads_on", "leads_on_later", "never", "one_way", "other_way", "package",
          "package.part", "package.inner", "package.inner.core"]),
        ("import package", ["package"]),
        ("import package.part", ["package", "package.part", "package.inner", "package.inner.core"]),
        ("from package import inner", ["package", "package.inner"]),
        ("from package.inner import core\ncore.x", ["package", "package.inner", "package.inner.core"]),
        ("def f():\n    from package.inner import core",
         ["package", "package.inner", "package.inner.core"]),
        ("import package\nassert package.__path__ and package.__file__", ["package"]),
    ],
)  # fmt: skip
def test_the_helpers_that_a_plugin_imports_are_its_modules(analyse, text, used):
    """Now or later, those of its helpers, and of a package; no others of the folder (contract 5.1)."""
    helpers = {
        "early": "x = 1",
        "late": "x = 2",
        "leads_on": "import early",
        "leads_on_later": "def f():\n    import late",
        "one_way": "import other_way",
        "other_way": "import one_way",
        "never": "raise SystemExit",
        "wrong": "x = (",
        "package": "",
        "package.part": "from .inner import core",
        "package.inner": "",
        "package.inner.core": "x = 1",
    }
    assert names(analyse(f"{GOOD}{text}", **helpers)) == ["plugin", *sorted(used)]


@pytest.mark.parametrize(
    "text",
    [
        "import stray",
        "import importlib; importlib.invalidate_caches(); import stray",
        "import package.stray",
        "from package import stray",
        "import sys; sys.path.remove(sys.path[0]); sys.path.append(''); import stray",
    ],
)
def test_what_the_folder_holds_besides_is_not_imported(analyse, tmp_path, text):
    """A file that was left out, as somebody else may write it; or one that has just come."""
    (tmp_path / "package").mkdir()
    ran = tmp_path / "ran"
    for place in (tmp_path, tmp_path / "package"):
        (place / "stray.py").write_text(f"open({str(ran)!r}, 'w')")
    assert analyse(f"{text}\n{GOOD}", package="").fault is not None
    assert not ran.exists()


@pytest.mark.parametrize(
    "entry",
    ["'.'", "here + '/'", "here + '/../' + os.path.basename(here)", "os.path.realpath(here)",
     "here + '/package'", "here + '/folder'", "here + '/archive.zip'"],
)  # fmt: skip
def test_the_folder_is_closed_by_whatever_name_it_is_on_the_path(analyse, tmp_path, entry):
    """Old plugins add their folder, or one below it."""
    real, ran = tmp_path / "real", tmp_path / "ran"
    text = f"open({str(ran)!r}, 'w')"
    for place in (real, real / "package", real / "folder"):
        place.mkdir()
        (place / "stray.py").write_text(text)
    with zipfile.ZipFile(real / "archive.zip", "w") as archive:
        archive.writestr("stray.py", text)
    link = tmp_path / "link"
    link.symlink_to(real)
    path = f"import os, sys\nhere = {str(link)!r}\nsys.path.insert(0, {entry})"
    fault = analyse(f"{path}\nimport stray\n{GOOD}", folder=link).fault
    assert fault.message.startswith("cannot import stray")
    assert not ran.exists()


def test_libraries_that_lie_below_the_folder_are_found(analyse):
    """A plugin in the folder that holds the daemon's Python, say."""
    below = "/".join(sysconfig.get_path("stdlib").split("/")[:2])
    assert analyse(f"import this\n{GOOD}", folder=Path(below)).fault is None


def test_a_folders_module_wins_over_the_standard_librarys(analyse):
    """As a script's folder does."""
    analysis = analyse(f"import colorsys, json\ncolorsys.mine, json.mine\n{GOOD}",
                       colorsys="mine = 1", json="mine = 2")  # fmt: skip
    assert names(analysis) == ["plugin", "colorsys", "json"]


@pytest.mark.parametrize(
    ("text", "helper", "line", "message"),
    [
        ("import helper", "\nx = )", 2, "syntax error: unmatched ')' in 'x = )'; mend this line"),
        ("import helper", 'print "x"', 1, "this line is Python 2: 'print \"x\"'; port"),
        ("def f():\n    import helper", "\nx = )", 2, "syntax error: unmatched ')'"),
        ("import helper", "\n\n1 / 0", 3, "loading it raised ZeroDivisionError"),
        ("import helper", "\nimport nowhere_at_all", 2, "cannot import nowhere_at_all"),
    ],
)
def test_a_helpers_mistake_is_told_in_the_helper(analyse, text, helper, line, message):
    """File and line are where it has to be mended."""
    fault = analyse(f"{text}\n{GOOD}", helper=helper).fault
    assert (Path(fault.file).name, fault.line) == ("helper.py", line)
    assert fault.message.startswith(message)


def test_a_broken_helper_that_nothing_imports_does_not_matter(analyse):
    """It is reported as that file's own."""
    assert analyse(GOOD, helper="x = )").fault is None


def test_what_is_loaded_is_what_was_read_not_what_the_disk_holds(analyse, tmp_path):
    """The registry's bytes, for the plugin and its helpers."""
    (tmp_path / "plugin.py").write_text("raise SystemExit")
    (tmp_path / "helper.py").write_text("raise SystemExit")
    assert names(analyse(f"import helper\n{GOOD}", helper="x = 1")) == ["plugin", "helper"]
    assert not (tmp_path / "__pycache__").exists()
