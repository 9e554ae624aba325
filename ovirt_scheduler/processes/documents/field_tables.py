"""How the elements of a document are read: tables that ``sdk_tables`` makes and ``parser`` uses."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

Convert = Callable[[str], Any]


class Field(NamedTuple):
    """How an element is read: as a plain value, an entity, or a list of either."""

    attribute: str  # as an entity's ``__dict__`` has it: ``_cpu``; empty for a member of a list
    is_value: bool = False
    convert: Optional[Convert] = None  # makes a plain value of its text; None: it is the text
    table: Optional[Table] = None  # of an entity's fields
    member: Optional[Field] = None  # how each element of a list is read


@dataclasses.dataclass(eq=False)
class Table:
    """The fields of one class of entities.

    Attributes:
        entity: the name of the class in ``ovirtsdk4.types``; empty where only the SDK knows what
            is read.
        identifier: converts the attribute ``id``; None: it is not read. ``href`` is always read.
        fields: how an element is read, by its name.
        links: ``rel`` of a link to the attribute that takes its ``href``.
    """

    entity: str = ""
    identifier: Optional[Convert] = None
    fields: dict[str, Field] = dataclasses.field(default_factory=dict)
    links: dict[str, str] = dataclasses.field(default_factory=dict)


Tables = Mapping[str, Table]  # by the name of the document's element: host, vm

# Raised by the conversion of a wrong value; the SDK then says what is wrong.
WRONG_VALUE = (LookupError, TypeError, ValueError, OverflowError)

_DATE = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(?:Z|([+-])(\d\d):(\d\d))?", re.ASCII
)


def date(text: str) -> tuple[Any, ...]:
    """Read a date as engines write it, into its state (sdk_entities.py).

    Raises:
        ValueError: it is written otherwise.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r:.40} is no date")
    seconds, fraction, sign, hours, minutes = match.groups()
    moment = datetime.datetime.fromisoformat(seconds)
    if fraction:
        moment = moment.replace(microsecond=int(fraction.ljust(6, "0")))
    if sign:
        offset = int(hours) * 60 + int(minutes)
        return ("date", moment.isoformat(), -offset if sign == "-" else offset, text[-6:])
    return ("date", moment.isoformat(), *((0, "UTC") if text.endswith("Z") else (None, None)))
