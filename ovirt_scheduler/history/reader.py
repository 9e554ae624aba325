"""Reads the history in the state folder, also while a daemon writes it."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
import time
import urllib.parse
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from ovirt_scheduler.errors import HistoryUnreadable
from ovirt_scheduler.history import recording, schema
from ovirt_scheduler.history.query import MOST_ROWS, Query
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.schema import Named
from ovirt_scheduler.model.tasks import Role

_QUERY_SECONDS = 1.0
_MOST_SAID = 2_000_000  # of hosts, by units; each takes some 300 bytes of memory
_STEPS = 10_000  # of SQLite's virtual machine between two looks at the clock


class DocumentOf(NamedTuple):
    """Which document a recorded decision was made on."""

    role: Role
    of_engine: bool  # its reply to ids; else it came with the request
    number: int  # for ``Reader.document``


class Recorded(NamedTuple):
    """A decision that can be made again.

    Attributes:
        request: of a driver, beside what is in the record and in documents.
    """

    record: Record
    request: Record
    documents: Sequence[DocumentOf]


class Reader:
    """Reads a history, also while a daemon writes it. Safe to use from many threads.

    Args:
        path: of the file; it need not be there.
        seconds: that a query may take.
    """

    def __init__(self, path: Path, seconds: float = _QUERY_SECONDS) -> None:
        self._path = path
        self._seconds = seconds

    def decision(self, decision: str) -> Optional[Record]:
        """The record of that id; None where there is none.

        Raises:
            HistoryUnreadable: the file cannot be read.
        """
        try:
            number = schema.number_of(decision)
        except ValueError:
            return None
        with self._open() as db:
            found = _records(db, "decisions.id = ?", (number,), 1)
        return found[0] if found else None

    def decisions(self, query: Query) -> list[Record]:
        """The records that fit, the newest first.

        Raises:
            HistoryUnreadable: the file cannot be read, or not in time.
        """
        numbers, values = _matching(query)
        with self._open() as db:
            return _records(
                db,
                f"decisions.number IN ({numbers} ORDER BY number DESC LIMIT ?)",
                (*values, min(query.limit, MOST_ROWS)),
                MOST_ROWS,
            )

    def recorded(self, query: Query, limit: Optional[int] = None) -> list[int]:
        """The numbers of the recorded decisions that fit, the oldest first.

        Args:
            limit: the newest of them, in place of the query's limit; None: all.

        Raises:
            HistoryUnreadable: as for ``decisions``.
        """
        numbers, values = _matching(query)
        with self._open() as db:
            if not _has_recordings(db):
                return []
            rows = db.execute(
                f"SELECT decision FROM recordings WHERE decision IN ({numbers}) "  # noqa: S608
                "ORDER BY decision DESC LIMIT ?",
                (*values, -1 if limit is None else limit),
            ).fetchall()
        return [number for (number,) in reversed(rows)]

    def recordings(self, numbers: Sequence[int]) -> list[Recorded]:
        """Recorded decisions, those of them that are still there.

        Args:
            numbers: of decisions, in their order, at most ``MOST_ROWS``.

        Raises:
            HistoryUnreadable: as for ``decisions``.
        """
        marks = _marks(numbers)
        with self._open() as db:
            found = _records(db, f"decisions.number IN ({marks})", numbers, len(numbers))
            requests = db.execute(
                "SELECT number, id, request FROM decisions JOIN recordings ON decision = number "  # noqa: S608
                f"WHERE number IN ({marks})",
                tuple(numbers),
            ).fetchall()
            documents: dict[int, list[DocumentOf]] = {number: [] for number, *_ in requests}
            for number, role, of_engine, document in db.execute(
                "SELECT decision, role, of_engine, document FROM recorded_documents "  # noqa: S608
                f"WHERE decision IN ({marks}) ORDER BY decision, place",
                tuple(numbers),
            ):
                documents[number].append(DocumentOf(Role(role), bool(of_engine), document))
            by_id = {
                schema.id_of(each): (json.loads(request), documents[number])
                for number, each, request in requests
            }
        return [
            Recorded(record, *by_id[record["id"]])
            for record in reversed(found)
            if record["id"] in by_id
        ]

    def document(self, number: int) -> bytes:
        """A recorded document, in UTF-8; empty where it is gone.

        Raises:
            HistoryUnreadable: as for ``decisions``.
        """
        with self._open() as db:
            rows = db.execute(
                "SELECT elements.hash, elements.data, bases.data FROM document_elements "
                "LEFT JOIN elements ON elements.number = element "
                "LEFT JOIN elements AS bases ON bases.number = elements.base "
                "WHERE document = ? ORDER BY place",
                (number,),
            ).fetchall()
            bases = {base: recording.unpacked(base, b"") if base else b"" for _, _, base in rows}
            pieces = [recording.unpacked(data, bases[base]) for _, data, base in rows]
            if [recording.hash_of(piece) for piece in pieces] != [key for key, _, _ in rows]:
                raise ValueError(f"the recorded document {number} is another than it was")
            return b"".join(pieces)

    def events(
        self, since: Optional[float] = None, until: Optional[float] = None, limit: int = 100
    ) -> list[Record]:
        """What happened to the daemon, the newest first.

        Args:
            since, until: seconds since 1970; the second is not included.

        Raises:
            HistoryUnreadable: as for ``decisions``.
        """
        lower = 0 if since is None else round(since * 1000)
        upper = 1 << 62 if until is None else round(until * 1000)
        with self._open() as db:
            rows = db.execute(
                "SELECT time, event, body FROM events WHERE time >= ? AND time < ? "
                "ORDER BY number DESC LIMIT ?",
                (lower, upper, min(limit, MOST_ROWS)),
            )
            return [
                {"time": schema.written(at / 1000), "event": event, **json.loads(body)}
                for at, event, body in rows
            ]

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The file, for one query.

        Raises:
            HistoryUnreadable: it cannot be read, or not in time.
        """
        until = time.monotonic() + self._seconds
        opened = contextlib.ExitStack()

        def connect(name: str) -> sqlite3.Connection:
            db = sqlite3.connect(name, uri=True, timeout=self._seconds, isolation_level=None)
            return opened.enter_context(contextlib.closing(db))

        try:
            there = self._path.exists()
            quoted = urllib.parse.quote(str(self._path))
            db = connect(f"file:{quoted}?mode=ro" if there else ":memory:")
            db.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version == 0:  # nothing is written yet
                db = connect(":memory:")
                db.executescript(schema.TABLES)
            elif version > schema.VERSION:
                raise HistoryUnreadable(
                    f"{self._path} is of version {version} of the schema; this program reads "
                    f"{schema.VERSION}"
                )
            db.execute("BEGIN")
            yield db
        except (sqlite3.Error, OSError) as error:
            if str(error) == "interrupted":
                raise HistoryUnreadable(
                    f"the query takes more than {self._seconds:g} s; ask for less: a VM, a host, "
                    "a unit or a shorter time"
                ) from None
            raise HistoryUnreadable(f"{self._path} cannot be read: {error}") from None
        except (zlib.error, ValueError, LookupError, TypeError) as error:  # of a row's parts
            raise HistoryUnreadable(f"{self._path} is damaged: {error}") from None
        finally:
            opened.close()


def _has_recordings(db: sqlite3.Connection) -> bool:
    """A file of the former version has none, until a daemon writes it."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return bool(version != 1)


def _matching(query: Query) -> tuple[str, list[object]]:
    """SQL that selects the numbers of the decisions that fit, and the values of its marks."""
    conditions, values = _conditions(query)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    if query.vm is not None:
        joined = "decisions JOIN vm_decisions ON decision = number"
        return f"SELECT number FROM {joined} {where}", values  # noqa: S608
    # The index has all that is looked for, and is some tenth of the table.
    index = "newest" if query.cluster is None else "decisions_by_cluster"
    return f"SELECT number FROM decisions INDEXED BY {index} {where}", values  # noqa: S608


_NAMED = "(SELECT number FROM names WHERE id = ? UNION SELECT number FROM names WHERE name = ?)"


def _conditions(query: Query) -> tuple[list[str], list[object]]:
    """What fits a query, and the values in the order of their marks."""
    parts: list[tuple[str, tuple[object, ...]]] = []
    if query.vm is not None:
        parts.append((f"vm_decisions.vm IN {_NAMED}", (query.vm, query.vm)))
    if query.host is not None:
        sets = f"SELECT host_set FROM host_set_members WHERE host IN {_NAMED}"  # noqa: S608
        parts.append((f"host_set IN ({sets})", (query.host, query.host)))
    of_unit = {"unit": () if query.unit is None else (query.unit,), "outcome": query.outcomes}
    asked = {column: values for column, values in of_unit.items() if values}
    if asked:
        wanted = " AND ".join(f"{column} IN ({_marks(values)})" for column, values in asked.items())
        sets = f"SELECT unit_set FROM unit_set_members WHERE {wanted}"  # noqa: S608
        parts.append((f"unit_set IN ({sets})", tuple(itertools.chain(*asked.values()))))
    columns = (
        ("cluster = ?", query.cluster),
        ("method = ?", query.method),
        ("time >= ?", None if query.since is None else round(query.since * 1000)),
        ("time < ?", None if query.until is None else round(query.until * 1000)),
    )
    parts += [(condition, (value,)) for condition, value in columns if value is not None]
    conditions = [condition for condition, _ in parts]
    return conditions, [value for _, values in parts for value in values]


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


_SELECT = (
    "SELECT decisions.id, time, method, names.id, names.name, host_set, unit_set, body "
    "FROM decisions LEFT JOIN names ON names.number = vm"
)
_NEWEST_FIRST = "ORDER BY decisions.number DESC LIMIT ?"


def _records(
    db: sqlite3.Connection, where: str, values: Sequence[object], limit: int
) -> list[Record]:
    rows = db.execute(f"{_SELECT} WHERE {where} {_NEWEST_FIRST}", (*values, limit)).fetchall()
    host_sets: dict[int, Sequence[Named]] = {}
    unit_sets: dict[int, str] = {}
    for *_, host_set, unit_set, _ in rows:
        if host_set not in host_sets:
            host_sets[host_set] = _hosts(db, host_set)
        if unit_set not in unit_sets:
            unit_sets[unit_set] = _one(db, "units", "unit_sets", unit_set)
    of_host = {number: 1 + len(json.loads(units)) for number, units in unit_sets.items()}
    said = sum(len(host_sets[hosts]) * of_host[units] for *_, hosts, units, _ in rows)
    if said > _MOST_SAID:
        raise HistoryUnreadable(
            f"the decisions asked for say {said:,} things of hosts, and {_MOST_SAID:,} are read at "
            "once; ask for less: a smaller limit, a VM or a shorter time"
        )
    return [
        schema.unpack(
            (number, at), method, None if vm is None else (vm, name),
            host_sets[host_set], unit_sets[unit_set], body,
        )
        for number, at, method, vm, name, host_set, unit_set, body in rows
    ]  # fmt: skip


def _hosts(db: sqlite3.Connection, host_set: int) -> Sequence[Named]:
    members = json.loads(_one(db, "hosts", "host_sets", host_set))
    found = {
        number: (each, name)
        for number, each, name in db.execute(
            "SELECT number, id, name FROM names WHERE number IN "
            "(SELECT host FROM host_set_members WHERE host_set = ?)",
            (host_set,),
        )
    }
    return [found[member] for member in members]


def _one(db: sqlite3.Connection, column: str, table: str, number: int) -> str:
    (found,) = db.execute(
        f"SELECT {column} FROM {table} WHERE number = ?",  # noqa: S608  names of our own
        (number,),
    ).fetchone()
    return str(found)
