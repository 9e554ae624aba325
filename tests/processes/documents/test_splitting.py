"""Documents, cut into the elements of their hosts and VMs for the history."""

from __future__ import annotations

import pytest

from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.documents import entity_states, parser
from ovirt_scheduler.processes.documents.splitting import split
from tests.support.paths import PROJECT

HOSTS = """<hosts>
  <host id="1"><name>a&gt;b</name><host/></host>
  <!-- <host id="3"/> -->
  <host id="2"/>
</hosts>
"""
VM = """<vm id="v">
<name/><initialization><root_password>s3cret</root_password><initialization/></initialization>
<payloads><payload/></payloads><initialization/><memory>1</memory><initialization></initialization>
</vm>"""


def test_each_element_is_a_piece():
    """Between what stands before the first and behind the last; blanks and comments are left."""
    assert split(Document(HOSTS.encode())) == [
        b"<hosts>\n  ",
        b'<host id="1"><name>a&gt;b</name><host/></host>',
        b'<host id="2"/>',
        b"\n</hosts>\n",
    ]


def test_what_may_hold_passwords_is_left_out():
    """Of VMs, in a collection, too; wherever else the name stands, as well."""
    rest = b'<vm id="v">\n<name/>\n<memory>1</memory>\n</vm>'
    assert split(Document(VM.encode())) == [b"", rest, b""]
    assert split(Document(f"<vms>{VM}{VM}</vms>".encode())) == [b"<vms>", rest, rest, b"</vms>"]


@pytest.mark.parametrize("name", ["xml:initialization", "ovirt:payloads", "a.b:initialization"])
def test_what_may_hold_passwords_is_left_out_with_any_prefix(name: str):
    """Once and again, empty and not, and inside of one another."""
    secret = f"<{name}><root_password>s3cret</root_password><{name}/></{name}>"
    vm = f'<vm id="v">{secret}<name/>{secret}{secret}<memory>1</memory><{name} a="s3cret"/></vm>'
    rest = b'<vm id="v"><name/><memory>1</memory></vm>'
    assert split(Document(f"<vms>{vm}{vm}</vms>".encode())) == [b"<vms>", rest, rest, b"</vms>"]


@pytest.mark.parametrize("text", ["<hosts/>", "<hosts></hosts>", "<vms> </vms>"])
def test_a_collection_without_elements_is_one_piece(text: str):
    """It is the document as it came."""
    assert b"".join(split(Document(text.encode()))) == text.encode()


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1"])
def test_pieces_are_in_utf8(encoding: str):
    """Whatever the document came in; nothing in them says otherwise."""
    text = f'<?xml version="1.0" encoding="{encoding}"?><hosts><host id="\xe9"/></hosts>'
    pieces = split(Document(text.encode(encoding)))
    assert pieces[1] == '<host id="\xe9"/>'.encode()
    read, _ = entity_states.read_states(Document(b"".join(pieces)), parser.HOSTS)
    assert [state["_id"] for state in read] == ["\xe9"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("hosts-v3.xml", parser.HOSTS),
        ("hosts-v4.xml", parser.HOSTS),
        ("vm-v3.xml", parser.VM),
        ("vm-v4.xml", parser.VM),
    ],
)
def test_the_pieces_of_an_engines_document_say_what_it_said(name: str, kind: parser.DocumentKind):
    """All but what is left out."""
    document = Document((PROJECT / "tests" / "data" / "documents" / name).read_bytes())
    pieces = split(document)
    wanted, _ = entity_states.read_states(document, kind)
    for state in wanted:
        state.pop("_initialization", None)
        state.pop("_payloads", None)
    assert entity_states.read_states(Document(b"".join(pieces)), kind)[0] == wanted
    assert len(pieces) > 2
