"""Which element of a document becomes which attribute of an entity, as the SDK's readers say.

A reader of the SDK compares the name of each element with one field's after the other; a table
takes a third of the time. The table of a reader is made by watching it: its ``read_one`` runs
once for each word in it, on a cursor that shows an element of that name, and among readers that
write down that they were called. So the table is right for the SDK that is installed, and a
reader that does anything unexpected has none: its documents are left to it.
"""

from __future__ import annotations

import contextlib
from types import CodeType, FunctionType
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ovirtsdk4 import Struct, readers, types

from ovirt_scheduler.processes.documents import states

Convert = Callable[[str], Any]


class Field(NamedTuple):
    """What becomes of an element in an entity: a plain value, an entity, or a list of either."""

    attribute: str  # as an entity's ``__dict__`` has it: ``_cpu``; empty for what a list holds
    is_value: bool = False
    convert: Optional[Convert] = None  # of a plain value's text; None for the text as it is
    table: Optional[Table] = None  # of an entity
    each: Optional[Field] = None  # of each element of a list


class Unexpected(Exception):
    """A reader did what no table can say."""


class Table:
    """The fields of one class of entities, made when ``know`` is first called.

    Attributes:
        is_known: they are made.
        entity: the name of the class in ``ovirtsdk4.types``.
        has_id: whether the attribute ``id`` is read; ``href`` always is.
        fields: what becomes of an element, by its name.
        links: which attribute takes the ``href`` of a link, by its ``rel``.
    """

    def __init__(self, reader: Any):
        self.is_known = False
        self.entity = ""
        self.has_id = False
        self.fields: Dict[str, Field] = {}
        self.links: Dict[str, str] = {}
        self._reader = reader

    def know(self) -> None:
        """Make the table.

        Raises:
            Unexpected: the SDK's reader is not of the form that is known.
        """
        if not self.is_known:
            try:
                self.fields = self._watch()
            except Exception:  # noqa: BLE001  (another SDK's reader may do whatever it likes)
                raise Unexpected(f"the SDK's {self._reader.__name__} is read by no table") from None
            self.is_known = True

    def _watch(self) -> Dict[str, Field]:
        reader = _Watched(self._reader)
        first = _Run(reader, "no such element")
        if first.assigned or not first.passed_over or not first.entity:
            raise Unexpected
        self.entity = first.entity
        self.has_id = "id" in first.attributes
        fields = {}
        for name in reader.words:
            run = _Run(reader, name)
            if run.attributes != first.attributes or run.entity != first.entity:
                raise Unexpected
            if run.links:
                self.links = self._watch_links()
            elif not run.passed_over:
                ((attribute, called),) = run.assigned.items()
                fields[name] = _field(f"_{attribute}", called)
        return fields

    def _watch_links(self) -> Dict[str, str]:
        process = self._reader._process_link  # noqa: SLF001  (there is no other way to know)
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


_TABLES: Dict[str, Table] = {}


def table_of(reader: str) -> Table:
    """The table of a reader, by its name in ``ovirtsdk4.readers``: ``HostReader``."""
    if reader not in _TABLES:
        _TABLES[reader] = Table(getattr(readers, reader))
    return _TABLES[reader]


def know_all() -> None:
    """Make the tables of all that was asked for, and of all that can be in it: 0.1 s at most.

    For a process that others are forked from: else each of them makes its own.
    """
    known: Set[str] = set()
    while names := _TABLES.keys() - known:
        for name in names:
            with contextlib.suppress(Unexpected):
                _TABLES[name].know()
        known |= names


# -- values -------------------------------------------------------------------------------


def _members(kind: _Called) -> Dict[str, Tuple[str, str, str]]:
    """The state (states.py) of each member of an enumeration, by its text."""
    return {member.value: ("enum", kind.name, member.value) for member in getattr(types, kind.name)}


def _field(attribute: str, called: Any) -> Field:
    method, owner, arguments = called
    if owner == "Reader":
        if method in _PLAIN and arguments == (_CURSOR,):
            return Field(attribute, is_value=True, convert=_PLAIN[method])
        if method in _PLAIN_LISTS and arguments == (_CURSOR,):
            return Field(attribute, each=_field("", (_PLAIN_LISTS[method], owner, arguments)))
        if method == "read_enum" and arguments[1:] == (_CURSOR,):
            return Field(attribute, is_value=True, convert=_members(arguments[0]).get)
        if method == "read_enums" and arguments[1:] == (_CURSOR,):
            # A word that the enumeration does not have is no member of the list.
            known = _members(arguments[0]).__getitem__
            return Field(attribute, each=Field("", is_value=True, convert=known))
    elif arguments == (_CURSOR,):
        if method == "read_one":
            return Field(attribute, table=table_of(owner))
        if method == "read_many":
            return Field(attribute, each=Field("", table=table_of(owner)))
    raise Unexpected


# What is spelled otherwise is left to the SDK's reader; a KeyError or a ValueError says so.
_TRUE, _FALSE = ("true", "True", "TRUE", "1"), ("false", "False", "FALSE", "0")
_BOOLEANS = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}


def _date(text: str) -> Any:
    return states.date_state(readers.Reader.parse_date(text))


_PLAIN: Dict[str, Optional[Convert]] = {
    "read_string": None,
    "read_boolean": _BOOLEANS.__getitem__,
    "read_integer": int,
    "read_decimal": float,
    "read_date": _date,
}
_PLAIN_LISTS = {f"{name}s": name for name in _PLAIN}


# -- watching a reader --------------------------------------------------------------------

_HREF = "where a link leads"
_CURSOR = "the cursor"


def _words(code: CodeType) -> List[str]:
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
        self.asked: List[str] = []
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
        self.processed: List[Any] = []
        others: Dict[str, Any] = {name: _Called(name, None) for name in code.co_names}
        self.run = _copy(reader.read_one, {**others, "types": _Types(), reader.__name__: self})

    def _process_link(self, link: Any, entity: Any) -> None:
        self.processed.append((link, entity))


class _Run:
    """One run of a reader: what it made of an element of that name."""

    def __init__(self, reader: _Watched, name: str):
        cursor = _Cursor(name)
        reader.processed = []
        entity = reader.run(cursor)
        assigned: Dict[str, Any] = dict(entity.assigned)
        self.attributes = {
            key: assigned.pop(key) for key in ("href", "id") if assigned.get(key) == f"@{key}"
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


def _copy(function: FunctionType, names: Dict[str, Any]) -> FunctionType:
    """The function, with other globals."""
    return FunctionType(function.__code__, names)
