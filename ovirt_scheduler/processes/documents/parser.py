"""Reads a document in one pass, and refuses anything but a plain document.

::

    bytes ──► UTF-8 ──► expat ──┬─► refused, with line and column
              without           ├─► states of the hosts or VMs (sdk_entities.py)
              declaration       └─► nothing, where the SDK's reader may see something else

What the SDK's readers make of an element is in tables (sdk_tables.py), which can be used without
the SDK. What these do not know for certain is left to the SDK: an element within a value, a value
that is wrong. Comments and processing instructions are passed over, by us and by the SDK.
"""

from __future__ import annotations

import codecs
import dataclasses
import re
from typing import Any, Callable, NoReturn, Optional
from xml.parsers import expat

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.requests import LONGEST_ID, Document
from ovirt_scheduler.model.values.text import shortened
from ovirt_scheduler.processes.documents.field_tables import WRONG_VALUE, Field, Table, Tables
from ovirt_scheduler.processes.documents.packing import EntityState


@dataclasses.dataclass(frozen=True)
class DocumentKind:
    """What a document must contain: one host, hosts, one VM or VMs."""

    subject: str  # how a message begins
    one: str
    many: str


HOSTS = DocumentKind("hosts", "host", "hosts")
HOST = DocumentKind("host", "host", "hosts")
VM = DocumentKind("VM", "vm", "vms")
VMS = DocumentKind("VMs", "vm", "vms")
AFFINITY_GROUPS = DocumentKind("affinity groups", "affinity_group", "affinity_groups")
AFFINITY_LABELS = DocumentKind("affinity labels", "affinity_label", "affinity_labels")

# No engine writes nearly as many. Beyond them libxml2 gives up with a message of its own (levels),
# or its time grows with the square (100,000 attributes: 15 s).
_MOST_LEVELS = 200
_MOST_ATTRIBUTES = 50

# The encodings that a declaration may name; anything else would be ours to guess.
_ENCODINGS = frozenset(
    {
        *("utf-8", "utf8", "us-ascii", "iso-8859-1", "iso-8859-2", "iso-8859-15"),
        *("windows-1250", "windows-1252"),
    }
)
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

# The elements that a collection of version 3 may have beside its members.
_BESIDE_MEMBERS = frozenset({"actions", "active", "link", "size", "total"})

# Signs of version 3, which ``version3`` looks into: attributes that version 4 does not have, and
# these elements where version 4 has none of the name. Another spelling of a word is no sign: a
# document of version 3 has other signs, too.
_ATTRIBUTES_OF_VERSION_4 = frozenset({"href", "id", "rel"})
_ELEMENTS_OF_VERSION_3 = frozenset(
    {
        *("state", "storage_manager", "selinux", "vmpool", "guest_info", "timezone", "disks"),
        "host",  # in a <placement_policy>
    }
)

_RefuseDocument = Callable[[str], NoReturn]


def utf8(document: Document, kind: DocumentKind) -> bytes:
    """Convert a document to UTF-8, whatever its declaration says.

    From here on all readers agree on what the bytes are. A declaration becomes blanks, so that
    lines and columns hold.
    """
    data = document.data
    encoding = document.encoding or next(
        (encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), None
    )
    if encoding is None:
        declaration = _DECLARATION.match(data)
        declared = declaration["encoding"] if declaration else None
        encoding = declared.decode() if declared else "utf-8"
        if encoding.lower() not in _ENCODINGS:
            raise UnreadableDocument(
                f"{kind.subject}: the declared encoding {short(encoding)} is not that of the bytes,"
                " or none that we know; send UTF-8"
            )
    if encoding.lower() != "utf-8":
        try:
            data = data.decode(encoding).encode()
        except (UnicodeError, LookupError) as mistake:
            raise UnreadableDocument(
                f"{kind.subject}: not in the encoding {encoding}: {short(str(mistake))}"
            ) from None
    if data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8) :]
    declaration = _DECLARATION.match(data)
    if declaration:
        *lines, last = declaration[0].split(b"\n")
        data = b"\n" * len(lines) + b" " * len(last) + data[declaration.end() :]
    return data


def parse(data: bytes, kind: DocumentKind, tables: Tables) -> Optional[list[EntityState]]:
    """Parse a document into states; refuse whatever is no plain document of that kind.

    Args:
        data: the result of ``utf8``.
        tables: those of a host and a VM.

    Returns:
        The states of its hosts or VMs, as the SDK would read them. None if that is not certain, or
        if something in it may be of version 3.

    Raises:
        UnreadableDocument: with line and column.
    """
    parser = expat.ParserCreate("utf-8", " ")

    def refuse(what: str) -> NoReturn:
        place = f"line {parser.CurrentLineNumber}, column {parser.CurrentColumnNumber + 1}"
        raise UnreadableDocument(f"{kind.subject}, {place}: {what}")

    walk = _Walk(parser, data, _Members(kind, tables[kind.one], refuse))
    handlers: dict[str, Callable[..., None]] = {
        "StartDoctypeDeclHandler": lambda *_: refuse("a document type is not allowed"),
        "StartNamespaceDeclHandler": lambda *_: refuse("a namespace is not allowed"),
        "XmlDeclHandler": lambda *_: refuse("the XML declaration cannot be understood"),
        "StartElementHandler": walk.start,
        "EndElementHandler": walk.end,
        "CharacterDataHandler": walk.texts.append,
    }
    for name, handler in handlers.items():
        setattr(parser, name, handler)
    parser.buffer_text = True
    try:
        parser.Parse(data, True)
    except expat.ExpatError as mistake:
        refuse(expat.ErrorString(mistake.code))
    finally:
        for name in handlers:  # else parser and handlers keep each other and the states alive
            setattr(parser, name, None)
    walk.members.check_number()
    return walk.states if walk.certain else None


_NO_FIELDS: dict[str, Field] = {}
_NO_LINKS: dict[str, str] = {}
_LINK = Field("", is_value=True)

_Lookup = Callable[..., Optional[Field]]


def _holds_nothing(*_: object) -> None:
    """The lookup of an entity that has no fields."""


class _Walk:
    """Makes the states of a document's hosts or VMs, element by element.

    ``start`` and ``end`` run for each of 100,000 elements, so they call little.

    Attributes:
        certain: whether the SDK would read the same.
        states: of the document's hosts or VMs.
    """

    __slots__ = (
        "_around", "_data", "_level", "_links", "_lookup", "_parser", "_state", "_value",
        "certain", "members", "states", "texts",
    )  # fmt: skip

    def __init__(self, parser: Any, data: bytes, members: _Members) -> None:
        self.members = members
        self.texts: list[str] = []  # of the plain value that is being read
        self._parser = parser
        self._data = data
        self.certain = not _has_long_runs(data)
        self.states: list[EntityState] = []
        # The entity or list that the next element belongs to; the fields of its elements; the
        # attributes for its links; its level: 0 for a host or VM, 1 for an element in that.
        self._state: Any = self.states
        self._lookup: _Lookup = _NO_FIELDS.get
        self._links = _NO_LINKS
        self._level = 0
        self._value: Optional[Field] = None  # the plain value that is being read
        self._around: list[Any] = []  # these five values for each element around this one

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Begin an element; expat calls this."""
        field = None
        if self._value is None:
            field = self._lookup(name, None)
            if field is None:
                if name == "link" and self._links and len(attributes) <= 2:
                    self._value = _LINK
                    attribute = self._links.get(attributes.get("rel", ""))
                    href = attributes.get("href")
                    if attribute and href:
                        self._state.setdefault(attribute, ["list", None])[1] = href
                    return
            elif not attributes:
                if field.is_value:
                    self._value = field
                    self.texts.clear()
                    return
                table = field.table
                level = self._level
                if table is not None and table.fields and 0 < level < _MOST_LEVELS:
                    state = self._state
                    self._around.append((state, self._lookup, self._links, level, None))
                    inside = {"": table.entity}
                    if field.attribute:
                        state[field.attribute] = inside
                    else:
                        state.append(inside)
                    self._state, self._lookup, self._links = inside, table.fields.get, table.links
                    self._level = level + 1
                    return
        self._enter(name, attributes, field)

    def end(self, _: str) -> None:
        """End an element; expat calls this."""
        field = self._value
        if field is None:
            # The SDK alone knows what it reads after such an entity that is not an empty tag.
            if self._lookup is _holds_nothing:
                self.certain = self.certain and self._is_empty_tag()
            self._state, self._lookup, self._links, self._level, self._value = self._around.pop()
            return
        self._value = None
        if field is _LINK:
            return
        texts = self.texts
        value: Any = "".join(texts) if texts or not self._is_empty_tag() else None
        if field.convert is not None and value is not None:
            try:
                value = field.convert(value)
            except WRONG_VALUE:
                self.certain = False
        if not field.attribute:
            self._state.append(value)
            self.certain = self.certain and value is not None
        elif value is not None:
            self._state[field.attribute] = value
        else:  # the latest element of a name counts, even an empty one
            self._state.pop(field.attribute, None)

    def _is_empty_tag(self) -> bool:
        """Whether the tag is ``<a/>``, which the SDK tells from ``<a></a>``; expat is behind it."""
        place = self._parser.CurrentByteIndex
        return self._data[place - 2 : place] == b"/>"

    def _enter(self, name: str, attributes: dict[str, str], field: Optional[Field]) -> None:
        """Begin an element of which ``start`` was not sure; check all that may be wrong with it."""
        members, value = self.members, self._value
        level = self._level if value is None else self._level + 1
        if level == 1:
            if field is None and name != "link":
                members.add_unknown(name)
        elif level == 0:
            level, field = members.start(name, attributes)
            # A collection of version 4 has members alone.
            self.certain = self.certain and (level < 0 or field is not None)
        elif level > _MOST_LEVELS:
            members.refuse(f"more than {_MOST_LEVELS} levels of elements")
        if len(attributes) > _MOST_ATTRIBUTES:
            members.refuse(f"<{short(name)}> has more than {_MOST_ATTRIBUTES} attributes")
        self.certain = (
            self.certain
            and _ATTRIBUTES_OF_VERSION_4.issuperset(attributes)
            and not (name == "cpu" and "id" in attributes)
            and (field is not None or name not in _ELEMENTS_OF_VERSION_3)
        )
        if value is None and field is not None and field.is_value:
            self._value = field
            self.texts.clear()
            return
        state = self._state
        self._around.append((state, self._lookup, self._links, self._level, value))
        # Not certain: an element in a plain value, a link with unknown attributes.
        self.certain = self.certain and value is None and not (name == "link" and self._links)
        self._lookup, self._links = _NO_FIELDS.get, _NO_LINKS
        self._level, self._value = level + 1, None
        if field is None:
            return
        if field.table is not None:
            self._state = self._entity(field.table, attributes)
        else:
            self._state = self._list(field, attributes)
        if field.attribute:
            state[field.attribute] = self._state
        else:
            state.append(self._state)

    def _entity(self, table: Table, attributes: dict[str, str]) -> EntityState:
        """Begin the state of an entity."""
        state: EntityState = {"": table.entity}
        if "href" in attributes:
            state["_href"] = attributes["href"]
        if table.identifier is not None and "id" in attributes:
            try:
                state["_id"] = table.identifier(attributes["id"])
            except WRONG_VALUE:
                self.certain = False
        self.certain = self.certain and bool(table.entity)
        self._links = table.links
        # In a host or VM each element comes once, but for links: ``pop`` finds a field once.
        self._lookup = table.fields.copy().pop if self._level == 1 else table.fields.get
        if not table.fields:
            self._lookup = _holds_nothing
        return state

    def _list(self, field: Field, attributes: dict[str, str]) -> list[Any]:
        """Begin the state of a list."""
        member = field.member
        self._lookup = lambda *_: member
        # A link to the same list may have come first; the SDK takes the links last.
        self.certain = self.certain and field.attribute not in self._state
        is_plain = member is not None and member.is_value
        return ["values"] if is_plain else ["list", attributes.get("href")]


# libxml2 refuses a text of 10,000,000 bytes and a name of 50,000.
_LONG_RUN = 20_000


def _has_long_runs(data: bytes) -> bool:
    """Whether it may have a text or name so long that libxml2 may refuse it."""
    return any(
        data.find(b"<", place, place + _LONG_RUN) < 0
        for place in range(0, len(data) - _LONG_RUN, _LONG_RUN)
    )


class _Members:
    """The hosts or VMs of a document: the right ones, each with an id of its own."""

    def __init__(self, kind: DocumentKind, table: Table, refuse: _RefuseDocument):
        self._kind = kind
        self._member = Field("", table=table)
        self._fields = table.fields
        self.refuse = refuse
        self._in_collection = False
        self._latest = ""  # the latest host or VM, for messages
        self._unknown: set[str] = set()  # its elements that no table has
        self._ids: set[str] = set()
        self._count = 0

    def start(self, name: str, attributes: dict[str, str]) -> tuple[int, Optional[Field]]:
        """Check the document's first element, or a member of its collection.

        Returns:
            Its level, 0 for a host or VM, -1 for the collection; and the field that reads it.
        """
        kind = self._kind
        self._unknown.clear()
        if name == kind.one:
            self._count += 1
            self._latest = f"{kind.one} number {self._count}"
            if kind is not VM:  # a VM that is yet to be made has none
                self._check_id(attributes.get("id", ""))
            return 0, self._member
        if not self._in_collection and name == kind.many:
            self._in_collection = True
            return -1, None
        if not self._in_collection or name not in _BESIDE_MEMBERS:
            expected = f"<{kind.one}>" if self._in_collection else f"<{kind.many}> or <{kind.one}>"
            self.refuse(f"expected {expected}, found <{short(name)}>")
        return 0, None

    def add_unknown(self, name: str) -> None:
        """Note an element of the latest host or VM without a field; refuse a second one.

        One whose field was used already is a second one, too.
        """
        if name in self._unknown or name in self._fields:
            self.refuse(f"a second <{short(name)}> in {self._latest}")
        self._unknown.add(name)

    def check_number(self) -> None:
        """Refuse a document of one host or VM that has none or several."""
        kind = self._kind
        if kind in (HOST, VM) and self._count != 1:
            raise UnreadableDocument(
                f"{kind.subject}: expected one <{kind.one}> in <{kind.many}>, found {self._count}"
            )

    def _check_id(self, identifier: str) -> None:
        if not identifier.strip():
            self.refuse(f"{self._latest} has no id")
        if len(identifier) > LONGEST_ID:
            self.refuse(f"{self._latest} has an id of more than {LONGEST_ID} characters")
        if identifier in self._ids:
            self.refuse(f"{self._latest} has the id {short(identifier)} of another one")
        self._ids.add(identifier)


def too_large(kind: DocumentKind) -> UnreadableDocument:
    """Make the error of a document that takes more memory than a request may have."""
    return UnreadableDocument(
        f"{kind.subject}: the document needs more memory than a request may have"
    )


def short(text: str) -> str:
    """Shorten a document's text to 100 printable characters, for a message."""
    return "".join(
        sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in shortened(text, 100)
    )
