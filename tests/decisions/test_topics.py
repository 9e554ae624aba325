"""Topics that drivers publish, and their methods, through a running daemon."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from tests.support.daemon import refusal
from tests.support.paths import SCHEDULERS
from tests.support.waiting import wait_until

NOON = datetime(2026, 1, 31, 12)  # noqa: DTZ001  XML-RPC has no time zones


@pytest.fixture(scope="module")
def daemon(start_daemon):
    """Its only plugin is not about VMs."""
    text = (SCHEDULERS / "values.py").read_text("utf-8")
    return start_daemon({"values": text}, "ssl = false")


@pytest.fixture(scope="module")
def values(daemon):
    """It in both answer forms."""
    with daemon.proxy("/design") as design, daemon.proxy("/engine") as engine:
        yield design, engine


def test_a_topic_tells_its_methods_and_their_signatures(values):
    """Only methods of drivers: no attribute, no private name, nothing of other base classes."""
    default, topic = values[0].getTopics()
    assert (default["topic"], default["driver"]) == ("compute", "default")
    assert (topic["topic"], topic["driver"]) == ("values", "values of every type")
    assert topic["description"] == "Values of every type."
    assert {each["name"]: each["signature"] for each in topic["methods"]} == {
        "bad": "(which)",
        "echo": "(value, times=1)",
        "good": "()",
        "inherited": "()",
        "of_the_class": "()",
        "static": "(a, b=2)",
    }
    (echo,) = [each for each in topic["methods"] if each["name"] == "echo"]
    assert echo["help"] == "What it got, in an array if more than once."


@pytest.mark.parametrize(
    "value",
    ["", "text", 7, -(2**31), True, 1.5, b"\0\xff", [1, ["a"]], {"a": {"b": []}},
     NOON],
)  # fmt: skip
def test_schedule_gives_back_what_the_method_returned(values, value):
    """With its type."""
    found = values[0].schedule("values", "echo", {"value": value})
    assert (found, type(found)) == (value, type(value))


def test_the_log_tells_of_no_hosts(values, daemon):
    """A topic need not be about any."""
    values[1].schedule("values", "echo", {"value": 1})
    values[1].schedule("values", "bad", {"which": "none"})
    told = "schedule, engine form, .*; units 'values of every type'; "
    for ending in ("answered; ", "no answer; problems with"):
        assert wait_until(lambda: re.search(told + ending, daemon.log), lambda: daemon.log)  # noqa: B023


def test_values_of_every_type_come_back(values):
    """Tuples as arrays, bytearrays as bytes; by static methods and those of the class too."""
    schedule = values[0].schedule
    assert schedule("values", "good", {}) == {
        "texts": ["a", "", "\N{SNOWMAN}"],
        "numbers": [0, -(2**31), 2**31 - 1, 1.5],
        "truth": True,
        "bytes": b"\0\xff",
        "date": NOON.replace(second=1),
        "empty": {},
    }
    assert schedule("values", "static", {"a": 1, "b": 5}) == 6
    assert schedule("values", "of_the_class", {}) == "Values"
    assert values[1].schedule("values", "inherited", {}) == {
        "result_code": 0,
        "result": "from the base",
    }


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("none", 'bad returned None at [0], which has no form in XML-RPC; return "" for nothing'),
        ("nan", "bad returned nan, which is no finite number"),
        ("infinite", "bad returned -inf at ['at'], which is no finite number"),
        ("large", "bad returned 2147483648, which is beyond 32 bits; return it as a string"),
        ("set", "which has no form in XML-RPC; str, bool, int, float, bytes, datetime, list and"),
        ("entity", "which has no form in XML-RPC"),
        ("key", "bad returned 1, which is a key; a struct's keys are strings"),
        ("half", "which holds half a character"),
        ("endless", "bad returned lists and dicts of more than 16 levels"),
        ("wide", "bad returned more than 200000 values"),
        ("huge", "bad returned more than 16 MiB of texts and bytes"),
        ("generator", "which has no form in XML-RPC"),
        ("raises_key_error", "KeyError: 'raises_key_error' (values.py:"),
    ],
)
def test_what_has_no_form_in_xml_rpc_is_told_clearly(values, which, message):
    """A fault in the design form; a plugin error and an empty string in the engine form."""
    call = values[0].schedule
    assert message in refusal(105, call, "values", "bad", {"which": which})
    answer = values[1].schedule("values", "bad", {"which": which})
    assert answer["result"] == ""
    assert message in answer["plugin_errors"]["values of every type"][0]


PUBLISHED = "publishes bad, echo, good, inherited, of_the_class, static"


@pytest.mark.parametrize(
    ("topic", "method", "arguments", "code", "message"),
    [
        ("other", "echo", {}, 101,
         "no topic named 'other'; there are compute, values; ovirt-scheduler check tells what is not"),
        ("values", "_private", {}, 101, PUBLISHED),
        ("values", "__call__", {}, 101, PUBLISHED),
        ("values", "__init__", {}, 101, PUBLISHED),
        ("values", "attribute", {}, 101, PUBLISHED),
        ("values", "computed", {}, 101, PUBLISHED),
        ("values", "made", {}, 101, PUBLISHED),
        ("values", "Nested", {}, 101, PUBLISHED),
        ("values", "mixed_in", {}, 101, PUBLISHED),
        ("values", "pop", {}, 101, PUBLISHED),
        ("values", "echo.__globals__", {}, 101, PUBLISHED),
        ("values", "echo", {}, -32602, "value missing; it is echo(value, times=1)"),
        ("values", "echo", {"value": 1, "self": 2}, -32602, "'self' unknown; it is echo"),
        ("values", "echo", {"value": 1, "": 2}, -32602, "'' unknown"),
        ("values", "static", {"a": 1, "c": 2}, -32602, "'c' unknown; it is static(a, b=2)"),
        ("values", "echo", [], -32602, "value missing; it is echo(value, times=1)"),
        ("values", "echo", ["value"], -32602, "arguments: expected a struct, not an array"),
        ("values", 1, {}, -32602, "method: expected a string, not an int"),
    ],
)  # fmt: skip
def test_what_a_topic_does_not_publish_is_refused(values, topic, method, arguments, code, message):
    """The message names what there is."""
    assert message in refusal(code, values[0].schedule, topic, method, arguments)


def test_an_unknown_topic_or_method_is_a_plugin_error_in_the_engine_form(values):
    """As an unknown unit is (contract 4.3)."""
    engine = values[1]
    for topic, method in (("other", "echo"), ("values", "_private")):
        answer = engine.schedule(topic, method, {})
        assert (answer["result"], list(answer["plugin_errors"])) == ("", [topic])
