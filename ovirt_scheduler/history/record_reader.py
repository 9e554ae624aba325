"""Reads the history in the state folder, also while a daemon writes it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import urllib.parse
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

from ovirt_scheduler.errors import HistoryUnreadable
from ovirt_scheduler.history import input_recording, schema
from ovirt_scheduler.history.query import MOST_ROWS, Query, written
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.schema import IdAndName
from ovirt_scheduler.history.turns import Turn, Turns
from ovirt_scheduler.history.unpacking import Unpacking
from ovirt_scheduler.log.format import as_utf8
from ovirt_scheduler.model.tasks import Role

_QUERY_SECONDS = 1.0
_RECORDS_BYTES = 32 << 20  # of the records of one answer; as objects they take twenty times as much
_DOCUMENT_BYTES = 128 << 20  # of a document and what its elements are differences from
_MOST_VERDICTS = 2_000_000  # hosts, and verdicts of units on them; each takes some 300 bytes
_STEPS = 10_000  # of SQLite's virtual machine between two looks at the clock

# What parts of a row raise that are not as the daemon writes them.
_DAMAGES = (
    zlib.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError
)  # fmt: skip


class DocumentOf(NamedTuple):
    """Which document a recorded decision was made on."""

    role: Role
    of_engine: bool  # its reply to ids; else it came with the request
    number: int  # for ``RecordReader.document``


class Recorded(NamedTuple):
    """A decision that can be made again.

    Attributes:
        request: of a driver: what is neither in the record nor in documents.
    """

    record: Record
    request: Mapping[str, Any]
    documents: list[DocumentOf]


class RecordReader:
    """Reads a history, also while a daemon writes it. Safe to use from many threads.

    Attributes:
        turns: of callers that are not trusted to ask for little, and not too often.

    Args:
        path: of the file; it need not be there.
        seconds: that a query may take.
    """

    def __init__(self, path: Path, seconds: float = _QUERY_SECONDS) -> None:
        self._path = path
        self._seconds = seconds
        self.turns = Turns(seconds)

    def decision(self, decision: str, turn: Optional[Turn] = None) -> Optional[Record]:
        """The record of that id; None if there is none.

        Args:
            turn: whose time this takes; None: one of its own.

        Raises:
            HistoryUnreadable: the file cannot be read, or not in time.
        """
        turn = turn or Turn(self._seconds)
        with self._open(turn) as db:
            records = _records(db, turn, "decisions.id = ?", (_bound(decision.lower()),))
            return next(iter(records), None)

    def decisions(self, query: Query, turn: Optional[Turn] = None) -> list[Record]:
        """The records that fit, the newest first.

        ``brief`` ones cost the same, however large the decisions are.

        Args:
            turn: whose time this takes; None: one of its own.

        Raises:
            HistoryUnreadable: the file cannot be read, or not in time.
        """
        numbers, values = _matching(query)
        values["limit"] = min(query.limit, MOST_ROWS)
        where = f"decisions.number IN ({numbers} ORDER BY number DESC LIMIT :limit)"
        turn = turn or Turn(self._seconds)
        with self._open(turn) as db:
            if query.brief:
                rows = db.execute(_SELECT.format(schema.SUMMARY) + where + _NEWEST_FIRST, values)
                return [schema.unpack_brief(row) for row in Unpacking(_RECORDS_BYTES).counted(rows)]
            return _records(db, turn, where, values)

    def recorded(self, query: Query, limit: Optional[int] = None) -> list[int]:
        """The numbers of the recorded decisions that fit, the oldest first.

        Args:
            limit: the newest of them, instead of the query's limit; None: all.

        Raises:
            HistoryUnreadable: as for ``decisions``.
        """
        numbers, values = _matching(query)
        with self._open() as db:
            rows = db.execute(
                f"SELECT decision FROM recordings WHERE decision IN ({numbers}) "  # noqa: S608
                "ORDER BY decision DESC LIMIT :limit",
                {**values, "limit": -1 if limit is None else limit},
            ).fetchall()
        return [number for (number,) in reversed(rows)]

    def number_of(self, decision: str) -> Optional[int]:
        """The number of a recorded decision, by its id; None if it was not recorded.

        Raises:
            HistoryUnreadable: as for ``decisions``.
        """
        with self._open() as db:
            row = db.execute(
                "SELECT number FROM decisions JOIN recordings ON decision = number WHERE id = ?",
                (_bound(decision.lower()),),
            ).fetchone()
            return None if row is None else int(row["number"])

    def recording(self, number: int) -> Optional[Recorded]:
        """A recorded decision, by its number; None if it is gone.

        Raises:
            HistoryUnreadable: as for ``decisions``.
        """
        turn = Turn(self._seconds)
        with self._open(turn) as db:
            records = _records(db, turn, "decisions.number = ?", (number,))
            request = db.execute(
                "SELECT request FROM recordings WHERE decision = ?", (number,)
            ).fetchone()
            if not records or request is None:
                return None
            rows = db.execute(
                "SELECT role, of_engine, document FROM recorded_documents WHERE decision = ? "
                "ORDER BY place",
                (number,),
            )
            documents = [DocumentOf(Role(role), bool(of), document) for role, of, document in rows]
            return Recorded(records[0], json.loads(request["request"]), documents)

    def document(self, number: int) -> bytes:
        """A recorded document, in UTF-8; empty if it is gone.

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
            )
            unpacking = Unpacking(_DOCUMENT_BYTES)
            pieces = []
            for key, packed, base in unpacking.counted(rows):
                piece = unpacking.unpack(packed, unpacking.unpack(base) if base else b"")
                if input_recording.hash_of(piece) != key:
                    raise ValueError(f"the recorded document {number} is another than it was")
                pieces.append(piece)
            return b"".join(pieces)

    def events(
        self, since: Optional[float] = None, until: Optional[float] = None, limit: int = 100
    ) -> list[dict[str, Any]]:
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
                {"time": written(at / 1000), "event": event, **json.loads(body)}
                for at, event, body in rows
            ]

    @contextlib.contextmanager
    def _open(self, turn: Optional[Turn] = None) -> Iterator[sqlite3.Connection]:
        """The file, for one query.

        Args:
            turn: whose time this takes; None: one of its own.

        Raises:
            HistoryUnreadable: it cannot be read, or not in time.
        """
        turn = turn or Turn(self._seconds)
        turn.check()
        if self._path.exists() and not self._path.is_file():  # SQLite would wait at a pipe
            raise HistoryUnreadable(f"{self._path} cannot be read: it is not a plain file")
        try:
            quoted = urllib.parse.quote(str(self._path))
            name = f"file:{quoted}?mode=ro" if self._path.exists() else ":memory:"
            with self._connected(name) as file, self._connected(":memory:") as empty:
                file.set_progress_handler(lambda: turn.is_over, _STEPS)
                (version,) = file.execute("PRAGMA user_version").fetchone()
                if version not in (0, schema.VERSION):
                    raise schema.OtherVersion(version)
                if version == 0:  # nothing is written yet
                    empty.executescript(schema.TABLES)
                db = file if version else empty
                db.execute("BEGIN")
                db.row_factory = sqlite3.Row
                yield db
        except (sqlite3.Error, OSError) as error:
            if str(error) == "interrupted":
                turn.check()
            mend = ""
            if not isinstance(error, (OSError, sqlite3.OperationalError)):  # no history of ours
                mend = "; restart the daemon, which sets it aside and begins anew"
            raise HistoryUnreadable(f"{self._path} cannot be read: {error}{mend}") from None
        except _DAMAGES as error:
            raise HistoryUnreadable(f"{self._path} is damaged: {error}") from None

    def _connected(self, name: str) -> contextlib.closing[sqlite3.Connection]:
        db = sqlite3.connect(name, uri=True, timeout=self._seconds, isolation_level=None)
        return contextlib.closing(db)


_SELECT = """
    SELECT {}, names.id AS vm_id, names.name AS vm_name FROM decisions
    LEFT JOIN unit_sets ON unit_sets.number = unit_set LEFT JOIN names ON names.number = vm WHERE
"""
_NEWEST_FIRST = " ORDER BY decisions.number DESC"

# The numbers of a host or VM by an id or a name. What was once recorded with that name is found
# also where it was recorded by its id alone, and not where it had another name.
_NUMBERS = """
    SELECT number FROM names WHERE id = {0} UNION SELECT number FROM names WHERE name = {0}
    UNION SELECT number FROM names
        WHERE name = '' AND id IN (SELECT id FROM names WHERE name = {0} AND id != '')
"""

# What each member of a query selects by.
_CONDITIONS = {
    "vm": f"vm_decisions.vm IN ({_NUMBERS.format(':vm')})",
    "host": f"""host_set IN (
        SELECT host_set FROM host_set_members WHERE host IN ({_NUMBERS.format(":host")}))""",  # noqa: S608
    "cluster": "cluster = :cluster",
    "method": "method = :method",
    "since": "time >= :since",
    "until": "time < :until",
    "before": "number < (SELECT number FROM decisions WHERE id = lower(:before))",
}


def _matching(query: Query) -> tuple[str, dict[str, object]]:
    """SQL that selects the numbers of the decisions that fit, and its parameters."""
    values = {name: _bound(value) for name, value in vars(query).items() if value not in (None, ())}
    for name in {"since", "until"} & values.keys():
        values[name] = round(values[name] * 1000)
    conditions = [condition for name, condition in _CONDITIONS.items() if name in values]
    outcomes = {f"outcome{n}": outcome for n, outcome in enumerate(values.pop("outcomes", ()))}
    of_unit = ["unit = :unit"] if "unit" in values else []
    if outcomes:
        of_unit.append(f"outcome IN ({', '.join(f':{name}' for name in outcomes)})")
    if of_unit:
        sets = f"SELECT unit_set FROM unit_set_members WHERE {' AND '.join(of_unit)}"  # noqa: S608
        conditions.append(f"unit_set IN ({sets})")
    # The index has all that is looked for, and is some tenth of the table.
    table = "decisions INDEXED BY newest"
    if query.vm is not None:
        table = "decisions JOIN vm_decisions ON decision = number"
    elif query.cluster is not None:
        table = "decisions INDEXED BY decisions_by_cluster"
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT number FROM {table} {where}", {**values, **outcomes}  # noqa: S608


def _bound(value: Any) -> Any:
    """The value as SQLite takes it: a text that is not UTF-8 fits no name."""
    return as_utf8(value).decode() if isinstance(value, str) else value


def _records(
    db: sqlite3.Connection,
    turn: Turn,
    where: str,
    values: Union[Sequence[object], Mapping[str, object]],
) -> list[Record]:
    """The records, the newest first."""
    unpacking = Unpacking(_RECORDS_BYTES)
    host_sets: dict[int, Sequence[IdAndName]] = {}
    verdicts = 0
    for row in unpacking.counted(db.execute(_SELECT.format("host_set, units") + where, values)):
        turn.check()
        if row["host_set"] not in host_sets:
            host_sets[row["host_set"]] = _hosts(db, row["host_set"], unpacking)
        verdicts += len(host_sets[row["host_set"]]) * (1 + len(json.loads(row["units"])))
    if verdicts > _MOST_VERDICTS:
        raise HistoryUnreadable(
            f"the decisions asked for have {verdicts:,} verdicts on hosts, and {_MOST_VERDICTS:,} "
            "are read at once; ask for less: a smaller limit, a VM or a shorter time"
        )
    rows = db.execute(_SELECT.format("decisions.*, units") + where + _NEWEST_FIRST, values)
    return [
        schema.unpack(row, host_sets[row["host_set"]], unpacking, turn.check)
        for row in unpacking.counted(rows)
    ]


def _hosts(db: sqlite3.Connection, host_set: int, unpacking: Unpacking) -> Sequence[IdAndName]:
    rows = db.execute("SELECT hosts FROM host_sets WHERE number = ?", (host_set,))
    [(members,)] = unpacking.counted(rows)
    rows = db.execute(
        "SELECT number, id, name FROM names WHERE number IN "
        "(SELECT host FROM host_set_members WHERE host_set = ?)",
        (host_set,),
    )
    hosts = {number: (key, name) for number, key, name in unpacking.counted(rows)}
    return [hosts[member] for member in json.loads(members)]
