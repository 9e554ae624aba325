"""Columns and JSON."""

from __future__ import annotations

import json

from ovirt_scheduler.tables import document, table


def test_columns_are_as_wide_as_they_need_to_be():
    """Two spaces between them, none at the end of a line."""
    assert table(("A", "WIDE"), [("long", 1), ("b", "")]) == "A     WIDE\nlong  1\nb\n"


def test_a_cell_is_one_line():
    """The first; None is empty."""
    assert table(("A", "B"), [("one\ntwo", None)]) == "A    B\none\n"


def test_no_rows_are_no_table():
    """What is said instead, the command knows."""
    assert table(("A",), []) == ""


def test_json_is_readable_and_whole():
    """Names beyond ASCII stay as they are."""
    value = {"host": "lynx", "costs": {"é": 1}}
    assert json.loads(document(value)) == value
    assert "é" in document(value)
