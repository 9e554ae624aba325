"""Custom properties: their syntax, their values, and how the engine sees them (contract 5.8).

A plugin's properties are written as the engine writes them, ``key=regex;key2=regex2``, with one
form more: ``{low-high}`` stands for the integers of that range, bounds included. An integer has
no plus sign and no leading zeros.

The released engines compile the regexes with Java (contract 3.1), so a pattern has to mean the
same to Java and to Python. A pattern that only one of them knows, or that they read differently,
is refused when the plugin is loaded. Patterns are compiled with ``re.ASCII``, because ``\\d``,
``\\w`` and ``\\s`` are ASCII to Java. A class unit's text was written for Java alone: the engine
gets it unchanged, and values are checked with those of its patterns that Python reads alike.

A value of more than 4096 characters is refused. That bounds the time of a pattern with a few
repeats, but not of one like ``(a+)+b``, whose time doubles with each character. So a call's
values are checked under a limit of time (``check``).
"""

from __future__ import annotations

import functools
import itertools
import re
import signal
from collections.abc import Iterator, Mapping
from typing import NoReturn, Optional

from ovirt_scheduler.errors import PluginError, RefusedProperty, SlowProperty
from ovirt_scheduler.model.plugins import Property, PropertySet
from ovirt_scheduler.model.values import java_regex
from ovirt_scheduler.model.values.text import shortened

LONGEST_VALUE = 4096  # characters
_LONGEST_TEXT = 1 << 16  # characters of all properties: the daemon compiles their regexes

_SECRET = re.compile("password|secret|token|key", re.IGNORECASE)  # in a property's name

_KEY = re.compile(r"[a-zA-Z0-9_]+")
_INTEGER = r"0|-?[1-9][0-9]{0,17}"
_RANGE = re.compile(rf"\{{({_INTEGER})-({_INTEGER})\}}")


def parse(name: str, custom_properties: str, default_values: str) -> PropertySet:
    """Read a property set; either text may end with a ``;``.

    Args:
        name: of the set.
        custom_properties: ``key=regex`` or ``key={low-high}``, with ``;`` between.
        default_values: values by position, with ``;`` between; an empty place is no default.

    Raises:
        PluginError: without a file; the text names the property and what is wrong.
    """
    pieces = _pieces(custom_properties)
    defaults = default_values.rstrip(";").split(";")
    properties: dict[str, Property] = {}
    for text, default in itertools.zip_longest(pieces, defaults[: len(pieces)]):
        made = _property(text, default or None)
        if properties.setdefault(made.name, made) is not made:
            raise PluginError(f"property {made.name}: occurs twice")
    if any(defaults[len(pieces) :]):
        raise PluginError(f"more default values than properties: {len(defaults)} and {len(pieces)}")
    return PropertySet(name, tuple(properties.values()))


def parse_for_java(name: str, text: str) -> PropertySet:
    """Read what a class unit declares: ``key=regex``, with ``;`` between, and maybe at the end.

    Like the engine, it accepts an empty regex, and of several for one key it takes the last.

    Raises:
        PluginError: without a file; the text names the property and what the engine refuses.
    """
    properties: dict[str, Property] = {}
    for piece in _pieces(text):
        key, pattern = _key_and_pattern(piece)
        refused = java_regex.refusal(pattern)
        if refused:
            raise PluginError(
                f"property {key}: {_shown(pattern)} is not a regex to Java, which the engine "
                f"reads it with: {refused}"
            )
        properties[key] = Property(key, pattern, checked=_regex_problem(pattern) is None)
    return PropertySet(name, tuple(properties.values()), text)


def unchecked(properties: PropertySet) -> Iterator[str]:
    """A sentence about each property whose values are not checked."""
    for prop in properties.properties:
        if not prop.checked:
            yield (
                f"property {prop.name} of {properties.name} may have any value here, since Python "
                f"does not read its regex {_shown(prop.pattern)} as Java does; the engine checks it"
            )


def is_secret(name: str) -> bool:
    """Whether the name of a property says that its value is a password, or the like."""
    return _SECRET.search(name) is not None


def refusal(prop: Property, value: Optional[str]) -> Optional[str]:
    """Why a property may not have the value; None if its pattern matches all of it, or it has none.

    The text shows the value, unless it seems to be a password: the history keeps the text.
    """
    if value is None or not prop.checked:
        return None
    shown = "the value" if is_secret(prop.name) else _shown(value)
    if len(value) > LONGEST_VALUE:
        return f"{shown} is not allowed, being longer than {LONGEST_VALUE} characters"
    if _compiled(prop.pattern).fullmatch(value):
        return None
    span = _range(prop.pattern)
    allowed = f"an integer from {span[0]} to {span[1]}" if span else f"what matches {prop.pattern}"
    return f"{shown} is not allowed; give {allowed}"


class Filled(dict[str, str]):
    """The properties that a plugin gets; looking up a missing one raises a KeyError in words."""

    def __missing__(self, key: object) -> str:
        raise KeyError(f"property {key} was not given, and has no default in a conf file")


def fill(properties: PropertySet, values: Mapping[str, str]) -> Filled:
    """The properties that a plugin gets: the defaults, overridden by all values of the call."""
    defaults = {
        prop.name: prop.default for prop in properties.properties if prop.default is not None
    }
    return Filled({**defaults, **values})


def first_refusal(properties: PropertySet, values: Mapping[str, str]) -> Optional[str]:
    """A sentence about the first value that its property refuses; None if all are good."""
    for prop in properties.properties:
        problem = refusal(prop, values.get(prop.name))
        if problem:
            return f"property {prop.name}: {problem}"
    return None


def check(owner: str, properties: PropertySet, values: Mapping[str, str], seconds: float) -> None:
    """Check a call's values with their patterns. For the main thread of a process.

    Args:
        owner: whose properties they are, for the message.
        seconds: time for the whole check. If none is left, nothing is checked, because nothing
            can run then.

    Raises:
        RefusedProperty: a value that is not allowed.
        SlowProperty: the time ran out.
    """
    name = ""

    def give_up(_signal: int, _frame: object) -> NoReturn:
        raise SlowProperty(
            f"{owner}: property {name}: its regex was not done with the value after "
            f"{seconds:.3g} s; write one that does not try so many ways"
        )

    if seconds <= 0 or not values:
        return
    before = signal.signal(signal.SIGALRM, give_up)  # the search for a match looks for signals
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
        for prop in properties.properties:
            name = prop.name
            problem = refusal(prop, values.get(name))
            if problem:
                raise RefusedProperty(f"{owner}: property {name}: {problem}")
    finally:
        try:  # it may ring just here
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.signal(signal.SIGALRM, before)


def render(properties: PropertySet) -> tuple[str, str]:
    """``customProperties`` and ``defaultValues`` as the conf file has them (contract 2.1)."""
    keys = ";".join(f"{prop.name}={prop.pattern}" for prop in properties.properties)
    defaults = ";".join(prop.default or "" for prop in properties.properties)
    return keys, defaults.rstrip(";")


def engine_syntax(properties: PropertySet) -> str:
    """The properties as released engines read them: ranges written out (contract 3.1)."""
    if properties.text is not None:
        return properties.text
    return ";".join(f"{prop.name}={_regex(prop.pattern)}" for prop in properties.properties)


def _pieces(text: str) -> list[str]:
    if len(text) > _LONGEST_TEXT:
        raise PluginError(
            f"the properties have {len(text)} characters; at most {_LONGEST_TEXT} are taken"
        )
    return text.removesuffix(";").split(";") if text else []


def _property(text: str, default: Optional[str]) -> Property:
    key, pattern = _key_and_pattern(text)
    problem = _problem(pattern)
    if problem:
        raise PluginError(f"property {key}: {_shown(pattern)}: {problem}")
    prop = Property(key, pattern, default)
    problem = refusal(prop, default)
    if problem:
        raise PluginError(f"property {key}: as its default {problem}")
    return prop


def _key_and_pattern(text: str) -> tuple[str, str]:
    key, equals, pattern = text.partition("=")
    if not _KEY.fullmatch(key) or not equals:
        raise PluginError(
            f"property {_shown(text)}: expected key=regex, the key of letters, digits and _, "
            "and no ; in the regex"
        )
    return key, pattern


def _problem(pattern: str) -> Optional[str]:
    """What is wrong with a regex or a range; None if nothing is."""
    if not pattern:
        return "the regex is empty"
    if not pattern.isprintable():
        return "a character that cannot be printed; write it as an escape"
    if not pattern.startswith("{"):
        return _regex_problem(pattern)
    span = _range(pattern)
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
    refused = java_regex.refusal(pattern)
    return f"not a regex to Java, which released engines use: {refused}" if refused else None


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(_regex(pattern), re.ASCII)


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


def _range(pattern: str) -> Optional[tuple[int, int]]:
    span = _RANGE.fullmatch(pattern)
    return (int(span[1]), int(span[2])) if span else None


def _regex(pattern: str) -> str:
    """The pattern of a property as a regex, with a range written out.

    >>> _regex("{-5-120}")
    '(?:-[1-5]|[0-9]|[1-9][0-9]|1[0-1][0-9]|120)'
    """
    span = _range(pattern)
    if span is None:
        return pattern
    low, high = span
    parts = [f"-{part}" for part in _runs(max(1, -high), -low)] + list(_runs(max(0, low), high))
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


def _runs(low: int, high: int) -> Iterator[str]:
    """Regexes for the integers from low to high, 0 <= low, each for one run of them.

    In a run the last digits are free, the one before them has a span, and the first are fixed:
    120 to 389 is ``1[2-9][0-9]``, ``2[0-9]{2}`` and ``3[0-8][0-9]``.
    """
    while low <= high:
        free = 0
        while low and low % 10 ** (free + 1) == 0 and low + 10 ** (free + 1) - 1 <= high:
            free += 1
        run = 10**free
        first = low // run % 10
        last = min(9, first + (high - low + 1) // run - 1)
        fixed = str(low // run)[:-1]
        repeat = f"[0-9]{{{free}}}" if free > 1 else "[0-9]" * free
        yield f"{fixed}[{first}-{last}]{repeat}" if first < last else f"{fixed}{first}{repeat}"
        low += (last - first + 1) * run


def _shown(text: str) -> str:
    short = shortened(text, 60)
    return f"'{short}'" if short.isprintable() else repr(short)
