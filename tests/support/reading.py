"""Entities of documents, read as a reader reads them and made as a plugin's process makes them."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.documents import packing, sdk_entities
from ovirt_scheduler.processes.documents.entity_states import read_states
from ovirt_scheduler.processes.documents.packing import EntityState
from ovirt_scheduler.processes.documents.parser import HOST, HOSTS, VM, VMS


def entity_of(state: EntityState) -> Any:
    """The host or VM of a state, with all its attributes made."""
    kind, identifier = state[""], state.get("_id")
    (entity,) = sdk_entities.unpack(kind, [packing.pack(kind, [state])], [identifier])
    sdk_entities.complete(entity)
    return entity


def read_hosts(document: Document) -> list[Any]:
    return [entity_of(state) for state in read_states(document, HOSTS)[0]]


def read_vms(document: Document) -> list[Any]:
    return [entity_of(state) for state in read_states(document, VMS)[0]]


def read_host(document: Document) -> Any:
    return entity_of(read_states(document, HOST)[0][0])


def read_vm(document: Document) -> Any:
    return entity_of(read_states(document, VM)[0][0])


def pack_hosts(document: Document) -> bytes:
    return packing.pack("Host", read_states(document, HOSTS)[0])


def pack_vms(document: Document) -> bytes:
    return packing.pack("Vm", read_states(document, VMS)[0])


def pack_host(document: Document) -> bytes:
    return packing.pack("Host", read_states(document, HOST)[0])


def pack_vm(document: Document) -> bytes:
    return packing.pack("Vm", read_states(document, VM)[0])


def refused(data: bytes, read: Callable[[Document], Any] = read_hosts, encoding: Any = None) -> str:
    """What is said of a document that cannot be read."""
    with pytest.raises(UnreadableDocument) as caught:
        read(Document(data, encoding))
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 300
    return message


def host_with(inside: str) -> bytes:
    return f'<host id="a">{inside}</host>'.encode()
