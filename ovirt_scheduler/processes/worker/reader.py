"""A reader: a process that reads the documents of one request after another.

::

    ReaderSetup ─► READY
    ReadTask ─► expat, without the SDK ─► sealed files ─► ANSWER ─► READY
                  └─ refused, read by the SDK, large, the last of many: DIFFERS, and the end

The entities of each document go into a sealed file in memory, from which the processes of plugins
take those that they need. Nothing of a document is kept.
A task may name a function of ``documents`` that says what the daemon has to know of the entities. A
document that was refused or that took
the SDK with its libxml2 is a reader's last, so that what it may have done to the memory of this
process is no other request's. A large one is its last, too: its memory goes back at once. And none
reads more than a thousand requests.

Other processes cut documents for the history, when their requests have been answered.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import pickle
import pkgutil
import socket
from collections.abc import Sequence
from typing import Any, Optional
from xml.parsers import expat

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import Ids, ReadTask, Role, SplitTask, Unread
from ovirt_scheduler.model.values.text import one_line
from ovirt_scheduler.processes import documents
from ovirt_scheduler.processes.documents import entity_states, packing, parser
from ovirt_scheduler.processes.documents.packing import EntityState
from ovirt_scheduler.processes.documents.parser import (
    AFFINITY_GROUPS,
    AFFINITY_LABELS,
    HOST,
    HOSTS,
    VM,
    VMS,
)
from ovirt_scheduler.processes.kernel import limits, memory_files, titles
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.ending import Ending, Reason
from ovirt_scheduler.processes.protocol.messages import ReadDocument

# For the entities of a request: so much, or so many times the documents' size.
_READING_MEMORY = 1 << 30
_READING_FACTOR = 24
_LAST = Ending(Reason.SERVED, "documents that are large or unusual, or many")
_LARGE = 1 << 20  # bytes of a task's documents
_MOST_TASKS = 1000  # of one reader
_LESS_URGENT = 10  # niceness, of what no call waits for
_WARM = 30  # runs; the interpreter looks at its code after a few

_LONGEST_NAME = 255  # characters of a host's or a VM's

_KINDS = {
    Role.HOSTS: HOSTS, Role.VMS: VMS, Role.VM: VM, Role.HOST: HOST,
    Role.AFFINITY_GROUPS: AFFINITY_GROUPS, Role.AFFINITY_LABELS: AFFINITY_LABELS,
}  # fmt: skip

_CPU = "<cpu><topology><cores>1</cores></topology></cpu>"
_HOST = f"<hosts><host id='a'><name>a</name><memory>1</memory>{_CPU}<tags/></host></hosts>"
_SAMPLE = pickle.dumps(ReadTask((Unread(Role.HOSTS, Document(_HOST.encode())),)))


def warm_up() -> None:
    """Load what tasks may name, and read a host so often that the interpreter specialises its code.

    For the process that readers are forked from, so that it is not done in each reader.
    """
    for module in pkgutil.iter_modules(documents.__path__, f"{documents.__name__}."):
        importlib.import_module(module.name)
    for _ in range(_WARM):
        _prepare()


def _prepare() -> None:
    """Read a document while nobody waits.

    For a reader: the memory that it shares with its zygote is copied, page by page, when it is
    first used. If that happens before the first task comes, no request waits for it.
    """
    with contextlib.suppress(OSError, MemoryError):  # a task that meets the same tells
        _, descriptors, _ = _read_all(pickle.loads(_SAMPLE))  # noqa: S301  our own
        for descriptor in descriptors:
            os.close(descriptor)


@functools.cache
def _named(function: str) -> Any:
    """A function of ``documents``, as a task names it."""
    return pkgutil.resolve_name(f"{documents.__name__}.{function}")


def serve(daemon: socket.socket, nonce: int, most_tasks: int = _MOST_TASKS) -> None:
    """Read documents until there are no more tasks, or one was this reader's last."""
    titles.set_title("reader")
    gc.disable()  # nothing of what reading makes is garbage before it is answered
    _prepare()
    frames.send(daemon, frames.pack(frames.READY, nonce))
    for tasks_left in reversed(range(most_tasks)):
        task, nonce, _ = frames.receive_task(daemon)
        if not isinstance(task, ReadTask):
            raise TypeError(f"a task of type {type(task).__name__}")
        answer, descriptors, is_last = _read_all(task)
        frames.send(daemon, frames.pack(frames.ANSWER, nonce, answer), descriptors)
        if is_last or not tasks_left:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        del task, answer
        gc.collect()
        frames.send(daemon, frames.pack(frames.READY, nonce))
    frames.send(daemon, frames.pack(frames.DIFFERS, nonce, _LAST.pack()))
    os._exit(os.EX_OK)  # whatever is freed would be copied first: it shares its memory


def split(task: SplitTask, nonce: int, daemon: socket.socket) -> None:
    """Cut the documents, in a process that ends with this."""
    titles.set_title("reader for the history")
    answer, descriptors = _split(task)
    frames.send(daemon, frames.pack(frames.ANSWER, nonce, answer), descriptors)


def _split(task: SplitTask) -> tuple[bytes, list[int]]:
    """Cut the documents: the answer, and one file with all their pieces, one after another."""
    os.nice(_LESS_URGENT)
    limits.limit_memory(_READING_MEMORY)
    cut = _named(task.cut)
    lengths: list[Optional[list[int]]] = []
    pieces: list[bytes] = []
    for document in task.documents:
        try:
            elements = cut(document)
        except (UnreadableDocument, expat.ExpatError, MemoryError):
            lengths.append(None)
            continue
        lengths.append([len(piece) for piece in elements])
        pieces += elements
    return messages.pack_split(lengths), [memory_files.sealed(pieces)]


def _read_all(task: ReadTask) -> tuple[bytes, list[int], bool]:
    """Read the documents.

    Returns:
        The answer; a file for each that could be read; whether this task is the reader's last.
    """
    is_last = sum(len(unread.document.data) for unread in task.documents) > _LARGE
    read: list[ReadDocument] = []
    descriptors: list[int] = []
    reports: list[dict[str, list[object]]] = []
    for unread in task.documents:
        try:
            states, took_sdk, note, pack = _read(unread)
            is_last = is_last or took_sdk
            reports.append(_named(unread.report)(states) if unread.report else {})
        except UnreadableDocument as error:
            read.append(ReadDocument(problem=str(error)))
            reports.append({})
            is_last = True
            continue
        descriptors.append(memory_files.sealed([pack]))
        ids = tuple(each.get("_id") for each in states)
        names = tuple(str(each.get("_name") or "")[:_LONGEST_NAME] for each in states)
        read.append(ReadDocument(ids, names, note=note))
    return messages.pack_read(read, reports), descriptors, is_last


def _read(unread: Unread) -> tuple[list[EntityState], bool, str, bytes]:
    """The states in a document, whether it took the SDK, the note on it, and the states packed.

    Raises:
        UnreadableDocument: it takes more memory than it may have, too.
    """
    kind = _KINDS[unread.role]
    limits.limit_memory(max(_READING_MEMORY, _READING_FACTOR * len(unread.document.data)))
    try:
        (states, took_sdk), note = entity_states.read_states(unread.document, kind), ""
        if unread.ids is not None:
            states, note = _with_ids(states, unread.ids, unread.role)
        return states, took_sdk, note, packing.pack(unread.role.kind, states)
    except MemoryError:
        pass  # what was read is freed behind this
    finally:
        limits.lift_soft()
    raise parser.too_large(kind)


def _with_ids(
    states: Sequence[EntityState], requested: Ids, role: Role
) -> tuple[list[EntityState], str]:
    """The entities that the engine was asked for, with their ids as they were asked."""
    there = {state["_id"] for state in states}
    spellings: dict[str, list[str]] = {}
    for key in requested:  # the engine writes its ids in small letters
        spellings.setdefault(key if key in there else key.lower(), []).append(key)
    by_id: dict[str, EntityState] = {}
    strangers: list[str] = []
    for state in states:
        ids = spellings.get(state["_id"]) or spellings.get(state["_id"].lower()) or []
        if not ids:
            strangers.append(state["_id"])
        href, statistics = state.get("_href"), state.get("_statistics")
        if statistics is not None and statistics[1] is None and href is not None:
            # Where they are, if they are not in the document.
            statistics = ["list", f"{href}/statistics", *statistics[2:]]
        more = {} if statistics is None else {"_statistics": statistics}
        by_id.update((key, {**state, **more, "_id": key}) for key in ids)
    note = ""
    if strangers:
        shown = ", ".join(strangers[:3]) + (", ..." if len(strangers) > 3 else "")
        note = one_line(
            f"the engine told of {_KINDS[role].subject} that it was not asked for "
            f"({len(strangers)} dropped: {shown:.200})"
        )
    return list(by_id.values()), note
