"""Hosts and VM documents as entities of the oVirt SDK (contract 5.2).

::

    bytes ──► UTF-8 ──► one pass of expat ──► version 3? ──► the SDK's reader ──► entities
              without    refuses what is       written as      sees only what
              declaration no plain document    version 4       expat let through

Runs in a request process alone. Whatever is wrong with a document is an
``UnreadableDocument`` that says where; no document makes us open a file or a connection,
and time and memory grow with its length and no faster.
"""

from __future__ import annotations

import codecs
import contextlib
import copy
import io
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NoReturn, Sequence, Set
from xml.parsers import expat

from lxml import etree
from ovirtsdk4 import readers, types, xml
from ovirtsdk4.reader import Reader

from ovirt_scheduler import version3
from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model import Document


@dataclass(frozen=True)
class _Kind:
    """What a document is to hold."""

    subject: str  # how a message begins
    one: str
    many: str


_read_enums = Reader.read_enums


def _read_known_enums(enum_type: Any, reader: Any) -> List[Any]:
    """Words of an enumeration, without those that it does not have: the SDK makes None of them."""
    return [each for each in _read_enums(enum_type, reader) if each is not None]


Reader.read_enums = staticmethod(_read_known_enums)

# To be copied: setting each of its attributes anew takes twice the time.
_NO_HOST = types.Host()

_HOSTS = _Kind("hosts", "host", "hosts")
_HOST = _Kind("host", "host", "hosts")
_VM = _Kind("VM", "vm", "vms")
_VMS = _Kind("VMs", "vm", "vms")


def read_hosts(document: Document) -> List[types.Host]:
    """Read ``<hosts>`` or a single ``<host>``, of version 3 or 4.

    Returns:
        n hosts in the order of the document, n >= 0, each with an id of its own.

    Raises:
        UnreadableDocument: says line and column, or which element.
    """
    hosts: List[types.Host] = list(_read(document, _HOSTS))
    return hosts


def read_host(document: Document) -> types.Host:
    """Read ``<host>``, or ``<hosts>`` with exactly one host in it, of version 3 or 4.

    Raises:
        UnreadableDocument: says line and column, or which element.
    """
    return _only(_read(document, _HOST), _HOST)


def read_vm(document: Document) -> types.Vm:
    """Read ``<vm>``, or ``<vms>`` with exactly one VM in it, of version 3 or 4.

    Raises:
        UnreadableDocument: says line and column, or which element.
    """
    return _only(_read(document, _VM), _VM)


def read_vms(document: Document) -> List[types.Vm]:
    """Read ``<vms>`` or a single ``<vm>``, of version 3 or 4.

    Returns:
        n VMs in the order of the document, n >= 0, each with an id of its own.

    Raises:
        UnreadableDocument: says line and column, or which element.
    """
    vms: List[types.Vm] = list(_read(document, _VMS))
    return vms


def hosts_of_ids(ids: Sequence[str]) -> List[types.Host]:
    """Hosts that hold nothing but their id, in the order of the ids."""
    hosts = []
    for host_id in ids:
        host = copy.copy(_NO_HOST)
        host.id = host_id
        hosts.append(host)
    return hosts


def vm_of_id(vm_id: str) -> types.Vm:
    """A VM that holds nothing but its id."""
    return types.Vm(id=vm_id)


# Nothing that an engine writes comes near these. Beyond them libxml2 gives up in its own
# words (depth), or its time grows with the square (100,000 attributes: 15 s).
_MOST_LEVELS = 200
_MOST_ATTRIBUTES = 50

# The encodings that a declaration may name; anything else would be ours to guess.
_ENCODINGS = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "ascii",
    "iso-8859-1": "iso-8859-1",
    "iso-8859-2": "iso-8859-2",
    "iso-8859-15": "iso-8859-15",
    "windows-1250": "cp1250",
    "windows-1252": "cp1252",
}
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
_DECLARATION = re.compile(
    rb"""\s*<\?xml\s+version\s*=\s*(["'])1\.\d+\1"""
    rb"""(?:\s+encoding\s*=\s*(["'])(?P<encoding>[A-Za-z][\w.-]*)\2)?"""
    rb"""(?:\s+standalone\s*=\s*(["'])(?:yes|no)\4)?\s*\?>"""
)
_HARMLESS_DECLARATION = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']utf-8[\"']", re.IGNORECASE)

# What a collection of version 3 may hold beside its members.
_BESIDE_MEMBERS = frozenset({"actions", "active", "link", "size", "total"})

_Refuse = Callable[[str], NoReturn]


def _read(document: Document, kind: _Kind) -> Sequence[Any]:
    """Read the entities of that kind.

    Raises:
        UnreadableDocument: always this, whatever goes wrong.
    """
    try:
        data = _utf8(document, kind)
        if _check(data, kind):
            data = version3.to_version4(data)
    except etree.XMLSyntaxError as mistake:
        line, column = mistake.position
        if not line:  # libxml2 has no words for this
            raise _too_large(kind) from None
        raise UnreadableDocument(
            f"{kind.subject}, line {line}, column {column}: {_short(mistake.msg)}"
        ) from None
    except (MemoryError, etree.XPathEvalError):
        raise _too_large(kind) from None
    try:
        entities = Reader.read(data)
    except MemoryError:
        raise _too_large(kind) from None
    except Exception as mistake:  # noqa: BLE001  (the SDK raises whatever comes up)
        raise UnreadableDocument(f"{_place(data, kind)}: {_reason(mistake)}") from None
    return entities if isinstance(entities, list) else [entities]


def _only(found: Sequence[Any], kind: _Kind) -> Any:
    if len(found) != 1:
        raise UnreadableDocument(
            f"{kind.subject}: expected one <{kind.one}> in <{kind.many}>, found {len(found)}"
        )
    return found[0]


def _too_large(kind: _Kind) -> UnreadableDocument:
    return UnreadableDocument(
        f"{kind.subject}: the document needs more memory than a request may have"
    )


def _utf8(document: Document, kind: _Kind) -> bytes:
    """The document in UTF-8, whatever its declaration says.

    From here on all readers agree on what the bytes are. A declaration of anything else
    becomes blanks, so that lines and columns hold.
    """
    data = document.data
    encoding = document.encoding or next(
        (encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), None
    )
    if encoding is None:
        declaration = _DECLARATION.match(data)
        declared = declaration["encoding"] if declaration else None
        name = declared.decode() if declared else "utf-8"
        encoding = _ENCODINGS.get(name.lower())
        if encoding is None:
            raise UnreadableDocument(
                f"{kind.subject}: the declared encoding {_short(name)} is not that of the bytes,"
                " or none that we know; send UTF-8"
            )
    if encoding.lower() != "utf-8":
        try:
            data = data.decode(encoding).encode()
        except (UnicodeError, LookupError) as mistake:
            raise UnreadableDocument(
                f"{kind.subject}: not in the encoding {encoding}: {_short(str(mistake))}"
            ) from None
    if data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8) :]
    declaration = _DECLARATION.match(data)
    if declaration and not _HARMLESS_DECLARATION.match(declaration[0]):
        *lines, last = declaration[0].split(b"\n")
        data = b"\n" * len(lines) + b" " * len(last) + data[declaration.end() :]
    return data


def _check(data: bytes, kind: _Kind) -> bool:
    """Refuse whatever is no plain document of that kind.

    Returns:
        Whether something in it may be of version 3.
    """
    parser = expat.ParserCreate("utf-8", " ")

    def refuse(what: str) -> NoReturn:
        place = f"line {parser.CurrentLineNumber}, column {parser.CurrentColumnNumber + 1}"
        raise UnreadableDocument(f"{kind.subject}, {place}: {what}")

    members = _Members(kind, refuse)
    parser.StartDoctypeDeclHandler = lambda *_: refuse("a document type is not allowed")
    parser.ProcessingInstructionHandler = lambda target, _: refuse(
        f"the processing instruction <?{_short(target)}?> is not allowed"
    )
    parser.StartNamespaceDeclHandler = lambda *_: refuse("a namespace is not allowed")
    parser.XmlDeclHandler = lambda _, encoding, __: (
        None
        if encoding is None or encoding.lower() == "utf-8"
        else refuse("the XML declaration cannot be understood")
    )
    try:
        maybe_version3 = _walk(parser, data, members, refuse)
    except expat.ExpatError as mistake:
        refuse(expat.ErrorString(mistake.code))
    return maybe_version3 or members.with_others


def _walk(parser: Any, data: bytes, members: _Members, refuse: _Refuse) -> bool:
    """Take the parser through the document.

    Returns:
        Whether an element is worth a look for version 3.
    """
    fields, elements = members.fields, version3.ELEMENTS
    look = False
    level = 0  # of the element that comes next: 0 for a host or VM, 1 for what it holds

    # Runs for each of 100,000 elements: a closure that hardly calls takes half the time.
    def start(name: str, attributes: Dict[str, str]) -> None:
        nonlocal level
        if level == 1:
            if name in fields and name != "link":
                refuse(f"a second <{_short(name)}> in {members.latest}")
            fields.add(name)
        elif level == 0:
            level = members.start(name, attributes)
        elif level > _MOST_LEVELS:
            refuse(f"more than {_MOST_LEVELS} levels of elements")
        level += 1
        if name in elements or (attributes and (name != "link" or len(attributes) > 2)):
            look_at(name, attributes)

    def look_at(name: str, attributes: Dict[str, str]) -> None:
        nonlocal look
        if len(attributes) > _MOST_ATTRIBUTES:
            refuse(f"<{_short(name)}> has more than {_MOST_ATTRIBUTES} attributes")
        look = look or version3.worth_a_look(name, attributes)

    def end(_: str) -> None:
        nonlocal level
        level -= 1

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.Parse(data, True)
    return look


class _Members:
    """The hosts or VMs of a document: the right ones, each with an id of its own."""

    def __init__(self, kind: _Kind, refuse: _Refuse):
        self.fields: Set[str] = set()  # names of what the latest entity holds
        self.latest = ""  # the entity, in words
        self.with_others = False  # the collection holds what version 4 keeps out of it
        self._kind = kind
        self._refuse = refuse
        self._in_collection = False
        self._ids: Set[str] = set()
        self._count = 0

    def start(self, name: str, attributes: Dict[str, str]) -> int:
        """Take in the document's first element, or a member of its collection.

        Returns:
            Its level: 0 for a host or VM, -1 for the collection.
        """
        kind = self._kind
        self.fields.clear()
        if name == kind.one:
            self._count += 1
            self.latest = f"{kind.one} number {self._count}"
            if kind is not _VM:  # one that is yet to be made has none
                self._check_id(attributes.get("id", ""))
        elif not self._in_collection and name == kind.many:
            self._in_collection = True
            return -1
        elif self._in_collection and name in _BESIDE_MEMBERS:
            self.with_others = True
        else:
            expected = f"<{kind.one}>" if self._in_collection else f"<{kind.many}> or <{kind.one}>"
            self._refuse(f"expected {expected}, found <{_short(name)}>")
        return 0

    def _check_id(self, identifier: str) -> None:
        if not identifier.strip():
            self._refuse(f"{self.latest} has no id")
        if identifier in self._ids:
            self._refuse(f"{self.latest} has the id {_short(identifier)} of another one")
        self._ids.add(identifier)


class _Watched:
    """The SDK's cursor, remembering where it is: to say which element stopped a reader."""

    def __init__(self, kind: _Kind):
        self._cursor: Any = None
        self._kind = kind
        self._path: List[str] = []
        self._at_start = False
        self._name = ""
        self._entity = ""
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def read_through(self, data: bytes) -> None:
        """Read the document as the SDK does; raises what stops it."""
        self._cursor = xml.XmlReader(io.BytesIO(data))
        reader = readers.HostReader if self._kind.one == "host" else readers.VmReader
        self.forward()
        (reader.read_many if self._name == self._kind.many else reader.read_one)(self)

    def forward(self) -> bool:
        self._at_start = bool(self._cursor.forward())
        self._name = self._cursor.node_name() if self._at_start else ""
        return self._at_start

    def read(self) -> Any:
        if not self._at_start:
            self._path.pop()
        else:
            if self._name == self._kind.one and self._path in ([], [self._kind.many]):
                self._count += 1
                identifier = _short(self._cursor.get_attribute("id") or "none")
                self._entity = f"{self._name} number {self._count} (id {identifier})"
            if not self._cursor.empty_element():
                self._path.append(self._name)
        return self._cursor.read()

    @property
    def place(self) -> str:
        """``hosts: host number 2 (id ...): <cpu><topology><cores>``"""
        names = [*self._path, self._name]
        inside = "".join(
            f"<{_short(name)}>"
            for name in names
            if name not in ("", self._kind.one, self._kind.many)
        )
        return ": ".join(part for part in (self._kind.subject, self._entity, inside) if part)


def _place(data: bytes, kind: _Kind) -> str:
    """Which element the SDK's reader stops at, found by reading once more."""
    watched = _Watched(kind)
    with contextlib.suppress(Exception):  # the one that is being told about
        watched.read_through(data)
    return watched.place


def _reason(mistake: Exception) -> str:
    """What the SDK's reader says, in our words."""
    refused = re.fullmatch(r"The text '(.*)' isn't a valid (\w+) value", str(mistake), re.DOTALL)
    if refused:
        kind = refused[2]
        article = "an" if kind[0] in "aeiou" else "a"
        return f"'{_short(refused[1])}' is not {article} {kind}"
    if isinstance(mistake, IndexError):  # a date without a character
        return "there is no value"
    if "move to next node" in str(mistake):
        # Well-formed it is, as expat found: so libxml2 met a limit, its own or of memory.
        return "the SDK's reader gave up here, at a limit of its own or of a request's memory"
    return f"cannot be read ({_short(str(mistake))})"


def _short(text: str) -> str:
    """A document's own text, fit for one line of a message."""
    text = text if len(text) <= 100 else text[:97] + "..."
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
