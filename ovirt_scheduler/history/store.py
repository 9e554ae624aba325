"""The history in the state folder: one thread writes it, and others may read it meanwhile.

::

    a call ──► put ──► queue (bounded) ──► the writer's thread ──► history.sqlite (WAL)
    its answer goes out                       4 times a second        ▲
                                                            Reader ───┘  any number, meanwhile

A call waits for none of this: the writer's thread makes its record from the decision, which no
longer changes. If something is wrong with the file or the disk, it is logged, and stops no call.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Callable, NamedTuple, Optional, Union

from ovirt_scheduler.history import conversion, input_recording, query, refused_calls, schema
from ovirt_scheduler.history.database import Database
from ovirt_scheduler.history.input_recording import (
    DaemonEvent,
    Inputs,
    PackedDecision,
    Split,
    leave_out,
)
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.schema import OtherVersion, Row
from ovirt_scheduler.history.tally import Tally
from ovirt_scheduler.model.jobs import Decision, RefusedCall, Reported, ShadowCall

_log = logging.getLogger(__name__)

FILE = "history.sqlite"

_REST = 2.0  # seconds without a record, after which memory is given back
_GATHER = 0.25  # seconds that records are gathered before they are written together
_MOST_WAITING = 4096  # records in the queue
_MOST_BYTES = 64 << 20  # of memory that they keep, about
_MOST_TOGETHER = 1 << 20  # likewise, of records that are written together
_BREATH = 0.00005  # seconds in which calls go on, after some records
_BREATH_AFTER = 0.0005  # seconds of making records; the interpreter would go on for ten times that
_NO_BREATH = 500  # records in the queue: the thread must not fall behind calls for good
_DAY = 86400.0
_LOOK_FOR_OLD = 600.0  # seconds
_MOST_ASIDE = 9  # files that are set aside for the same reason

Make = Callable[[], Record]


class HistoryState(NamedTuple):
    """The state of the history of decisions, as its writer knows it."""

    decisions: int
    bytes: int
    waiting: int
    dropped: int
    problem: str = ""  # why it cannot be written
    undeleted: str = ""  # why its oldest decisions cannot be deleted
    records: bool = False  # whether the inputs of decisions are kept, too
    problem_since: Optional[float] = None  # seconds since 1970


class _QueueEntry(NamedTuple):
    """What waits in the queue: a decision, or an event of the daemon."""

    what: Union[Make, tuple[float, DaemonEvent]]
    size: int = 0  # bytes
    inputs: Optional[Inputs] = None  # what the decision was made on, where that is recorded
    completes: bool = False  # the record that is there already, by what units in shadow said


class History:
    """Writes records down. Safe to use from many threads.

    Args:
        path: of the file, in a folder of the daemon's own.
        split: cuts documents into pieces, in a process that opens them.
        at_rest: called by the writer's thread when there was nothing to write for some seconds.
        is_inquiry: whether a call about a VM at a time (seconds since 1970) was for a question of
            this daemon's own.
        rest: how many seconds these are.
    """

    def __init__(
        self,
        path: Path,
        split: Split = leave_out,
        at_rest: Callable[[], None] = lambda: None,
        is_inquiry: Callable[[str, float], bool] = lambda _vm, _at: False,
        rest: float = _REST,
    ) -> None:
        self._rest = rest
        self._path = path
        self._split = split
        self._at_rest = at_rest
        self._is_inquiry = is_inquiry
        # Ids of decisions for such questions that units in shadow have yet to complete.
        self._beforehand: set[str] = set()
        self._days, self._size, self._keeps, self._records = 30.0, 256 << 20, True, False
        self.reader = RecordReader(path)
        self.tally = Tally()
        self._queue: deque[_QueueEntry] = deque()
        self._queued = 0  # bytes
        self._told_many = False  # that more documents come than can be written
        self._lock = threading.Lock()
        self._filled = threading.Event()
        self._closing = threading.Event()
        self._under_way = 0
        self.dropped = 0  # records that were not written: the queue was full, or the disk
        self._problem = ""  # what is wrong, as the log said it last
        self._problem_since: Optional[float] = None  # seconds since 1970
        self._database: Optional[Database] = None
        self._totals = (0, 0)  # decisions, bytes
        self._old_at = 0.0
        self._undeleted = ""  # why what is beyond the bounds could not be deleted
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    def start(self) -> None:
        """Start the thread that writes."""
        self._thread.start()

    def bound(self, days: float, size: int, keeps: bool = True, records: bool = False) -> None:
        """Keep records for so many days from now on, and within so many bytes.

        Args:
            keeps: False: only count decisions, and keep none.
            records: also keep the inputs of decisions.
        """
        self._days, self._size, self._keeps, self._old_at = days, size, keeps, 0.0
        self._records = keeps and records

    def decided(self, what: Reported) -> None:
        """Have a decision written, or a call that was refused."""
        if isinstance(what, RefusedCall):
            record = refused_calls.record(what)
            self.put(lambda: record, refused_calls.size(record))
            return
        inputs = None
        if self._records:
            inputs = input_recording.inputs(what.request, what.replies, what.selected)
        vm, light = what.execution.vm, conversion.without_documents(what)
        beforehand = vm is not None and self._is_inquiry(vm, what.time)
        if beforehand and what.shadows:
            self._beforehand.add(what.caller.decision)
        make = partial(conversion.make_record, light, beforehand=beforehand)
        self.put(make, conversion.size(light), inputs)

    def add_shadows(self, decision: Decision, shadows: Sequence[ShadowCall]) -> None:
        """Have a decision's record completed by what units in shadow said.

        Args:
            decision: that was given to ``decided`` before.
        """
        light, name = conversion.without_documents(decision), decision.caller.decision
        make = partial(conversion.make_record, light, shadows, name in self._beforehand)
        self._beforehand.discard(name)
        self._append(_QueueEntry(make, conversion.size(light, shadows), completes=True))

    def put(self, make: Make, size: int = 0, inputs: Optional[Inputs] = None) -> None:
        """Have a decision written.

        Args:
            make: returns its record; called by the writer's thread.
            size: about how many bytes of memory it takes until then.
            inputs: of the decision, if they are known.
        """
        if not self._records:
            inputs = None
        elif inputs is not None and self._queued + inputs.size > _MOST_BYTES // 2:
            inputs = None  # else records would be dropped
            if not self._told_many:
                self._told_many = True
                reason = "more come than can be written; it is told once"
                _log.warning(
                    "documents of decisions are not recorded: %(reason)s", {"reason": reason}
                )
        self._append(_QueueEntry(make, size + (0 if inputs is None else inputs.size), inputs))

    def event(self, event: DaemonEvent) -> None:
        """Have an event of the daemon written, which happens now."""
        self._append(_QueueEntry((time.time(), event)))

    def _append(self, entry: _QueueEntry) -> None:
        with self._lock:
            while self._queue and (
                len(self._queue) >= _MOST_WAITING or self._queued + entry.size > _MOST_BYTES
            ):
                self._queued -= self._queue.popleft().size
                self.dropped += 1
            self._queue.append(entry)
            self._queued += entry.size
        self._filled.set()

    @property
    def waiting(self) -> int:
        """How many records are not written yet."""
        with self._lock:
            return len(self._queue) + self._under_way

    def state(self) -> HistoryState:
        """How it is now."""
        return HistoryState(
            *self._totals,
            self.waiting,
            self.dropped,
            self._problem,
            self._undeleted,
            self._records,
            self._problem_since,
        )

    def drain(self, seconds: float = 2.0) -> None:
        """Wait until the queue is written; documents of decisions need a process for that."""
        until = time.monotonic() + seconds
        while self._thread.is_alive() and self.waiting and time.monotonic() < until:
            self._closing.wait(_GATHER / 5)

    def close(self, seconds: float = 5.0) -> None:
        """Write what waits, and end."""
        self._closing.set()
        self._filled.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._closing.is_set():
            if not self._filled.wait(self._rest):
                self._give_memory_back()
                self._filled.wait()
            self._closing.wait(_GATHER)
            self._filled.clear()
            self._write_all()
        self._write_all()  # what came while the last were written
        self._close()

    def _write_all(self) -> None:
        """Write what is in the queue now, a few large decisions or many small ones at a time."""
        with self._lock:
            waiting, self._queue, self._queued = self._queue, deque(), 0
            self._under_way = len(waiting)
        while waiting:
            together, size = [], 0
            while waiting and size < _MOST_TOGETHER:
                together.append(waiting.popleft())
                size += together[-1].size
            self._write_together(together)
            self._under_way = len(waiting)

    def _write_together(self, entries: Sequence[_QueueEntry]) -> None:
        try:
            events, decisions, completed = self._made_records(entries)
            if self._keeps:
                self._write(events, decisions, completed)
                self._delete_old()
        except Exception as error:  # noqa: BLE001  nobody else would tell
            self._fail(error, len(entries))

    def _made_records(
        self, waiting: Iterable[_QueueEntry]
    ) -> tuple[list[tuple[float, DaemonEvent]], list[PackedDecision], list[Row]]:
        """The events, the counted decisions, and those that are completed.

        Those that cannot be made are logged.
        """
        events: list[tuple[float, DaemonEvent]] = []
        decisions: list[PackedDecision] = []
        completed: list[Row] = []
        rest_at = 0.0  # on the monotonic clock
        for entry in waiting:
            if isinstance(entry.what, tuple):
                events.append(entry.what)
                continue
            if len(self._queue) < _NO_BREATH and time.monotonic() >= rest_at:
                time.sleep(_BREATH)
                rest_at = time.monotonic() + _BREATH_AFTER
            try:
                record = entry.what()
                count = self.tally.add_shadows if entry.completes else self.tally.add
                count(record, query.moment(record["time"]))
                if self._keeps and entry.completes:
                    completed.append(schema.pack(record))
                elif self._keeps:
                    decisions.append((schema.pack(record), entry.inputs))
                del record  # before the next is made: it may have many hosts
            except Exception:  # noqa: BLE001  nobody else would tell
                with self._lock:
                    self.dropped += 1
                _log.exception("the history: a record could not be made, this is a bug")
        return events, decisions, completed

    def _write(
        self,
        events: Sequence[tuple[float, DaemonEvent]],
        decisions: Sequence[PackedDecision],
        completed: Sequence[Row],
    ) -> None:
        """Write them, into another file if this one is of no use.

        Raises:
            OSError, sqlite3.Error: they cannot be written.
        """
        try:
            self._opened().write(decisions, events, completed)
        except sqlite3.DatabaseError as error:
            # Errors of the moment are of other classes below these.
            if type(error) not in (sqlite3.DatabaseError, OtherVersion):
                raise
            self._close()
            self._set_aside(error)
            self._opened().write(decisions, events, completed)
        if self._problem:
            self._problem, self._problem_since = "", None
            _log.info("the history is written again; records that are missing in all: %(count)d",
                      {"count": self.dropped})  # fmt: skip

    def _delete_old(self) -> None:
        """Keep within the bounds. A failure is logged once; the next write tries again."""
        try:
            database, now = self._opened(), time.monotonic()
            try:
                if now >= self._old_at:
                    database.forget_before(time.time() - self._days * _DAY)
                    self._old_at = now + _LOOK_FOR_OLD
                database.keep_within(self._size)
            finally:
                self._totals = database.totals()
        except Exception as error:  # noqa: BLE001  what was written is written
            self._close()
            before, self._undeleted = self._undeleted, str(error) or type(error).__name__
            if not before:
                _log.error(
                    "the history grows, as its oldest decisions cannot be deleted: %(reason)s",
                    {"reason": f"{self._path}: {self._undeleted}", "file": str(self._path)},
                )
        else:
            self._undeleted = ""

    def _opened(self) -> Database:
        if self._database is not None and self._database.is_gone():
            self._close()
            _log.warning("the history begins anew: its file was deleted or replaced")
        if self._database is None:
            self._database = Database(self._path, self._split)
        self._database.check_size()
        return self._database

    def _give_memory_back(self) -> None:
        """Free what only makes writing faster, and return it to the system."""
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):  # the next decision finds it, and tells
                self._database.shrink()
        gc.collect()  # Python's lists of free objects, too, which are all over its memory
        self._at_rest()

    def _close(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    def _fail(self, error: Exception, count: int) -> None:
        """Go on without these records; it is logged once, until writing works again."""
        with self._lock:
            self.dropped += count
        self._close()
        if not isinstance(error, (OSError, sqlite3.Error)):
            _log.error("the history: records could not be written, this is a bug", exc_info=error)
        elif not self._problem:
            _log.error(
                "the history cannot be written, and loses the decisions of this time: %(reason)s",
                {"reason": f"{self._path}: {error}", "file": str(self._path)},
            )
        self._problem = str(error) or type(error).__name__
        self._problem_since = self._problem_since or time.time()

    def _set_aside(self, error: Exception) -> None:
        """Set this file aside, so that a new one begins; people can look at it later.

        Raises:
            OSError: the file cannot be renamed.
        """
        kind = f"version-{error.version}" if isinstance(error, OtherVersion) else "damaged"
        aside = self._free(f"{self._path}.{kind}")
        for suffix in ("-wal", ""):  # the log first: a file that begins anew would take it over
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").rename(f"{aside}{suffix}")
        Path(f"{self._path}-shm").unlink(missing_ok=True)
        _log.error(
            "the history begins anew: %(reason)s; its file is set aside as %(file)s",
            {"reason": str(error), "file": aside},
        )

    def _free(self, name: str) -> str:
        """The name, with a number behind it if there is a file of that name.

        Raises:
            OSError: there are too many, for example because a disk damages each new file.
        """
        names = [name, *(f"{name}.{number}" for number in range(2, _MOST_ASIDE + 1))]
        for candidate in names:
            if not os.path.lexists(candidate):
                return candidate
        raise OSError(
            f"it cannot be set aside: {name} to {names[-1]} are there already; look at them, and "
            "delete them"
        )
