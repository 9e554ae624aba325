"""The table of features by their paths, which the weight of the package is counted by."""

from __future__ import annotations

import re

import pytest

from bench.rooms import FEATURES
from tests.support.paths import PROJECT

PACKAGE = PROJECT / "ovirt_scheduler"


@pytest.mark.parametrize(("path", "feature"), FEATURES)
def test_each_row_of_the_table_of_features_is_of_files_that_are_there(path, feature):
    """A file that was moved would count as the core's."""
    files = (file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.py"))
    assert any(re.search(path, file) for file in files), feature
