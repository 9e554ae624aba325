"""Custom properties: what may be written, which values are taken, what the engine gets."""

from __future__ import annotations

import random
import re

import pytest

from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.plugins import Property, PropertySet
from ovirt_scheduler.model.values import properties
from tests.support.java_matches import java_matches, needs_java

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
        ("a=[;]", "", "unterminated character set"),
        ("a=", "", "a: '': the regex is empty"),
        ("a=b;a=c", "", "property a: occurs twice"),
        ("a=b", "b;b", "more default values than properties: 2 and 1"),
        ("", "b", "more default values than properties: 1 and 0"),
        ("a=[0-9]*", "x", "property a: as its default 'x' is not allowed; give what matches [0-9]*"),
        ("a={0-9}", "10", "as its default '10' is not allowed; give an integer from 0 to 9"),
        ("a={0-9}", "07", "as its default '07' is not allowed"),
        ("a={9-0}", "", "low is above high"),
        ("a={00-9}", "", "expected {low-high}"),
        ("a={-0-9}", "", "expected {low-high}"),
        ("a={0-9}x", "", "expected {low-high}"),
        ("a={0-" + "9" * 19 + "}", "", "up to 18 digits"),
        ("a={0-" + "9" * 5000 + "}", "", "up to 18 digits"),
        ("a=b\nc", "", "cannot be printed"),
        ("a=(", "", "not a regex: missing ), unterminated subpattern"),
        ("a=x{99999999999}", "", "too large a regex"),
        ("a=x{2147483648}", "", "not a regex to Java, which released engines use: {2147483648} is"),
        ("a=" + "(" * 9000 + ")" * 9000, "", "too large a regex"),
        ("a=(?<=x+)y", "", "look-behind requires fixed-width pattern"),
        ("a=" + "x" * (1 << 20), "", "have 1048578 characters; at most 65536 are taken"),
    ],
)  # fmt: skip
def test_bad_syntax_is_a_mistake_of_the_plugin(custom, defaults, words):
    """The message is one short line that names the property (contract 5.5)."""
    with pytest.raises(PluginError) as caught:
        properties.parse("x", custom, defaults)
    assert words in caught.value.message
    assert caught.value.file is None
    assert len(caught.value.message) < 300
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("pattern", "difference"),
    [
        *((pattern, "the group (?P") for pattern in ("(?P<n>a)", "(a)(?P=n)", "(?P>n)")),
        ("(?<n>a)", "the group (?<n"),
        ("(?#words)a", "the group (?#w"),
        ("(a)(?(1)b|c)", "the group (?(1"),
        *((f"(?{flag})a", f"the group (?{flag})") for flag in "aLmuxdU"),
        ("(?x:a)", "the group (?x:"),
        ("a(?i)b", "the group (?i)"),
        ("(?-i)a", "the group (?-i"),
        *((rf"a\{letter}", rf"\{letter}") for letter in "ZzBvehHRVXGpPkQEcNUoy0"),
        (r"\p{L}", r"\p"),
        (r"\N{DASH}", r"\N"),
        (r"\x4", r"\x"),
        (r"\u41", r"\u"),
        (r"\123", r"\123"),
        (r"\012", r"\012"),
        (r"(a)[\1]", r"\1"),
        (r"[\b]", r"\b"),
        ("[a[b]", "an unescaped [ in a class"),
        ("[[a]", "an unescaped [ in a class"),
        ("[a-z&&b]", "an unescaped && in a class"),
        ("[+--]", "an unescaped -- in a class"),
        ("[a~~b]", "an unescaped ~~ in a class"),
        ("[a||b]", "an unescaped || in a class"),
        ("a{,3}", "a { that begins no"),
        ("a{b}", "a { that begins no"),
    ],
)
def test_what_java_reads_differently_is_refused(pattern, difference):
    """The released engines compile the same regex with Java (contract 3.1)."""
    with pytest.raises(PluginError) as caught:
        properties.parse("x", f"a={pattern}", "")
    assert f": {difference}" in caught.value.message
    assert "by Java, which released engines use" in caught.value.message


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("[0-9]*", ["", "7", "12"], ["12 MiB", "x7", "7\n", "\u0661"]),
        ("True|False", ["True", "False"], ["", "TrueFalse", "true", "True "]),
        ("(?i)true", ["TRUE"], ["FALSE"]),
        ("(?i:t)rue", ["True"], ["tRUE"]),
        ("[]a]+", ["]a"], ["b"]),
        ("[^]a]", ["b"], ["]"]),
        (r"[\]\[\-&|~{]+", ["[]-&|~{"], ["a"]),
        (r"(a|b)\1", ["aa"], ["ab"]),
        (r"\u00e9\x41\t", ["éA\t"], ["é"]),
        ("a{2}b{1,}c{0,1}}", ["aab}"], ["aab"]),
        ("a&&b", ["a&&b"], ["a"]),
        (r"\{\}\_\.\\", [r"{}_.\\"[:-1]], ["{}"]),
        (r"\d\w\s", ["1a "], ["\u0661a ", "1é ", "1a\u2003"]),
        ("{0-99}", ["0", "9", "99"], ["", "-0", "-1", "100", "07", "+7", " 7", "7.0", "\u0667"]),
        ("{-5-10}", ["-5", "0", "10"], ["-6", "11", "-05"]),
        ("{-10--5}", ["-10", "-5"], ["-11", "-4", "7"]),
        ("{7-7}", ["7"], ["6", "8", "77"]),
        ("{0-999999999999999999}", ["9" * 18], ["9" * 19, "9" * 4000]),
    ],
)
def test_a_property_takes_the_values_that_match_as_a_whole(pattern, good, bad):
    """A range takes integers in their shortest form (contract 5.8)."""
    (prop,) = properties.parse("x", f"a={pattern}", "").properties
    assert [value for value in good + bad if properties.refusal(prop, value) is None] == good


def test_a_value_has_a_longest_length():
    """It bounds the time that a match may take."""
    prop = Property("a", "x*")
    longest = "x" * properties.LONGEST_VALUE
    assert properties.refusal(prop, longest) is None
    assert properties.refusal(prop, longest + "x") is not None
    message = properties.first_refusal(PropertySet("x", (prop,)), {"a": longest + "x"})
    assert message is not None
    assert "longer than 4096 characters" in message
    assert len(message) < 200


def test_a_plugin_gets_defaults_under_what_was_given():
    """Keys that the set does not know are for other units, and go through (contract 5.8)."""
    given = {"threshold": "50", "other": "x"}
    filled = properties.fill(HEAT, given)
    assert filled == {"server_ip": "127.0.0.1", "threshold": "50", "other": "x"}
    assert given == {"threshold": "50", "other": "x"}


def test_a_property_that_is_not_there_is_told_in_words():
    """Of a lookup alone; it is a KeyError still, and the rest is as in any dict."""
    filled = properties.fill(HEAT, {})
    with pytest.raises(KeyError, match="property least was not given, and has no default in a "):
        filled["least"]
    assert filled.get("least") is None
    assert "least" not in filled


def test_a_property_without_a_default_is_not_filled_in():
    """It is left out, not None: a plugin's properties are strings."""
    assert properties.fill(properties.parse("x", "a=b;c=d", ";d"), {}) == {"c": "d"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, None),
        ({"threshold": "99", "server_ip": "10.0.0.1"}, None),
        ({"other": "anything; at all"}, None),
        ({"threshold": "100"}, "property threshold: '100' is not allowed; give an integer from 0 to 99"),
        ({"threshold": "x\ny"}, r"property threshold: 'x\ny' is not allowed; give an integer from 0 to 99"),
        ({"server_ip": "a" * 99}, f"property server_ip: '{'a' * 59}\u2026' is not allowed; give what matches {IP}"),
    ],
)  # fmt: skip
def test_a_refused_value_is_told_in_one_sentence(given, message):
    """It names the property, the value, shortened, and what is allowed (contract 1.5)."""
    assert properties.first_refusal(HEAT, given) == message


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


@pytest.mark.parametrize("text", ["-0", "00", "07", "+7", "7 ", " 7", "7\n", "", "-", "\u0667"])
def test_a_range_written_out_refuses_what_the_range_refuses(text):
    """Nothing but integers in their shortest form, here as there."""
    prop = Property("a", "{-99-99}")
    assert properties.refusal(prop, text) is not None
    assert not written_out(-99, 99).fullmatch(text)


TOKENS = r"""
a b A 1 0 - _ # ( ) (?: (?= (?! (?<= (?<! (?i) (?s: (?i: (?-i: (?m) (?x) (?P<n> (?(1) (?#
[ [^ ] | * + ? {2} {1,} {,2} { } && & -- ~~ || ^ $ . \d \D \w \W \s \S \b \B \A \Z \z \1 \2
\11 \123 \0 \x41 \x4 \n \t \a \f \v \e \- \] \[ \{ \\ \. \_ \R \h \p{L} \Q \E \N{DASH} a-z = ,
"""
VALUES = r"a b ab ba aa aaa aab 1 10 a1 - _ # A AB Aa a-b [ ] { } {2} a{ & && || \ . 11 a] -] = d"


@pytest.mark.long
@needs_java
def test_java_reads_what_is_taken_as_python_does():
    """Patterns put together at random, as far as they are taken, against a real Java."""
    draw = random.Random(7)
    tokens, values = TOKENS.split(), VALUES.split()
    drawn = ("".join(draw.choices(tokens, k=draw.randint(1, 7))) for _ in range(40_000))
    taken = [pattern for pattern in drawn if is_taken(pattern) and not pattern.startswith("{")]
    assert len(taken) > 4000
    answers = java_matches(taken, values)
    assert len(answers) == len(taken)
    for pattern, answer in zip(taken, answers):
        matched = [properties.refusal(Property("a", pattern), value) is None for value in values]
        assert answer == "".join("01"[match] for match in matched), pattern


@pytest.mark.long
@needs_java
def test_java_reads_a_class_units_texts_as_they_are_checked():
    """What Java refuses is refused; what is checked here takes the same values as there."""
    draw = random.Random(8)
    tokens, values = TOKENS.split(), VALUES.split()
    patterns = ["".join(draw.choices(tokens, k=draw.randint(1, 5))) for _ in range(20_000)]
    checked = 0
    for pattern, answer in zip(patterns, java_matches(patterns, values)):
        try:
            (prop,) = properties.parse_for_java("x", f"a={pattern}").properties
        except PluginError:
            assert answer == "refused", pattern
            continue
        if prop.checked:
            checked += 1
            matched = [properties.refusal(prop, value) is None for value in values]
            assert answer == "".join("01"[match] for match in matched), pattern
    assert checked > 4000


def test_a_class_units_text_is_read_as_the_engine_reads_it():
    """Nothing as a regex takes no value but none; of a key's regexes the last one counts."""
    text = "a=;b=x;b=y+;c=\t;"
    read = properties.parse_for_java("x", text)
    assert properties.engine_syntax(read) == text
    assert properties.first_refusal(read, {"a": "", "b": "yy", "c": "\t"}) is None
    assert properties.first_refusal(read, {"a": "x"}) is not None
    assert properties.first_refusal(read, {"b": "x"}) is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b=c", "'a b=c': expected key=regex"),
        ("a=b;;c=d", "'': expected key=regex"),
        (";", "'': expected key=regex"),
        ("a={0-99}", "property a: '{0-99}' is not a regex to Java"),
        ("a=x{2147483648}", "x{2147483648}' is not a regex to Java"),
        ("a=(?P<n>x)", "(?P<n> is no group that Java knows"),
        ("a=" + "x" * (1 << 20), "have 1048578 characters; at most 65536 are taken"),
    ],
)
def test_what_the_engine_would_refuse_of_a_class_unit_is_refused(text, words):
    """It would leave out the unit, or fail where the policy is edited (contract 3.1)."""
    with pytest.raises(PluginError) as caught:
        properties.parse_for_java("x", text)
    assert words in caught.value.message
    assert len(caught.value.message) < 300


def is_taken(pattern: str) -> bool:
    try:
        properties.parse("x", f"a={pattern}", "")
    except PluginError:
        return False
    return True
