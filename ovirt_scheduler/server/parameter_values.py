"""Reads the values of calls' parameters.

The type of a value says what it is (contract 1.4): hosts as one string are a document, as an
array they are ids; a VM that starts with ``<`` is a document, else an id.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Union

from ovirt_scheduler.errors import BadParameters, UnreadableDocument
from ovirt_scheduler.model.requests import (
    LONGEST_ID,
    Document,
    IdOrDocument,
    IdsOrDocument,
    is_document,
)

_TYPES: Mapping[type, str] = {  # in XML-RPC's words
    str: "a string", bool: "a boolean", int: "an int", float: "a double", list: "an array",
    dict: "a struct", type(None): "nil", bytes: "a base64",
}  # fmt: skip
_MOST_PROPERTIES = 1 << 18  # characters of the names and values of one call's
_MOST_SHARED = 10_000  # ids of one call that are shared with others
_shared_ids: dict[str, str] = {}


def expected(place: str, shape: str, value: object) -> BadParameters:
    """The error for a value of a wrong type."""
    return BadParameters(f"{place}: expected {shape}, not {_TYPES.get(type(value), 'a dateTime')}")


def string(place: str, value: object) -> str:
    """The value, if it is a string.

    Raises:
        BadParameters: it is not.
    """
    if not isinstance(value, str):
        raise expected(place, "a string", value)
    return value


def strings(place: str, value: object) -> list[str]:
    """The value, if it is an array of strings.

    Raises:
        BadParameters: it is not.
    """
    if not isinstance(value, list):
        raise expected(place, "an array of strings", value)
    for position, item in enumerate(value):
        if not isinstance(item, str):
            raise expected(f"{place}[{position}]", "a string", item)
    return value


def struct(place: str, shape: str, value: object) -> dict[str, object]:
    """The value, if it is a struct; an empty array is an empty one, which PHP cannot write.

    Raises:
        BadParameters: it is none; the text says which shape it should have.
    """
    if value == []:
        return {}
    if not isinstance(value, dict):
        raise expected(place, shape, value)
    return value


def hosts(value: object, place: str = "hosts") -> IdsOrDocument:
    """Read hosts; or, with another place, VMs in the same way."""
    if isinstance(value, str) and not is_document(value):
        raise UnreadableDocument(
            f"{place}: a string has to be an XML document, which begins with <; send ids as an "
            "array of strings"
        )
    if isinstance(value, (str, bytes)):
        return _document(value)
    if not isinstance(value, list):
        raise expected(place, "an XML document as a string, or an array of ids", value)
    first: dict[str, int] = {}
    for position, host in enumerate(strings(place, value)):
        _check_id(f"{place}[{position}]", host)
        if host in first:
            raise BadParameters(
                f"{place}[{position}]: {host!r:.80} is {place}[{first[host]}] already; give it once"
            )
        first[host] = position
    return _shared(first)


def _shared(ids: Collection[str]) -> tuple[str, ...]:
    """These ids, as strings that other calls use as well.

    Most calls have the same hosts, and their decisions wait for the history: with 10,000 ids, each
    would take 0.9 MB. Strings of ``sys.intern`` are never freed by Python 3.12.
    """
    if len(ids) > _MOST_SHARED:
        return tuple(ids)
    if len(_shared_ids) + len(ids) > 2 * _MOST_SHARED:
        _shared_ids.clear()
    return tuple(map(_shared_ids.setdefault, ids, ids))


def vm(value: object, place: str = "vm") -> IdOrDocument:
    """Read a VM; or, with another place, a host in the same way."""
    if isinstance(value, bytes) or (isinstance(value, str) and is_document(value)):
        return _document(value)
    if not isinstance(value, str):
        raise expected(place, "an XML document as a string, or an id", value)
    _check_id(place, value)
    return value


def _check_id(place: str, text: str) -> None:
    if not text.strip() or len(text) > LONGEST_ID:
        what = f"an id of {len(text)} characters" if text.strip() else "an empty id"
        raise BadParameters(f"{place}: {what}; an id has 1 to {LONGEST_ID}")


def _document(value: Union[str, bytes]) -> Document:
    if isinstance(value, bytes):
        return Document(value)
    # An XML-RPC string was decoded with the call: what its declaration says is no longer so.
    return Document(value.encode("utf-8", "surrogatepass"), "utf-8")


def properties(value: object) -> Mapping[str, str]:
    """Read properties.

    Nil, the empty string and an empty array count as none, a nil value as not given.

    Raises:
        BadParameters: it is no struct of strings, or longer than it may be.
    """
    if value is None or value == "":
        return {}
    texts = {
        key: string(f"properties[{key!r:.80}]", item)
        for key, item in struct("properties", "a struct of strings", value).items()
        if item is not None
    }
    size = sum(map(len, itertools.chain(*texts.items())))
    if size > _MOST_PROPERTIES:
        raise BadParameters(
            f"properties: {size} characters in names and values; at most {_MOST_PROPERTIES} are "
            "taken"
        )
    return texts
