"""Patterns of custom properties: which can be used, and which values they take."""

from __future__ import annotations

import random
import re
import signal

import pytest

from ovirt_scheduler.errors import PluginError, RefusedProperty, SlowProperty
from ovirt_scheduler.model.plugins import Property, PropertySet
from ovirt_scheduler.model.values import properties
from ovirt_scheduler.processes.loading import patterns
from tests.support.java_matches import java_matches, needs_java

IP = r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b"
HEAT = properties.parse("Heat", f"server_ip={IP};threshold={{0-99}}", "127.0.0.1;70")
SECONDS = 60.0  # which no check here takes
SLOW, TRIES = "(a+)+b", f"{'a' * 40}c"


def declared(custom: str, defaults: str = "") -> PropertySet:
    made = properties.parse("x", custom, defaults)
    patterns.check_declared(made, SECONDS)
    return made


def for_java(text: str) -> PropertySet:
    unchecked = patterns.unchecked_names(properties.parse_for_java("x", text))
    return properties.parse_for_java("x", text, unchecked)


def is_taken(pattern: str) -> bool:
    try:
        declared(f"a={pattern}")
    except PluginError:
        return False
    return True


def refusal(made: PropertySet, values: dict[str, str], seconds: float = SECONDS) -> str:
    """Why the values are refused; empty if they are not."""
    try:
        patterns.check("filter X", made, values, seconds)
    except RefusedProperty as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("custom", "defaults", "words"),
    [
        ("a=", "", "a: '': the regex is empty"),
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
        ("a=x{99999999999}", "", "the count of repeats in {99999999999} is not read alike"),
        ("a=x{2147483648}", "", "the count of repeats in {2147483648} is not read alike by Python"),
        ("a=" + "(" * 9000 + ")" * 9000, "", "too large a regex"),
        ("a=(?<=x+)y", "", "look-behind requires fixed-width pattern"),
    ],
)  # fmt: skip
def test_a_pattern_that_cannot_be_used_is_a_mistake_of_the_plugin(custom, defaults, words):
    """The message is one short line that names the property (contract 5.5)."""
    with pytest.raises(PluginError) as caught:
        declared(custom, defaults)
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
        declared(f"a={pattern}")
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
    (prop,) = declared(f"a={pattern}").properties
    assert [value for value in good + bad if patterns.refusal(prop, value) is None] == good


def test_a_value_has_a_longest_length():
    """It bounds the time that a match may take."""
    prop = Property("a", "x*")
    longest = "x" * patterns.LONGEST_VALUE
    assert patterns.refusal(prop, longest) is None
    message = patterns.refusal(prop, longest + "x")
    assert message is not None
    assert "longer than 4096 characters" in message
    assert len(message) < 200


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, ""),
        ({"threshold": "99", "server_ip": "10.0.0.1"}, ""),
        ({"other": "anything; at all"}, ""),
        ({"threshold": "100"}, "filter X: property threshold: '100' is not allowed; give an integer from 0 to 99"),
        ({"threshold": "x\ny"}, r"filter X: property threshold: 'x\ny' is not allowed; give an integer from 0 to 99"),
        ({"server_ip": "a" * 99}, f"filter X: property server_ip: '{'a' * 59}\u2026' is not allowed; give what matches {IP}"),
    ],
)  # fmt: skip
def test_a_refused_value_is_told_in_one_sentence(given, message):
    """It names the property, the value, shortened, and what is allowed (contract 1.5)."""
    assert refusal(HEAT, given) == message


@pytest.mark.parametrize("text", ["-0", "00", "07", "+7", "7 ", " 7", "7\n", "", "-", "\u0667"])
def test_a_range_refuses_what_it_refuses_when_it_is_written_out(text):
    """Nothing but integers in their shortest form, here as there."""
    made = declared("a={-99-99}")
    assert patterns.refusal(made.properties[0], text) is not None
    assert not re.fullmatch(properties.engine_syntax(made)[2:], text)


def test_a_default_on_which_its_pattern_backtracks_is_told_when_its_time_is_over():
    """The property is named; nothing rings later."""
    made = properties.parse("x", f"q=x;p={SLOW}", f"x;{TRIES}")
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(PluginError, match="property p: its regex was not done with its default af"):
        patterns.check_declared(made, 0.05)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_a_value_on_which_its_pattern_backtracks_is_told_when_its_time_is_over():
    made = properties.parse("x", f"p={SLOW}", "")
    with pytest.raises(SlowProperty, match="filter X: property p: its regex was not done with the"):
        patterns.check("filter X", made, {"p": TRIES}, 0.05)


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
        matched = [patterns.refusal(Property("a", pattern), value) is None for value in values]
        assert answer == "".join("01"[match] for match in matched), pattern


@pytest.mark.long
@needs_java
def test_java_reads_a_class_units_texts_as_they_are_checked():
    """What is checked here takes the same values as there; what Java refuses is passed on."""
    draw = random.Random(8)
    tokens, values = TOKENS.split(), VALUES.split()
    drawn = ["".join(draw.choices(tokens, k=draw.randint(1, 5))) for _ in range(20_000)]
    checked = 0
    for pattern, answer in zip(drawn, java_matches(drawn, values)):
        try:
            (prop,) = for_java(f"a={pattern}").properties
        except PluginError:
            continue
        if prop.checked and answer != "refused":
            checked += 1
            matched = [patterns.refusal(prop, value) is None for value in values]
            assert answer == "".join("01"[match] for match in matched), pattern
    assert checked > 4000


def test_a_class_units_values_are_checked_as_the_engine_does_it():
    """Nothing as a regex takes no value but none; of a key's regexes the last one counts."""
    text = "a=;b=x;b=y+;c=\t;"
    read = for_java(text)
    assert not refusal(read, {"a": "", "b": "yy", "c": "\t"})
    assert refusal(read, {"a": "x"})
    assert refusal(read, {"b": "x"})
