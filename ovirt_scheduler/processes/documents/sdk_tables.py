"""Reads from the SDK's readers which element of a document becomes which attribute of an entity.

A reader of the SDK compares the name of each element with one field's after the other; a table
takes a third of the time. The table of a reader is made by watching it: its ``read_one`` runs
once for each word in it, on a cursor that shows an element of that name, and among readers that
write down that they were called. So the table is right for the SDK that is installed, and a
reader that does anything unexpected has none: its documents are left to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, Optional

from ovirtsdk4 import Struct, readers, types

from ovirt_scheduler.processes.documents import tables
from ovirt_scheduler.processes.documents.tables import Convert, Field, Table, Tables


class Unexpected(Exception):
    """A reader of the SDK does something that a table cannot express."""


def make() -> Tables:
    """Make the tables of hosts and VMs, and of all that can be in them: 0.1 s at most."""
    found = {"host": Table(), "vm": Table()}
    # By the name of its reader in ``ovirtsdk4.readers``.
    made = {"HostReader": found["host"], "VmReader": found["vm"]}
    for name in (names := list(made)):  # grows while it runs
        try:
            _fill(made[name], getattr(readers, name), made)
        except Exception:  # noqa: BLE001  (another SDK's reader may do whatever it likes)
            made[name].fields = {}
        names += made.keys() - set(names)
    return found


def _fill(table: Table, reader: Any, made: dict[str, Table]) -> None:
    """Fill the table of one of the SDK's readers by watching what it reads.

    Raises:
        Unexpected: the SDK's reader is not of the form that is known. Or anything else.
    """
    watched = _Watched(reader)
    first = _Run(watched, "no such element")
    if first.assigned or not first.passed_over or not first.entity:
        raise Unexpected
    table.entity = first.entity
    if "id" in first.attributes:
        table.identifier = _identifier(first.attributes["id"])
    for name in watched.words:
        run = _Run(watched, name)
        if run.attributes != first.attributes or run.entity != first.entity:
            raise Unexpected
        if run.links:
            table.links = _links(reader)
        elif not run.passed_over:
            ((attribute, called),) = run.assigned.items()
            table.fields[name] = _field(f"_{attribute}", called, made)
    table.is_known = True


def _links(reader: Any) -> dict[str, str]:
    process = reader._process_link  # noqa: SLF001  (there is no other way to know)
    links = {}
    for rel in _words(process.__code__):
        entity = _Entity("")
        _copy(process, {"List": _Called("List", None)})((rel, _HREF), entity)
        if entity.assigned:
            ((attribute, called),) = entity.assigned.items()
            if called != ("List", None, (_HREF,)):
                raise Unexpected
            links[rel] = f"_{attribute}"
    return links


# -- values -------------------------------------------------------------------------------


def _members(name: str) -> dict[str, tuple[str, str, str]]:
    """The state (serialization.py) of each member of an enumeration, by its text."""
    return {member.value: ("enum", name, member.value) for member in getattr(types, name)}


def _identifier(called: Any) -> Field:
    """What becomes of the attribute ``id``: text, a number, or a member of an enumeration."""
    if called == "@id":
        return Field("_id", is_value=True)
    method, owner, _ = called
    if owner is None:
        return Field("_id", is_value=True, convert=_members(method).__getitem__)
    return Field("_id", is_value=True, convert=_PLAIN[method.replace("parse_", "read_")])


def _field(attribute: str, called: Any, made: dict[str, Table]) -> Field:
    method, owner, arguments = called
    if arguments[-1:] != (_CURSOR,):
        raise Unexpected
    if owner != "Reader":
        table = made.setdefault(owner, Table())  # it is filled later
        if method == "read_one":
            return Field(attribute, table=table)
        if method == "read_many":
            return Field(attribute, each=Field("", table=table))
    elif method in _PLAIN:
        return Field(attribute, is_value=True, convert=_PLAIN[method])
    elif method in _PLAIN_LISTS:
        each = Field("", is_value=True, convert=_PLAIN[_PLAIN_LISTS[method]])
        return Field(attribute, each=each)
    elif method == "read_enum":
        return Field(attribute, is_value=True, convert=_members(arguments[0].name).get)
    elif method == "read_enums":
        # A word that the enumeration does not have is no member of the list.
        known = _members(arguments[0].name).__getitem__
        return Field(attribute, each=Field("", is_value=True, convert=known))
    raise Unexpected


# What is spelled otherwise is left to the SDK's reader; a KeyError or a ValueError says so.
_TRUE, _FALSE = ("true", "True", "TRUE", "1"), ("false", "False", "FALSE", "0")
_BOOLEANS = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}


_PLAIN: dict[str, Optional[Convert]] = {
    "read_string": None,
    "read_boolean": _BOOLEANS.__getitem__,
    "read_integer": int,
    "read_decimal": float,
    "read_date": tables.date,
}
_PLAIN_LISTS = {f"{name}s": name for name in _PLAIN}


# -- watching a reader --------------------------------------------------------------------

_HREF = "where a link leads"
_CURSOR = "the cursor"


def _words(code: CodeType) -> list[str]:
    return [word for word in code.co_consts if isinstance(word, str) and word]


class _Called:
    """Stands for a class: whatever is called of it, or of one of its methods, is written down."""

    def __init__(self, name: str, owner: Optional[str]):
        self.name = name
        self._owner = owner

    def __getattr__(self, name: str) -> _Called:
        return _Called(name, self.name)

    def __call__(self, *arguments: Any) -> Any:
        shown = tuple(_CURSOR if isinstance(each, _Cursor) else each for each in arguments)
        return (self.name, self._owner, shown)


class _Entity:
    """Stands for an entity: what is set is written down, nothing is there."""

    def __init__(self, name: str):
        self.__dict__["name"] = name
        self.__dict__["assigned"] = {}

    def __getattr__(self, name: str) -> Any:
        return self.assigned.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.assigned[name] = value


class _Types:
    """Stands for ``ovirtsdk4.types``."""

    def __getattr__(self, name: str) -> Any:
        kind = getattr(types, name)
        return (lambda: _Entity(name)) if issubclass(kind, Struct) else _Called(name, None)


class _Cursor:
    """Shows the start of an entity with one element in it."""

    def __init__(self, name: str):
        self._name = name
        self._starts: Iterator[bool] = iter((True, True, False))
        self.asked: list[str] = []
        self.passed_over = 0

    def forward(self) -> bool:
        return next(self._starts)

    def node_name(self) -> str:
        return self._name

    def get_attribute(self, name: str) -> str:
        self.asked.append(name)
        return f"@{name}"

    def empty_element(self) -> bool:
        return False

    def read(self) -> None:
        pass

    def next_element(self) -> None:
        self.passed_over += 1


class _Watched(_Called):
    """A reader among others that write down that they were called.

    Attributes:
        words: what it may compare the name of an element with.
        processed: the links that it took, with their entities.
    """

    def __init__(self, reader: Any):
        super().__init__(reader.__name__, None)
        code = reader.read_one.__code__
        self.words = _words(code)
        self.processed: list[Any] = []
        others: dict[str, Any] = {name: _Called(name, None) for name in code.co_names}
        self.run = _copy(reader.read_one, {**others, "types": _Types(), reader.__name__: self})

    def _process_link(self, link: Any, entity: Any) -> None:
        self.processed.append((link, entity))


class _Run:
    """One run of a reader: what it made of an element of that name."""

    def __init__(self, reader: _Watched, name: str):
        cursor = _Cursor(name)
        reader.processed = []
        entity = reader.run(cursor)
        assigned: dict[str, Any] = dict(entity.assigned)
        self.attributes = {
            key: assigned.pop(key)
            for key in ("href", "id")
            if assigned.get(key) == f"@{key}" or _arguments(assigned.get(key)) == (f"@{key}",)
        }
        self.entity: str = entity.name
        self.assigned = assigned
        self.passed_over = cursor.passed_over == 1
        self.links = reader.processed == [(("@rel", "@href"), entity)]
        asked = [*self.attributes, *(("rel", "href") if self.links else ())]
        if cursor.asked != asked or len(assigned) + cursor.passed_over != 1:
            raise Unexpected
        if reader.processed and not self.links:
            raise Unexpected


def _arguments(called: Any) -> Any:
    return called[2] if isinstance(called, tuple) else None


def _copy(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    """The function, with other globals."""
    return FunctionType(function.__code__, names)
