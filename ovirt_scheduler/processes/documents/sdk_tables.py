"""Reads from the SDK's readers which element of a document becomes which attribute of an entity.

A reader of the SDK compares the name of each element with one field's after the other; a table
takes a third of the time. The readers are generated, so their source has one form: the tables are
read from it, for the SDK that is installed, which need not be loaded for that. A reader of another
form has no table, and its documents are left to it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from ovirt_scheduler.processes.documents.field_tables import Convert, Field, Table, Tables, date

# The forms are those of the source without comments, empty lines and indents.
_CLASS = re.compile(r"^class (\w+)\(Reader\):\n", re.MULTILINE)
_READ_ONE = re.compile(
    r"""def read_one\(reader\):
if not reader\.forward\(\):
return None
obj = types\.(?P<entity>\w+)\(\)
obj\.href = reader\.get_attribute\('href'\)
(?P<id>value = reader\.get_attribute\('id'\)
if value is not None:
obj\.id = (?:value|(?P<int>Reader\.parse_integer)\(value\)|types\.(?P<enum>\w+)\(value\.lower\(\)\))
)?empty = reader\.empty_element\(\)
reader\.read\(\)
if empty:
return obj
(?:links = \[\]
while reader\.forward\(\):
tag = reader\.node_name\(\)
(?P<fields>(?:(?:el)?if tag == '\w+':
obj\.\w+ = \w+\.read_\w+\((?:types\.\w+, )?reader\)
)*)(?P<links>(?:el)?if tag == 'link':
links\.append\(\(reader\.get_attribute\('rel'\), reader\.get_attribute\('href'\)\)\)
reader\.next_element\(\)
)?else:
reader\.next_element\(\)
for link in links:
\w+\._process_link\(link, obj\)
|reader\.next_element\(\)
)reader\.read\(\)
return obj
@"""
)
_FIELD = re.compile(
    r"""if tag == '(\w+)':
obj\.(\w+) = (\w+)\.read_(\w+)\((?:types\.(\w+), )?reader\)"""
)
_LINK = re.compile(
    r"""if rel == "(\w+)":
if obj\.(\w+) is not None:
obj\.\2\.href = href
else:
obj\.\2 = List\(href\)
"""
)
_ENUMERATION = re.compile(r"^class (\w+)\(Enum\):\n((?:    \w+ = '.*'\n)+)", re.MULTILINE)

# The reader of each element that a document may consist of.
_READERS = {
    "host": "HostReader", "vm": "VmReader", "affinity_group": "AffinityGroupReader",
    "affinity_label": "AffinityLabelReader",
}  # fmt: skip

# The state (sdk_entities.py) of each member of an enumeration, by its text.
_EnumMembers = Mapping[str, tuple[str, str, str]]


def of_source(readers: str, types: str) -> Tables:
    """Make the tables of hosts, VMs, affinity groups and labels, and of all that can be in them.

    Args:
        readers, types: the source of these two modules of the SDK.
    """
    enumerations: dict[str, _EnumMembers] = {
        name: {text: ("enum", name, text) for text in re.findall("'(.*)'", members)}
        for name, members in _ENUMERATION.findall(types)
    }
    _, *parts = _CLASS.split(readers)
    sources = dict(zip(parts[::2], parts[1::2]))
    tables: dict[str, Table] = defaultdict(Table)
    for name in (names := [*_READERS.values()]):  # grows while it runs
        table = tables[name]
        with contextlib.suppress(LookupError, ValueError):  # the table stays empty
            _fill(table, sources[name], enumerations, tables)
        names += tables.keys() - set(names)
    return {element: tables[reader] for element, reader in _READERS.items()}


def _fill(
    table: Table, source: str, enumerations: Mapping[str, _EnumMembers], tables: Mapping[str, Table]
) -> None:
    """Fill the table of one of the SDK's readers.

    Raises:
        ValueError, LookupError: the reader has another form.
    """
    lines = filter(None, map(str.strip, source.splitlines()))
    plain = "\n".join(line for line in lines if line[0] != "#") + "\n"
    read_one, links = _READ_ONE.search(plain), _LINK.findall(plain)
    if read_one is None or len(links) != plain.count("if rel =="):
        raise ValueError("another form")
    identifier: Optional[Convert] = None
    if read_one["enum"]:
        identifier = enumerations[read_one["enum"]].__getitem__
    elif read_one["id"]:
        identifier = int if read_one["int"] else str
    table.fields = {
        name: _field(f"_{attribute}", tables[owner], kind, enumerations[enum] if enum else {})
        for name, attribute, owner, kind, enum in _FIELD.findall(read_one["fields"] or "")
    }
    if read_one["links"]:
        table.links = {rel: f"_{name}" for rel, name in links}
    table.entity, table.identifier = read_one["entity"], identifier


def _field(attribute: str, table: Table, kind: str, members: _EnumMembers) -> Field:
    if kind == "one":
        return Field(attribute, table=table)
    if kind == "many":
        return Field(attribute, member=Field("", table=table))
    if kind == "enum":
        return Field(attribute, True, members.get)
    if kind == "enums":
        # An unknown word raises, and so leaves the document to the SDK.
        return Field(attribute, member=Field("", True, members.__getitem__))
    if kind in _PLAIN:
        return Field(attribute, True, _PLAIN[kind])
    return Field(attribute, member=Field("", True, _PLAIN[kind[:-1]]))


# Any other spelling raises a KeyError or a ValueError, and so leaves the document to the SDK.
_TRUE, _FALSE = ("true", "True", "TRUE", "1"), ("false", "False", "FALSE", "0")
_BOOLEANS = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
_PLAIN: dict[str, Optional[Convert]] = {
    "string": None,
    "boolean": _BOOLEANS.__getitem__,
    "integer": int,
    "decimal": float,
    "date": date,
}


def _source(name: str) -> str:
    origin = getattr(importlib.util.find_spec("ovirtsdk4"), "origin", "")
    with contextlib.suppress(FileNotFoundError):  # an image may have compiled files alone
        return Path(origin).with_name(name).read_text("utf-8")
    return ""


TABLES = of_source(_source("readers.py"), _source("types.py"))
