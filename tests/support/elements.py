"""The elements that a fake engine writes."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union
from xml.sax.saxutils import escape, quoteattr

API = "/ovirt-engine/api"

_NAMES = uuid.UUID("6f1d7b0e-3c55-4b52-9c5e-1d3a1f6b9e10")

Content = Union[str, int, list["Element"]]


@dataclass
class Element:
    name: str
    content: Content = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        attributes = "".join(f" {name}={quoteattr(v)}" for name, v in self.attributes.items())
        inside = self.content
        text = "".join(map(str, inside)) if isinstance(inside, list) else escape(str(inside))
        return f"<{self.name}{attributes}>{text}</{self.name}>"


def collection(name: str, elements: list[Element]) -> str:
    return str(Element(name, elements))


def at(kind: str, entity_id: str) -> dict[str, str]:
    return {"href": f"{API}/{kind}/{entity_id}", "id": entity_id}


def link(kind: str, entity_id: str, name: str) -> Element:
    return Element("link", "", {"href": f"{API}/{kind}/{entity_id}/{name}", "rel": name})


@functools.cache
def id_of(name: str) -> str:
    """The id that a host or a VM of that name has."""
    return str(uuid.uuid5(_NAMES, name))


def statistic(name: str, value: int) -> Element:
    content = {"name": name, "kind": "gauge", "type": "integer", "unit": "bytes"}
    return Element(
        "statistic",
        [
            *(Element(part, text) for part, text in content.items()),
            Element("values", [Element("value", [Element("datum", value)])]),
        ],
        {"id": id_of(name)},
    )
