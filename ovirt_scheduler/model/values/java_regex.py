"""Finds out whether Java compiles a regular expression, without Java.

It follows Java 17. Three things are not checked, and count as good: a pattern with comments
(``(?x)``), the names of characters, scripts and the like (``\\N{EM DASH}``, ``\\p{IsGreek}``),
and how far a look-behind may look.
"""

from __future__ import annotations

import re
import sys
from typing import Optional

_LARGEST = 2**31 - 1  # a count of repeats
_COMMENTS = re.compile(r"\(\?[a-zA-Z]*x")
_QUOTED = re.compile(r"(?P<other>\\[^Q]|[^\\])|\\Q(?P<quoted>.*?)(?:\\E|\Z)", re.DOTALL)
_GROUP = re.compile(
    r"""
    \( (?: \? (?: <? [=!] | [:>] | < (?P<name> [a-zA-Z][a-zA-Z0-9]* ) >
                | [idmsuU]* (?: - [idmsuU]* )? (?: : | (?P<flags> \) ) ) )
         | (?! \? ) )
    """,
    re.VERBOSE,
)
_REPEAT = re.compile(r"\{(?P<low>[0-9]+)(?P<comma>,(?P<high>[0-9]*))?\}[?+]?")
_ESCAPE = re.compile(
    r"""
    \\ (?: (?P<several> [dDhHsSvVwW] | N \{ [^}]+ \}
             | [pP] (?: [LMNPSZC] | \{ (?: L[CD1ultmo]? | M[nec]? | N[dlo]? | P[cdseifo]? | S[mcko]?
                   | Z[slp]? | C[cfosn]? | all | ASCII | Alnum | Alpha | Blank | Cntrl | Digit
                   | Graph | Lower | Print | Punct | Space | Upper | XDigit
                   | (?: Is | In | java ) \w [^}]* | [\w\ ]+ = [^}]+ ) \} ) )
         | (?P<place> b \{ g \} | [1-9ABbGRXzZ] | k < (?P<group> [a-zA-Z][a-zA-Z0-9]* ) > )
         | 0 (?P<octal> [0-3]?[0-7]{1,2} )
         | (?P<hex> x[0-9a-fA-F]{2} | x \{ 0*[0-9a-fA-F]{1,6} \} | u[0-9a-fA-F]{4} )
         | c (?P<control> . ) | (?P<letter> [aefnrt] ) | (?P<itself> [^a-zA-Z0-9] ) )
    """,
    re.VERBOSE | re.DOTALL,
)
_LETTERS = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}


class _Refused(Exception):
    pass


def refusal(pattern: str) -> Optional[str]:
    """Why Java does not compile the pattern; None if it does."""
    if _COMMENTS.search(pattern):
        return None
    try:
        _Reader(_QUOTED.sub(_unquoted, pattern)).read()
    except _Refused as error:
        return str(error)
    except RecursionError:
        return "too many classes within each other"
    return None


def _unquoted(found: re.Match[str]) -> str:
    r"""``\Q(a)\E`` as ``\x{28}a\x{29}``."""
    if found["quoted"] is None:
        return found[0]
    return re.sub(r"[^a-zA-Z]", lambda each: f"\\x{{{ord(each[0]):x}}}", found["quoted"])


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._groups: set[str] = set()

    def read(self) -> None:
        open_groups = 0
        repeatable = False  # what stands before the place
        while self._place < len(self._text):
            here = self._text[self._place]
            if here == "(":
                inner = self._group()
                open_groups += inner
                repeatable = False
                continue
            if here == "\\":
                self._escape(in_class=False)
            elif here == "{":
                self._repeat()
                repeatable = False
                continue
            else:
                self._place += 1
            if here == "[":
                self._class()
            if here in "*+?":
                if not repeatable:
                    raise _Refused(f"nothing stands before the {here} that could be repeated")
                self._place += self._text[self._place : self._place + 1] in ("?", "+")
            open_groups -= here == ")"
            if open_groups < 0:
                raise _Refused("a ) without its (")
            repeatable = here not in "*+?|"
        if open_groups:
            raise _Refused("a ( without its )")

    def _take(self, wanted: re.Pattern[str], otherwise: str) -> re.Match[str]:
        found = wanted.match(self._text, self._place)
        if found is None:
            raise _Refused(f"{self._text[self._place : self._place + 6]} is no {otherwise}")
        self._place = found.end()
        return found

    def _group(self) -> bool:
        """Whether it is one that ends later; flags alone end at once."""
        found = self._take(_GROUP, "group that Java knows")
        name = found["name"]
        if name in self._groups:
            raise _Refused(f"a second group of the name {name}")
        if name:
            self._groups.add(name)
        return not found["flags"]

    def _repeat(self) -> None:
        found = self._take(_REPEAT, "{n}, {n,} or {n,m}")
        low = int(found["low"][:4000])
        high = int(found["high"][:4000]) if found["high"] else low
        if high < low or high > _LARGEST:
            raise _Refused(f"{found[0]:.40} is no range of repeats up to {_LARGEST}")

    def _escape(self, in_class: bool) -> Optional[int]:
        """The number of the character; None where several are meant, or a place."""
        found = self._take(_ESCAPE, "escape that Java knows")
        if found["place"]:
            if in_class:
                raise _Refused(f"{found[0]:.40} has no place in a class")
            if found["group"] and found["group"] not in self._groups:
                raise _Refused(f"there is no group of that name before {found[0]:.40}")
            return None
        return None if found["several"] else _character(found)

    def _class(self) -> None:
        self._place += self._text.startswith("^", self._place)
        filled = False
        while not (filled and self._text.startswith("]", self._place)):
            if self._place >= len(self._text):
                raise _Refused("a [ without its ]")
            if self._text.startswith("&&", self._place):
                if not filled and self._text.startswith(("&&&", "&&]"), self._place):
                    raise _Refused("a class with nothing before its &&")
                while self._text.startswith("&", self._place):
                    self._place += 1
            elif self._text[self._place] == "[":
                self._place += 1
                self._class()
            else:
                self._range()
            filled = True
        self._place += 1

    def _range(self) -> None:
        low = self._member()
        following = self._text[self._place : self._place + 2]
        if low is None or following[:1] != "-" or following in ("-", "-]", "-["):
            return
        self._place += 1
        high = self._member()
        if high is None or high < low:
            raise _Refused("a range of characters that holds none")

    def _member(self) -> Optional[int]:
        if self._text[self._place] == "\\":
            return self._escape(in_class=True)
        self._place += 1
        return ord(self._text[self._place - 1])


def _character(escape: re.Match[str]) -> int:
    if escape["octal"]:
        return int(escape["octal"], 8)
    if escape["control"]:
        return ord(escape["control"]) ^ 64
    if escape["hex"]:
        number = int(escape["hex"].strip("xu{}"), 16)
        if number > sys.maxunicode:
            raise _Refused(f"{escape[0]:.40} is past the last character")
        return number
    return _LETTERS.get(escape["letter"]) or ord(escape["itself"])
