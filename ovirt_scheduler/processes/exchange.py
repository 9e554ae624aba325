"""The exchange of one task and its answer with a worker, without ever blocking.

One thread waits for one or several exchanges: a poll over the workers' sockets and pipes, until
the nearest deadline. A worker that still compares its state gets the task when it is ready.
"""

from __future__ import annotations

import enum
import math
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import Limits
from ovirt_scheduler.model.results import Outcome
from ovirt_scheduler.processes.protocol import ending, frames
from ovirt_scheduler.processes.protocol.ending import Ending
from ovirt_scheduler.processes.workers import Worker

OUTPUT_LIMIT = 1 << 20  # bytes kept of each of a call's stdout and stderr (contract 5.4)
_CHUNK = 1 << 16
_PATIENCE = 0.005  # seconds for a process to settle, before another is used
_LAST_SECONDS = 0.5  # for a worker whose connection has ended to have ended itself
_SHOWN_AS_EQUAL = 0.05  # seconds, of two times that a message has
_QUIET = 5.0  # seconds without a word from any worker, after which the zygote is asked for one


class State(enum.Enum):
    """The progress of an exchange."""

    SETTLING = "settling"  # the worker has not said yet that it is done with the task before
    UNDER_WAY = "under way"
    ANSWERED = "answered"
    NOT_READY = "not ready"  # its worker takes longer to settle than there is patience for
    NOT_BEGUN = "not begun"  # its worker ended before it took the task: another can have it
    TIMED_OUT = "timed out"
    ENDED = "ended"  # its worker did, without an answer
    MISLED = "misled"  # what came is no answer; ``problem`` says why
    NOT_SENT = "not sent"  # descriptors or memory lack for the task; likewise


_OPEN = (State.SETTLING, State.UNDER_WAY)
_OF_AN_ANSWER = (frames.ANSWER, frames.STDOUT, frames.STDERR, frames.DIFFERS)


class Capture:
    """The output of a pipe, up to a limit; the rest is read, counted and dropped."""

    def __init__(self, most: int) -> None:
        self.data = bytearray()
        self.length = 0
        self._most = most

    def feed(self, data: bytes) -> None:
        """Keep these bytes, as far as there is room, and count them all."""
        self.data += data[: self._most - len(self.data)]
        self.length += len(data)

    def text(self, most: int = OUTPUT_LIMIT) -> str:
        """The first ``most`` bytes, as text."""
        return self.data[:most].decode("utf-8", "replace")


@dataclass(eq=False)
class Exchange:
    """What is sent to a worker, and what has come back.

    Attributes:
        worker: that has the task, from ``begin`` on.
        unsent: what is left to be sent of the task's frame.
        nonce: of the task; the answer has to have it too.
        limit: bytes of its answer.
        output: bytes to keep of each of stdout and stderr.
        passed: descriptors that go with the task.
        most_descriptors: that may come with the answer.
        lacks_descriptors: some came, and this process had no room for them.
        ending: why the worker is about to end, if it said so before its answer. Processes that the
            call started may run until then.
        said: the payload of each frame that came, by its kind.
    """

    worker: Worker = field(init=False)
    unsent: memoryview
    nonce: int
    limit: int
    output: int
    passed: Sequence[int] = ()
    most_descriptors: int = 0
    lacks_descriptors: bool = False
    state: State = State.UNDER_WAY
    descriptors: list[int] = field(default_factory=list)
    problem: str = ""
    ending: Optional[Ending] = None
    said: dict[bytes, bytes] = field(default_factory=dict)
    deadline: float = math.inf
    started: float = 0.0
    ended: float = 0.0
    patience: float = math.inf  # until when the worker may settle, on the monotonic clock
    stdout: Capture = field(init=False)
    stderr: Capture = field(init=False)

    def __post_init__(self) -> None:
        self.stdout, self.stderr = Capture(self.output), Capture(self.output)

    @property
    def open(self) -> bool:
        """Whether there is still something to wait for."""
        return self.state in _OPEN

    @property
    def answer(self) -> bytes:
        """What came as the answer."""
        return self.said.get(frames.ANSWER, b"")

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.started

    def begin(self, worker: Worker, deadline: float) -> None:
        """Send the task, or what has to come before it.

        Args:
            deadline: seconds on the monotonic clock; the worker is killed then.
        """
        self.worker, self.deadline = worker, deadline
        self.started = time.monotonic()
        if self.worker.ready:
            self._send_task()
        else:
            self.state = State.SETTLING
            if not self.worker.loading:
                until = self.worker.ready_by if self.worker.patient else self.started + _PATIENCE
                self.patience = until
            self.send()

    def _send_task(self) -> None:
        self.state = State.UNDER_WAY
        self.worker.unframer.limit = self.limit
        self.worker.drop_output()
        self.send()

    def send(self) -> None:
        """Send what the socket takes without waiting."""
        try:
            if self.state is State.SETTLING:
                self.worker.send_setup()
                return
            while self.unsent:
                sent = self.worker.send(self.unsent, self.passed)
                if not sent:
                    return
                self.unsent, self.passed = self.unsent[sent:], ()
        except ConnectionError:
            self._end(State.NOT_BEGUN)
        except OSError as error:  # descriptors or memory lack
            self.problem = f"its task cannot be sent: {error.strerror}"
            self._end(State.NOT_SENT)

    def take(self) -> None:
        """Read what the worker has sent, without waiting."""
        if self.state is State.SETTLING:
            self._settle()
            return
        try:
            data = self._receive()
            if data == b"":
                self._end(State.ENDED)
                return
            for frame in self.worker.unframer.feed(data or b""):
                self._take(frame)
                if not self.open:  # the unframer keeps what is said after the answer
                    return
        except ConnectionError:
            self._end(State.NOT_BEGUN)
        except frames.FrameError as error:
            self._mislead(str(error))

    def _settle(self) -> None:
        self.ending = self.worker.hear()
        if self.ending:
            self._end(State.NOT_BEGUN)
        elif self.worker.ready:
            self._send_task()

    def _receive(self) -> Optional[bytes]:
        """Receive as ``Worker.receive`` does, with descriptors where some may come."""
        if not self.most_descriptors:
            return self.worker.receive()
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

    def _take(self, frame: frames.Frame) -> None:
        # One of each kind: without end, they would keep this thread busy.
        if frame.kind not in _OF_AN_ANSWER or frame.nonce != self.nonce or frame.kind in self.said:
            self._mislead("it answered out of turn")
            return
        self.said[frame.kind] = frame.payload
        if frame.kind == frames.DIFFERS:
            self.ending = ending.unpack(frame.payload)
        elif frame.kind == frames.ANSWER:
            self.stdout.feed(self.said.get(frames.STDOUT, b""))
            self.stderr.feed(self.said.get(frames.STDERR, b""))
            self._end(State.ANSWERED)

    def _mislead(self, problem: str) -> None:
        self.problem = f"its answer cannot be read: {problem}"
        self._end(State.MISLED)

    def _end(self, state: State) -> None:
        self.state = state
        self.ended = time.monotonic()

    def look_at_time(self, now: float) -> None:
        """End the exchange if its time, or the patience with its worker, is over."""
        if now >= self.deadline:
            self._end(State.TIMED_OUT)
        elif self.state is State.SETTLING and now >= self.patience:
            self._end(State.NOT_READY)

    @property
    def due(self) -> float:
        """When to look at the time again."""
        settling = self.state is State.SETTLING
        return min(self.deadline, self.patience) if settling else self.deadline

    def end_worker(self) -> Optional[int]:
        """Have the worker end, and tell how it did: its status, None if the zygote does not tell.

        One whose connection has ended may be about to end by itself, and its own status says why.
        """
        return self.worker.end(_LAST_SECONDS if self.state is State.ENDED else 0.0)

    def how_it_ended(self, status: Optional[int], limits: Limits) -> tuple[Outcome, str]:
        """Why a call has no answer, in a sentence for an administrator.

        Args:
            status: of its worker, as waitpid(2) gives it; None: it is not known.
        """
        if self.state in (State.MISLED, State.NOT_SENT):
            return Outcome.BAD_ANSWER, self.problem
        if self.state is State.TIMED_OUT:
            message = f"was killed after {self.seconds:.1f} s; its timeout is {limits.timeout:g} s"
            if self.seconds + _SHOWN_AS_EQUAL < limits.timeout:
                message += ", the request's time was over before"
            return Outcome.TIMED_OUT, message
        code = None if status is None else os.waitstatus_to_exitcode(status)
        if code == -signal.SIGXCPU:
            message = f"used up its cpu_limit of {limits.cpu} s of processor time"
        elif code == frames.DISCONNECTED or (code == -signal.SIGKILL and self.worker.was_killed):
            message = "closed descriptor 3, which connects its process with the daemon"
        else:
            message = self._ending(code, "its process ")
        return Outcome.KILLED, message

    def how_a_reader_ended(self, status: Optional[int]) -> str:
        """Why a reader of documents has no answer, as the end of a sentence."""
        if self.state is State.TIMED_OUT:
            return "did not answer in time"
        if self.state is State.MISLED:
            return f"answered what cannot be read ({self.problem})"
        return self._ending(None if status is None else os.waitstatus_to_exitcode(status))

    def _ending(self, code: Optional[int], which: str = "") -> str:
        if code is None:
            return "does not end" if self.worker.zygote.alive else "ended with the zygote"
        if code < 0:
            return f"died by {frames.signal_name(-code)}"
        if code == frames.OUT_OF_MEMORY:
            return "ran out of memory"
        return f"ended {which}without an answer (exit status {code})"


def never_started(status: int) -> ExecutorUnavailable:
    """The error for a process that could not be forked."""
    return ExecutorUnavailable(f"no process can be started: {os.strerror(-status)}")


def wait(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Wait until at least one of these has ended.

    Args:
        exchanges: n, n >= 1.

    Returns:
        Those that have ended.
    """
    poller = select.poll()
    captures: dict[int, tuple[Exchange, Optional[Capture]]] = {}
    for exchange in exchanges:
        if exchange.open:
            captures.update(_watched(exchange, poller))
    while True:
        ended = [exchange for exchange in exchanges if not exchange.open]
        if ended:
            return ended
        left = min(exchange.due for exchange in exchanges) - time.monotonic()
        happened = poller.poll(max(0.0, min(left, _QUIET)) * 1000)
        # The pipes stand behind their socket: what is there when an answer is, came before it.
        for descriptor, events in reversed(happened):
            exchange, capture = captures[descriptor]
            if exchange.open:
                _handle(exchange, capture, descriptor, events, poller)
        if not happened and left > _QUIET:
            exchanges[0].worker.zygote.check_alive()  # it may never have forked the worker
        now = time.monotonic()
        for exchange in exchanges:
            if exchange.open:
                exchange.look_at_time(now)


def _watched(
    exchange: Exchange, poller: select.poll
) -> dict[int, tuple[Exchange, Optional[Capture]]]:
    """The descriptors of an exchange: its socket, and its two pipes, each with its capture."""
    worker = exchange.worker
    channel = worker.channel.fileno()
    poller.register(channel, _events(exchange))
    for pipe in (worker.stdout, worker.stderr):
        poller.register(pipe, select.POLLIN)
    return {
        channel: (exchange, None),
        worker.stdout: (exchange, exchange.stdout),
        worker.stderr: (exchange, exchange.stderr),
    }


def _handle(
    exchange: Exchange,
    capture: Optional[Capture],
    descriptor: int,
    events: int,
    poller: select.poll,
) -> None:
    """Read or send what one descriptor of an open exchange is ready for."""
    if capture is not None:
        feed = None if exchange.state is State.SETTLING else capture.feed
        if exchange.worker.drain(descriptor, feed):
            poller.unregister(descriptor)
        return
    if events & select.POLLOUT:
        exchange.send()
    if exchange.open and events & ~select.POLLOUT:
        exchange.take()
    if exchange.open:
        poller.modify(descriptor, _events(exchange))


def _events(exchange: Exchange) -> int:
    settling = exchange.state is State.SETTLING
    unsent = exchange.worker.setup if settling else exchange.unsent
    return select.POLLIN | (select.POLLOUT if unsent else 0)
