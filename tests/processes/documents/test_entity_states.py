"""Hosts and VM documents as entities: what is read, what is refused, and how it is said."""

from __future__ import annotations

import datetime
import enum
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Callable

import pytest
from lxml import etree
from ovirtsdk4 import Struct

from ovirt_scheduler.model.requests import Document
from tests.support.paths import SHARED
from tests.support.reading import host_with, read_host, read_hosts, read_vm, read_vms, refused

# -- documents of real engines -----------------------------------------------------------


def _real_entities() -> Iterator[Any]:
    """Each host and VM element of the real documents, with the version it is in."""
    for path in sorted(SHARED.glob("v[34]/*.xml")):
        root = etree.parse(str(path)).getroot()
        members = list(root) if root.tag in {"hosts", "vms"} else [root]
        for number, member in enumerate(members, 1):
            version = path.parent.name
            yield pytest.param(member, version, id=f"{version}-{path.stem}-{number}")


REAL_ENTITIES = list(_real_entities())
needs_real = pytest.mark.skipif(not SHARED.is_dir(), reason="the real documents are not here")


def read_element(element: Any) -> Any:
    document = Document(etree.tostring(element))
    return read_hosts(document)[0] if element.tag == "host" else read_vm(document)


def as_text(value: Any) -> str | None:
    """A value of an entity as the XML spells it."""
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return None if value is None else str(value)


# What is read, where version 3 has it, where version 4 has it.
# What the entities of the SDK have no place for: where a link leads is kept where the
# linked things are a field of the entity, and these are none.
NO_PLACE = {"actions", "link[storage]", "link[fenceagents]", "link[disks]", "link[backups]"}


def values(element: Any) -> Iterator[str]:
    """Each value in an element, as the entity would have it."""
    for name, value in element.attrib.items():
        if name != "rel":
            yield value
    if not len(element) and (element.text or "").strip():
        yield as_date(element.text) if "time" in element.tag else element.text
    for child in element:
        if not {child.tag, f"{child.tag}[{child.get('rel')}]"} & NO_PLACE:
            yield from values(child)


def as_date(text: str) -> str:
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).isoformat()
    except ValueError:
        return text


def held(thing: Any) -> Iterator[str | None]:
    """Each value in an entity."""
    if isinstance(thing, Struct):
        for value in vars(thing).values():
            yield from held(value)
    elif isinstance(thing, list):
        yield getattr(thing, "href", None)
        for member in thing:
            yield from held(member)
    else:
        yield thing.isoformat() if isinstance(thing, datetime.datetime) else as_text(thing)


@needs_real
@pytest.mark.parametrize(("element", "version"), REAL_ENTITIES)
def test_nothing_is_lost(element: Any, version: str) -> None:
    """Every value of a document is in its entity as often, but for the short list above."""
    missing = Counter(values(element)) - Counter(held(read_element(element)))
    if element.findtext("storage_manager") == "true":
        missing -= Counter(["true"])  # becomes the word spm
    assert not missing


@needs_real
def test_a_whole_collection() -> None:
    """The hosts of a collection come in its order."""
    data = (SHARED / "v4" / "hosts.xml").read_bytes()
    assert [host.name for host in read_hosts(Document(data))] == ["H1", "H2"]


# -- one, several, none -------------------------------------------------------------------


def test_one_vm_in_a_collection() -> None:
    """A collection with one VM is that VM."""
    assert read_vm(Document(b'<vms><vm id="a"/></vms>')).id == "a"


def test_empty_text_is_not_a_missing_value() -> None:
    """What the SDK tells apart in version 4, an empty text and none, stays apart."""
    (host,) = read_hosts(Document(host_with("<comment></comment><description/>")))
    assert (host.comment, host.description) == ("", None)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<hosts><host id='a'/><host/></hosts>", "column 22: host number 2 has no id"),
        (b"<host id=' '/>", "host number 1 has no id"),
        (b"<host id='%s'/>" % (b"a" * 256), "number 1 has an id of more than 255 characters"),
        (
            b"<hosts>\n<host id='a'/>\n<host id='b'/><host id='a'/></hosts>",
            "hosts, line 3, column 15: host number 3 has the id a of another one",
        ),
        (b"<vm id='a'/>", "hosts, line 1, column 1: expected <hosts> or <host>, found <vm>"),
        (b"<hosts><vm id='a'/></hosts>", "column 8: expected <host>, found <vm>"),
        (b"<hosts><hosts/></hosts>", "expected <host>, found <hosts>"),
        (b"<methodCall/>", "found <methodCall>"),
        (
            host_with("<memory>1</memory>\n<memory>1</memory>"),
            "line 2, column 1: a second <memory>",
        ),
    ],
)
def test_wrong_hosts(data: bytes, said: str) -> None:
    """Ids missing or given twice, other things than hosts, and fields given twice."""
    assert said in refused(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<host id='a'/>", "VM, line 1, column 1: expected <vms> or <vm>, found <host>"),
        (b"<vms/>", "VM: expected one <vm> in <vms>, found 0"),
        (b"<vms><vm id='a'/><vm id='b'/></vms>", "VM: expected one <vm> in <vms>, found 2"),
    ],
)
def test_wrong_vms(data: bytes, said: str) -> None:
    """Other things than one VM."""
    assert said in refused(data, read_vm)


# -- values -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("<memory>four</memory>", "<memory>: 'four' is not an integer"),
        ("<memory></memory>", "<memory>: '' is not an integer"),
        ("<memory>1e3</memory>", "<memory>: '1e3' is not an integer"),
        ("<cpu><topology><cores>four</cores></topology></cpu>", "<cpu><topology><cores>: 'four'"),
        ("<cpu><topology cores='four'/></cpu>", "<cpu><topology><cores>: 'four'"),
        ("<cpu><speed>fast</speed></cpu>", "<cpu><speed>: 'fast' is not a decimal"),
        ("<ksm><enabled>perhaps</enabled></ksm>", "<ksm><enabled>: 'perhaps' is not a boolean"),
        (
            "<nics><nic/><nic><statistics><statistic/></statistics><mtu>much</mtu></nic></nics>",
            ": <nics>[2]<mtu>: 'much' is not an integer",
        ),
        ("<memory>a\u2028\u202eb\nc</memory>", "'a\ufffd\ufffdb\ufffdc'"),
        (f"<memory>{'9' * 5000}x</memory>", f"<memory>: '{'9' * 99}…' is not an integer"),
    ],
    ids=lambda text: text[:40],
)
def test_wrong_values(inside: str, said: str) -> None:
    """Text where a number or a truth belongs is refused with host, element and text."""
    second = f'<host id="b"><name>b</name>{inside}</host>'
    message = refused(f'<hosts><host id="a"/>{second}</hosts>'.encode())
    assert message.startswith("hosts: host number 2 (id b): ")
    assert said in message


@pytest.mark.parametrize("read", [read_host, read_hosts])
def test_a_wrong_value_of_a_host_is_told_with_its_element(read: Callable[[Document], Any]) -> None:
    """One that VMs have not, however the document is read."""
    message = refused(host_with("<summary><active>few</active></summary>"), read)
    assert message.endswith("host number 1 (id a): <summary><active>: 'few' is not an integer")


@pytest.mark.parametrize("read", [read_vm, read_vms])
def test_a_wrong_value_of_a_vm_is_told_with_its_element(read: Callable[[Document], Any]) -> None:
    """One that hosts have not, however the document is read."""
    message = refused(b'<vm id="a"><stateless>never</stateless></vm>', read)
    assert message.endswith("vm number 1 (id a): <stateless>: 'never' is not a boolean")


@pytest.mark.skipif(not hasattr(sys, "get_int_max_str_digits"), reason="no limit on digits")
def test_five_thousand_digits() -> None:
    """A number beyond the interpreter's limit is refused like any text."""
    assert "<memory>: '999" in refused(host_with(f"<memory>{'9' * 5000}</memory>"))


@pytest.mark.parametrize(
    ("text", "said"), [("yesterday", "'yesterday' is not a date"), ("", "there is no value")]
)
def test_wrong_dates(text: str, said: str) -> None:
    """Text where a date belongs is refused, an empty one too."""
    vm = f"<vm><creation_time>{text}</creation_time></vm>".encode()
    assert refused(vm, read_vm) == f"VM: vm number 1 (id none): <creation_time>: {said}"


# -- encodings ----------------------------------------------------------------------------

NAMED = '<host id="a"><name>K\u016f\u0148</name></host>'


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (NAMED.encode(), None),
        (b"\xef\xbb\xbf" + NAMED.encode(), None),
        (b"\xef\xbb\xbf" + NAMED.encode(), "utf-8"),
        (b"\xef\xbb\xbf<?xml version='1.0' encoding='klingon'?>" + NAMED.encode(), "utf-8"),
        (NAMED.encode("utf-16"), None),
        (NAMED.encode("utf-16-le"), None),
        (NAMED.encode("utf-16-be"), None),
        (('<?xml version="1.0" encoding="UTF-16"?>' + NAMED).encode("utf-16"), None),
        (('<?xml version="1.0" encoding="utf-8"?>' + NAMED).encode("utf-16"), None),
        (('<?xml version="1.0" encoding="ISO-8859-2"?>' + NAMED).encode("iso-8859-2"), None),
        (("\n <?xml version='1.0' encoding='UTF-8'?>\n" + NAMED).encode(), None),
        (("<?xml version='1.0' standalone='yes'?>" + NAMED).encode(), None),
        *[
            (f'<?xml version="1.0" encoding="{declared}"?>{NAMED}'.encode(), "utf-8")
            for declared in ("UTF-16", "ISO-8859-1", "klingon", "UTF-7")
        ],
    ],
)
def test_encodings(data: bytes, encoding: str | None) -> None:
    """A mark, a declaration, or what is known from outside, which outweighs the other two."""
    (host,) = read_hosts(Document(data, encoding))
    assert host.name == "K\u016f\u0148"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<host id='a'>\xff</host>", "hosts, line 1, column 14: not well-formed"),
        (NAMED.encode("iso-8859-2"), "hosts, line 1, column "),
        (b"\xff\xfe<\0h\0\0\xd8", "hosts: not in the encoding utf-16: "),
        (NAMED.encode("utf-32"), "hosts, line 1, column "),
        (b"<?xml version='1.0' encoding='klingon'?>" + NAMED.encode(), "encoding klingon"),
        (b"<?xml version='1.0' encoding='utf-16'?>" + NAMED.encode(), "encoding utf-16"),
        (b"<?xml version='1.0' encoding='unicode_escape'?><hosts/>", "encoding unicode_escape"),
        (b"<?xml version='9' encoding='utf-16'?><hosts/>", "line 1, column "),
        (b"<?xml something?><hosts/>", "line 1, column "),
    ],
)
def test_wrong_encodings(data: bytes, said: str) -> None:
    """Bytes that are not in their encoding, and encodings that nobody should use."""
    assert said in refused(data)


def test_columns_hold_after_a_declaration() -> None:
    """A declaration that is put aside moves nothing."""
    data = (
        b"<?xml version='1.0'\n encoding='ISO-8859-1'?> <host id='\xe9'><memory/><memory/></host>"
    )
    assert refused(data).startswith("hosts, line 2, column 48: a second <memory>")


@pytest.mark.parametrize(
    ("inside", "status"),
    [
        ("<status>{}up</status>", "up"),
        ("<status>{}<state>u{}p{}</state>{}</status>", "up"),  # of version 3
        ("<status>{}</status>", None),
    ],
)
def test_processing_instructions_are_passed_over(inside: str, status: str | None) -> None:
    """Wherever they stand, as comments are; one that is not closed is no XML."""
    text = "{}<hosts>{}<host id='a'>{}<name>{}x{}y</name>{}" + inside + "{}</host>{}</hosts>{}"
    without = read_hosts(Document(text.replace("{}", "").encode()))
    (host,) = read_hosts(Document(text.replace("{}", "<?some <b/> thing?>").encode()))
    assert (host.id, host.name) == ("a", "xy")
    assert (host.status and host.status.value) == status
    assert [*held(host)] == [*held(without[0])]
    assert "unclosed token" in refused(host_with("<?php x>"))


def test_elements_of_one_host_are_no_second_ones_of_the_next():
    """Of each host by itself: the fields, those without one, and a text that is cut in pieces."""
    host = '<host id="{}"><colour/><name>a&amp;{}</name><memory>1</memory><shape/></host>'
    document = f"<hosts>{''.join(host.format(n, n) for n in range(3))}</hosts>".encode()
    assert [each.name for each in read_hosts(Document(document))] == ["a&0", "a&1", "a&2"]
    again = document.replace(b"<shape/></host></hosts>", b"<colour/></host></hosts>")
    assert "a second <colour>" in refused(again)


@pytest.mark.parametrize("attributes", ["", " href='x'", " id='x' rel='y'"])
def test_a_value_has_no_text_of_the_one_before(attributes: str):
    inside = f"<comment>other</comment>\n <name{attributes}>a</name>\n <memory>7</memory>"
    host = read_host(Document(host_with(inside)))
    assert (host.comment, host.name, host.memory) == ("other", "a", 7)
