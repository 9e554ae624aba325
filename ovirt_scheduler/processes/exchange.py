"""The exchange of one task and its answer with a worker, without ever blocking.

::

    begin ─► SETTLING ─READY─► UNDER_WAY ─┬─► ANSWERED
               │    │                     ├─► TIMED_OUT, ENDED, MISLED, NOT_SENT: no answer
               │    └─────────────────────┴─► NOT_BEGUN ─┐ the worker took no task:
               └────────────────────────────► NOT_READY ─┴─► begin, with another one

``completed`` is the loop of whoever has tasks: one poll waits for the sockets and pipes of all
workers that have one, until the nearest deadline.
"""

from __future__ import annotations

import enum
import functools
import math
import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Optional, TypeVar

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.tasks import Task
from ovirt_scheduler.processes.pool import TRIES, AnySetup, Pool
from ovirt_scheduler.processes.protocol import ending, frames, stacks
from ovirt_scheduler.processes.protocol.ending import ABANDONED, ENDED, Ending, Reason
from ovirt_scheduler.processes.worker_handle import Worker

OUTPUT_LIMIT = 1 << 20  # bytes kept of each of a call's stdout and stderr (contract 5.4)
_CHUNK = 1 << 16
_TRACE_SECONDS = 0.5  # before its end that a process is asked where it is; a quarter at most


class ExchangeState(enum.Enum):
    """The progress of an exchange."""

    WAITING = "waiting"  # for a worker
    SETTLING = "settling"  # the worker has not said yet that it has finished the task before
    UNDER_WAY = "under way"
    ANSWERED = "answered"
    TOO_LATE = "too late"  # its time was over before a worker had it
    NOT_READY = "not ready"  # its worker takes longer to settle than there is patience for
    NOT_BEGUN = "not begun"  # its worker ended before it took the task: another can have it
    TIMED_OUT = "timed out"
    ENDED = "ended"  # its worker did, without an answer
    MISLED = "misled"  # what came is no answer; ``problem`` says why
    NOT_SENT = "not sent"  # descriptors or memory lack for the task; likewise


# Why a worker ends, where it has not said so itself.
_ENDINGS = {
    ExchangeState.ANSWERED: None,
    ExchangeState.NOT_BEGUN: ENDED,
    ExchangeState.ENDED: ENDED,
    ExchangeState.MISLED: Ending(Reason.MISLED),
    ExchangeState.TIMED_OUT: Ending(Reason.FAILED, ExchangeState.TIMED_OUT.value),
    ExchangeState.NOT_SENT: Ending(Reason.FAILED, ExchangeState.NOT_SENT.value),
}

_OPEN = (ExchangeState.SETTLING, ExchangeState.UNDER_WAY)
_OF_AN_ANSWER = (frames.ANSWER, frames.STDOUT, frames.STDERR, frames.DIFFERS)


class Exchange:
    """What is sent to a worker, and what has come back.

    Args:
        setup: what the worker serves; None: it does this task alone.
        deadline: to begin until then, in seconds on the monotonic clock; the worker is killed then.
        limit: bytes of the answer.
        task: what is sent; whoever derives from this may make it in ``_packed`` instead.
        file: of the plugin whose code runs in a worker that does one task, for the log.
        most_descriptors: that may come with the answer.

    Attributes:
        worker: that has the task, from ``begin`` on.
        timeout: seconds that the task may take.
        grace: further seconds in which it may say itself that they are over.
        kept_output: bytes to keep of each of stdout and stderr.
        runs_plugin: the task is a call of a plugin.
        traceback: where the plugin's process was shortly before its time was over, if it told.
        tries: how often the task was handed to a worker that did not take it.
        until: when it is over, on the monotonic clock.
        due: when it is over, or the patience with its worker, on the monotonic clock.
        unsent: the rest of the task's frame.
        descriptors: that came with the answer; whoever takes one closes it.
        lacks_descriptors: some came, and this process had no room for them.
        ending: why the worker ends, if it said so before its answer, or said what cannot be read.
            Processes that the call started may run until then.
        status: how the worker ended, as waitpid(2) gives it, if it has; None: it is not known.
        payloads: of each frame that came, by its kind.
        output: of stdout and stderr, as much as is kept.
        printed: bytes that came there.
    """

    state = ExchangeState.WAITING
    timeout = math.inf
    grace = 0.0
    kept_output = OUTPUT_LIMIT
    runs_plugin = False
    traceback = ""
    tries = 0
    problem = ""
    lacks_descriptors = False
    ending: Optional[Ending] = None
    status: Optional[int] = None
    started = seconds = 0.0  # when it began, on the monotonic clock, and how long it took
    worker: Worker
    nonce: int
    unsent: memoryview
    due: float

    def __init__(
        self,
        setup: Optional[AnySetup],
        deadline: float,
        limit: int,
        task: Optional[Task] = None,
        file: str = "",
        most_descriptors: int = 0,
    ) -> None:
        self.setup = setup
        self.deadline = deadline
        self.limit = limit
        self.file = file
        self.most_descriptors = most_descriptors
        self._task = task
        self._passed: Sequence[int] = ()
        self.until = math.inf

    @property
    def events(self) -> int:
        """What to wait for at the worker's socket."""
        settling = self.state is ExchangeState.SETTLING
        unsent = self.worker.setup if settling else self.unsent
        return select.POLLIN | (select.POLLOUT if unsent else 0)

    def _packed(self) -> tuple[memoryview, Sequence[int]]:
        """The frame of the task, and the descriptors that go with it."""
        return frames.pack_task(self._task, self.nonce), ()

    def begin(self, pool: Pool) -> None:
        """Take a worker, and send it the task, or what has to come before it.

        Raises:
            ExecutorUnavailable: no worker is available.
        """
        self.ending = self.status = None
        self._runs_code = self.runs_plugin or bool(self.file)  # of others, which may hang
        self._was_traced = False
        self.payloads: dict[bytes, bytes] = {}
        self.descriptors: list[int] = []
        self.output, self.printed = (bytearray(), bytearray()), [0, 0]
        if time.monotonic() >= self.deadline:
            self.state = ExchangeState.TOO_LATE
            return
        self.nonce = frames.new_nonce()
        self.unsent, self._passed = self._packed()  # first: there may be no memory for it
        self.worker = worker = pool.take(self.setup, self.deadline, self.tries)
        try:
            worker.file = self.file or worker.file
            self.started = time.monotonic()  # from here on its time counts
            self.due = self.until = min(self.started + self.timeout, self.deadline) + self.grace
            if worker.is_ready:
                self._send_task()
                return
            self.state = ExchangeState.SETTLING
            if worker.was_called:
                patience = worker.ready_by if worker.patient else self.started + pool.times.patience
                self.due = min(self.until, patience)
            self.send()
        except BaseException:
            pool.discard(worker, ABANDONED)
            raise

    def _send_task(self) -> None:
        self.state, self.due = ExchangeState.UNDER_WAY, self.until
        if self._runs_code:
            self.due -= min(_TRACE_SECONDS, (self.until - time.monotonic()) / 4)
        self.worker.unframer.limit = self.limit
        self.worker.drop_output()
        self.send()

    def send(self) -> None:
        """Send what the socket takes without waiting."""
        try:
            if self.state is ExchangeState.SETTLING:
                self.worker.send_setup()
                return
            while self.unsent:
                sent = self.worker.send(self.unsent, self._passed)
                if not sent:
                    return
                self.unsent, self._passed = self.unsent[sent:], ()
        except ConnectionError:
            self._end(ExchangeState.NOT_BEGUN)
        except OSError as error:  # descriptors or memory lack
            self.problem = f"its task cannot be sent: {error.strerror}"
            self._end(ExchangeState.NOT_SENT)

    def receive(self) -> None:
        """Read what the worker has sent, without waiting."""
        if self.state is ExchangeState.SETTLING:
            self.ending = self.worker.poll_messages()
            if self.ending:
                self._end(ExchangeState.NOT_BEGUN)
            elif self.worker.is_ready:
                self._send_task()
            return
        try:
            data = self._with_descriptors() if self.most_descriptors else self.worker.receive()
            if data == b"":
                self._end(ExchangeState.ENDED)
                return
            for frame in self.worker.unframer.feed(data or b""):
                self._take_in(*frame)
                if self.state not in _OPEN:  # the unframer keeps what is said after the answer
                    return
        except ConnectionError:
            self._end(ExchangeState.NOT_BEGUN)
        except frames.FrameError as error:
            self._mislead(str(error))

    def _take_in(self, kind: bytes, nonce: int, payload: bytes) -> None:
        # One of each kind: without end, they would keep this thread busy.
        if kind not in _OF_AN_ANSWER or nonce != self.nonce or kind in self.payloads:
            self._mislead("it answered out of turn")
            return
        self.payloads[kind] = payload
        if kind == frames.DIFFERS:
            self.ending = ending.unpack(payload)
        elif kind == frames.ANSWER:
            for place, stream in enumerate((frames.STDOUT, frames.STDERR)):
                if stream in self.payloads:
                    self.keep_output(place, self.payloads[stream])
            self._end(ExchangeState.ANSWERED)

    def _mislead(self, problem: str) -> None:
        self.problem = f"its answer cannot be read: {problem}"
        self._end(ExchangeState.MISLED)

    def _with_descriptors(self) -> Optional[bytes]:
        """Receive as ``Worker.receive`` does, with descriptors."""
        try:
            data, came, flags, _ = socket.recv_fds(
                self.worker.channel, _CHUNK, frames.MOST_DESCRIPTORS
            )
        except BlockingIOError:
            return None
        self.descriptors += came
        self.lacks_descriptors = bool(flags & socket.MSG_CTRUNC)
        if self.lacks_descriptors:
            raise frames.FrameError("the daemon has no descriptors for it")
        if len(self.descriptors) > self.most_descriptors:
            raise frames.FrameError("more descriptors than documents")
        return data

    def keep_output(self, place: int, data: bytes) -> None:
        """Keep what came of stdout (0) or stderr (1) as far as there is room; count all of it."""
        buffer = self.output[place]
        buffer += data[: self.kept_output - len(buffer)]
        self.printed[place] += len(data)

    def _end(self, state: ExchangeState) -> None:
        self.state = state
        self.seconds = time.monotonic() - self.started
        if self._was_traced:
            self.traceback = stacks.take_out(self.output[1])

    def end_in_time(self, now: float) -> None:
        """End the exchange: its time, or the patience with its worker, is over.

        Shortly before its time is over, have the worker tell where it is.
        """
        if self.state is ExchangeState.UNDER_WAY and now < self.until:
            self._was_traced, self.due = True, self.until
            self.worker.zygote.trace(self.worker)
            return
        self._end(ExchangeState.TIMED_OUT if now >= self.until else ExchangeState.NOT_READY)

    def end_worker(self, last_seconds: float) -> None:
        """Have the worker end if there is no answer, or something of the task still runs.

        One whose connection has ended may be about to end by itself, and its own status says why.

        Args:
            last_seconds: to wait for that.
        """
        if self.ending or self.state not in (ExchangeState.ANSWERED, ExchangeState.NOT_READY):
            self.status = self.worker.end(
                last_seconds if self.state is ExchangeState.ENDED else 0.0
            )

    def is_another_workers(self) -> bool:
        """Whether another worker can have the task.

        Raises:
            ExecutorUnavailable: no process can be forked.
        """
        if self.state is not ExchangeState.NOT_BEGUN:
            return self.state is ExchangeState.NOT_READY
        if self.tries >= TRIES - 1 and self.status is not None and self.status < 0:
            reason = os.strerror(-self.status)
            raise ExecutorUnavailable(f"no process can be started: {reason}")
        return self.tries < TRIES - 1

    def release(self, pool: Pool) -> None:
        """Give the worker back or, for whatever reason it cannot be kept, end it."""
        while self.descriptors:  # that nobody took
            os.close(self.descriptors.pop())
        if self.state is ExchangeState.NOT_READY:
            pool.put_back(self.worker)
        elif ends := self.ending or _ENDINGS[self.state]:
            pool.discard(self.worker, ends)
        else:
            pool.give_back(self.worker, self.nonce, self.runs_plugin)

    def how_the_worker_ended(self, which: str = "") -> str:
        """The end of the process, without an answer, as the end of a sentence."""
        if self.status is None:
            return "does not end" if self.worker.zygote.alive else "ended with the zygote"
        code = os.waitstatus_to_exitcode(self.status)
        if code < 0:
            return f"died by {frames.signal_name(-code)}"
        if code == frames.OUT_OF_MEMORY:
            return "ran out of memory"
        return f"ended {which}without an answer (exit status {code})"


AnyExchange = TypeVar("AnyExchange", bound=Exchange)


def completed(pool: Pool, waiting: deque[AnyExchange], parallel: int = 1) -> Iterator[AnyExchange]:
    """Have workers do tasks, each as soon as fewer than ``parallel`` are under way.

    A worker without an answer, or with something of the call that still runs, has ended when its
    exchange comes from here. Others are given back after the body of the loop, or end if it raises.

    Args:
        waiting: what is to begin, the first one first; more may be added meanwhile.

    Raises:
        ExecutorUnavailable: no worker is available.
    """
    running: list[AnyExchange] = []
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                exchange = waiting.popleft()
                exchange.begin(pool)
                if exchange.state is ExchangeState.TOO_LATE:
                    yield exchange
                else:
                    running.append(exchange)
            for exchange in _wait(running, pool.times.quiet) if running else ():
                exchange.end_worker(pool.times.last)
                is_another_workers = exchange.is_another_workers()
                if not is_another_workers:
                    yield exchange
                running.remove(exchange)
                exchange.release(pool)
                if is_another_workers:
                    exchange.tries += 1
                    waiting.appendleft(exchange)
    finally:
        for exchange in running:
            exchange.ending = exchange.ending or ABANDONED
            exchange.release(pool)


def _wait(exchanges: Sequence[AnyExchange], quiet: float) -> list[AnyExchange]:
    """Wait until at least one of these has ended; those that have.

    Args:
        quiet: seconds without a word from any worker, after which the zygote is asked for one.
    """
    poller = select.poll()
    watched: dict[int, tuple[Exchange, Optional[int]]] = {}  # by descriptor
    for exchange in exchanges:
        if exchange.state in _OPEN:
            _watch(exchange, poller, watched)
    while True:
        ended = [exchange for exchange in exchanges if exchange.state not in _OPEN]
        if ended:
            return ended
        seconds = min(exchange.due for exchange in exchanges) - time.monotonic()
        happened = poller.poll(max(0.0, min(seconds, quiet)) * 1000)
        # The pipes stand behind their socket: what is there when an answer is, came before it.
        for descriptor, events in reversed(happened):
            which, place = watched[descriptor]
            if which.state in _OPEN:
                _handle(which, place, descriptor, events, poller)
        if not happened and seconds > quiet:
            exchanges[0].worker.zygote.check_alive()  # it may never have forked the worker
        now = time.monotonic()
        for exchange in exchanges:
            if exchange.state in _OPEN and now >= exchange.due:
                exchange.end_in_time(now)


def _watch(
    exchange: Exchange, poller: select.poll, watched: dict[int, tuple[Exchange, Optional[int]]]
) -> None:
    """Have the poller watch the worker's socket, and its pipes: stdout (0) and stderr (1)."""
    worker = exchange.worker
    poller.register(worker.channel, exchange.events)
    watched[worker.channel.fileno()] = exchange, None
    for place, pipe in enumerate((worker.stdout, worker.stderr)):
        poller.register(pipe, select.POLLIN)
        watched[pipe] = exchange, place


def _handle(
    exchange: Exchange, place: Optional[int], descriptor: int, events: int, poller: select.poll
) -> None:
    """Read or send what one descriptor of an open exchange is ready for.

    Args:
        place: of the output that comes there; None: it is the socket.
    """
    if place is not None:
        settling = exchange.state is ExchangeState.SETTLING
        keep = None if settling else functools.partial(exchange.keep_output, place)
        if exchange.worker.drain(descriptor, keep):
            poller.unregister(descriptor)
        return
    if events & select.POLLOUT:
        exchange.send()
    if exchange.state in _OPEN and events & ~select.POLLOUT:
        exchange.receive()
    if exchange.state in _OPEN:
        poller.modify(descriptor, exchange.events)
