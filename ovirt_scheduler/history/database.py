"""The database of the history, open for the thread that writes it."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

from ovirt_scheduler.history import input_recording, schema
from ovirt_scheduler.history.input_recording import (
    DaemonEvent,
    Inputs,
    PackedDecision,
    Pieces,
    Split,
)
from ovirt_scheduler.history.schema import IdAndName, Row
from ovirt_scheduler.model.requests import Document

_BUSY = 5.0  # seconds to wait for another program that writes
_AGEING = ("decisions", "events")  # tables whose oldest rows are deleted
_OLDEST = 0.05  # share of a table that is deleted at once, at least, if the file is too large
_ALIKE = 6  # bytes that tell the kind of an element: <host, <vm
_MOST_NUMBERS = 50_000  # rows whose numbers are remembered
_MOST_SETS = 50  # likewise; one may have the numbers of 10,000 hosts
_PAGES = 1000  # of the write-ahead log, beyond which they are moved into the file


class Database:
    """The open file, for the one thread that writes.

    Args:
        path: of the file, which is made where it is missing.
        split: cuts documents into pieces, in a process that opens them.

    Raises:
        OSError: it cannot be made.
        sqlite3.OperationalError: it cannot be opened now.
        schema.OtherVersion: another version of the daemon wrote it.
        sqlite3.DatabaseError: it is damaged.
    """

    def __init__(self, path: Path, split: Split = input_recording.leave_out) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        self._db = sqlite3.connect(
            str(path), timeout=_BUSY, isolation_level=None, check_same_thread=False
        )
        self._path, self._file, self._log = path, path.stat(), Path(f"{path}-wal")
        self._least = 0  # bytes of the file, since this thread wrote last
        self._split = split
        self._numbers: dict[object, int] = {}  # numbers of names, elements and documents
        # Numbers of the latest, by what is in them and JSON.
        self._sets: dict[tuple[str, str], int] = {}
        self._bases: dict[bytes, tuple[int, bytes]] = {}  # by how elements begin
        try:
            self._prepare()
        except sqlite3.Error:
            self._db.close()
            raise

    def _prepare(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version not in (0, schema.VERSION):
            raise schema.OtherVersion(version)
        if version == 0:
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_PAGES}")
        self._db.execute(f"PRAGMA journal_size_limit = {_PAGES * 4096}")
        if version == 0:
            self._db.executescript(
                f"BEGIN; {schema.TABLES} PRAGMA user_version = {schema.VERSION}; COMMIT;"
            )

    def is_gone(self) -> bool:
        """Whether the file was deleted, or another one stands in its place.

        SQLite does not notice it, and would go on with a file that has no name any more.
        """
        try:
            return not os.path.samestat(self._path.stat(), self._file)
        except FileNotFoundError:
            return True

    def check_size(self) -> None:
        """Check that nobody has cut the file.

        SQLite does not notice it as long as it has the pages in memory, and fills the gap with
        zeros.

        Raises:
            sqlite3.DatabaseError: somebody has.
        """
        size = self._file_size()
        if size < self._least and size < self._pragma("page_count") * self._pragma("page_size"):
            raise sqlite3.DatabaseError(f"it was cut from {self._least} bytes to {size}")
        self._least = size  # it may have been vacuumed

    def close(self) -> None:
        """Close the database; nothing is read or written after this."""
        self._db.close()

    def shrink(self) -> None:
        """Free the pages of the file that are kept in memory, some 2 MB, and the known names.

        Raises:
            sqlite3.Error: the database is of no use now.
        """
        self._numbers.clear()
        self._sets.clear()
        self._db.execute("PRAGMA shrink_memory").fetchall()

    def write(
        self,
        decisions: Sequence[PackedDecision],
        events: Sequence[tuple[float, DaemonEvent]] = (),
        completed: Sequence[Row] = (),
    ) -> None:
        """Write all of these or none; after an error it is to be closed.

        Args:
            events: each with its time, in seconds since 1970.
            completed: decisions that are there already, or among these, with more of their units.
        """
        recorded = [inputs for _, inputs in decisions if inputs is not None]
        documents = (each.document for inputs in recorded for each in inputs.documents)
        keys = {document: _key(document) for document in dict.fromkeys(documents)}
        unknown = {key: document for document, key in keys.items() if key not in self._numbers}
        pieces = input_recording.cut(unknown, self._split)
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for at, event in events:
                self._write_event(at, event)
            for row, inputs in decisions:
                number = self._write_decision(row)
                if inputs is not None:
                    self._write_inputs(number, inputs, keys, pieces)
            for row in completed:
                self._write_again(row)
        if len(self._numbers) > _MOST_NUMBERS:
            self._forget()
        self._least = self._file_size()

    def _forget(self) -> None:
        self._numbers.clear()
        self._sets.clear()
        self._bases.clear()

    def _write_decision(self, row: Row) -> int:
        number = self._insert("decisions", **self._columns(row))
        self._db.executemany(
            "INSERT OR IGNORE INTO vm_decisions VALUES (?, ?)",
            [(self._name(vm), number) for vm in row["vms"]],
        )
        return number

    def _write_again(self, row: Row) -> None:
        """Write a decision in place of its former row; nothing, if that is deleted by now."""
        columns = self._columns(row)
        assignments = ", ".join(f"{column} = ?" for column in columns)
        update = f"UPDATE decisions SET {assignments} WHERE id = ?"  # noqa: S608  names of our own
        self._db.execute(update, (*columns.values(), row["id"]))

    def _columns(self, row: Row) -> Row:
        """The columns of ``decisions``: names and sets are written, and stand there as numbers."""
        columns = {name: each for name, each in row.items() if name != "vms"}
        columns["vm"] = columns["vm"] and self._name(columns["vm"])
        columns["host_set"] = self._host_set(columns.pop("hosts"))
        columns["unit_set"] = self._unit_set(columns.pop("units"))
        return columns

    def _write_inputs(
        self,
        decision: int,
        inputs: Inputs,
        keys: Mapping[Document, bytes],
        pieces: Mapping[bytes, Pieces],
    ) -> None:
        """Write the inputs of a decision, unless a document could not be cut."""
        needed = (keys[each.document] for each in inputs.documents)
        if not all(key in self._numbers or key in pieces for key in needed):
            return
        request = schema.as_json(inputs.request)
        self._db.execute("INSERT INTO recordings VALUES (?, ?)", (decision, request))
        for place, document in enumerate(inputs.documents):
            key = keys[document.document]
            if key not in self._numbers:
                self._numbers[key] = self._document(pieces[key])
            self._db.execute(
                "INSERT INTO recorded_documents VALUES (?, ?, ?, ?, ?)",
                (decision, place, document.role.value, document.of_engine, self._numbers[key]),
            )

    def _document(self, pieces: Pieces) -> int:
        elements = list(map(self._element, pieces))
        key = input_recording.hash_of(schema.as_json(elements).encode())
        members = "document_elements (place, element, document)"
        return self._numbered("documents", members, enumerate(elements), hash=key)

    def _element(self, piece: bytes) -> int:
        """Write an element; if a similar one is stored whole, write only the difference."""
        key = input_recording.hash_of(piece)
        if key not in self._numbers:
            number = self._number("elements", hash=key)
            self._numbers[key] = self._write_element(key, piece) if number is None else number
        return self._numbers[key]

    def _write_element(self, key: bytes, piece: bytes) -> int:
        base, alike = self._bases.get(piece[:_ALIKE], (None, b""))
        packed = input_recording.packed(piece, alike)
        number = self._insert("elements", hash=key, base=base, data=packed)
        if base is None:
            self._bases[piece[:_ALIKE]] = number, piece
        return number

    def _write_event(self, at: float, event: DaemonEvent) -> None:
        body = schema.as_json({name: each for name, each in event.items() if name != "event"})
        self._insert("events", time=round(at * 1000), event=event["event"], body=body)

    def _name(self, named: IdAndName) -> int:
        if named not in self._numbers:
            self._numbers[named] = self._numbered("names", id=named[0], name=named[1])
        return self._numbers[named]

    def _host_set(self, hosts: Sequence[IdAndName]) -> int:
        numbers = list(map(self._name, hosts))
        return self._set("host", schema.as_json(numbers), lambda: ((each,) for each in numbers))

    def _unit_set(self, units: str) -> int:
        return self._set(
            "unit", units, lambda: ((each["name"], each["outcome"]) for each in json.loads(units))
        )

    def _set(self, of: str, text: str, members: Callable[[], Iterable[tuple[object, ...]]]) -> int:
        """The number of a set of hosts or of units; ``members`` is called where it is new."""
        if (of, text) not in self._sets:
            if len(self._sets) >= _MOST_SETS:
                self._sets.clear()
            each_once = dict.fromkeys(members())
            self._sets[of, text] = self._numbered(
                f"{of}_sets", f"{of}_set_members", each_once, **{f"{of}s": text}
            )
        return self._sets[of, text]

    def _numbered(
        self, table: str, of_members: str = "", members: Iterable[tuple[object, ...]] = (),
        **key: object,
    ) -> int:  # fmt: skip
        """The number of the row with that key, which is written with its members if it is new."""
        number = self._number(table, **key)
        if number is None:
            number = self._insert(table, **key)
            for member in members:
                marks = ", ".join("?" * (len(member) + 1))
                self._db.execute(f"INSERT INTO {of_members} VALUES ({marks})", (*member, number))  # noqa: S608
        return number

    def _insert(self, table: str, **values: object) -> int:
        """Write a row; gives its number."""
        marks = ", ".join("?" * len(values))
        insert = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"  # noqa: S608  names of our own
        return int(self._db.execute(insert, tuple(values.values())).lastrowid or 0)

    def _number(self, table: str, **key: object) -> Optional[int]:
        """The number of the row with that key; None if there is none."""
        condition = " AND ".join(f"{column} = ?" for column in key)
        select = f"SELECT number FROM {table} WHERE {condition}"  # noqa: S608  names of our own
        row = self._db.execute(select, tuple(key.values())).fetchone()
        return None if row is None else int(row[0])

    def forget_before(self, moment: float) -> None:
        """Delete what was recorded before; ``moment`` is in seconds since 1970."""
        for table in _AGEING:
            self._delete(table, "time", round(moment * 1000))

    def keep_within(self, size: int) -> None:
        """Delete the oldest until the file and its log take no more than ``size`` bytes.

        Each time half of what is too much, as the oldest may be larger than others. The newest
        decision and the newest event stay. What others still read of the log stays, too: to delete
        decisions would not free it.
        """
        while self._bytes() > size:
            self._release()
            pages, page_size = (self._pragma(name) for name in ("page_count", "page_size"))
            used = pages * page_size
            if used <= size:
                break
            share = max(_OLDEST, (1 - size / used) / 2)
            oldest = [*filter(None, (self._oldest(table, share) for table in _AGEING))]
            if not oldest:
                break
            _, table, below = min(oldest)
            self._delete(table, "number", below)
        self._least = self._file_size()

    def _release(self) -> None:
        """Give free pages and the log back to the system, as far as nobody reads there."""
        # Python's execute() takes one step of it, and each step frees a page.
        self._db.executescript("PRAGMA incremental_vacuum")
        self._db.execute("PRAGMA busy_timeout = 0")
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {round(_BUSY * 1000)}")

    def _oldest(self, table: str, share: float) -> Optional[tuple[int, str, int]]:
        """The share of a table that was written first; None if the table has one row at most.

        Returns:
            When the first row behind that share happened, the table, and that row's number.
        """
        first, last = self._ends(table)
        if first == last:
            return None
        below = first + max(1, int((last - first) * share))
        select = f"SELECT time, ?, number FROM {table} WHERE number >= ? ORDER BY number"  # noqa: S608
        row: tuple[int, str, int] = self._db.execute(select, (table, below)).fetchone()
        return row

    def totals(self) -> tuple[int, int]:
        """How many decisions there are, and how many bytes they take."""
        first, last = self._ends("decisions")
        return last - first + (last > 0), self._bytes()

    def _ends(self, table: str) -> tuple[int, int]:
        """The numbers of the oldest row and of the newest; 0 without any."""
        # Each by itself: to find both at once, SQLite reads all of an index.
        first, last = self._db.execute(
            f"SELECT (SELECT min(number) FROM {table}), (SELECT max(number) FROM {table})"  # noqa: S608
        ).fetchone()
        return first or 0, last or 0

    def _bytes(self) -> int:
        """Of the file and its write-ahead log."""
        log = 0
        with contextlib.suppress(FileNotFoundError):
            log = self._log.stat().st_size
        return self._file_size() + log

    def _file_size(self) -> int:
        """Bytes of the file; as before, if it was just deleted, which ``is_gone`` will tell."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return self._least

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def _delete(self, table: str, column: str, below: int) -> None:
        """Delete decisions, and what no other decision names; or events."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            delete = f"DELETE FROM {table} WHERE {column} < ?"  # noqa: S608  names of our own
            if self._db.execute(delete, (below,)).rowcount and table == "decisions":
                self._sweep()
        self._least = self._file_size()

    def _sweep(self) -> None:
        self._forget()
        for statement in (
            "DELETE FROM vm_decisions WHERE decision NOT IN (SELECT number FROM decisions)",
            "DELETE FROM host_sets WHERE number NOT IN (SELECT host_set FROM decisions)",
            "DELETE FROM host_set_members WHERE host_set NOT IN (SELECT number FROM host_sets)",
            "DELETE FROM unit_sets WHERE number NOT IN (SELECT unit_set FROM decisions)",
            "DELETE FROM unit_set_members WHERE unit_set NOT IN (SELECT number FROM unit_sets)",
            """DELETE FROM names WHERE number NOT IN (SELECT host FROM host_set_members)
               AND number NOT IN (SELECT vm FROM vm_decisions)""",
            "DELETE FROM recordings WHERE decision NOT IN (SELECT number FROM decisions)",
            "DELETE FROM recorded_documents WHERE decision NOT IN (SELECT number FROM decisions)",
            "DELETE FROM documents WHERE number NOT IN (SELECT document FROM recorded_documents)",
            "DELETE FROM document_elements WHERE document NOT IN (SELECT number FROM documents)",
            """DELETE FROM elements WHERE number NOT IN (SELECT element FROM document_elements)
               AND number NOT IN (
                   SELECT base FROM elements JOIN document_elements ON element = number
                   WHERE base IS NOT NULL)""",
        ):
            self._db.execute(statement)


def _key(document: Document) -> bytes:
    """By which a document is known again; it is written nowhere, as documents hold passwords."""
    return input_recording.hash_of((document.encoding or "").encode() + b"\0" + document.data)
