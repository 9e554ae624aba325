"""Which modules the statements of a file may import."""

from __future__ import annotations

import pytest

from ovirt_scheduler.model.plugins import Candidate, Source
from ovirt_scheduler.processes.loading.modules import ANY, imported, refusal


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("import a", ["a"]),
        ("import a.b.c as d, e", ["a", "a.b", "a.b.c", "e"]),
        ("from a.b import c", ["a", "a.b", "a.b.c"]),
        ("from . import c", ["top", "top.mid", "top.mid.c"]),
        ("from .c import d", ["top", "top.mid", "top.mid.c", "top.mid.c.d"]),
        ("from ..c import d", ["top", "top.c", "top.c.d"]),
        ("def f():\n    import a", ["a"]),
        ("importlib.import_module('a.b')", ["a", "a.b"]),
        ("__import__('a')", ["a"]),
        ("import_module(name)", [ANY]),
        ("map(importlib.import_module, names)", [ANY]),
        ("x = 1", []),
    ],
)
def test_names_are_made_absolute_and_come_after_their_packages(statement, names):
    """In a module of the package top.mid."""
    source = Source("top.mid.module", "/p/top/mid/module.py", statement.encode())
    assert [name for name, _ in imported(source)] == names


def test_a_package_is_its_own():
    """One dot in its __init__.py is itself."""
    source = Source("top", "/p/top/__init__.py", b"from . import c")
    assert [name for name, _ in imported(source)] == ["top", "top.c"]


def test_more_dots_than_packages_name_nothing_that_is():
    """Python tells of it when it gets there."""
    source = Source("plugin", "/p/plugin.py", b"from .... import c")
    assert "c" not in [name for name, _ in imported(source)]


def test_a_refused_file_is_told_where_it_is_imported():
    """Also by a helper, and late; broken helpers are passed over."""
    plugin = Source("plugin", "/p/plugin.py", b"import broken, helper")
    broken = Source("broken", "/p/broken.py", b"x = (")
    helper = Source("helper", "/p/helper.py", b"\ndef f():\n    import bad")
    fault = refusal(Candidate(plugin, "/p", (broken, helper), (("bad", "no good"),)))
    assert (fault.file, fault.line) == ("/p/helper.py", 3)
    assert fault.message == "imports bad, which is left out: no good"
    assert refusal(Candidate(plugin, "/p", (broken, helper), (("other", "no good"),))) is None
