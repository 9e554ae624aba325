"""Decodes XML-RPC calls from bytes, and encodes answers and faults to bytes. Pure.

::

    bytes ──► expat ──► grammar (what may stand where) ──► name, parameters

The standard library's reader accepts nearly anything as a call. This one accepts only what the
grammar allows.
"""

from __future__ import annotations

import base64
import datetime
import math
import re
import xmlrpc.client
from collections.abc import Iterable, Mapping
from typing import Any, Callable, cast
from xml.parsers import expat

from ovirt_scheduler.errors import NotXmlRpc
from ovirt_scheduler.model.values.text import writable

MAX_DEPTH = 64  # elements within elements
MAX_ELEMENTS = 1_000_000

# Bytes parsed at once. A tag, unlike a text, is held whole, and a megabyte of attributes takes
# the parser a good deal longer than a megabyte of anything else.
_PIECE = 1 << 20

# The document of an answer, and what the standard library has round its value.
_RESPONSE = (
    b"<?xml version='1.0'?>\n<methodResponse>\n<params>\n<param>\n%s</param>\n</params>\n"
    b"</methodResponse>\n"
)
_BEFORE, _BEHIND = "<params>\n<param>\n", "</param>\n</params>\n"

_SHOWN = 40  # characters of the caller's text that a message repeats


def decode_call(body: bytes, most_elements: int = MAX_ELEMENTS) -> tuple[str, tuple[object, ...]]:
    """Read a ``methodCall`` document.

    Args:
        body: the document, in the encoding that it declares, UTF-8 if it declares none. If
            each ASCII character is one byte of it, decimal references to the two halves of a
            surrogate pair are read as the one character.
        most_elements: of the document.

    Returns:
        The method's name, and its parameters: None, bool, int (at most 19 digits), float
        (finite), str, bytes, ``datetime.datetime``, and lists and string-keyed dicts of these.

    Raises:
        NotXmlRpc: for every other document; the text says line and column (contract 1.5).
    """
    if b"&#" in body:
        body = _SURROGATE_PAIRS.sub(_joined, body)
    parser = expat.ParserCreate()
    reader = _CallReader(parser, len(body), most_elements)
    try:
        for start in range(0, len(body), _PIECE):
            parser.Parse(body[start : start + _PIECE], False)
            reader.refuse_long_token(min(start + _PIECE, len(body)))
        parser.Parse(b"", True)
        return reader.call()
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        message = f"not well-formed XML: {reason} (line {error.lineno}, column {error.offset + 1})"
        raise NotXmlRpc(message) from None
    except (LookupError, ValueError):
        # The parser asks Python for an encoding that it does not know itself.
        message = "the XML declaration names an encoding that cannot be read; send UTF-8"
        raise NotXmlRpc(message) from None
    finally:
        reader.detach()


# Apache's library writes a character beyond 16 bits as Java has it: as references to its two
# halves, which no XML parser takes.
_SURROGATE_PAIRS = re.compile(
    rb"""
    &\#( 5529[6-9] | 55[3-9][0-9]{2} | 56[0-2][0-9]{2} | 563[01][0-9] );
    &\#( 563[2-9][0-9] | 56[4-9][0-9]{2} | 57[0-2][0-9]{2} | 573[0-3][0-9] | 5734[0-3] );
    """,
    re.VERBOSE,
)


def _joined(surrogates: re.Match[bytes]) -> bytes:
    """One reference for two, of the same length, so that places in messages stay true."""
    high, low = map(int, surrogates.groups())
    return b"&#%013d;" % (0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00)


def encode_answer(value: object) -> bytes:
    """Write ``value`` as the document of a ``methodResponse``.

    Characters that XML 1.0 cannot hold become U+FFFD, so that the document is well-formed.

    Raises:
        TypeError: a value that XML-RPC has no form for, such as None.
        OverflowError: an int outside 32 bits.
    """
    # dumps itself refuses what it has no form for.
    document = xmlrpc.client.dumps((value,), methodresponse=True)  # type: ignore[arg-type]
    return _to_bytes(document)


def encode_records(records: Iterable[Mapping[str, Any]], check: Callable[[], None]) -> bytes:
    """Write records of decisions as the document of a ``methodResponse``: an array.

    An int beyond 32 bits becomes a double.

    Args:
        check: called again and again; may raise, which ends it.
    """
    # Each by itself, so that a long list does not hold the interpreter.
    array = b"".join(_record_value(record, check) for record in records)
    return _RESPONSE % (b"<value><array><data>\n%s</data></array></value>\n" % array)


def encode_record(record: Mapping[str, Any], check: Callable[[], None]) -> bytes:
    """Write a record, or an empty one, like ``encode_records``: a struct."""
    return _RESPONSE % _record_value(record, check)


def _record_value(record: Mapping[str, Any], check: Callable[[], None]) -> bytes:
    marshaller = xmlrpc.client.Marshaller()

    def dump_struct(_: object, value: Any, write: Callable[[str], object]) -> None:
        check()
        marshaller.dump_struct(value, write)

    marshaller.dispatch = {**marshaller.dispatch, dict: dump_struct, int: _dump_int}
    params = marshaller.dumps((cast("dict[str, Any]", record),))
    return _to_bytes(params.removeprefix(_BEFORE).removesuffix(_BEHIND))


def _dump_int(
    marshaller: xmlrpc.client.Marshaller, value: int, write: Callable[[str], object]
) -> None:
    if xmlrpc.client.MININT <= value <= xmlrpc.client.MAXINT:
        marshaller.dump_long(value, write)
    else:
        marshaller.dump_double(float(value), write)


def encode_fault(code: int, message: str) -> bytes:
    """Write a fault as the document of a ``methodResponse``; ``code`` as in ``errors``."""
    return _to_bytes(xmlrpc.client.dumps(xmlrpc.client.Fault(code, message)))


def _to_bytes(document: str) -> bytes:
    # A bare carriage return is XML, but would arrive as a line feed.
    return writable(document).replace("\r", "&#13;").encode()


def _if_like(pattern: str, read: Callable[[str], object]) -> Callable[[str], object]:
    """``read`` for texts that match completely; others raise a ValueError."""
    matches = re.compile(pattern).fullmatch

    def read_match(text: str) -> object:
        if not matches(text):
            raise ValueError(text)
        return read(text)

    return read_match


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, "%Y%m%dT%H:%M:%S")  # noqa: DTZ007  XML-RPC has no zone


# Longer ones fit no integer type; past 4300 digits Python refuses to write them out again.
_integer = _if_like(r"\s*[+-]?[0-9]{1,19}\s*", int)
# No two parts of the pattern match the same text: it fails in linear time.
_base64 = _if_like(
    r"[A-Za-z0-9+/\s]*(=\s*){0,2}", lambda text: base64.decodebytes(text.encode("ascii"))
)

# Apache's bigdecimal is not among them: 1e999999999 is a short text and an endless integer.
_SCALARS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("int", "i1", "i2", "i4", "i8", "biginteger"), _integer),
    **dict.fromkeys(("double", "float"), _if_like("[^_]*", _finite)),
    "boolean": _if_like("[01]", "1".__eq__),
    "dateTime.iso8601": _time,
    "string": str,
    "base64": _base64,
    "nil": _if_like(r"\s*", lambda _: None),
}
# Elements that hold a text. A value without a type is a string.
_TEXTS: dict[str, Callable[[str], object]] = {
    **_SCALARS, "value": str, "name": str, "methodName": _if_like(r"(?s).*\S.*", str)
}  # fmt: skip

# Where an element stands: in which state it is, which child may come next, and to which
# state that brings it. An element's first state bears its name. A state without a row has no child.
_GRAMMAR: dict[str, dict[str, str]] = {
    "document": {"methodCall": "document, read"},
    "methodCall": {"methodName": "methodCall, named"},
    "methodCall, named": {"params": "methodCall, read"},
    "params": {"param": "params"},
    "param": {"value": "param, read"},
    "value": dict.fromkeys(("array", "struct", *_SCALARS), "value, typed"),
    "array": {"data": "array, read"},
    "data": {"value": "data"},
    "struct": {"member": "struct"},
    "member": {"name": "member, named"},
    "member, named": {"value": "member, read"},
}
_UNFINISHED = {"methodCall", "param", "array", "member", "member, named"}


def _element(state: str) -> str:
    return state.partition(",")[0]


class _CallReader:
    """Takes the parser's events, checks them with the grammar, and makes values."""

    def __init__(self, parser: expat.XMLParserType, size: int, most_elements: int):
        self._parser = parser
        self._most_elements = most_elements
        self._states = ["document"]
        # The method's name, and what no array or struct holds yet; names of members, too.
        self._values: list[object] = []
        self._arrays: list[int] = []  # of each array that is open: where its values begin
        self._structs: list[dict[str, object]] = []  # that are open
        self._text: list[str] = []
        self._elements = 0
        parser.buffer_text = True
        parser.buffer_size = min(max(size, 1), 1 << 20)  # of text handed over at once
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append

    def call(self) -> tuple[str, tuple[object, ...]]:
        method, *parameters = self._values
        return cast("str", method), tuple(parameters)

    def refuse_long_token(self, parsed: int) -> None:
        """Refuse a tag or comment longer than a piece; ``parsed`` counts bytes."""
        if parsed - self._parser.CurrentByteIndex >= _PIECE:
            raise self._refusal(f"a tag or comment is longer than {_PIECE} bytes")

    def detach(self) -> None:
        """Let go of the parser, which holds this object: the body's memory is free at once."""
        del self._parser

    def _start(self, tag: str, _attributes: dict[str, str]) -> None:
        if self._text:
            self._drop_blank()
        states = self._states
        following, name = _GRAMMAR.get(states[-1], {}), tag
        if name not in following:
            name = tag.rpartition(":")[2]  # ex:nil, ex:i8
            if name not in following:
                raise self._refusal(f"<{tag[:_SHOWN]}> has no place in <{_element(states[-1])}>")
        self._elements += 1
        if self._elements > self._most_elements or len(states) > MAX_DEPTH:
            limits = f"{self._most_elements} elements, {MAX_DEPTH} within each other"
            raise self._refusal(f"the call is past the limit of {limits}")
        states[-1] = following[name]
        states.append(name)
        if name == "array":
            self._arrays.append(len(self._values))
        elif name == "struct":
            self._structs.append({})

    def _end(self, tag: str) -> None:
        state = self._states.pop()
        values = self._values
        read = _TEXTS.get(state)
        if read is not None:
            text = "".join(self._text)
            self._text.clear()
            try:
                values.append(read(text))
            except ValueError:
                name = tag.rpartition(":")[2]
                raise self._refusal(f"{text[:_SHOWN]!r} cannot be read as {name}") from None
            return
        if self._text:
            self._drop_blank()
        if state == "value, typed":
            pass
        elif state == "array, read":
            first = self._arrays.pop()
            values[first:] = [values[first:]]
        elif state == "member, read":
            value, name = values.pop(), cast("str", values.pop())
            if name in self._structs[-1]:  # it could be understood in two ways
                raise self._refusal(f"the struct's member {name[:_SHOWN]!r} occurs twice")
            self._structs[-1][name] = value
        elif state == "struct":
            values.append(self._structs.pop())
        elif state in _UNFINISHED:
            raise self._refusal(f"<{_element(state)}> ends early")

    def _drop_blank(self) -> None:
        text = "".join(self._text)
        if not text.isspace():
            raise self._refusal(f"the text {text.strip()[:_SHOWN]!r} has no place here")
        self._text.clear()

    def _doctype(self, *_declaration: object) -> None:
        raise self._refusal("a document type declaration is not allowed")

    def _refusal(self, reason: str) -> NotXmlRpc:
        line, column = self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1
        return NotXmlRpc(f"not an XML-RPC call: {reason} (line {line}, column {column})")
