"""Reads the documents of one request, in a process of its own that ends with it.

Documents come from outside, and what they did to the memory of this process is no other
request's. Each one's entities go into a sealed file in memory, from which the processes of
plugins take what they are asked about.
"""

from __future__ import annotations

import contextlib
import gc
import socket
from typing import Dict, Iterator, List, Sequence, Tuple

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.tasks import Ids, ReadTask, Role, Unread
from ovirt_scheduler.model.text import one_line
from ovirt_scheduler.processes.documents import entities, packed
from ovirt_scheduler.processes.documents.parser import HOST, HOSTS, VM, VMS
from ovirt_scheduler.processes.documents.states import State
from ovirt_scheduler.processes.kernel import limits, memory_files
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.messages import ReadDocument

# For the entities of a request: so much, or so many times the documents' size.
_READING_MEMORY = 1 << 30
_READING_FACTOR = 24

_LONGEST_NAME = 255  # characters of a host's or a VM's

_KINDS = {Role.HOSTS: HOSTS, Role.VMS: VMS, Role.VM: VM, Role.HOST: HOST}


def serve(task: ReadTask, nonce: int, daemon: socket.socket) -> None:
    """Read the documents of the task; the packs' descriptors go with the answer."""
    documents: List[ReadDocument] = []
    descriptors: List[int] = []
    seen: List[Dict[str, List[object]]] = []
    for unread in task.documents:
        try:
            with _bounded([unread]):
                found, note = _read(unread)
                descriptors.append(memory_files.sealed([packed.pack(unread.role.kind, found)]))
                ids = tuple(each.get("_id") for each in found)
                documents.append(ReadDocument(ids, _names(found), note=note))
                if task.tells_states:
                    seen.append(_seen(found))
        except UnreadableDocument as error:
            documents.append(ReadDocument(problem=str(error)))
    answer = messages.pack_read(documents, seen)
    frames.send(daemon, frames.pack(frames.ANSWER, nonce, answer), descriptors)


def _read(unread: Unread) -> Tuple[List[State], str]:
    """The states of a document's entities, and a note on what was left out."""
    found = entities.read_states(unread.document, _KINDS[unread.role])
    return (found, "") if unread.asked is None else _asked(found, unread.asked, unread.role)


def _asked(found: Sequence[State], asked: Ids, role: Role) -> Tuple[List[State], str]:
    """The entities that the engine was asked for, with their ids as they were asked."""
    wanted = {each.lower(): each for each in asked}  # the engine writes its ids in small letters
    kept: Dict[str, State] = {}
    strangers: List[str] = []
    for state in found:
        entity_id = wanted.get(state["_id"].lower())
        if entity_id is None:
            strangers.append(state["_id"])
            continue
        kept[entity_id] = {**state, "_id": entity_id}
        href, statistics = state.get("_href"), state.get("_statistics")
        if statistics is not None and statistics[1] is None and href is not None:
            # Where they are, if they are not in the document.
            kept[entity_id]["_statistics"] = ["list", f"{href}/statistics", *statistics[2:]]
    note = ""
    if strangers:
        what = "hosts" if role is Role.HOSTS else "VMs"
        shown = ", ".join(strangers[:3]) + (", ..." if len(strangers) > 3 else "")
        note = one_line(
            f"the engine told of {what} that it was not asked for "
            f"({len(strangers)} dropped: {shown:.200})"
        )
    return list(kept.values()), note


def _names(found: Sequence[State]) -> Tuple[str, ...]:
    return tuple(str(each.get("_name") or "")[:_LONGEST_NAME] for each in found)


def _seen(found: Sequence[State]) -> Dict[str, List[object]]:
    """What the daemon has to know of a cluster's hosts or VMs: name, status, a VM's host."""
    return {
        state["_id"]: [
            state.get("_name") or state["_id"],
            state["_status"][2] if "_status" in state else "",
            *([state.get("_host", {}).get("_id")] if state[""] == "Vm" else []),
        ]
        for state in found
    }


@contextlib.contextmanager
def _bounded(documents: Sequence[Unread]) -> Iterator[None]:
    """Bound the memory that reading these documents takes.

    Raises:
        UnreadableDocument: it takes more memory than it may have.
    """
    size = sum(len(unread.document.data) for unread in documents)
    gc.disable()  # nothing of what reading makes is garbage
    limits.limit_memory(max(_READING_MEMORY, _READING_FACTOR * size))
    try:
        yield
    except MemoryError:
        raise UnreadableDocument(
            f"reading the documents ({size} bytes) takes more memory than they may have"
        ) from None
    finally:
        limits.unlimit_memory()
        gc.enable()
