"""Records as plain text and as JSON, and what a caller's text can do to them: nothing."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from datetime import datetime

import pytest

from ovirt_scheduler.log.fields import Block, Name, Names
from ovirt_scheduler.log.format import JsonFormatter, PlainFormatter
from tests.support.log_messages import HOSTILE


def record(message: str, fields: object = None, **more: object) -> logging.LogRecord:
    told = {"name": "test", "levelno": logging.INFO, "levelname": "INFO", "msg": message}
    made = logging.makeLogRecord({**told, "created": 1767225600.25, "msecs": 250.0, **more})
    made.args = fields
    return made


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE)
def hostile(request):
    """A record with a text in every place where one can come from outside."""
    text = request.param
    fields = {
        "method": Name(text), "units": Names([text, "plain"]),
        "reason": text, "output": Block(f"{text}\n{text}"),
    }  # fmt: skip
    return text, record("%(method)s %(units)s: %(reason)s", fields)


def test_a_plain_line_has_time_level_and_sentence():
    """In local time, as logging has it."""
    line = PlainFormatter().format(record("units %(units)s", {"units": Names(["a", "b"])}))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.250[+-]\d\d:\d\d INFO    units a, b", line
    )


def test_a_json_line_has_time_level_logger_sentence_and_fields():
    """The time as RFC 3339 has it; fields that are None or unknown are left out."""
    fields = {
        "units": Names(["a b", "c"]), "milliseconds": 4.2, "hosts_in": 3, "problems": None,
        "secret": "no field of ours",
    }  # fmt: skip
    told = json.loads(JsonFormatter().format(record("units %(units)s", fields)))
    assert told == {
        "time": "2026-01-01T00:00:00.250Z", "level": "info", "logger": "test",
        "message": "units 'a b', c", "units": ["a b", "c"], "milliseconds": 4.2, "hosts_in": 3,
    }  # fmt: skip
    assert datetime.fromisoformat(told["time"].replace("Z", "+00:00")).timestamp() == 1767225600.25


@pytest.mark.parametrize("formatter", [PlainFormatter(), JsonFormatter()], ids=["plain", "json"])
def test_a_record_of_another_library_is_shown(formatter):
    """Its arguments have no names."""
    assert "seen 1 of x" in formatter.format(record("seen %d of %s", (1, "x")))


def test_no_text_makes_a_line_or_steers_a_terminal(hostile):
    """One line of the log, what was printed indented beneath it; all of it can be seen."""
    _, made = hostile
    first, *rest = PlainFormatter().format(made).split("\n")
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.250[+-]\d\d:\d\d INFO    \S", first)
    assert all(line.isprintable() for line in (first, *rest))
    assert rest
    assert all(line.startswith("    ") for line in rest)


def test_no_text_ends_an_object_or_adds_a_field(hostile):
    """One line of ASCII that strict readers take, with the text in its fields as it came."""
    text, made = hostile
    line = JsonFormatter().format(made)
    assert line.isascii()
    assert "\n" not in line
    told = json.loads(line)
    assert list(told) == [
        "time", "level", "logger", "message", "method", "units", "reason", "output",
    ]  # fmt: skip
    came = text.replace("\udc80", "\\udc80")  # as no reader of JSON has to take it
    assert told["method"] == told["units"][0] == came
    assert told["output"] == f"{came}\n{came}"
    assert told["message"].isprintable()
    assert told["level"] == "info"


def test_a_traceback_is_beneath_the_line_and_a_field():
    """Whether a plugin's or our own."""

    def fail() -> None:
        raise ValueError("first\nsecond")

    try:
        fail()
    except ValueError:
        made = record("failed", None, exc_info=sys.exc_info())
    first, *rest = PlainFormatter().format(made).split("\n")
    assert first.endswith("failed")
    assert rest[0] == "    Traceback (most recent call last):"
    assert rest[-2:] == ["    ValueError: first", "    second"]
    told = json.loads(JsonFormatter().format(made))
    assert told["message"] == "failed"
    assert told["traceback"].endswith("ValueError: first\nsecond")


@pytest.mark.parametrize(
    ("printed", "shown"), [("one", ": one"), ("a\n\tb", ":\n    a\n            b")]
)
def test_output_of_one_line_stays_on_the_line(printed, shown):
    """Of more lines each is indented, tabs made to spaces."""
    made = record("printed:", {"output": Block(printed)})
    assert PlainFormatter().format(made).partition("printed")[2] == shown


@pytest.mark.parametrize(
    ("zone", "begins"),
    [("UTC0", "2026-01-01 00:00:00.250+00:00 "), ("CET-1", "2026-01-01 01:00:00.250+01:00 ")],
)
def test_a_plain_time_has_its_zone(monkeypatch, zone, begins):
    """Local time alone is told twice when summer ends."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert PlainFormatter().format(record("x")).startswith(begins)
    finally:
        monkeypatch.undo()
        time.tzset()
