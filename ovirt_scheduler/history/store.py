"""The history in the state folder: one thread writes it, and others may read it meanwhile.

::

    a call ──► put ──► queue (bounded) ──► the writer's thread ──► history.sqlite (WAL)
    its answer goes out                       4 times a second        ▲
                                                            Reader ───┘  any number, meanwhile

A call waits for none of this: its record is made by the writer's thread, from what is decided
and does not change any more. Whatever is wrong with the file or the disk is told, and stops no
call.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import threading
import time
import urllib.parse
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ovirt_scheduler.errors import HistoryUnreadable
from ovirt_scheduler.history import schema
from ovirt_scheduler.history.query import MOST_ROWS, Query
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.schema import Named
from ovirt_scheduler.history.tables import Tables
from ovirt_scheduler.history.tally import Tally
from ovirt_scheduler.model.daemon_state import HistoryState

_log = logging.getLogger(__name__)

FILE = "history.sqlite"

_GATHER = 0.25  # seconds that records are gathered before they are written together
_MOST_WAITING = 4096  # records in the queue
_MOST_BYTES = 64 << 20  # of memory that they keep, about
_BREATH = 0.00005  # seconds between two records, in which calls go on
_TRY_AGAIN = 5.0  # seconds, where the file cannot be opened
_QUERY_SECONDS = 1.0
_STEPS = 10_000  # of SQLite's virtual machine between two looks at the clock
_DAY = 86400.0
_LOOK_FOR_OLD = 600.0  # seconds

Make = Callable[[], Record]


class History:
    """Writes records down. Safe to use from many threads.

    Args:
        path: of the file, in a folder of the daemon's own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._days, self._size, self._keeps = 30.0, 256 << 20, True
        self.tally = Tally()
        self._queue: Deque[Tuple[str, Make, int]] = deque()
        self._queued = 0  # bytes
        self._lock = threading.Lock()
        self._filled = threading.Event()
        self._closing = threading.Event()
        self._under_way = 0
        self.dropped = 0  # records that were not written: the queue was full, or the disk
        self._told = ""  # what is wrong, as it was told last
        self._tables: Optional[Tables] = None
        self._totals = (0, 0)  # decisions, bytes
        self._retry_at = 0.0
        self._old_at = 0.0
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    @property
    def reader(self) -> Reader:
        """A new reader of the same file."""
        return Reader(self._path)

    def start(self) -> None:
        """Start the thread that writes."""
        self._thread.start()

    def bound(self, days: float, size: int, keeps: bool = True) -> None:
        """Keep records for so many days from now on, and within so many bytes.

        Args:
            keeps: or keep none: they are counted only.
        """
        self._days, self._size, self._keeps, self._old_at = days, size, keeps, 0.0

    def put(self, make: Make, size: int = 0) -> None:
        """Have a decision's record written.

        Args:
            make: gives it; called by the writer's thread.
            size: bytes of memory that this keeps until then, about.
        """
        self._put("decision", make, size)

    def event(self, event: Mapping[str, object]) -> None:
        """Have written what happened to the daemon: ``event`` says what; its time is added."""
        record: Record = {"time": time.time(), **event}
        self._put("event", lambda: record, 0)

    @property
    def waiting(self) -> int:
        """How many records are not written yet."""
        return len(self._queue) + self._under_way

    def state(self) -> HistoryState:
        """How it is now."""
        count, size = self._totals
        return HistoryState(count, size, self.waiting, self.dropped, self._told)

    def close(self, seconds: float = 5.0) -> None:
        """Write what waits, and end."""
        self._closing.set()
        self._filled.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _put(self, kind: str, make: Make, size: int) -> None:
        with self._lock:
            while self._queue and (
                len(self._queue) >= _MOST_WAITING or self._queued + size > _MOST_BYTES
            ):
                self._queued -= self._queue.popleft()[-1]
                self.dropped += 1
            self._queue.append((kind, make, size))
            self._queued += size
        if not self._filled.is_set():
            self._filled.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._filled.wait()
            self._closing.wait(_GATHER)
            self._filled.clear()
            self._write_all()
        self._write_all()  # what came while the last were written
        if self._tables is not None:
            self._tables.close()

    def _write_all(self) -> None:
        with self._lock:
            waiting, self._queue, self._queued = self._queue, deque(), 0
            self._under_way = len(waiting)
        try:
            made = [each for each in map(self._made, waiting) if each is not None]
            if self._keeps:
                self._write(made)
        except sqlite3.Error as error:
            self._fail(error, len(waiting))
        except Exception:  # noqa: BLE001  nobody else would tell
            _log.exception("the history: records could not be written, this is a bug")
        finally:
            self._under_way = 0

    def _made(self, entry: Tuple[str, Make, int]) -> Optional[Tuple[str, Any]]:
        """What is to be written, and counted; None, and told, where it cannot be made."""
        kind, make, _ = entry
        time.sleep(_BREATH)
        try:
            record = make()
            if kind != "decision":
                return kind, record
            self.tally.add(record, record["time"])
            return (kind, schema.pack(record)) if self._keeps else None
        except Exception:  # noqa: BLE001  nobody else would tell
            _log.exception("the history: a record could not be made, this is a bug")
            return None

    def _write(self, records: Sequence[Tuple[str, Any]]) -> None:
        tables = self._opened()
        if tables is None:
            self.dropped += len(records)
            return
        tables.write(records)
        if self._told:
            self._told = ""
            _log.info("the history is written again; %(count)d records are missing in all",
                      {"count": self.dropped})  # fmt: skip
        now = time.monotonic()
        if now >= self._old_at:
            self._old_at = now + _LOOK_FOR_OLD
            tables.forget_before(time.time() - self._days * _DAY)
        tables.keep_within(self._size)
        self._totals = tables.totals()

    def _opened(self) -> Optional[Tables]:
        if self._tables is None and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + _TRY_AGAIN
            try:
                self._tables = Tables(self._path)
            except (OSError, sqlite3.OperationalError) as error:
                self._tell(str(error))
            except sqlite3.DatabaseError as error:
                self._set_aside(str(error))
                self._tables = Tables(self._path)
        return self._tables

    def _fail(self, error: sqlite3.Error, count: int) -> None:
        """Go on without these records."""
        self.dropped += count
        damaged = not isinstance(error, sqlite3.OperationalError)
        if self._tables is not None:
            with contextlib.suppress(sqlite3.Error):
                self._tables.close()
        self._tables, self._retry_at = None, 0.0
        if damaged:
            self._set_aside(str(error))
        else:
            self._tell(str(error))

    def _tell(self, problem: str) -> None:
        """Once, until it is well again."""
        if not self._told:
            _log.error(
                "the history cannot be written, and loses the decisions of this time: %(reason)s",
                {"reason": f"{self._path}: {problem}", "file": str(self._path)},
            )
        self._told = problem

    def _set_aside(self, problem: str) -> None:
        aside = self._path.with_name(f"{self._path.name}.damaged")
        with contextlib.suppress(OSError):
            self._path.replace(aside)
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink()
        _log.error(
            "the history begins anew, its file is damaged: %(reason)s; it is set aside as %(file)s",
            {"reason": problem, "file": str(aside)},
        )


class Reader:
    """Reads a history, also while a daemon writes it. Safe to use from many threads.

    Args:
        path: of the file; it need not be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

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

    def decisions(self, query: Query) -> List[Record]:
        """The records that fit, the newest first.

        Raises:
            HistoryUnreadable: the file cannot be read, or not within a second.
        """
        conditions, values = _conditions(query)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        # The index has all that is looked for, and is some tenth of the table.
        index = "newest" if query.cluster is None else "decisions_by_cluster"
        numbers = f"SELECT number FROM decisions INDEXED BY {index} {where}"  # noqa: S608
        if query.vm is not None:
            numbers = (
                "SELECT number FROM decisions JOIN vm_decisions ON decision = number "  # noqa: S608
                f"{where}"
            )
        with self._open() as db:
            return _records(
                db,
                f"decisions.number IN ({numbers} ORDER BY number DESC LIMIT ?)",
                (*values, min(query.limit, MOST_ROWS)),
                MOST_ROWS,
            )

    def events(
        self, since: Optional[float] = None, until: Optional[float] = None, limit: int = 100
    ) -> List[Record]:
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
            ).fetchall()
        return [
            {"time": schema.written(at / 1000), "event": event, **json.loads(body)}
            for at, event, body in rows
        ]

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The file, for one query.

        Raises:
            HistoryUnreadable: it cannot be read, or not within a second.
        """
        until = time.monotonic() + _QUERY_SECONDS
        db = sqlite3.connect(":memory:", isolation_level=None)
        try:
            if self._path.exists():
                db = sqlite3.connect(
                    f"file:{urllib.parse.quote(str(self._path))}?mode=ro",
                    uri=True, timeout=_QUERY_SECONDS, isolation_level=None,
                )  # fmt: skip
            db.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version == 0:  # nothing is written yet
                db = sqlite3.connect(":memory:", isolation_level=None)
                db.executescript(schema.TABLES)
            elif version != schema.VERSION:
                raise HistoryUnreadable(
                    f"{self._path} is of version {version} of the schema; this program reads "
                    f"{schema.VERSION}"
                )
            db.execute("BEGIN")
            yield db
        except sqlite3.Error as error:
            if str(error) == "interrupted":
                raise HistoryUnreadable(
                    f"the query takes more than {_QUERY_SECONDS:g} s; ask for less: a VM, a host, "
                    "a unit or a shorter time"
                ) from None
            raise HistoryUnreadable(f"{self._path} cannot be read: {error}") from None
        finally:
            db.close()


_NAMED = "(SELECT number FROM names WHERE id = ? UNION SELECT number FROM names WHERE name = ?)"


def _conditions(query: Query) -> Tuple[List[str], List[object]]:
    """What fits a query, and the values in the order of their marks."""
    parts: List[Tuple[str, Tuple[object, ...]]] = []
    if query.vm is not None:
        parts.append((f"vm_decisions.vm IN {_NAMED}", (query.vm, query.vm)))
    if query.host is not None:
        sets = f"SELECT host_set FROM host_set_members WHERE host IN {_NAMED}"  # noqa: S608
        parts.append((f"host_set IN ({sets})", (query.host, query.host)))
    units = {"unit": query.unit, "outcome": query.outcome}
    asked = {name: value for name, value in units.items() if value is not None}
    if asked:
        wanted = " AND ".join(f"{name} = ?" for name in asked)
        sets = f"SELECT unit_set FROM unit_set_members WHERE {wanted}"  # noqa: S608
        parts.append((f"unit_set IN ({sets})", tuple(asked.values())))
    if query.cluster is not None:
        parts.append(("cluster = ?", (query.cluster,)))
    if query.method is not None:
        parts.append(("method = ?", (query.method,)))
    if query.since is not None:
        parts.append(("time >= ?", (round(query.since * 1000),)))
    if query.until is not None:
        parts.append(("time < ?", (round(query.until * 1000),)))
    conditions = [condition for condition, _ in parts]
    return conditions, [value for _, values in parts for value in values]


_SELECT = (
    "SELECT decisions.id, time, method, names.id, names.name, host_set, unit_set, body "
    "FROM decisions LEFT JOIN names ON names.number = vm"
)
_NEWEST_FIRST = "ORDER BY decisions.number DESC LIMIT ?"


def _records(
    db: sqlite3.Connection, where: str, values: Sequence[object], limit: int
) -> List[Record]:
    rows = db.execute(f"{_SELECT} WHERE {where} {_NEWEST_FIRST}", (*values, limit)).fetchall()
    host_sets: Dict[int, Sequence[Named]] = {}
    unit_sets: Dict[int, str] = {}
    for *_, host_set, unit_set, _ in rows:
        if host_set not in host_sets:
            host_sets[host_set] = _hosts(db, host_set)
        if unit_set not in unit_sets:
            unit_sets[unit_set] = _one(db, "units", "unit_sets", unit_set)
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
