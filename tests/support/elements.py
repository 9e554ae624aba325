"""The elements that a made engine writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Union
from xml.sax.saxutils import escape, quoteattr

API = "/ovirt-engine/api"

Content = Union[str, int, List["Element"]]


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


def collection(name: str, elements: List[Element]) -> str:
    return str(Element(name, elements))


def at(kind: str, entity_id: str) -> Dict[str, str]:
    return {"href": f"{API}/{kind}/{entity_id}", "id": entity_id}


def link(kind: str, entity_id: str, name: str) -> Element:
    return Element("link", "", {"href": f"{API}/{kind}/{entity_id}/{name}", "rel": name})
