"""Custom properties: their syntax, patterns of every kind, and values held to them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.plugins import Property, PropertySet
from ovirt_scheduler.model.values import properties
from ovirt_scheduler.processes.loading import patterns
from tests.support.fuzzing import assert_told, bounded, tries

# One repeat of one character in a pattern: more would be the plugin's author's own doing.
PIECES = st.sampled_from(
    ["a", "[0-9]", "\\d", "\\w", "\\s", ".", "^", "$", "\\b", "\\A", "\\Z", "|", "(", ")", "(?:",
     "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i)", "(?i:", "(?P<n>", "(?P=n)", "(?#", "\\1",
     "\\0", "\\99", "\\x41", "\\x4", "\\u0041", "\\N{DASH}", "\\p{L}", "[", "]", "[^", "[[a]",
     "&&", "--", "{", "}", "{0-9}", "{-5--1}", "{2}", "{2,", "{2,3}", "{99999999999}", "\\", "é",
     "\u2028", "\n", "=", ",", "True|False", " "]
)  # fmt: skip
PATTERNS = st.one_of(
    st.builds("".join, st.lists(PIECES, max_size=5)),
    st.builds(
        "{}{}{}".format, PIECES, st.sampled_from(["*", "+", "?", "*?", "++", "{1,}"]), PIECES
    ),
    st.builds("{{{}-{}}}".format, st.integers(-(10**19), 10**19), st.integers(-(10**19), 10**19)),
)
KEYS = st.sampled_from(["a", "b", "A_9", "", "a-b", "é", " a", "x" * 300])
SETS = st.builds(
    "".join,
    st.lists(st.builds("{}{}{}{}".format, KEYS, st.sampled_from(["=", "=", "=", ""]), PATTERNS,
                       st.sampled_from([";", ";", "", ";;"])), max_size=3),
)  # fmt: skip
VALUES = st.sampled_from(
    [
        "",
        "a",
        "A",
        "aa",
        "7",
        "-5",
        "07",
        "\u0661",
        "9" * 30,
        "9" * 5000,
        "True",
        "\n",
        "\0",
        "\ud800",
        "é",
        "a" * 4096,
    ]
)
DEFAULTS = st.builds(";".join, st.lists(VALUES, max_size=3))


@tries(300)
@given(SETS, DEFAULTS, st.lists(VALUES, min_size=1, max_size=4))
def test_a_set_is_read_and_holds_values_or_is_refused(
    custom: str, defaults: str, values: list[str]
) -> None:
    """What was read can be shown, read again and asked for every value."""
    try:
        with bounded():
            found = properties.parse("x", custom, defaults)
        patterns.check_declared(found, 60.0)
    except PluginError as error:
        assert_told(str(error))
        return
    assert properties.parse("x", *properties.render(found)) == found
    engine = properties.engine_syntax(found)
    assert not engine or re.fullmatch("([a-zA-Z0-9_]+=[^;]+)(;[a-zA-Z0-9_]+=[^;]+)*", engine)
    for value in values:
        with bounded():
            refusals = [patterns.refusal(prop, value) for prop in found.properties]
        for refusal in filter(None, refusals):
            assert_told(refusal)


SMALL = st.integers(-1500, 1500)
BOUNDS = st.one_of(SMALL, st.integers(-(10**18) + 1, 10**18 - 1))


@tries(200)
@given(BOUNDS, BOUNDS, st.lists(BOUNDS, max_size=5))
def test_a_range_takes_the_same_integers_written_as_a_regex(
    one: int, other: int, numbers: list[int]
) -> None:
    """For the engine it is written out; its bounds are where that goes wrong first."""
    low, high = sorted((one, other))
    prop = Property("a", f"{{{low}-{high}}}")
    pattern = properties.engine_syntax(PropertySet("x", (prop,)))[2:]
    for number in [
        *numbers,
        *(bound + step for bound in (low, high) for step in (-10, -1, 0, 1, 10)),
    ]:
        inside = low <= number <= high
        assert (patterns.refusal(prop, str(number)) is None) is inside
        assert (re.fullmatch(pattern, str(number)) is not None) is inside
