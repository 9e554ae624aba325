"""The pool of processes: those of plugins and readers, kept between tasks, and spare ones.

::

    take ──► one that is idle, the one used last first ──► a task ──► give_back
         └─► else a spare one, which gets its setup before the task

    maintenance thread: ends a process that settles too slowly, sends something unasked, is
      (pool_maintenance)  old, or is one too many; loads a process for a plugin that has none

A process serves one version of one plugin under its limits, or reads documents (``ProcessKey``).
Safe to use from many threads.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable, Optional, Union

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import ProcessKey
from ovirt_scheduler.model.tasks import READERS, ReaderSetup, Setup
from ovirt_scheduler.processes.ending_counts import EndingCounts
from ovirt_scheduler.processes.pool_maintenance import Allowance, Delays, Maintenance
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.protocol.ending import ENDED, Ending, Reason
from ovirt_scheduler.processes.timing import TIMES, ProcessTimes
from ovirt_scheduler.processes.worker_handle import NO_SETUP, Worker

SPARE = 2  # workers forked ahead
# How often a task is handed over: an idle process, each spare one and a new one may be killed.
TRIES = SPARE + 3

_BREATH = 0.002  # seconds before a process is made that nobody waits for
_SETTLED_EVERY = 0.01  # seconds between two looks of who waits for processes to be compared
_AHEAD_OF_SINGLE = 2  # processes kept ready of a plugin whose processes serve one call each

AnySetup = Union[Setup, ReaderSetup]

_LATE = Ending(Reason.NOT_READY)


class Pool:
    """Processes of plugins, readers and spare workers; safe to use from many threads.

    Args:
        fork: gives a new worker until a deadline; raises ExecutorUnavailable.
        most: processes of plugins to keep.
        parallel: calls at the same time: no plugin needs more processes.
        times: how long processes are kept, and waited for.

    Attributes:
        endings: why processes have ended.
        maintenance: the thread that keeps processes ready.
    """

    def __init__(
        self, fork: Callable[[float], Worker], most: int, parallel: int, times: ProcessTimes = TIMES
    ) -> None:
        self.times = times
        self._fork = fork
        self._most = most
        self._parallel = parallel
        self._lock = threading.RLock()
        self._idle: dict[ProcessKey, deque[Worker]] = {}
        self._busy: Counter[ProcessKey] = Counter()
        self._spare: list[Worker] = []
        self._over: deque[tuple[Worker, Ending]] = deque()  # idle no more, to be ended for a reason
        self._ending = 0  # processes of these that are being ended
        self._setups: Mapping[ProcessKey, AnySetup] = {READERS: ReaderSetup()}
        self.endings = EndingCounts()
        self._failed = Delays()  # loads ahead whose process ended before a call
        self._unproven = False  # whether one said READY since its task, and was not asked again
        self._looked = 0.0  # when all idle processes were looked at last, on the monotonic clock
        self._closed = False
        self._allowance = Allowance()
        self.maintenance = Maintenance(self._breath, self._end_and_make)

    def start(self) -> None:
        """Start the thread that keeps processes ready.

        Raises:
            ExecutorUnavailable: there is no thread for it.
        """
        self.maintenance.start()

    def stop(self) -> None:
        """Keep nothing from now on: all processes are about to end."""
        with self._lock:
            self._closed = True
        self.maintenance.stop()

    def close(self) -> None:
        """Forget everything; to be called after ``stop``, once the zygote has ended."""
        self.maintenance.join(1.0)  # it may wait for a zygote that starts
        with self._lock:
            over = (worker for worker, _ in self._over)
            for worker in itertools.chain(*self._idle.values(), self._spare, over):
                worker.close()
            for shelf in (self._idle, self._spare, self._over):
                shelf.clear()

    def zygote_died(self) -> None:
        """Close what waited ahead below a zygote that died, and load plugins again at once."""
        with self._lock:
            self._failed.clear()
            for worker in [each for each in self._spare if not each.zygote.alive]:
                self._spare.remove(worker)  # its own end could not be noted
                worker.close()
        self.maintenance.wake()

    @property
    def of_plugins(self) -> int:
        """How many processes of plugins there are, idle and busy."""
        with self._lock:
            keys = {*self._idle, *self._busy} - {READERS}
            return sum(len(self._idle.get(key, ())) + self._busy[key] for key in keys)

    def prewarm(self, plugins: Sequence[Setup]) -> None:
        """Keep a process of each of these plugins ready, and end those of all others soon."""
        setups: list[AnySetup] = [ReaderSetup(), *plugins]
        with self._lock:
            self._setups = {each.key: each for each in setups}
            self._failed.clear()
        self.maintenance.wake()

    def wait_until_idle(self, seconds: float) -> list[str]:
        """Wait until each process that was called has compared its state.

        Args:
            seconds: to wait at most.

        Returns:
            What ``EndingCounts.pop_latest`` does.
        """
        give_up = time.monotonic() + seconds
        while True:
            with self._lock:
                settled = self._look()
            self._end_over()
            if (settled and not (self._over or self._ending)) or time.monotonic() >= give_up:
                return self.endings.pop_latest()
            time.sleep(_SETTLED_EVERY)

    def keep_at_most(self, most: int) -> None:
        """Change how many processes are kept at most."""
        self._most = most
        self.maintenance.wake(self.times.tick)

    def _fresh(self, deadline: float) -> Worker:
        """A worker that has done nothing yet."""
        with self._lock:
            self.maintenance.wake()
            if self._spare:
                return self._spare.pop()
        return self._fork(deadline)

    def take(self, setup: Optional[AnySetup], deadline: float, tries: int = 0) -> Worker:
        """Take a process for one task; it may still be settling.

        An idle one if there is one; but at the second try a new one if one can be made. At the last
        try, and where none can be made, the task waits until the process has settled.

        Args:
            setup: what the process serves; None: one that has done nothing yet, and ends with this.
            deadline: to wait for one at most, in seconds on the monotonic clock.
            tries: how often the task was handed over before, of ``TRIES``.

        Raises:
            ExecutorUnavailable: none is available.
        """
        if setup is None:
            return self._fresh(deadline)
        with self._lock:
            self._busy[setup.key] += 1
        worker: Optional[Worker] = None
        try:
            if tries == 1:
                with contextlib.suppress(ExecutorUnavailable):
                    worker = self._new(setup, deadline)
            if worker is None:
                worker = self._idle_worker(setup.key) or self._new(setup, deadline)
                worker.patient = worker.patient or tries == 1 or tries >= TRIES - 1
        except BaseException:
            self._no_longer_busy(setup.key)
            raise
        return worker

    def _idle_worker(self, key: ProcessKey) -> Optional[Worker]:
        """Take an idle process, if there is one that may serve the next task."""
        with self._lock:
            idle = self._idle.get(key, deque())
            for worker in [*reversed(idle)]:  # the one used last first
                why = None if worker.is_ready else worker.poll_messages()
                if why or worker.is_ready:
                    idle.remove(worker)
                if why:
                    self._end_idle(worker, why)
                elif worker.is_ready:
                    return worker
            if not idle:
                return None
            worker = idle.popleft()  # none is ready: the one that settles for longest
            worker.patient = len(idle) >= self._parallel
            return worker

    def _new(self, setup: AnySetup, deadline: float) -> Worker:
        nonce = frames.new_nonce()
        frame = frames.pack_task(setup, nonce)  # first: there may be no memory for it
        worker = self._fresh(deadline)
        with worker.abandoned_on_error():
            worker.begin_setup(setup, nonce, frame)
        return worker

    def give_back(self, worker: Worker, nonce: int, called: bool) -> None:
        """Keep a process that has answered, unless it was for one call, or for one task, only.

        Args:
            nonce: of the task that it had; READY to that is what the process says next.
            called: its task ran a plugin.
        """
        if worker.key is NO_SETUP or (called and worker.key.serves_one_call):
            self.discard(worker, Ending(Reason.SERVED, "calls_per_process"))
            return
        if called:
            worker.zygote.sweep()
        worker.has_answered(nonce, self.times.settle)
        self.put_back(worker)

    def put_back(self, worker: Worker) -> None:
        """Keep a process that was not ready in time for a call, or note that it ended."""
        with self._lock:
            self._no_longer_busy(worker.key)
            lives = self._lives(worker)
            if lives:
                self._idle.setdefault(worker.key, deque()).append(worker)
        if lives:
            self.maintenance.wake(self.times.tick)
        else:
            self._end(worker, worker.poll_messages() or ENDED)

    def discard(self, worker: Worker, why: Ending) -> None:
        """End a process that a task has used up, or forget one that has ended."""
        if worker.key is NO_SETUP:
            worker.abandon()
            return
        self._allowance.earn()
        self._no_longer_busy(worker.key)
        self._end(worker, why)

    def _no_longer_busy(self, key: ProcessKey) -> None:
        with self._lock:
            self._busy[key] -= 1
            if self._busy[key] <= 0:
                del self._busy[key]

    def _end(self, worker: Worker, why: Ending) -> None:
        """End a process that nobody else uses.

        Not many while the lock is held: the zygote would wait until somebody, with the lock, reads
        how they ended, and would take no further message.
        """
        worker.abandon()
        self.maintenance.wake()
        if not self._closed:
            self.endings.note(why, worker.file, is_of_a_plugin=worker.key != READERS)

    def _end_idle(self, worker: Worker, why: Ending) -> None:
        if not worker.was_called and why.reason not in (Reason.SURPLUS, Reason.OUTDATED):
            self._failed.put_off(worker.key, self.times.tick)
        self._end(worker, why)

    def _end_over(self) -> None:
        """End the processes that were found to have to end."""
        while True:
            with self._lock:
                if not self._over:
                    return
                worker, why = self._over.popleft()
                self._ending += 1
            try:
                self._end_idle(worker, why)
            finally:
                with self._lock:
                    self._ending -= 1

    def ended(self, worker: Worker) -> None:
        """Note that a worker has ended; an idle one is forgotten."""
        with self._lock:
            if worker in self._spare:
                self._spare.remove(worker)
                worker.close()
                self.maintenance.wake(self.times.tick)
                return
            for idle in self._idle.values():
                if worker in idle:
                    idle.remove(worker)
                    self._end_idle(worker, worker.poll_messages() or ENDED)
                    return

    def _breath(self) -> float:
        """Seconds to wait first: the call that ended a process is answered before one is made."""
        with self._lock:
            is_calm = not self._busy and len(self._spare) >= SPARE  # nobody waits for it
        return _BREATH if is_calm else 0.0

    def _end_and_make(self) -> float:
        """End the processes that have to end, and make those that are missing.

        Returns:
            For how many seconds there is nothing more to do unless something changes.
        """
        with self._lock:
            if self._closed:
                return self.times.rest
            # Not for each process that is missed.
            due = time.monotonic() >= self._looked + self.times.tick
            settled = due and self._look()
        self._end_over()
        with self._lock:
            missing = [*self._missing()]  # an end just now may put off the next load
            few = SPARE - len(self._spare)
        if self._make(missing, few) or not settled or self._unproven:
            return self.times.tick
        return max(self.times.tick, min(self.times.rest, self._failed.shortest()))

    def _look(self) -> bool:
        """Look at all idle processes; those that have to end are then in ``_over``.

        Returns:
            Whether all that stay are ready for a call.
        """
        now = self._looked = time.monotonic()
        settled, self._unproven = True, False
        everyone = sorted(itertools.chain(*self._idle.values()), key=lambda worker: worker.used)
        of_plugins = [worker for worker in everyone if worker.key != READERS]
        too_many = {*of_plugins[: max(0, self.of_plugins - self._most)]}  # those used longest ago
        try:
            for worker in everyone:
                why = worker.poll_messages()
                if not why and not worker.is_ready:
                    settled = False
                    with contextlib.suppress(OSError):  # memory lacks: the next look tries again
                        worker.send_setup()
                    why = _LATE if now >= worker.ready_by else None
                worker.drop_output()
                if not why and worker.is_ready:
                    if now >= worker.ready_by:  # ready for a while: the plugin loads well
                        self._failed.forget(worker.key)
                    why = self._superfluous(worker, now, worker in too_many)
                    if not why and worker.key != READERS:  # no plugin runs in a reader
                        self._unproven |= worker.prove(now - self.times.tick, self.times.settle)
                if why:
                    self._over.append((worker, why))
                    self._idle[worker.key].remove(worker)
        except MemoryError:  # what was found is ended; the next look goes on
            settled = False
        self._idle = {key: idle for key, idle in self._idle.items() if idle}
        return settled

    def _superfluous(self, worker: Worker, now: float, too_many: bool) -> Optional[Ending]:
        """Why a process that is ready should not be kept; None if it should."""
        if worker.key not in self._setups and now >= worker.used + self.times.idle:
            return Ending(Reason.OUTDATED)
        if worker.has_grown and now >= worker.used + self.times.grown:
            return Ending(Reason.SURPLUS, "it took more memory than a new one, and was idle")
        if too_many:
            return Ending(Reason.SURPLUS, "there were more than kept_processes")
        if now >= worker.born + self.times.life:
            return Ending(Reason.SERVED, "it was kept for an hour")
        others = len(self._idle[worker.key]) > self._ahead_of(worker.key)
        idle = others and now >= worker.used + self.times.idle
        return Ending(Reason.SURPLUS, "it was idle") if idle else None

    @staticmethod
    def _ahead_of(key: ProcessKey) -> int:
        return _AHEAD_OF_SINGLE if key.serves_one_call else 1

    def _missing(self) -> Iterator[ProcessKey]:
        """The plugins in use that have too few processes; one that lacks two comes twice."""
        room = self._most - self.of_plugins
        for key in self._setups:
            there = len(self._idle.get(key, ())) + (0 if key.serves_one_call else self._busy[key])
            for _ in range(there, self._ahead_of(key)):
                has_room = room > 0 or key == READERS
                if has_room and not self._failed.holds_up(key):
                    room -= key != READERS
                    yield key

    def _make(self, missing: list[ProcessKey], few: int) -> bool:
        """Make the processes that are missing; whether there was anything to do.

        One that cannot be made does not keep the others away: what it raises is raised at the end.
        """
        failure: Optional[Exception] = None
        try:
            for _ in range(few):
                if not self._allowance.spend():
                    return True
                self._keep_spare(self._fork(math.inf))
            for key in missing:
                if not (self._spare or self._allowance.spend()):
                    return True
                try:
                    self._load(self._new(self._setups[key], math.inf))
                except (ExecutorUnavailable, KeyError):
                    raise
                except Exception as error:  # noqa: BLE001
                    self._failed.put_off(key, self.times.tick)
                    failure = error
        except (ExecutorUnavailable, KeyError):  # a request finds the same, and tells
            return False
        if failure is not None:
            raise failure
        return bool(missing) or few > 0

    def _keep_spare(self, worker: Worker) -> None:
        with self._lock, worker.abandoned_on_error():
            if self._lives(worker):
                self._spare.append(worker)
            else:
                worker.close()

    def _load(self, worker: Worker) -> None:
        """Have a process load its plugin before a call needs it."""
        worker.ready_by = time.monotonic() + self.times.load
        with self._lock:
            with worker.abandoned_on_error():
                if not self._lives(worker):
                    self._end_idle(worker, ENDED)
                    return
                self._idle.setdefault(worker.key, deque()).append(worker)
            with contextlib.suppress(OSError, MemoryError):  # the next look tries again
                worker.send_setup()

    def _lives(self, worker: Worker) -> bool:
        """Whether a worker can be kept: it lives, and its end would be noticed."""
        return not self._closed and worker.status is None and worker.zygote.alive
