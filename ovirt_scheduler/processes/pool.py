"""The pool of processes: those of plugins and readers, kept between tasks, and spare ones.

::

    take ──► one that is idle, the one used last first ──► a task ──► give_back
         └─► else a spare one, which gets its setup before the task

    one keeping thread: ends a process that settles too slowly, sends something unasked, is
                        old, or is one too many; loads a process for a plugin that has none

A process serves one version of one plugin under its limits, or reads documents (``ProcessKey``).
Safe to use from many threads.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable, Optional, Union

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import ProcessKey
from ovirt_scheduler.model.tasks import ENDS, READERS, ReaderSetup, Setup
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.workers import OUT_OF_TURN, Worker

_log = logging.getLogger(__name__)

SPARE = 2  # workers forked ahead
# How often a task is handed over: an idle process, each spare one and a new one may be killed.
TRIES = SPARE + 3

_SETTLE_SECONDS = 1.0  # from an answer until the process has to be ready again
_LOAD_SECONDS = 60.0  # from the setup until it has to be
_LIFE_SECONDS = 3600.0  # of a process: libraries are updated under it
_IDLE_SECONDS = 5.0  # for which more than one process of a key are kept
_GROWN_SECONDS = 5.0  # without a call, after which one that has grown is replaced
_TICK = 0.25  # seconds between two looks of the keeping thread while a process settles
_REST = 5.0  # ... while none does
_BREATH = 0.002  # seconds before a process is made that nobody waits for
_LONGEST_PAUSE = 60.0  # between two loads ahead, of a plugin whose process ends by itself
_SETTLED_EVERY = 0.01  # seconds between two looks of who waits for processes to be compared
_ENDS_KEPT = 100  # reasons
_AHEAD_OF_SINGLE = 2  # processes kept ready of a plugin whose processes serve one call each

AnySetup = Union[Setup, ReaderSetup]

# Why the daemon ends a process, with the words for the log; ``ENDS`` has its own reasons.
_ENDED_FOR = {
    **ENDS,
    "abandoned": "its request was given up",
    "age": "it was kept for an hour",
    "did not get ready": "it was not ready for another call in time",
    "ended": "it has ended",
    "grown": "it took more memory than a new one, and was idle",
    "idle": "fewer are needed now",
    "kept_processes": "there were more than kept_processes",
    "killed": "a call was killed",
    "misled": "its answer cannot be read",
    "not in use": "this version of the file, or its limits, are not in use any more",
    "not started": "it did not start",
    "timed out": "a call timed out",
}

# Reasons of these that are the plugin's doing, if nobody has called the process yet.
_BY_ITSELF = {*ENDS, "did not get ready", "ended", OUT_OF_TURN}


def _in_words(why: str) -> str:
    """A reason for the log, with its details: ``memory``, ``modules: json.x``."""
    reason, colon, more = why.partition(":")
    return f"{_ENDED_FOR.get(reason, reason)}{colon}{more}"


class Pool:
    """Processes of plugins, readers and spare workers; safe to use from many threads.

    Args:
        fork: gives a new worker until a deadline; raises ExecutorUnavailable.
        most: processes of plugins to keep.
        parallel: calls at the same time: no plugin needs more processes.
    """

    def __init__(self, fork: Callable[[float], Worker], most: int, parallel: int) -> None:
        self._fork = fork
        self._most = most
        self._parallel = parallel
        self._news = threading.Condition(threading.RLock())
        self._idle: dict[ProcessKey, deque[Worker]] = {}
        self._busy: Counter[ProcessKey] = Counter()
        self._spare: list[Worker] = []
        self._wanted: Mapping[ProcessKey, AnySetup] = {READERS: ReaderSetup()}
        self._replaced: Counter[str] = Counter()
        self._latest: deque[str] = deque(maxlen=_ENDS_KEPT)  # why processes have ended
        self._ending = 0  # processes that the keeping thread is about to end
        # Loads ahead whose process ended before a call, in a row, and when the next may be tried.
        self._failed: dict[ProcessKey, tuple[int, float]] = {}
        self._look_at = 0.0  # when the keeping thread looks next, on the monotonic clock
        self._looked = 0.0  # when it looked at all idle processes last
        self._closed = False
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)

    def start(self) -> None:
        """Start the thread that keeps processes ready.

        Raises:
            ExecutorUnavailable: there is no thread for it.
        """
        try:
            self._keeper.start()
        except RuntimeError as error:
            raise ExecutorUnavailable(f"no thread to keep processes with: {error}") from None

    def stop(self) -> None:
        """Keep nothing from now on: all processes are about to end."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def close(self) -> None:
        """Forget everything; to be called after ``stop``, once the zygote has ended."""
        if self._keeper.is_alive():
            self._keeper.join(1.0)  # it may wait for a zygote that starts
        with self._news:
            gone = [*itertools.chain(*self._idle.values(), self._spare)]
            self._spare.clear()
            self._idle.clear()
        for worker in gone:
            worker.close()

    def zygote_died(self) -> None:
        """Load at once what has ended with a zygote; ``ended`` was told of most of its workers."""
        with self._news:
            self._failed.clear()
            for worker in [each for each in self._spare if not each.zygote.alive]:
                self._spare.remove(worker)  # its own end could not be noted
                worker.close()
            self._miss()

    @property
    def replaced(self) -> Mapping[str, int]:
        """How many processes have ended, by the reason."""
        with self._news:
            return dict(self._replaced)

    @property
    def kept(self) -> int:
        """How many processes of plugins there are, idle and busy."""
        with self._news:
            keys = {*self._idle, *self._busy} - {READERS}
            return sum(len(self._idle.get(key, ())) + self._busy[key] for key in keys)

    def want(self, plugins: Sequence[Setup]) -> None:
        """Keep a process of each of these plugins ready, and end those of all others soon."""
        wanted: list[AnySetup] = [ReaderSetup(), *plugins]
        with self._news:
            self._wanted = {each.key: each for each in wanted}
            self._failed.clear()
            self._miss()

    def settle(self, seconds: float) -> list[str]:
        """Wait until each process that was called has compared its state.

        Args:
            seconds: to wait at most.

        Returns:
            Why processes of plugins have ended by themselves since the last call of this, in
            words; without those that have served ``calls_per_process`` calls.
        """
        give_up = time.monotonic() + seconds
        while True:
            with self._news:
                settled, over = self._look()
                for worker, why in over:
                    self._end_idle(worker, why)
                if (settled and not self._ending) or time.monotonic() >= give_up:
                    latest = [*self._latest]
                    self._latest.clear()
                    break
                self._news.wait(_SETTLED_EVERY)
        reasons = ENDS.keys() - {"calls_per_process"}
        return [_in_words(why) for why in latest if why.partition(":")[0] in reasons]

    def keep(self, most: int) -> None:
        """Change how many processes are kept at most."""
        with self._news:
            self._most = most
            self._wake()

    def spare(self, deadline: float) -> Worker:
        """A worker that has done nothing yet.

        Args:
            deadline: to wait for one at most, in seconds on the monotonic clock.

        Raises:
            ExecutorUnavailable: none is available.
        """
        with self._news:
            found = self._spare.pop() if self._spare else None
            self._miss()
        return found or self._fork(deadline)

    def take(self, setup: AnySetup, deadline: float, tried: int = 0) -> Worker:
        """Take a process for one task; it may still be settling.

        An idle one if there is one; but at the second try a new one if one can be made. At the last
        try, and where none can be made, the task waits until the process has settled.

        Args:
            deadline: to wait for one at most, in seconds on the monotonic clock.
            tried: how often the task was handed over before, of ``TRIES``.

        Raises:
            ExecutorUnavailable: none is available.
        """
        if tried == 1:
            with contextlib.suppress(ExecutorUnavailable):
                return self._take(setup, deadline, fresh=True)
        worker = self._take(setup, deadline)
        worker.patient = worker.patient or tried == 1 or tried >= TRIES - 1
        return worker

    def _take(self, setup: AnySetup, deadline: float, fresh: bool = False) -> Worker:
        key = setup.key
        with self._news:
            self._busy[key] += 1
            worker = None if fresh else self._taken(key)
        if worker is not None:
            return worker
        try:
            return self._new(setup, deadline)
        except BaseException:
            self._no_longer_busy(key)
            raise

    def _taken(self, key: ProcessKey) -> Optional[Worker]:
        idle = self._idle.get(key, deque())
        for worker in [*reversed(idle)]:  # the one used last first
            why = "" if worker.ready else worker.hear()
            if why or worker.ready:
                idle.remove(worker)
            if why:
                self._end_idle(worker, why)
            elif worker.ready:
                return worker
        if not idle:
            return None
        worker = idle.popleft()  # none is ready: the one that settles for longest
        worker.patient = len(idle) >= self._parallel
        return worker

    def _new(self, setup: AnySetup, deadline: float) -> Worker:
        nonce = frames.new_nonce()
        frame = frames.pack_task(setup, nonce)  # first: there may be no memory for it
        worker = self.spare(deadline)
        worker.begin_setup(setup, nonce, frame)
        return worker

    def give_back(self, worker: Worker, nonce: int, called: bool) -> None:
        """Keep a process that has answered, unless it serves one call only.

        Args:
            nonce: of the task that it had; READY to that is what the process says next.
            called: its task ran a plugin.
        """
        if called and worker.key.serves_one_call:
            self.discard(worker, "calls_per_process")
            return
        worker.has_answered(nonce, _SETTLE_SECONDS)
        self.put_back(worker)

    def put_back(self, worker: Worker) -> None:
        """Keep a process that was not ready in time for a call, or note that it ended."""
        with self._news:
            self._no_longer_busy(worker.key)
            lives = self._lives(worker)
            if lives:
                self._idle.setdefault(worker.key, deque()).append(worker)
                self._wake()
        if not lives:
            self._end(worker, worker.hear() or "ended")

    def discard(self, worker: Worker, why: str) -> None:
        """End a process, or forget one that has ended."""
        self._no_longer_busy(worker.key)
        self._end(worker, why)

    def _no_longer_busy(self, key: ProcessKey) -> None:
        with self._news:
            self._busy[key] -= 1
            if self._busy[key] <= 0:
                del self._busy[key]

    def _end(self, worker: Worker, why: str) -> None:
        """End a process that nobody else uses.

        Not many while the lock is held: the zygote would wait until somebody, with the lock, reads
        how they ended, and would take no further message.
        """
        if worker.status is None:
            worker.kill()
        worker.close()
        with self._news:
            self._replaced[why.partition(":")[0]] += 1
            if worker.key != READERS:
                self._latest.append(why)
            self._miss()
        if not self._closed:
            _log.debug(
                "a process of %(file)s is ended: %(reason)s",
                {"file": worker.file, "reason": _in_words(why)},
            )

    def _end_idle(self, worker: Worker, why: str) -> None:
        if worker.loading and why.partition(":")[0] in _BY_ITSELF:
            with self._news:
                times, _ = self._failed.get(worker.key, (0, 0.0))
                pause = min(_LONGEST_PAUSE, _TICK * 2 ** min(times, 10))
                self._failed[worker.key] = times + 1, time.monotonic() + pause
        self._end(worker, why)

    def ended(self, worker: Worker) -> None:
        """Note that a worker has ended; an idle one is forgotten."""
        with self._news:
            if worker in self._spare:
                self._spare.remove(worker)
                worker.close()
                self._wake()
                return
            for idle in self._idle.values():
                if worker in idle:
                    idle.remove(worker)
                    self._end_idle(worker, worker.hear() or "ended")
                    return

    def _wake(self) -> None:
        """Have the keeping thread look again soon."""
        self._look_by(time.monotonic() + _TICK)

    def _miss(self) -> None:
        """Have the keeping thread make what is missing at once."""
        self._look_by(0.0)

    def _look_by(self, when: float) -> None:
        if when < self._look_at:
            self._look_at = when
            self._news.notify_all()

    def _keep(self) -> None:
        trouble = ""
        while True:
            with self._news:
                while not self._closed and self._look_at > time.monotonic():
                    self._news.wait(self._look_at - time.monotonic())
                if self._closed:
                    return
                calm = self._is_calm
            if calm:  # the call that ended a process is answered first
                time.sleep(_BREATH)
            try:
                settled, trouble = self._end_and_make(), ""
            except Exception as error:  # noqa: BLE001  nobody else would keep processes ready
                settled, before, trouble = False, trouble, repr(error)
                if trouble != before:
                    _log.error("processes cannot be kept ready: %(reason)s", {"reason": trouble})
            with self._news:
                self._look_by(time.monotonic() + (self._rest() if settled else _TICK))

    @property
    def _is_calm(self) -> bool:
        """Whether no call is under way, and none that comes now waits for a process to be made."""
        return not self._busy and len(self._spare) >= SPARE

    def _rest(self) -> float:
        """Seconds until a load ahead that failed may be tried again, and at most ``_REST``."""
        now = time.monotonic()
        pauses = [due - now for _, due in self._failed.values() if due > now]
        return max(_TICK, min([_REST, *pauses]))

    def _end_and_make(self) -> bool:
        """End the processes that have to end, and make those that are missing.

        Returns:
            Whether there is nothing more to do until something changes.
        """
        with self._news:
            if self._closed:
                return True
            self._look_at = math.inf
            due = time.monotonic() >= self._looked + _TICK  # not for each process that is missed
            settled, over = self._look() if due else (False, [])
            self._ending = len(over)
        for worker, why in over:
            self._end_idle(worker, why)
        with self._news:
            self._ending = 0
            missing = [*self._missing()]  # an end just now may put off the next load
            few = SPARE - len(self._spare)
        return not self._make(missing, few) and settled

    def _look(self) -> tuple[bool, list[tuple[Worker, str]]]:
        """Look at all idle processes.

        Returns:
            Whether all that stay are ready for a call; and those that have to end, with the reason.
        """
        now = self._looked = time.monotonic()
        settled = True
        over: list[tuple[Worker, str]] = []
        everyone = sorted(itertools.chain(*self._idle.values()), key=lambda worker: worker.used)
        of_plugins = [worker for worker in everyone if worker.key != READERS]
        too_many = {*of_plugins[: max(0, self.kept - self._most)]}  # those used longest ago
        try:
            for worker in everyone:
                why = worker.hear()
                if not why and not worker.ready:
                    settled = False
                    with contextlib.suppress(OSError):  # memory lacks: the next look tries again
                        worker.send_setup()
                    why = "did not get ready" if now >= worker.ready_by else ""
                worker.drop_output()
                if not why and worker.ready:
                    if now >= worker.ready_by:  # ready for a while: the plugin loads well
                        self._failed.pop(worker.key, None)
                    why = self._superfluous(worker, now, worker in too_many)
                if why:
                    over.append((worker, why))
                    self._idle[worker.key].remove(worker)
        except MemoryError:  # what was found is ended; the next look goes on
            settled = False
        self._idle = {key: idle for key, idle in self._idle.items() if idle}
        return settled, over

    def _superfluous(self, worker: Worker, now: float, too_many: bool) -> str:
        """Why a process that is ready should not be kept; empty if it should."""
        if worker.key not in self._wanted and now >= worker.used + _IDLE_SECONDS:
            return "not in use"
        if worker.grown and now >= worker.used + _GROWN_SECONDS:
            return "grown"
        if too_many:
            return "kept_processes"
        if now >= worker.born + _LIFE_SECONDS:
            return "age"
        others = len(self._idle[worker.key]) > self._ahead_of(worker.key)
        return "idle" if others and now >= worker.used + _IDLE_SECONDS else ""

    @staticmethod
    def _ahead_of(key: ProcessKey) -> int:
        return _AHEAD_OF_SINGLE if key.serves_one_call else 1

    def _missing(self) -> Iterator[ProcessKey]:
        """The plugins in use that have too few processes; one that lacks two comes twice."""
        room = self._most - self.kept
        now = time.monotonic()
        for key in self._wanted:
            there = len(self._idle.get(key, ())) + (0 if key.serves_one_call else self._busy[key])
            for _ in range(there, self._ahead_of(key)):
                has_room = room > 0 or key == READERS
                if has_room and now >= self._failed.get(key, (0, 0.0))[1]:
                    room -= key != READERS
                    yield key

    def _make(self, missing: list[ProcessKey], few: int) -> bool:
        """Fork the processes that are missing; whether there was anything to do."""
        try:
            for _ in range(few):
                worker = self._fork(math.inf)
                with self._news:
                    if self._lives(worker):
                        self._spare.append(worker)
                    else:
                        worker.close()
            for key in missing:
                self._load(self._new(self._wanted[key], math.inf))
        except (ExecutorUnavailable, KeyError):  # a request finds the same, and tells
            return False
        return bool(missing) or few > 0

    def _load(self, worker: Worker) -> None:
        """Have a process load its plugin before a call needs it."""
        worker.ready_by = time.monotonic() + _LOAD_SECONDS
        with self._news:
            if self._lives(worker):
                self._idle.setdefault(worker.key, deque()).append(worker)
                with contextlib.suppress(OSError):  # memory lacks: the next look tries again
                    worker.send_setup()
            else:
                self._end_idle(worker, "ended")

    def _lives(self, worker: Worker) -> bool:
        """Whether a worker can be kept: it lives, and its end would be noticed."""
        return not self._closed and worker.status is None and worker.zygote.alive
