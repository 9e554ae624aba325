"""Reads documents of hosts and VMs as the oVirt SDK does (contract 5.2).

::

    bytes ──► UTF-8 ──► one pass of expat ──► version 3? ──► the SDK's reader ──► entities
              without    refuses what is       written as      sees only what
              declaration no plain document    version 4       expat let through

Runs in readers alone; in the zygote it reads one document of our own, before readers are forked.
Any mistake in a document is an ``UnreadableDocument`` that says where. No document makes us open a
file or a connection, and time and memory are proportional to its length.
"""

from __future__ import annotations

import contextlib
import os
import re
import traceback
from collections.abc import Iterator
from typing import Any

from lxml import etree
from ovirtsdk4.reader import Reader

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.documents import version3
from ovirt_scheduler.processes.documents.packing import EntityState
from ovirt_scheduler.processes.documents.parser import DocumentKind, parse, short, too_large, utf8
from ovirt_scheduler.processes.documents.sdk_entities import state_of
from ovirt_scheduler.processes.documents.sdk_tables import TABLES

_read_enums = Reader.read_enums


def _read_known_enums(enum_type: Any, reader: Any) -> list[Any]:
    """The members of an enumeration in a list, without the SDK's None for each unknown word."""
    return [each for each in _read_enums(enum_type, reader) if each is not None]


Reader.read_enums = staticmethod(_read_known_enums)


def read_states(document: Document, kind: DocumentKind) -> tuple[list[EntityState], bool]:
    """Read a document into the states (sdk_entities.py) of its hosts or VMs.

    Returns:
        The states, and whether reading them took libxml2 or the SDK.

    Raises:
        UnreadableDocument: something is wrong with the document.
        MemoryError: it takes more memory than there is.
    """
    try:
        data = utf8(document, kind)
        states = parse(data, kind, TABLES)
        if states is not None:
            return states, False
        return _states_by_the_sdk(version3.to_version4(data), kind), True
    except etree.XMLSyntaxError as mistake:
        line, column = mistake.position
        if not line:  # out of memory, for which libxml2 has no message
            raise too_large(kind) from None
        # Cut off: an option of libxml2, and the line once more.
        what = re.split(", try XML_|, line ", mistake.msg)[0]
        raise UnreadableDocument(
            f"{kind.subject}, line {line}, column {column}: {short(what)}"
        ) from None
    except etree.XPathEvalError:
        raise too_large(kind) from None


def _states_by_the_sdk(data: bytes, kind: DocumentKind) -> list[EntityState]:
    with _silent_libxml2():
        try:
            entities = Reader.read(data)
        except MemoryError:
            raise
        except Exception as mistake:  # noqa: BLE001  (the SDK raises whatever comes up)
            raise UnreadableDocument(f"{_place(mistake, kind)}: {_reason(mistake)}") from None
    return [state_of(entity) for entity in (entities if isinstance(entities, list) else [entities])]


@contextlib.contextmanager
def _silent_libxml2() -> Iterator[None]:
    """Keep libxml2 from writing to standard error, which is the daemon's.

    It would show a line of the document, which could forge a line of the log.
    """
    nothing, standard_error = os.open(os.devnull, os.O_WRONLY), os.dup(2)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(nothing)


def _place(mistake: Exception, kind: DocumentKind) -> str:
    """Which element stopped the SDK's readers, as the variables of their functions tell.

    Such as ``hosts: host number 2 (id a): <statistics>[3]<values>[1]<datum>``.
    """
    number, entity, inside = 1, "", ""
    for frame, _ in traceback.walk_tb(mistake.__traceback__):
        local = frame.f_locals
        if "objs" in local:  # read so far of a list
            number = len(local["objs"]) + 1
            inside += f"[{number}]" if entity else ""
        elif "obj" in local:
            entity = entity or f"{kind.one} number {number} (id {short(local['obj'].id or 'none')})"
            inside += f"<{short(local['tag'])}>" if "tag" in local else ""
    return ": ".join(part for part in (kind.subject, entity, inside) if part)


def _reason(mistake: Exception) -> str:
    """What the SDK's reader says, in our words."""
    refused = re.fullmatch(r"The text '(.*)' isn't a valid (\w+) value", str(mistake), re.DOTALL)
    if refused:
        kind = refused[2]
        article = "an" if kind[0] in "aeiou" else "a"
        return f"'{short(refused[1])}' is not {article} {kind}"
    if isinstance(mistake, IndexError):  # a date without a character
        return "there is no value"
    if "move to next node" in str(mistake):
        # expat has read it, so it is well-formed: libxml2 met a limit of its own or of memory.
        return "the SDK's reader gave up here, at a limit of its own or of a request's memory"
    return f"cannot be read ({short(str(mistake))})"
