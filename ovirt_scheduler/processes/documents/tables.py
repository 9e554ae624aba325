"""Tables of which element of a document becomes which attribute of an entity of the SDK.

``sdk_tables`` makes them of the SDK's readers. They can be pickled, and used without the SDK.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, Optional

Convert = Callable[[str], Any]


class Field(NamedTuple):
    """How an element is read: as a plain value, an entity, or a list of either."""

    attribute: str  # as an entity's ``__dict__`` has it: ``_cpu``; empty for what a list holds
    is_value: bool = False
    convert: Optional[Convert] = None  # of a plain value's text; None for the text as it is
    table: Optional[Table] = None  # of an entity
    each: Optional[Field] = None  # of each element of a list


@dataclass(eq=False)
class Table:
    """The fields of one class of entities.

    Attributes:
        entity: the name of the class in ``ovirtsdk4.types``.
        is_known: the rest is right; else only the SDK knows what is read.
        identifier: what becomes of the attribute ``id``, where it is read; ``href`` always is.
        fields: what becomes of an element, by its name.
        links: which attribute takes the ``href`` of a link, by its ``rel``.
    """

    entity: str = ""
    is_known: bool = False
    identifier: Optional[Field] = None
    fields: dict[str, Field] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


Tables = Mapping[str, Table]  # by the name of the document's element: host, vm

# What a conversion of a value raises where the SDK has to say what is wrong with it.
WRONG_VALUE = (LookupError, TypeError, ValueError, OverflowError)

_DATE = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(?:Z|([+-])(\d\d):(\d\d))?", re.ASCII
)


def date(text: str) -> tuple[Any, ...]:
    """Read a date as engines write it, into its state (serialization.py).

    Raises:
        ValueError: it is written otherwise.
    """
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.40} is no date")
    seconds, fraction, sign, hours, minutes = found.groups()
    made = datetime.datetime.fromisoformat(seconds)
    if fraction:
        made = made.replace(microsecond=int(fraction.ljust(6, "0")))
    if sign:
        offset = int(hours) * 60 + int(minutes)
        return ("date", made.isoformat(), -offset if sign == "-" else offset, text[-6:])
    return ("date", made.isoformat(), *((0, "UTC") if text.endswith("Z") else (None, None)))
