"""Requests built well and then damaged: HTTP bodies, and the XML-RPC calls in them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.support.fuzzing import XML_TOKENS, Node, damaged, encoded, mostly, tree, written

LIMIT = 2000  # bytes

BODIES = st.sampled_from(
    [b"", b"x", b"<methodCall/>", b"0\r\n\r\n", b"y" * LIMIT, b"z" * (LIMIT + 1)]
)
SIZES = st.sampled_from([1, 7, 100, 5000])


def in_chunks(body: bytes, size: int, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    chunks = [b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces]
    return b"".join(chunks) + b"0\r\n" + trailer + b"\r\n"


CHUNKED = st.builds(
    in_chunks,
    BODIES | BODIES.map(gzip.compress),
    SIZES,
    st.sampled_from([b"", b";a=b", b" ", b";" + b"x" * 5000]),
    st.sampled_from([b"", b"A: b\r\n", b"A: b\r\n" * 100]),
)
TOKENS = [
    *(b"\r\n", b"\n", b"\r", b"0\r\n\r\n", b"-1\r\n", b"0x5\r\n", b"+5\r\n", b"5_0\r\n", b"f" * 16),
    *(b"7fffffff\r\n", b";", b" ", b"\0", b"\xff", b"\x1f\x8b\x08", gzip.compress(b"more")),
]

# The codes of contract 1.5 but for -32603, which says that the mistake is ours.
FAULTS = {-32700, -32601, -32602, 101, 102, 103, 104}

EX = {"xmlns:ex": "http://ws.apache.org/xmlrpc/namespaces/extensions"}
TEXTS = st.sampled_from(
    ["", " ", "a", "keeps_all", "keeps_first", "prints", "nobody", "vm-1", "host-1", "host-2",
     "1", "0", "-1", "9" * 19, "9" * 20, "1.5", "1e999", "nan", "true", "\u0661", "aGkh", "a!b",
     "==", "20260721T10:11:12", "20261341T25:00:00", "<![CDATA[<hosts/>]]>", "<!-- c -->",
     "&lt;hosts/>", "&lt;host id='a'/>", "&lt;vm id='b'/>", "&lt;host", "é\u2028", "\U0001f600",
     "\r"]
)  # fmt: skip
SCALARS = st.sampled_from(
    ["int", "i1", "i2", "i4", "i8", "ex:i8", "ex:i1", "biginteger", "double", "float", "boolean",
     "string", "dateTime.iso8601", "base64", "nil", "ex:nil", "ex:serializable", "bigdecimal"]
)  # fmt: skip


def element(name: str, *children: Node) -> Node:
    return (name, {}, list(children))


def member(name: str, value: Node) -> Node:
    return element("member", element("name", name), value)


def struct(members: Iterator[tuple[str, Node]]) -> Node:
    return element("value", element("struct", *(member(*pair) for pair in members)))


def array(values: Iterator[Node]) -> Node:
    return element("value", element("array", element("data", *values)))


SCALAR_VALUES: st.SearchStrategy[Node] = st.one_of(
    TEXTS.map(lambda text: element("value", text)),
    TEXTS.map(lambda text: element("value", element("string", text))),
    st.builds(lambda kind, text: element("value", (kind, EX, [text])), SCALARS, TEXTS),
)
VALUES: st.SearchStrategy[Node] = st.recursive(
    SCALAR_VALUES,
    lambda inside: st.one_of(
        st.lists(inside, max_size=3).map(array),
        st.lists(st.tuples(TEXTS, inside), max_size=3).map(struct),
    ),
    max_leaves=6,
)
UNITS = st.sampled_from(["keeps_all", "keeps_first", "keeps_none", "raises", "nobody"])
HOSTS = st.sampled_from(
    [
        element("value", "<hosts><host id='a'/><host id='b'/></hosts>".replace("<", "&lt;")),
        array([element("value", "host-1"), element("value", "host-2")]),
        array([]),
    ]
)
METHODS = st.sampled_from(
    ["discover", "Discover", "runFilters", "runCostFunctions", "runLoadBalancing",
     "system.methodHelp", "system.listMethods", "system.methodSignature", "system.multicall", "",
     " ", "__class__", "é"]
)  # fmt: skip


def as_text(text: str) -> Node:
    return element("value", element("string", text))


NAMES = st.lists(mostly(UNITS.map(as_text), VALUES), max_size=3).map(array)
FACTORS = st.lists(
    mostly(
        st.builds(
            lambda name, factor: array([as_text(name), element("value", element("int", factor))]),
            UNITS,
            st.sampled_from(["1", "-7", "0", "2147483647", "-2147483648", "2147483648"]),
        ),
        VALUES,
    ),
    max_size=3,
).map(array)  # fmt: skip
FURTHER = tuple(
    mostly(usual, VALUES) for usual in (HOSTS, st.just(as_text("vm-1")), st.just(struct([])))
)
SENSIBLE = st.one_of(
    st.tuples(st.just("runFilters"), st.tuples(NAMES, *FURTHER)),
    st.tuples(st.just("runCostFunctions"), st.tuples(FACTORS, *FURTHER)),
    st.tuples(st.just("runLoadBalancing"), st.tuples(UNITS.map(as_text), FURTHER[0], FURTHER[2])),
    st.tuples(METHODS, st.lists(VALUES, max_size=4)),
)


def as_call(parts: tuple[str, Any]) -> Node:
    name, values = parts
    params = element("params", *(element("param", value) for value in values))
    return element("methodCall", element("methodName", name), params)


WORDS = st.one_of(
    SCALARS,
    st.sampled_from(
        ["methodCall", "methodName", "params", "param", "value", "array", "data", "struct",
         "member", "name", "fault", "x:y", "made-up"]
    ),
)  # fmt: skip
CALLS = damaged(
    encoded(
        mostly(
            SENSIBLE.map(as_call), tree(WORDS, st.sampled_from([{}, EX, {"a": "b"}]), TEXTS)
        ).map(written)
    ),
    XML_TOKENS,
)
