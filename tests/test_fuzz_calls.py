"""XML-RPC calls, built from the methods and types there are and then damaged.

The decoder is asked first, alone; then the same calls go through the dispatcher to the four
operations and the processes behind them.
"""

from __future__ import annotations

import xmlrpc.client
from typing import Any, Iterator, Tuple

import pytest
from conftest import PLUGINS
from fuzzing import (
    XML_TOKENS,
    Node,
    assert_told,
    bounded,
    damaged,
    encoded,
    mostly,
    peak_of,
    tree,
    tries,
    written,
)
from hypothesis import given
from hypothesis import strategies as st

from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.decisions.units import Service
from ovirt_scheduler.errors import NotXmlRpc
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.server.codec import decode_call
from ovirt_scheduler.server.dispatch import Dispatcher
from ovirt_scheduler.server.methods import methods
from ovirt_scheduler.settings import config

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


def struct(members: Iterator[Tuple[str, Node]]) -> Node:
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


def as_call(parts: Tuple[str, Any]) -> Node:
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
            SENSIBLE.map(as_call),
            tree(WORDS, st.sampled_from([{}, EX, {"a": "b"}]), TEXTS),
        ).map(written)
    ),
    XML_TOKENS,
)


@tries(300)
@given(CALLS)
def test_a_call_is_read_or_refused(body: bytes) -> None:
    """A name and values, or one line that says what is wrong and where."""
    try:
        with bounded():
            name, parameters = decode_call(body)
    except NotXmlRpc as error:
        assert_told(str(error))
    else:
        assert name.strip()
        assert isinstance(parameters, tuple)


@pytest.mark.parametrize(
    "filling",
    [
        b"<value/>",
        b"<value><int>1</int></value>",
        b"<value><struct/></value>",
        b"<value>text</value>",
        b"<value><base64>aGkh</base64></value>",
        b"<!-- -->",
        b"<value a='1' b='2' c='3'/>",
        b" ",
    ],
)
def test_memory_grows_with_the_body_and_no_faster(filling: bytes) -> None:
    """What Python holds of a megabyte is a bounded multiple of it, whatever it is made of."""
    size = 1 << 20
    inside = filling * (size // len(filling))
    body = b"<methodCall><methodName>m</methodName><params><param><value><array><data>" + inside
    body += b"</data></array></value></param></params></methodCall>"
    assert peak_of(lambda: decode_call(body)) < 64 * size


def test_a_small_call_is_read_in_little_memory() -> None:
    """Room for a text is measured by the call, and not by the largest that there may be."""
    body = xmlrpc.client.dumps(("text",), "m").encode()
    decode_call(body)
    assert peak_of(lambda: decode_call(body)) < 1 << 16


@pytest.fixture(scope="module")
def dispatcher(executor: Executor, tmp_path_factory: pytest.TempPathFactory) -> Dispatcher:
    """The four operations as the daemon puts them together."""
    folder = tmp_path_factory.mktemp("calls")
    file = folder / "scheduler.conf"
    file.write_text(f"plugins_path = {PLUGINS}\nplugins_conf_path = {folder}\n", "utf-8")
    settings = config.load(file, {})
    registry = Registry(Loader(settings, executor.analyse), LastGood(folder / "state"))
    registry.look()
    return Dispatcher(methods(Service(registry, executor, 60.0), settings.engine_scores))


def check_answer(document: bytes) -> None:
    """An answer that a client can read, or a fault of a caller's that says what it is."""
    try:
        xmlrpc.client.loads(document)
    except xmlrpc.client.Fault as fault:
        assert fault.faultCode in FAULTS, fault
        assert_told(fault.faultString)


@tries(150)
@given(CALLS, st.sampled_from(AnswerForm))
def test_a_call_is_answered(dispatcher: Dispatcher, body: bytes, form: AnswerForm) -> None:
    """With what it asks for, or a fault that is not of our own making."""
    with bounded():
        check_answer(dispatcher.answer(Caller("0a1b2c3d", form, "127.0.0.1:50000"), body))
