"""Reads from the SDK's readers which element of a document becomes which attribute of an entity.

A reader of the SDK compares the name of each element with one field's after the other; a table
takes a third of the time. The readers are generated, so their source has one form: the tables are
read from it, for the SDK that is installed. A reader of another form has no table, and its
documents are left to it.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Optional

from ovirtsdk4 import readers, types

from ovirt_scheduler.processes.documents import parser
from ovirt_scheduler.processes.documents.parser import Convert, Field, Table, Tables

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
obj\.id = (?:value|Reader\.parse_(?P<kind>\w+)\(value\)|types\.(?P<enum>\w+)\(value\.lower\(\)\))
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
_LINK = r"""(?:el)?if rel == "(\w+)":
if obj\.(\w+) is not None:
obj\.\2\.href = href
else:
obj\.\2 = List\(href\)
"""
_PROCESS_LINK = re.compile(
    rf"""def _process_link\(link, obj\):
rel = link\[0\]
href = link\[1\]
if href and rel:
(?:{_LINK})+\Z"""
)


def make(source: Optional[str] = None) -> Tables:
    """Make the tables of hosts and VMs, and of all that can be in them.

    Args:
        source: of the SDK's readers; that of the SDK which is installed unless said.
    """
    if source is None:
        source = ""
        with contextlib.suppress(OSError, UnicodeError):  # it may be installed without its source
            source = Path(readers.__file__).read_text("utf-8")
    lines = filter(None, map(str.strip, source.splitlines()))
    _, *parts = _CLASS.split("\n".join(line for line in lines if line[0] != "#") + "\n")
    sources = dict(zip(parts[::2], parts[1::2]))
    found = {"host": Table(), "vm": Table()}
    # By the name of its reader in ``ovirtsdk4.readers``.
    made = {"HostReader": found["host"], "VmReader": found["vm"]}
    for name in (names := list(made)):  # grows while it runs
        try:
            _fill(made[name], sources.get(name, ""), made)
        except (AttributeError, LookupError, ValueError):
            made[name].fields = {}
        names += made.keys() - set(names)
    return found


def _fill(table: Table, source: str, made: dict[str, Table]) -> None:
    """Fill the table of one of the SDK's readers.

    Raises:
        ValueError: the reader is not of the form that is known.
        AttributeError, KeyError: it names what ``ovirtsdk4.types`` or this module does not have.
    """
    read_one, process_link = _READ_ONE.search(source), _PROCESS_LINK.search(source)
    if read_one is None or (read_one["links"] and process_link is None):
        raise ValueError("another form")
    table.entity = read_one["entity"]
    if read_one["enum"]:
        table.identifier = Field("_id", True, _members(read_one["enum"]).__getitem__)
    elif read_one["id"]:
        table.identifier = Field("_id", True, _PLAIN[read_one["kind"] or "string"])
    for name, attribute, owner, kind, enum in _FIELD.findall(read_one["fields"] or ""):
        table.fields[name] = _field(f"_{attribute}", owner, kind, enum, made)
    if process_link is not None:
        table.links = {rel: f"_{name}" for rel, name in re.findall(_LINK, process_link[0])}
    table.is_known = True


def _field(attribute: str, owner: str, kind: str, enum: str, made: dict[str, Table]) -> Field:
    if owner != "Reader":
        table = made.setdefault(owner, Table())  # it is filled later
        if kind == "one":
            return Field(attribute, table=table)
        if kind == "many":
            return Field(attribute, each=Field("", table=table))
    elif kind == "enum":
        return Field(attribute, True, _members(enum).get)
    elif kind == "enums":
        # A word that the enumeration does not have is no member of the list.
        return Field(attribute, each=Field("", True, _members(enum).__getitem__))
    elif kind in _PLAIN:
        return Field(attribute, True, _PLAIN[kind])
    elif kind[:-1] in _PLAIN:
        return Field(attribute, each=Field("", True, _PLAIN[kind[:-1]]))
    raise ValueError(f"read_{kind}")


def _members(name: str) -> dict[str, tuple[str, str, str]]:
    """The state (serialization.py) of each member of an enumeration, by its text."""
    return {member.value: ("enum", name, member.value) for member in getattr(types, name)}


# What is spelled otherwise is left to the SDK's reader; a KeyError or a ValueError says so.
_TRUE, _FALSE = ("true", "True", "TRUE", "1"), ("false", "False", "FALSE", "0")
_BOOLEANS = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
_PLAIN: dict[str, Optional[Convert]] = {
    "string": None,
    "boolean": _BOOLEANS.__getitem__,
    "integer": int,
    "decimal": float,
    "date": parser.date,
}
