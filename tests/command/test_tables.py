"""Columns and JSON."""

from __future__ import annotations

import json

from ovirt_scheduler.command.tables import document, table


def test_columns_are_as_wide_as_they_need_to_be():
    """Two spaces between them, none at the end of a line."""
    assert table(("A", "WIDE"), [("long", 1), ("b", "")]) == "A     WIDE\nlong  1\nb\n"


def test_a_cell_is_one_line():
    """The first; None is empty."""
    assert table(("A", "B"), [("one\ntwo", None)]) == "A    B\none\n"


def test_nothing_steers_a_terminal():
    """In a cell as in JSON, which stays what it is."""
    bad = "a\x1b[2J\x7f\x9b\u202eb\ud800"
    assert table(("A",), [(bad,)]) == "A\na\\x1b[2J\\x7f\\x9b\\u202eb\\ud800\n"
    text = document({bad: bad})
    assert all(line.isprintable() for line in text.splitlines())
    assert json.loads(text) == {bad: bad}


def test_no_rows_are_no_table():
    """What is said instead, the command knows."""
    assert table(("A",), []) == ""


def test_json_is_readable_and_whole():
    """Names beyond ASCII stay as they are."""
    value = {"host": "lynx", "costs": {"é": 1}}
    assert json.loads(document(value)) == value
    assert "é" in document(value)


def test_a_wide_table_is_folded():
    """The widest column first, between words; no line is longer, and nothing is lost."""
    rows = [("Quiet", "Keep the hosts that run few VMs"), ("b", "short")]
    assert table(("UNIT", "DESCRIPTION"), rows, 25) == (
        "UNIT   DESCRIPTION\nQuiet  Keep the hosts\n       that run few VMs\nb      short\n"
    )


def test_no_word_is_broken_that_could_be_an_id():
    """Nor a time; other columns are folded for it. A word that is longer than an id is broken."""
    host = "8a4745b8-40a2-5229-b807-2d83b53f70d9"
    shown = table(("AT", "ID", "WHY"), [("1 Jan", host, "MaxVms: runs 12 VMs")], 52)
    assert shown == (
        f"AT     ID{' ' * 36}WHY\n1 Jan  {host}  MaxVms:\n{' ' * 45}runs 12\n{' ' * 45}VMs\n"
    )
    assert host in table(("HOST", "ID"), [("lynx", host)], 30)
    lines = table(("PROPERTIES",), [("x" * 80,)], 30).splitlines()
    assert lines == ["PROPERTIES", "x" * 36, "x" * 36, "x" * 8]


def test_a_column_is_not_folded_beyond_reading():
    """A terminal that is too narrow for it folds the lines itself."""
    text = table(("A", "B", "C"), [("x" * 20, "y y y", "z" * 20)], 10)
    assert [len(line) for line in text.splitlines()[1:]] == [45, 23, 23]
