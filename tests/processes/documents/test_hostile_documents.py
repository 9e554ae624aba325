"""Documents that would harm who reads them: they are refused, and nothing of them is fetched or printed."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path

import pytest

from ovirt_scheduler.model.requests import Document
from tests.support.command import script
from tests.support.reading import host_with, read_hosts, refused

BOMB = "".join(f"<!ENTITY e{n + 1} '{f'&e{n};' * 10}'>" for n in range(9))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "hosts, line 1, column 1: no element found"),
        (b" \n ", "line 2, column 2: no element found"),
        (b"<hosts>", "no element found"),
        (b"<hosts></host>", "mismatched tag"),
        (b"<hosts/><hosts/>", "junk after document element"),
        (b"<!DOCTYPE host><host id='a'/>", "hosts, line 1, column 15: a document type is not"),
        (f"<!DOCTYPE x [<!ENTITY e0 'x'>{BOMB}]><hosts>&e9;</hosts>".encode(), "document type"),
        (f"<!DOCTYPE x [<!ENTITY e0 'x'>{BOMB}]><hosts a='&e9;'/>".encode(), "document type"),
        ("<!DOCTYPE x><hosts/>".encode("utf-16"), "document type"),
        (host_with("&nbsp;"), "line 1, column 14: undefined entity"),
        (b"<hosts xmlns='urn:x'/>", "line 1, column 1: a namespace is not allowed"),
        (b"<x:hosts xmlns:x='urn:x'/>", "a namespace is not allowed"),
        (host_with("<x:memory>1</x:memory>"), "unbound prefix"),
        (host_with("<memory x:y='1'/>"), "unbound prefix"),
        (host_with("\0"), "line 1, column 14: not well-formed"),
        (host_with("\x1b"), "line 1, column 14: not well-formed"),
        (host_with("&#0;"), "reference to invalid character number"),
        (b"<host id='a' id='b'/>", "duplicate attribute"),
        (b"<a>" * 100_000, "expected <hosts> or <host>, found <a>"),
        (host_with("<tag>" * 100_000), "column 1014: more than 200 levels of elements"),
        (host_with("<vm><host>" * 100_000), "more than 200 levels of elements"),
        (f"<hosts><{'x' * 9999}/></hosts>".encode(), f"found <{'x' * 99}…>"),
        (host_with("<\u202e/>"), "not well-formed"),
    ],
    ids=lambda text: text[:40],
)
def test_hostile_documents(data: bytes, said: str) -> None:
    """Whatever is no plain document is refused, with line and column."""
    assert said in refused(data)


@pytest.mark.parametrize("place", ["", "<link {}/>", "<memory {}/>"])
def test_a_hundred_thousand_attributes(place: str) -> None:
    """Attributes by the thousand, which cost libxml2 a square of time, are refused at once."""
    attributes = " ".join(f'a{number}=""' for number in range(100_000))
    data = host_with(place.format(attributes)) if place else f"<host id='a' {attributes}/>".encode()
    assert "more than 50 attributes" in refused(data)


@pytest.mark.parametrize(
    "data",
    [
        b" " * 8_000_000 + b"<host id='a'/>",
        b"<host id='a'>" + b" \n" * 4_000_000 + b"</host>",
        b"<host id='a'" + b" " * 8_000_000 + b"/>",
        b"<?xml version='1.0' " + b" \n" * 4_000_000 + b"encoding='iso-8859-1'?><host id='a'/>",
        b"<host id='a'><!--" + b"-x" * 4_000_000 + b"--></host>",
        b"<host id='a'>" + b"<!---->" * 500_000 + b"</host>",
        b"<host id='a'><name>" + b"<![CDATA[x]]>" * 300_000 + b"</name></host>",
    ],
    ids=["before", "inside", "in a tag", "declaration", "comment", "comments", "CDATA"],
)
def test_much_of_nothing(data: bytes) -> None:
    """Megabytes of white space and comments are passed over in a moment."""
    began = time.process_time()
    assert [host.id for host in read_hosts(Document(data))] == ["a"]
    assert time.process_time() - began < 10


@pytest.mark.parametrize("status", ["<status>up</status>", "<status><state>up</state></status>"])
def test_more_text_than_libxml2_takes(status: str) -> None:
    """What the readers after us refuse is refused in our words as well."""
    message = refused(host_with(f"{status}<name>{'x' * 10_000_001}</name>"))
    assert message.startswith("hosts, line 1, column 1")
    assert not re.search("XML_PARSE|, line .*, line ", message)


def test_nothing_of_a_document_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    """What libxml2 shows of a document that it refuses would be a line of the daemon's log."""
    refused(host_with("<name>\nERROR forged" + "x" * 10_000_001 + "</name>"))
    refused(host_with("<name/>\nERROR forged<" + "x" * 60_000 + "/>"))
    assert capfd.readouterr().err == ""
    os.write(2, b"it is there again")
    assert capfd.readouterr().err == "it is there again"


@pytest.mark.parametrize(
    "where", ["<!DOCTYPE host SYSTEM '{}'>", "<!DOCTYPE x [<!ENTITY % e SYSTEM '{}'> %e;]>"]
)
def test_nothing_is_fetched(where: str, tmp_path: Path) -> None:
    """Neither a file nor a connection is opened on a document's behalf."""
    pipe = tmp_path / "pipe"  # opening it would block until somebody writes
    os.mkfifo(pipe)
    assert "document type" in refused(where.format(pipe.as_uri()).encode() + host_with(""))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        assert "document type" in refused(where.format(url).encode() + host_with(""))
        with pytest.raises(BlockingIOError):
            server.accept()


TOO_LARGE = """
import resource, sys
from ovirt_scheduler.processes.worker import reader
from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import Role, Unread
data = b"<host id='a'><tags>" + {inside!r} * 500_000 + b"</tags></host>"
resource.setrlimit(resource.RLIMIT_DATA, (100 << 20, 100 << 20))
try:
    reader._read(Unread(Role.HOSTS, Document(data)))
except UnreadableDocument as mistake:
    sys.exit(f"refused: {{mistake}}")
"""


@pytest.mark.parametrize("inside", [b"<tag id='a'/>", b"<cpu id='a'/>"])
def test_memory_runs_out(inside: bytes) -> None:
    """Where memory has a limit, a document that needs more is refused."""
    done = script(TOO_LARGE.format(inside=inside))
    # libxml2 does not always say that it was memory.
    assert re.match(r"refused: hosts: .*\bmemory\b", done.stderr.splitlines()[-1])
