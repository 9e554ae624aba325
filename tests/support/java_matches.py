"""What a real Java makes of regular expressions."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest

from tests.support.command import executed
from tests.support.paths import JAVA

_PROGRAM = JAVA / "Match.java"

# What plugins of ovirt-scheduler-proxy may have in properties_validation, and Python reads
# otherwise or not at all.
FOR_JAVA_ALONE = [
    r"\p{L}+", r"\P{L}*", r"\pL", r"[\p{Lu}\d]+", r"\p{Alpha}+", r"\p{IsGreek}", r"\p{IsAlphabetic}+",
    r"\p{InGreek}", r"\p{script=Latin}+", r"\p{javaLowerCase}+", r"\p{XDigit}{2}", r"\p{Punct}",
    "[a-z&&[^x]]", "[a-z&&x]", "[a[bc]]", "[[a-z]&&[^q]&&[^x]]", r"[\w&&[^\d]]+", "[a||b]", "[a~~b]",
    r"(?<n>x)\k<n>", "(?<year>[0-9]{4})", r"\Qa.b\E", r"\Qa.b", r"[\Q[]\E]+", r"\h*x", r"\H+", r"\v",
    r"\V+", r"\R", r"\X", r"a\Z", r"a\z", r"\Ga", r"\e", r"\cA", r"\0101", r"\x{1F600}", r"\N{EM DASH}",
    r"\b{g}a", "(?d)a", "(?u)é", r"(?U)\w+", "(?x) a | b # c", "(?x: a )b", "(?-i)a", "a(?i)b", "a(?i)",
    "(?<=x{1,3})y", "(?d:a)", "{1}", "a{2}{3}", r"(a)\2", r"[\e\cA]", r"\u0041\t\x{41}|(?>a+)b++",
]  # fmt: skip

needs_java = pytest.mark.skipif(
    shutil.which("java") is None, reason="needs a JDK, which the engine has"
)


def java_matches(patterns: Sequence[str], values: Sequence[str] = ()) -> list[str]:
    """A text for each pattern: ``refused``, or 0 and 1 for each value that it does not match or does."""
    ran = executed(
        "java", _PROGRAM, *values, input="\n".join(patterns) + "\n", encoding="utf-8", check=True
    )
    answers = ran.stdout.splitlines()
    assert len(answers) == len(patterns)
    return answers
