"""Compiles the patterns of custom properties, and matches values with them (contract 5.8).

The released engines compile them with Java (contract 3.1), so a pattern has to mean the same to
Java and to Python. A pattern that only one of them knows, or that they read differently, is refused
when the plugin is loaded. Patterns are compiled with ``re.ASCII``, because ``\\d``, ``\\w`` and
``\\s`` are ASCII to Java. A class unit's text was written for Java alone: the engine gets it
unchanged, and values are checked with those of its patterns that Python reads alike.

A value of more than 4096 characters is refused. That bounds the time of a pattern with a few
repeats, but not of one like ``(a+)+b``, whose time doubles with each character, and while it runs
no other thread of its process does. So the daemon's process does none of this, and a process of a
plugin or of an analysis does it under a limit of time.
"""

from __future__ import annotations

import contextlib
import functools
import re
import signal
from collections.abc import Iterator, Mapping
from typing import Callable, NoReturn, Optional

from ovirt_scheduler.errors import DefaultMistake, PluginError, RefusedProperty, SlowProperty
from ovirt_scheduler.model.plugins import Property, PropertySet
from ovirt_scheduler.model.values.properties import is_secret, regex_of, shown, span_of

LONGEST_VALUE = 4096  # characters


def refusal(prop: Property, value: Optional[str]) -> Optional[str]:
    """Why a property may not have the value; None if its pattern matches all of it, or it has none.

    The text shows the value, unless it seems to be a password: the history keeps the text.
    """
    if value is None or not prop.checked:
        return None
    text = "the value" if is_secret(prop.name) else shown(value)
    if len(value) > LONGEST_VALUE:
        return f"{text} is not allowed, being longer than {LONGEST_VALUE} characters"
    if _compiled(prop.pattern).fullmatch(value):
        return None
    span = span_of(prop.pattern)
    allowed = f"an integer from {span[0]} to {span[1]}" if span else f"what matches {prop.pattern}"
    return f"{text} is not allowed; give {allowed}"


def check_declared(properties: PropertySet, seconds: float) -> None:
    """Check that each pattern can be used, and matches the property's own default.

    For the main thread of a process.

    Args:
        seconds: time for the whole check.

    Raises:
        PluginError: without a file; the text names the property and what is wrong.
    """
    name = ""

    def late() -> PluginError:
        return PluginError(f"property {name}: {_slow('its default', seconds)}")

    with _in_time(seconds, late):
        for prop in properties.properties:
            name = prop.name
            problem = _problem(prop.pattern)
            if problem:
                raise PluginError(f"property {name}: {shown(prop.pattern)}: {problem}")
            problem = refusal(prop, prop.default)
            if problem:
                raise DefaultMistake(f"property {name}: as its default {problem}")


def unchecked_names(properties: PropertySet) -> tuple[str, ...]:
    """The names of properties whose patterns Python cannot use, or reads differently from Java."""
    return tuple(prop.name for prop in properties.properties if _regex_problem(prop.pattern))


def check(owner: str, properties: PropertySet, values: Mapping[str, str], seconds: float) -> None:
    """Check values with their patterns. For the main thread of a process.

    Args:
        owner: whose properties they are, for the message.
        seconds: time for the whole check. If none is left, nothing is checked, because nothing
            can run then.

    Raises:
        RefusedProperty: a value that is not allowed.
        SlowProperty: the time ran out.
    """
    name = ""

    def late() -> SlowProperty:
        return SlowProperty(f"{owner}: property {name}: {_slow('the value', seconds)}")

    if seconds <= 0 or not values:
        return
    with _in_time(seconds, late):
        for prop in properties.properties:
            name = prop.name
            problem = refusal(prop, values.get(name))
            if problem:
                raise RefusedProperty(f"{owner}: property {name}: {problem}")


@contextlib.contextmanager
def _in_time(seconds: float, late: Callable[[], Exception]) -> Iterator[None]:
    """Raise the result of ``late`` if the body takes longer; signals interrupt a match."""

    def give_up(_signal: int, _frame: object) -> NoReturn:
        raise late()

    before = signal.signal(signal.SIGALRM, give_up)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
        yield
    finally:
        try:  # it may ring just here
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.signal(signal.SIGALRM, before)


def _slow(what: str, seconds: float) -> str:
    return (
        f"its regex was not done with {what} after {seconds:.3g} s; write one that does not try "
        "so many ways"
    )


def _problem(pattern: str) -> Optional[str]:
    """What is wrong with a regex or a range; None if nothing is."""
    if not pattern:
        return "the regex is empty"
    if not pattern.isprintable():
        return "a character that cannot be printed; write it as an escape"
    if not pattern.startswith("{"):
        return _regex_problem(pattern)
    span = span_of(pattern)
    if span is None:
        return "expected {low-high}, of integers of up to 18 digits without leading zeros"
    return None if span[0] <= span[1] else "the range holds nothing, as low is above high"


def _regex_problem(pattern: str) -> Optional[str]:
    difference = next(_differences(pattern), None)
    if difference:
        return (
            f"{difference} is not read alike by Python, which checks values here, and by Java, "
            "which released engines use"
        )
    try:
        _compiled(pattern)
    except re.error as error:
        return f"not a regex: {error}"
    except (OverflowError, RecursionError) as error:
        return f"too large a regex: {error}"
    return None


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(regex_of(pattern), re.ASCII)


_TOKEN = re.compile(
    r"""
      (?P<escape> \\ (?: [0-9]+ | x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} | .? ) )
    | (?P<group> \( \? (?: <[=!] | [:=!>] | [is]* (?:-[is]+)? [:)] )? )
    | (?P<brace> \{ (?: [0-9]+ (?:,[0-9]*)? \} )? )
    | (?P<class> \[ \^? \]? )
    | (?P<set> && | -- | ~~ | \|\| )
    | .
    """,
    re.VERBOSE,
)
_COUNT, _MOST_REPEATS = re.compile("[0-9]{1,4000}"), 2**31 - 1  # Java's largest
_SHARED_ESCAPES = "dDwWsSbAafnrt"  # and \xhh, \uhhhh: what means the same to both


def _differences(pattern: str) -> Iterator[str]:
    """Name the parts of a Python pattern that Java does not know, or reads differently."""
    in_class = False
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if token["escape"]:
            if not _same_escape(text[1:], in_class):
                yield text
        elif in_class:
            if token["class"] or token["set"]:
                yield f"an unescaped {text} in a class"
            in_class = text != "]"
        elif token["class"]:
            in_class = True
        elif token["group"] and not _same_group(text, token.start()):
            yield f"the group {pattern[token.start() : token.start() + 4]}"
        elif text == "{":
            yield "a { that begins no {n}, {n,} or {n,m}"
        elif any(int(count) > _MOST_REPEATS for count in _COUNT.findall(token["brace"] or "")):
            yield f"the count of repeats in {text:.40}"


def _same_escape(code: str, in_class: bool) -> bool:
    if code[:1].isdigit():  # a group that was matched before; Python has octal characters too
        return not in_class and code[0] != "0" and len(code) < 3
    if code in ("b", "A") and in_class:
        return False
    return not code.isalnum() or len(code) > 1 or code in _SHARED_ESCAPES


def _same_group(text: str, position: int) -> bool:
    """Whether both know a group; flags for all of the pattern stand at its beginning."""
    if text == "(?":
        return False
    return not text.endswith(")") or (position == 0 and "-" not in text and text != "(?)")
