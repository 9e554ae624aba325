"""Which regular expressions Java compiles, held against a real Java."""

from __future__ import annotations

import random

import pytest

from ovirt_scheduler.model.values.java_regex import refusal
from tests.support.java_matches import FOR_JAVA_ALONE, java_matches, needs_java

REFUSED = [
    "x{2147483648}", "x{3,2}", "x{,3}", "x{a}", "{", "{0-9}", "x{1", "*", "a**", "+a", "(|?)", "a{2}*",
    "(", ")", ")(", "(a))", "(?P<n>a)", "(?P=n)", "(?<1>a)", "(?<n_>a)", "(?<n>a)(?<n>b)", r"\k<n>(?<n>a)",
    r"\k", "(?#a)", "(?a)b", "(?z)", "(?(1)a|b)", "(?", "(?<", "[", "[]", "[^]", "[a", "[[a]", "[z-a]",
    r"[a-\d]", "[a--b]", "[&&]", "[&&&a]", "\\", r"\y", r"\C", r"\E", r"[\b]", r"[\1]", r"\0", r"\08",
    r"\x4", r"\x{}", r"\x{110000}", r"\u41", r"\c", r"\p", r"\p{Foo}", r"\p{lower}", r"\pl", r"\p{",
    r"\N", r"\N{",
]  # fmt: skip
TOKENS = r"""
a b z A 1 - -- _ # ( ) ) (?: (?= (?! (?i) (?s: (?-i: (?m) (?U) (?P<n> (?(1) (?# (?<n> (?<m9> (?>
[ [ [^ ] ] ] a-z | * + ? {2} {1,} {,2} {2,1} {2147483648} { } & && ~~ ^ $ . \d \W \s \b \B \Z \z \G
\1 \11 \0 \07 \0777 \x41 \x4 \x{41} \u0041 \n \e \cA \- \] \[ \\ \. \_ \R \X \h \p{L} \pL
\p{Foo} \Q \E \Qa-z\E \k<n> \b{g} \y = é
"""


@pytest.mark.parametrize("pattern", FOR_JAVA_ALONE)
def test_what_java_alone_knows_is_no_mistake(pattern):
    """Properties, classes within classes, named groups, quotes, and more."""
    assert refusal(pattern) is None


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_java_does_not_compile_is_refused(pattern):
    """In a few words, which stand behind the pattern."""
    reason = refusal(pattern)
    assert reason is not None
    assert 10 < len(reason) < 100


@pytest.mark.long
@needs_java
def test_the_lists_of_these_tests_are_javas():
    """A real one takes the first, and refuses the second."""
    assert "refused" not in java_matches(FOR_JAVA_ALONE)
    assert {*java_matches(REFUSED)} == {"refused"}


@pytest.mark.long
@needs_java
@pytest.mark.parametrize("opening", ["", "["])
def test_java_takes_what_is_said_to_be_taken(opening):
    """Patterns put together at random; among them are many of both kinds."""
    draw = random.Random(5)
    tokens = TOKENS.split()
    patterns = [
        opening + "".join(draw.choices(tokens, k=draw.randint(1, 8))) for _ in range(30_000)
    ]
    answers = java_matches(patterns)
    assert 500 < len(patterns) - answers.count("refused") < 25_000
    for pattern, answer in zip(patterns, answers):
        assert (refusal(pattern) is not None) == (answer == "refused"), pattern


@pytest.mark.parametrize(
    "pattern", ["[" * 100_000, "(" * 100_000, "x{" + "9" * 100_000 + "}", r"\N{" * 100_000]
)
def test_an_endless_pattern_is_refused(pattern):
    """However deep it goes."""
    assert refusal(pattern) is not None
