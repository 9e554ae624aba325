"""The fields of the log, the sentences that are made of them, and the manual on both."""

from __future__ import annotations

import ast
import re

import pytest

from ovirt_scheduler.log.fields import FIELDS, Name, Names
from tests.support.log_messages import PLACEHOLDER, messages, rows, shown


def test_the_messages_are_found():
    """A package whose messages are not found would pass everything else."""
    assert len(messages()) > 30
    assert {message.level for message in messages()} == {"debug", "info", "warning", "error"}


def test_a_sentence_is_made_of_fields_that_the_table_has():
    """So that JSON and the journal tell what the text tells."""
    for message in messages():
        assert "%" not in PLACEHOLDER.sub("", message.text), message.place
        names = set(PLACEHOLDER.findall(message.text))
        if isinstance(message.fields, ast.Dict):
            given = {key.value for key in message.fields.keys if isinstance(key, ast.Constant)}
            assert given <= FIELDS, message.place
            if None not in message.fields.keys:  # else some come with ** from elsewhere
                assert names <= given, message.place
        assert names <= FIELDS, message.place


def test_the_manual_tells_every_message_and_no_other():
    """With its level, its meaning and what to do; of bugs it tells above, and of debug nowhere."""
    table = rows("| level | message | meaning | what to do |")
    told = {(level, message.strip("`")) for level, message, _, _ in table}
    logged = {
        (message.level, shown(message.text))
        for message in messages()
        if message.level != "debug" and "this is a bug" not in message.text
    }
    assert told - logged == set(), "in docs/operations.md and not in the code"
    assert logged - told == set(), "in the code and not in docs/operations.md"
    assert len(table) == len(told)
    for level, message, meaning, to_do in table:
        assert meaning, message
        assert to_do or level == "info", f"what to do about: {message}"


def test_the_manual_tells_every_field():
    """With its meaning, and no other."""
    table = rows("| field | what it tells |")
    assert {name.strip("`") for name, meaning in table if meaning} == FIELDS
    assert len(table) == len(FIELDS)


def test_no_field_has_a_name_that_every_line_has():
    """Nor one that the journal could not take."""
    assert not FIELDS & {"time", "level", "logger", "message"}
    assert all(re.fullmatch("[a-z][a-z_]{1,40}", name) for name in FIELDS)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Quiet", "Quiet"),
        ("größer_2", "größer_2"),
        ("972c2880-7a7c-521b-a86d-9cc628861077", "972c2880-7a7c-521b-a86d-9cc628861077"),
        ("a; hosts 0 in", "'a; hosts 0 in'"),
        ("", "''"),
        ("\n", r"'\n'"),
        ("x" * 100, "x" * 60),
    ],
)
def test_a_name_is_in_quotes_unless_it_is_a_plain_word(name, sentence):
    """It cannot be taken for a part of the sentence."""
    assert str(Name(name)) == sentence


def test_many_names_are_cut():
    """Eight in the sentence and 32 in the field."""
    names = Names([f"n{number}" for number in range(100)])
    assert str(names) == "n0, n1, n2, n3, n4, n5, n6, n7 and 92 more"
    assert len(names.first) == 32
    assert str(Names([])) == "(none)"
