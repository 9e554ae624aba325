"""The fields of the log, the sentences that are made of them, and the manual on both."""

from __future__ import annotations

import ast
import re

import pytest

from docs.log_messages import PLACEHOLDER, explanations, messages, page
from ovirt_scheduler.log.fields import FIELDS, Name, Names
from tests.support.log_messages import rows
from tests.support.paths import PROJECT

MESSAGES = list(messages())
PAGE = (PROJECT / "docs" / "messages.md").read_text("utf-8")


def test_the_messages_are_found():
    """A package whose messages are not found would pass everything else."""
    assert len(MESSAGES) > 100
    assert {message.level for message in MESSAGES} == {"debug", "info", "warning", "error"}


def test_a_sentence_is_made_of_fields_that_the_table_has():
    """So that JSON and the journal tell what the text tells."""
    for message in MESSAGES:
        assert "%" not in PLACEHOLDER.sub("", message.text), message.place
        names = set(PLACEHOLDER.findall(message.text))
        assert len(message.arguments) <= 1, f"{message.place}: one argument, the fields"
        for fields in message.arguments:
            if isinstance(fields, ast.Dict):
                given = {key.value for key in fields.keys if isinstance(key, ast.Constant)}
                assert given <= FIELDS, message.place
                if None not in fields.keys:  # else some come with ** from elsewhere
                    assert names <= given, message.place
        assert names <= FIELDS, message.place


def test_the_page_of_messages_is_what_the_code_logs():
    assert page(PAGE) == PAGE, "run `python docs/generate.py`, then say what the new message means"


def test_each_message_has_a_meaning_and_an_advice():
    explained = explanations(PAGE)
    assert len(explained) > 80
    for (level, message), (meaning, advice) in explained.items():
        assert meaning, f"docs/messages.md does not say what it means: {message}"
        assert advice or level == "info", f"docs/messages.md does not say what to do: {message}"


def test_a_message_keeps_its_meaning_and_one_that_is_gone_loses_its_row():
    started = "| info | `ovirt-scheduler VERSION, pid PID` |"
    reworded = PAGE.replace(started, "| info | `what nobody logs` | nothing | |\n" + started)
    assert page(reworded) == PAGE
    new = page(PAGE.replace(started, "| info | `ovirt-scheduler of former days` |"))
    assert explanations(new)["info", "ovirt-scheduler VERSION, pid PID"] == ("", "")
    assert "of former days" not in new


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
