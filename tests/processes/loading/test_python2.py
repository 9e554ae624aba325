"""Modules that earlier Pythons had."""

from __future__ import annotations

import sys

import pytest

from ovirt_scheduler.processes.loading import python2


@pytest.mark.parametrize(
    ("module", "version", "absence"),
    [
        ("urllib2", (3, 9), f"a module of Python 2; {python2.PORT}"),
        ("imp", (3, 12), "a module that Python 3.12 has no more; port the file to that"),
        ("imp", (3, 11), ""),
        ("distutils.version", (3, 13), "a module that Python 3.12 has no more; port the file to that"),
        ("telnetlib", (3, 12), ""),
        ("json", (3, 13), ""),
    ],
)  # fmt: skip
def test_a_module_is_missed_from_the_version_on_that_removed_it(
    monkeypatch, module, version, absence
):
    monkeypatch.setattr(sys, "version_info", version)
    assert python2.absence(module) == absence


@pytest.mark.skipif(sys.version_info < (3, 10), reason="this Python has no list of its modules")
def test_this_python_has_none_of_the_modules_that_it_is_said_to_lack():
    lacking = {module for module in python2._REMOVED if python2.absence(module)}
    assert lacking == python2._REMOVED.keys() - sys.stdlib_module_names
