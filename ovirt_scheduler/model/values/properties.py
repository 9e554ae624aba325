"""Custom properties as texts: their syntax, and how the engine sees them (contract 5.8).

A plugin's properties are written as the engine writes them, ``key=regex;key2=regex2``, with one
form more: ``{low-high}`` stands for the integers of that range, bounds included. An integer has
no plus sign and no leading zeros.

No pattern is compiled here. The daemon reads these texts, and a pattern may run for ever: only
processes of plugins and of analyses compile and match it (``processes.loading.patterns``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Optional

from ovirt_scheduler.errors import DefaultMistake, PluginError
from ovirt_scheduler.model.plugins import Property, PropertySet
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.model.values.text import shortened

# Of a unit. The engine's own check of more than some 660 ends in a StackOverflowError: then it
# knows no external unit at all (contract 3.1).
MOST = 256
_LONGEST_TEXT = 1 << 16  # characters of a unit's properties

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
        PluginError: without a file; the text says what is wrong.
    """
    pieces = _pieces(custom_properties)
    defaults = default_values.rstrip(";").split(";")
    properties: dict[str, Property] = {}
    for text, default in itertools.zip_longest(pieces, defaults[: len(pieces)]):
        prop = Property(*_key_and_pattern(text), default or None)
        if properties.setdefault(prop.name, prop) is not prop:
            raise PluginError(f"property {prop.name}: occurs twice")
    if any(defaults[len(pieces) :]):
        count = f"{len(defaults)} and {len(pieces)}"
        raise DefaultMistake(f"more default values than properties: {count}")
    return _bounded(PropertySet(name, tuple(properties.values())))


def parse_for_java(name: str, text: str, unchecked: Collection[str] = ()) -> PropertySet:
    """Read what a class unit declares: ``key=regex``, with ``;`` between, and maybe at the end.

    Like the engine, it accepts an empty regex, and of several for one key it takes the last.

    Args:
        unchecked: names of those whose values are not checked here.

    Raises:
        PluginError: without a file; the text says what the engine does not take.
    """
    pairs = dict(map(_key_and_pattern, _pieces(text)))
    properties = (Property(*each, checked=each[0] not in unchecked) for each in pairs.items())
    return PropertySet(name, tuple(properties), text)


def unchecked(properties: PropertySet) -> Iterator[str]:
    """A sentence about each property whose values are not checked."""
    for prop in properties.properties:
        if not prop.checked:
            yield (
                f"property {prop.name} of {properties.name} may have any value here, since Python "
                f"does not read its regex {shown(prop.pattern)} as Java does; the engine checks it"
            )


def unknown(names: Iterable[str], name_sets: Iterable[Optional[Collection[str]]]) -> Iterator[str]:
    """A sentence about each property that nothing which is called knows.

    Args:
        names: of the properties that are set.
        name_sets: the names that each unit, scheduler or driver knows; None: it may know any.
    """
    sets = list(name_sets)
    there = list(dict.fromkeys(name for each in sets for name in each or ()))
    for name in () if None in sets else names:
        if name not in there:
            declared = f"; there are {', '.join(there)}" if there else ""
            hint = spelling.hint(name, there) or declared
            yield f"property {name}: nothing that is called knows it{hint}"


def is_secret(name: str) -> bool:
    """Whether the name of a property says that its value is a password, or the like."""
    return _SECRET.search(name) is not None


class Filled(dict[str, str]):
    """The properties that a plugin gets; looking up a missing one raises a KeyError in words."""

    def __missing__(self, key: object) -> str:
        raise KeyError(
            f"property {key} was not given, and has no default; "
            "ovirt-scheduler check names a conf file that is not read"
        )


def fill(properties: PropertySet, values: Mapping[str, str]) -> Filled:
    """The properties that a plugin gets: the defaults, overridden by all values of the call."""
    defaults = {
        prop.name: prop.default for prop in properties.properties if prop.default is not None
    }
    return Filled({**defaults, **values})


def render(properties: PropertySet) -> tuple[str, str]:
    """``customProperties`` and ``defaultValues`` as the conf file has them (contract 2.1)."""
    keys = ";".join(f"{prop.name}={prop.pattern}" for prop in properties.properties)
    defaults = ";".join(prop.default or "" for prop in properties.properties)
    return keys, defaults.rstrip(";")


def engine_syntax(properties: PropertySet) -> str:
    """The properties as released engines read them: ranges written out (contract 3.1)."""
    if properties.text is not None:
        return properties.text
    return ";".join(f"{prop.name}={regex_of(prop.pattern)}" for prop in properties.properties)


def _pieces(text: str) -> list[str]:
    if len(text) > _LONGEST_TEXT:
        raise _too_long(len(text))
    pieces = text.removesuffix(";").split(";") if text else []
    if len(pieces) > MOST:
        raise PluginError(
            f"there are {len(pieces)} properties; at most {MOST} are taken, since the engine fails "
            "to read many more"
        )
    return pieces


def _bounded(properties: PropertySet) -> PropertySet:
    """The properties, if their text for the engine, with ranges written out, is not too long."""
    length = len(engine_syntax(properties))
    if length > _LONGEST_TEXT:
        raise _too_long(length)
    return properties


def _too_long(length: int) -> PluginError:
    return PluginError(
        f"the properties have {length} characters; at most {_LONGEST_TEXT} are taken"
    )


def _key_and_pattern(text: str) -> tuple[str, str]:
    key, equals, pattern = text.partition("=")
    if not _KEY.fullmatch(key) or not equals:
        raise PluginError(
            f"property {shown(text)}: expected key=regex, the key of letters, digits and _, "
            "and no ; in the regex"
        )
    return key, pattern


def span_of(pattern: str) -> Optional[tuple[int, int]]:
    """The bounds of a range ``{low-high}``; None if the pattern is none."""
    span = _RANGE.fullmatch(pattern)
    return (int(span[1]), int(span[2])) if span else None


def regex_of(pattern: str) -> str:
    """The pattern of a property as a regex, with a range written out.

    >>> regex_of("{-5-120}")
    '(?:-[1-5]|[0-9]|[1-9][0-9]|1[0-1][0-9]|120)'
    """
    span = span_of(pattern)
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


def shown(text: str) -> str:
    """A pattern or a value for a message."""
    short = shortened(text, 60)
    return f"'{short}'" if short.isprintable() else repr(short)
