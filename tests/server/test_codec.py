"""XML-RPC documents to values and back (contract 1.5)."""

from __future__ import annotations

import datetime
import math
import xmlrpc.client
from xml.parsers import expat

import pytest

from ovirt_scheduler.errors import NotXmlRpc
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.server import codec
from ovirt_scheduler.server.codec import (
    decode_call,
    encode_answer,
    encode_fault,
    encode_record,
    encode_records,
)

EX = "http://ws.apache.org/xmlrpc/namespaces/extensions"


def call_with(*values: str) -> bytes:
    """A call whose parameters are these ``value`` elements' contents."""
    params = "".join(f"<param><value>{value}</value></param>" for value in values)
    return f"<methodCall><methodName>m</methodName><params>{params}</params></methodCall>".encode()


def nested(levels: int, inmost: str = "") -> bytes:
    opening, closing = "<array><data><value>", "</value></data></array>"
    return call_with(opening * levels + inmost + closing * levels)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("", ""),
        ("  ", "  "),
        ("<string>s &lt;b/&gt; \u20ac</string>", "s <b/> \u20ac"),
        ("<string/>", ""),
        ("<![CDATA[<hosts/>]]>", "<hosts/>"),
        ("a<!-- not said -->b", "ab"),
        ("<int>-7</int>", -7),
        ("<i4> +7\n</i4>", 7),
        (f"<ex:i8 xmlns:ex='{EX}'>9000000000</ex:i8>", 9_000_000_000),
        ("<ex:i1>1</ex:i1>", 1),
        ("<biginteger>9223372036854775807</biginteger>", 2**63 - 1),
        ("<double>-1.5e3</double>", -1500.0),
        ("<boolean>1</boolean>", True),
        ("<nil/>", None),
        ("<ex:nil/>", None),
        ("<base64>aGkh\n</base64>", b"hi!"),
        (
            "<dateTime.iso8601>20260721T10:11:12</dateTime.iso8601>",
            datetime.datetime(2026, 7, 21, 10, 11, 12),  # noqa: DTZ001  # XML-RPC has no time zone
        ),
        ("<array><data/></array>", []),
        (" <array> <data> <value>a</value>\n<value><int>2</int></value></data></array>", ["a", 2]),
        ("<struct/>", {}),
        (
            (
                "<struct><member><name>k</name><value><struct><member><name>n</name>"
                "<value><nil/></value></member></struct></value></member></struct>"
            ),
            {"k": {"n": None}},
        ),
    ],
)
def test_a_value_of_each_type_is_read(text: str, value: object) -> None:
    """Each type comes out as its Python counterpart, of exactly that type."""
    name, parameters = decode_call(call_with(text))
    assert (name, parameters) == ("m", (value,))
    assert type(parameters[0]) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("&#55357;&#56832;", "\U0001f600"),
        ("a&#55357;&#56832;&#55357;&#56832;b", "a\U0001f600\U0001f600b"),
        ("&#55296;&#56320;&#56319;&#57343;", "\U00010000\U0010ffff"),
        ("&#55295;&#57344;", "\ud7ff\ue000"),
        ("&amp;#55357;&amp;#56832;", "&#55357;&#56832;"),
    ],
)
def test_references_to_both_halves_of_a_surrogate_pair_are_one_character(
    text: str, value: str
) -> None:
    """As the engine's library writes them."""
    assert decode_call(call_with(text)) == ("m", (value,))
    named = f"<struct><member><name>{text}</name><value>{text}</value></member></struct>"
    assert decode_call(call_with(named)) == ("m", ({value: value},))


def test_every_surrogate_pair_is_joined() -> None:
    """Each half with each of some."""
    for high in range(0xD800, 0xDC00):
        for low in (0xDC00, 0xDFFF, 0xDC00 + high - 0xD800):
            text = f"&#{high};&#{low};"
            value = chr(high).encode("utf-16", "surrogatepass") + chr(low).encode(
                "utf-16-le", "surrogatepass"
            )
            assert decode_call(call_with(text)) == ("m", (value.decode("utf-16"),))


@pytest.mark.parametrize(
    "text",
    [
        "&#55357;", "&#56832;", "&#xd83d;", "&#xde00;", "&#56832;&#55357;", "&#55357; &#56832;",
        "&#55357;&#55357;", "&#55357;&#65;", "&#55357;&#55357;&#56832;", "&#55357;&#56832;&#56832;",
        "&#55357;<!-- -->&#56832;", "&#55357;<![CDATA[]]>&#56832;", "&#155357;&#56832;",
    ],
)  # fmt: skip
def test_half_of_a_surrogate_pair_is_refused(text: str) -> None:
    """It is no character; the message has the place where the half stands."""
    with pytest.raises(NotXmlRpc, match=r"reference to invalid character number \(line 1"):
        decode_call(call_with(text))


def test_places_in_messages_are_those_of_what_was_sent() -> None:
    """Joining a pair moves nothing."""
    pair, plain = "&#55357;&#56832;", "x" * 16
    told = []
    for text in (pair, plain):
        with pytest.raises(NotXmlRpc) as caught:
            decode_call(call_with(f"<string>{text}</string><int>x</int>"))
        told.append(str(caught.value))
    assert told[0] == told[1]


@pytest.mark.parametrize("params", ["", "<params/>", "<params></params>"])
def test_a_call_may_have_no_parameters(params: str) -> None:
    """The params element may be empty or missing."""
    body = f"<methodCall><methodName>discover</methodName>{params}</methodCall>".encode()
    assert decode_call(body) == ("discover", ())


def test_parameters_keep_their_order() -> None:
    """Several parameters come as a tuple in their order."""
    assert decode_call(call_with("a", "<int>2</int>", "c")) == ("m", ("a", 2, "c"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1", "cp1252"])
def test_the_declared_encoding_is_followed(encoding: str) -> None:
    """The XML declaration says how the bytes are read."""
    declaration = f"<?xml version='1.0' encoding='{encoding}'?>"
    body = (declaration + call_with("Zürich").decode()).encode(encoding)
    assert decode_call(body) == ("m", ("Zürich",))


@pytest.mark.parametrize("encoding", ["no-such", "utf-7", "shift_jis", "base64", "idna", "\x7f"])
def test_an_encoding_that_cannot_be_read_is_refused(encoding: str) -> None:
    """A declaration that Python cannot follow is the caller's mistake, not an error of ours."""
    body = f"<?xml version='1.0' encoding='{encoding}'?>".encode() + call_with("a")
    with pytest.raises(NotXmlRpc):
        decode_call(body)


@pytest.mark.parametrize(
    "text",
    [
        "<int>1.5</int>",
        "<int>x</int>",
        "<int/>",
        "<int>1_000</int>",
        "<int>\u0661</int>",
        f"<int>{'9' * 20}</int>",
        f"<biginteger>{'9' * 10000}</biginteger>",
        "<double>nan</double>",
        "<double>inf</double>",
        "<double>1e999</double>",
        "<double>1_0</double>",
        "<boolean>true</boolean>",
        "<boolean/>",
        "<nil>x</nil>",
        "<base64>abc</base64>",
        "<base64>\u20ac</base64>",
        "<base64>a!b@</base64>",
        "<dateTime.iso8601>yesterday</dateTime.iso8601>",
        "<dateTime.iso8601>20261341T25:00:00</dateTime.iso8601>",
        "<bigdecimal>1e999999999</bigdecimal>",
        "<ex:serializable>rO0AB</ex:serializable>",
        "<made.up/>",
        "<value>x</value>",
        "text<int>1</int>",
        "<int>1</int>text",
        "<int>1</int><int>2</int>",
        "<int>1<int>2</int></int>",
        "<string>a<b/></string>",
        "<array/>",
        "<array><data/><data/></array>",
        "<array><value>1</value></array>",
        "<array><data>text</data></array>",
        "<array>text<data/></array>",
        "<array><data/>text</array>",
        "<array><data><int>1</int></data></array>",
        "<struct><member/></struct>",
        "<struct><member><name>k</name></member></struct>",
        "<struct><member><value>v</value></member></struct>",
        "<struct><member><value>v</value><name>k</name></member></struct>",
        "<struct><member><name>k</name><value/><value/></member></struct>",
        "<struct><name>k</name><value>v</value></struct>",
        "<struct>text</struct>",
        "<struct><member><name>k</name><value/></member><member><name>k</name><value/></member></struct>",
    ],
)
def test_a_value_that_is_none_is_refused(text: str) -> None:
    """What the standard library swallows, or fails on later, ends here, with its place."""
    with pytest.raises(NotXmlRpc, match=r"\(line 1, column \d+\)$"):
        decode_call(call_with(text))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"GET / HTTP/1.1",
        b"{}",
        b"\x00\xff",
        b"<methodCall>",
        b"<methodCall/>",
        b"<methodCall><methodName/></methodCall>",
        b"<methodCall><methodName>  </methodName></methodCall>",
        b"<methodCall><params/></methodCall>",
        b"<methodCall><params/><methodName>m</methodName></methodCall>",
        b"<methodCall><methodName>a</methodName><methodName>b</methodName></methodCall>",
        b"<methodCall><methodName>a</methodName><params/><params/></methodCall>",
        b"<methodCall><methodName>a</methodName>text</methodCall>",
        b"<methodCall>text<methodName>a</methodName></methodCall>",
        b"<methodCall><methodName>a</methodName><fault/></methodCall>",
        b"<methodCall><methodName>a</methodName><params><param/></params></methodCall>",
        b"<methodCall><methodName>a</methodName><params><value/></params></methodCall>",
        b"<methodResponse><params/></methodResponse>",
        b"<methodName>a</methodName>",
        b"<params/>",
        b"<value>a</value>",
        call_with("a") + b"garbage",
        call_with("a") + call_with("a"),
        call_with("a")[:-1],
        call_with("a\x00"),
        call_with("&#0;"),
        call_with("&#xD800;"),
        call_with("x").replace(b"x", b"\xed\xa0\x80"),
        call_with("&made-up;"),
    ],
)
def test_a_document_that_is_no_call_is_refused(body: bytes) -> None:
    """Anything but one methodCall with one methodName is fault -32700."""
    with pytest.raises(NotXmlRpc) as caught:
        decode_call(body)
    assert caught.value.fault_code == -32700


@pytest.mark.parametrize(
    "declaration",
    [
        b"<!DOCTYPE methodCall>",
        b"<!DOCTYPE methodCall SYSTEM 'file:///etc/passwd'>",
        b"<!DOCTYPE m [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>]>",
    ],
)
def test_a_document_type_declaration_is_refused(declaration: bytes) -> None:
    """No document type is read, so that no entity is."""
    with pytest.raises(NotXmlRpc, match="document type"):
        decode_call(declaration + call_with("a"))


def test_the_place_of_a_mistake_is_told() -> None:
    """Line and column count from one, for bad XML and for a bad call."""
    with pytest.raises(NotXmlRpc, match=r"mismatched tag \(line 2, column 3\)"):
        decode_call(b"<methodCall>\n</x>")
    with pytest.raises(NotXmlRpc, match=r"<x> has no place in <methodCall> \(line 2, column 2\)"):
        decode_call(b"<methodCall>\n <x/></methodCall>")


def test_a_message_repeats_little_of_the_document() -> None:
    """A huge tag or text is not sent back."""
    for text in (f"<{'t' * 100_000}/>", f"<int>{'x' * 100_000}</int>", f"<nil/>{'x' * 100_000}"):
        with pytest.raises(NotXmlRpc) as caught:
            decode_call(call_with(text))
        assert len(str(caught.value)) < 200


def test_depth_is_bounded() -> None:
    """Arrays within arrays are read down to the limit and refused below it."""
    per_level, around = 3, 4  # array, data, value; methodCall, params, param, value
    deepest, beyond = divmod(codec.MAX_DEPTH - around, per_level)
    assert beyond == 0
    decode_call(nested(deepest))
    with pytest.raises(NotXmlRpc, match="limit"):
        decode_call(nested(deepest, "<string/>"))


def test_the_number_of_elements_is_bounded() -> None:
    """One element past the limit is refused."""
    body = call_with("<array><data><value/></data></array>")
    decode_call(body, most_elements=8)
    with pytest.raises(NotXmlRpc, match="limit"):
        decode_call(body, most_elements=7)


@pytest.mark.parametrize("kind", ["int", "double", "base64", "nil", "boolean", "dateTime.iso8601"])
@pytest.mark.parametrize("filling", [" ", "9", "="])
def test_a_long_value_is_refused_in_linear_time(kind: str, filling: str) -> None:
    """Megabytes of what is nearly a value do not keep the parser busy for hours."""
    with pytest.raises(NotXmlRpc):
        decode_call(call_with(f"<{kind}>{filling * 2_000_000}!</{kind}>"))


@pytest.mark.parametrize(
    "endless", [b"<methodCall " + b"a" * 3_000_000, b"<!--" + b"-x" * 1_500_000 + b"-->"]
)
def test_a_tag_without_end_is_refused(endless: bytes) -> None:
    """Megabytes of one tag or comment are not held in memory; megabytes of text are."""
    with pytest.raises(NotXmlRpc, match="longer than"):
        decode_call(endless)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "text <&> \u20ac\U0001f600",
        "a\r\nb\tc",
        2**31 - 1,
        -(2**31),
        True,
        2.5,
        [],
        ["a", [1]],
        {},
    ],
)
def test_an_answer_is_read_back_as_it_was(value: object) -> None:
    """An answer round-trips through the standard library's client."""
    (answer,), name = xmlrpc.client.loads(encode_answer(value))
    assert (answer, name) == (value, None)


@pytest.mark.parametrize(
    "value", [None, 2**31, -(2**31) - 1, [None], {1: "a"}, {"k": {None}}, object(), math]
)
def test_a_value_without_a_form_is_an_error(value: object) -> None:
    """nil, ints outside 32 bits and other objects never leave the daemon."""
    with pytest.raises((TypeError, OverflowError)):
        encode_answer(value)


NOT_IN_XML = [
    "\x00", "\x01", "\x08", "\x0b", "\x0c", "\x1f", "\ud800", "\udfff", "\ufffe", "\uffff",
]  # fmt: skip


@pytest.mark.parametrize("character", NOT_IN_XML, ids=ascii)
def test_characters_that_xml_forbids_are_replaced(character: str) -> None:
    """Every answer and every fault is well-formed."""
    text, replaced = f"a{character}b", "a\ufffdb"
    (answer,), _ = xmlrpc.client.loads(encode_answer([text, {text: text}]))
    assert answer == [replaced, {replaced: replaced}]
    with pytest.raises(xmlrpc.client.Fault, match=replaced):
        xmlrpc.client.loads(encode_fault(1, text))


def test_every_character_survives_or_is_replaced() -> None:
    """Each of the million code points gives a document that expat reads."""
    text = "".join(map(chr, range(0x110000)))
    read: list[str] = []
    parser = expat.ParserCreate()
    parser.CharacterDataHandler = read.append
    assert parser.Parse(encode_answer(text), True) == 1
    survived = "".join(read).strip()
    assert set(text) - set(survived) <= {
        *map(chr, range(0x20)),
        *map(chr, range(0xD800, 0xE000)),
        "\ufffe",
        "\uffff",
    }
    assert "\ufffd" in survived


def test_a_fault_has_its_code_and_message() -> None:
    """A fault is read as one."""
    with pytest.raises(xmlrpc.client.Fault) as caught:
        xmlrpc.client.loads(encode_fault(-32602, "hosts: expected <array> & more"))
    assert caught.value.faultCode == -32602
    assert caught.value.faultString == "hosts: expected <array> & more"


RECORD: Record = {"id": "1", "hosts": [{"id": "a", "total": 2**40}, {"id": "b", "total": -3}]}


def test_records_are_written_as_the_standard_library_reads_them() -> None:
    """A number that is no int of XML-RPC is a double."""
    plain = {"id": "1", "hosts": [{"id": "a", "total": float(2**40)}, {"id": "b", "total": -3}]}
    for document, answer in (
        (encode_records([RECORD, {}], lambda: None), [plain, {}]),
        (encode_records([], lambda: None), []),
        (encode_record(RECORD, lambda: None), plain),
        (encode_record({}, lambda: None), {}),
    ):
        assert xmlrpc.client.loads(document) == ((answer,), None)


def test_writing_records_ends_where_the_time_does() -> None:
    """Also within a record: it may have many hosts."""
    checks = iter([True, True, False])

    def check() -> None:
        if not next(checks):
            raise TimeoutError

    with pytest.raises(TimeoutError):
        encode_records([RECORD], check)
