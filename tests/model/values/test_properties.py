"""Custom properties as texts: what may be written, and what plugins and the engine get."""

from __future__ import annotations

import random
import re

import pytest

from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.plugins import Property, PropertySet
from ovirt_scheduler.model.values import properties

IP = r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b"
CUSTOM = f"server_ip={IP};threshold={{0-99}}"
HEAT = properties.parse("Heat", CUSTOM, "127.0.0.1;70")


@pytest.mark.parametrize(
    ("custom", "given", "expected"),
    [
        ("", "", []),
        ("a=b", "", [None]),
        ("a=b;", "b;", ["b"]),
        ("a=b;c=d", "b", ["b", None]),
        ("a=b;c=d", ";d", [None, "d"]),
        ("a=b;c=d", "b;;", ["b", None]),
        ("a=b=c", "b=c", ["b=c"]),
        ("_A9=True|False", "False", ["False"]),
    ],
)
def test_defaults_go_by_position(custom, given, expected):
    """An empty place is no default, and a semicolon at the end says nothing."""
    read = properties.parse("x", custom, given)
    assert [prop.default for prop in read.properties] == expected


@pytest.mark.parametrize(
    ("custom", "defaults", "words"),
    [
        ("a-b=c", "", "'a-b=c': expected key=regex"),
        ("a=b; c=d", "", "' c=d': expected key=regex"),
        ("a", "", "'a': expected key=regex"),
        ("=a", "", "'=a': expected key=regex"),
        ("ä=a", "", "expected key=regex"),
        (";", "", "'': expected key=regex"),
        ("a=b;;c=d", "", "'': expected key=regex"),
        ("a=[;]", "", "']': expected key=regex, the key of letters, digits and _, and no ; in"),
        ("a=b;a=c", "", "property a: occurs twice"),
        ("a=b", "b;b", "more default values than properties: 2 and 1"),
        ("", "b", "more default values than properties: 1 and 0"),
        ("a=" + "x" * (1 << 20), "", "have 1048578 characters; at most 65536 are taken"),
        (";".join(f"k{number}=x" for number in range(257)), "", "there are 257 properties; at most 256"),
        (";".join(f"k{number}={{1-987654321}}" for number in range(256)), "", "at most 65536 are taken"),
    ],
)  # fmt: skip
def test_bad_syntax_is_a_mistake_of_the_plugin(custom, defaults, words):
    """The message is one short line that says what to mend (contract 5.5)."""
    with pytest.raises(PluginError) as caught:
        properties.parse("x", custom, defaults)
    assert_short(caught.value, words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b=c", "'a b=c': expected key=regex"),
        ("a=b;;c=d", "'': expected key=regex"),
        (";", "'': expected key=regex"),
        ("a=" + "x" * (1 << 20), "have 1048578 characters; at most 65536 are taken"),
        (";".join(f"k{number}=x" for number in range(257)), "there are 257 properties; at most 256"),
    ],
)  # fmt: skip
def test_bad_syntax_of_a_class_unit_is_a_mistake_too(text, words):
    """The engine would leave out the unit, or lose all units (contract 3.1)."""
    with pytest.raises(PluginError) as caught:
        properties.parse_for_java("x", text)
    assert_short(caught.value, words)


@pytest.mark.parametrize("count", [256, pytest.param(0, id="none")])
def test_as_many_properties_as_the_engine_can_read_are_taken(count):
    text = ";".join(f"k{number}=[0-9]*" for number in range(count))
    assert len(properties.parse("x", text, "").properties) == count
    assert len(properties.parse_for_java("x", text).properties) == count


def test_a_class_units_text_goes_to_the_engine_as_it_stands():
    """Of several regexes for a key the last one counts."""
    text = "a=;b=x;b=y+;c=\t;"
    read = properties.parse_for_java("x", text, unchecked=["c"])
    assert properties.engine_syntax(read) == text
    assert [(each.name, each.pattern, each.checked) for each in read.properties] == [
        ("a", "", True), ("b", "y+", True), ("c", "\t", False),
    ]  # fmt: skip


def assert_short(error: PluginError, words: str) -> None:
    assert words in error.message
    assert error.file is None
    assert len(error.message) < 300
    assert "\n" not in error.message


def test_a_plugin_gets_defaults_under_what_was_given():
    """Keys that the set does not know are for other units, and go through (contract 5.8)."""
    given = {"threshold": "50", "other": "x"}
    filled = properties.fill(HEAT, given)
    assert filled == {"server_ip": "127.0.0.1", "threshold": "50", "other": "x"}
    assert given == {"threshold": "50", "other": "x"}


def test_a_property_that_is_not_there_is_told_in_words():
    """Of a lookup alone; it is a KeyError still, and the rest is as in any dict."""
    filled = properties.fill(HEAT, {})
    with pytest.raises(KeyError, match="property least was not given, and has no default; "):
        filled["least"]
    assert filled.get("least") is None
    assert "least" not in filled


def test_a_property_without_a_default_is_not_filled_in():
    """It is left out, not None: a plugin's properties are strings."""
    assert properties.fill(properties.parse("x", "a=b;c=d", ";d"), {}) == {"c": "d"}


@pytest.mark.parametrize(
    ("custom", "defaults"),
    [(CUSTOM, "127.0.0.1;70"), ("a=b;c=d", ";d"), ("a=b;c=d", "b"), ("a=b", ""), ("", "")],
)
def test_a_set_is_rendered_as_it_was_written(custom, defaults):
    """discover shows what the conf file says (contract 2.1)."""
    assert properties.render(properties.parse("x", custom, defaults)) == (custom, defaults)


def test_the_engine_gets_a_range_as_a_regex():
    """Everything else stays as it was written (contract 3.1)."""
    assert properties.engine_syntax(HEAT) == CUSTOM.replace("{0-99}", "(?:[0-9]|[1-9][0-9])")
    accepted = r"([a-zA-Z0-9_]+=[^;]+)(;[a-zA-Z0-9_]+=[^;]+)*;?"  # by the engine
    assert re.fullmatch(accepted, properties.engine_syntax(HEAT))
    assert properties.engine_syntax(PropertySet("x", ())) == ""


def written_out(low: int, high: int) -> re.Pattern[str]:
    prop = Property("a", f"{{{low}-{high}}}")
    return re.compile(properties.engine_syntax(PropertySet("x", (prop,)))[2:])


@pytest.mark.parametrize(
    ("least", "most"), [(-12, 31), (88, 121), pytest.param(-21, 121, marks=pytest.mark.long)]
)
def test_a_range_written_out_takes_the_same_values_exhaustively(least, most):
    """Every range between the two, against every integer around it."""
    texts = [str(number) for number in range(-300, 1301)]
    for low in range(least, most + 1):
        for high in range(low, most + 1):
            fits = written_out(low, high).fullmatch
            inside = [text for text in texts if fits(text)]
            assert inside == texts[low + 300 : high + 301], (low, high)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (999, 1000),
        (1, 65535),
        (100, 1999),
        (95, 10234),
        (-1000, 1000),
        (-65536, -9),
        (12345, 12345),
        (0, 10**18 - 1),
        (-(10**18) + 1, 10**18 - 1),
        (987654321, 123456789012345678),
    ],
)
def test_a_long_range_written_out_is_exact_at_every_power_of_ten(low, high):
    """And at its bounds, and at numbers drawn from anywhere."""
    draw = random.Random(1)
    edges = [low, high, 0, *(sign * 10**digits for digits in range(18) for sign in (1, -1))]
    numbers = {edge + step for edge in edges for step in range(-11, 12)}
    numbers |= {draw.randint(low, high) for _ in range(500)}
    numbers |= {
        draw.randint(-(10 ** draw.randint(1, 19)), 10 ** draw.randint(1, 19)) for _ in edges
    }
    pattern = written_out(low, high)
    for number in numbers:
        assert bool(pattern.fullmatch(str(number))) == (low <= number <= high), number
    assert len(pattern.pattern) < 2000
