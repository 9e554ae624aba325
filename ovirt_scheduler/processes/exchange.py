"""The exchange of one task and its answer with a worker, without ever blocking.

One thread waits for one exchange or for several: a poll over the workers' sockets and pipes,
until the nearest deadline. A worker that still compares itself with what it was gets the task
when it says that it is ready.
"""

from __future__ import annotations

import enum
import math
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.model.plugins import Limits
from ovirt_scheduler.model.results import Outcome
from ovirt_scheduler.model.tasks import ENDS
from ovirt_scheduler.model.text import one_line
from ovirt_scheduler.processes.handles import Worker
from ovirt_scheduler.processes.protocol import frames

OUTPUT_LIMIT = 1 << 20  # bytes kept of each of a call's stdout and stderr (contract 5.4)
SHORT = 1000  # bytes of what a worker says between answers
_CHUNK = 1 << 16
OUT_OF_TURN = "spoke out of turn"
_QUIET = 5.0  # seconds without a word from any worker, after which the zygote is asked for one
_REASON = 200  # characters

Piece = tuple[memoryview, list[int]]


class State(enum.Enum):
    """How far an exchange is."""

    SETTLING = "settling"  # the worker has not said yet that it is done with the task before
    UNDER_WAY = "under way"
    ANSWERED = "answered"
    NOT_READY = "not ready"  # its worker takes longer to settle than there is patience for
    NOT_BEGUN = "not begun"  # its worker ended before it took the task: another can have it
    TIMED_OUT = "timed out"
    ENDED = "ended"  # its worker did, without an answer
    MISLED = "misled"  # what came is no answer; ``problem`` says why


_OPEN = (State.SETTLING, State.UNDER_WAY)
_OF_AN_ANSWER = (frames.ANSWER, frames.STDOUT, frames.STDERR, frames.DIFFERS)


class Capture:
    """What came out of a pipe, up to a limit; the rest is read, counted and thrown away."""

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
        task: its frame, with the descriptors that go with it.
        nonce: of the task; the answer has to bear it.
        deadline: seconds on the monotonic clock; the worker is killed then.
        limit: bytes of its answer.
        output: bytes to keep of each of stdout and stderr.
        former: nonce of the task before, from which the worker still settles; None: it is ready.
        patience: until when it may settle, in seconds on the monotonic clock.
        setup: a frame, or the rest of one, to be sent before the task; ``former`` is its nonce.
        most_descriptors: that may come with the answer.
        lacks_descriptors: some came, and this process had no room for them.
        differs: why the worker is about to end, if it said so before it answered. What the call
            started may still run until then.
        last_output: output that came as frames before the answer; it is added to that of the pipes.
    """

    worker: Worker
    task: Piece
    nonce: int
    deadline: float
    limit: int
    output: int
    former: Optional[int] = None
    patience: float = math.inf
    setup: Optional[memoryview] = None
    most_descriptors: int = 0
    lacks_descriptors: bool = False
    state: State = State.UNDER_WAY
    answer: bytes = b""
    descriptors: list[int] = field(default_factory=list)
    problem: str = ""
    differs: str = ""
    last_output: dict[bytes, bytes] = field(default_factory=dict)
    started: float = 0.0
    ended: float = 0.0
    unsent: deque[Piece] = field(default_factory=deque)
    stdout: Capture = field(init=False)
    stderr: Capture = field(init=False)

    def __post_init__(self) -> None:
        self.stdout, self.stderr = Capture(self.output), Capture(self.output)

    @property
    def open(self) -> bool:
        """Whether there is still something to wait for."""
        return self.state in _OPEN

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.started

    def begin(self) -> None:
        """Send the task, or what has to come before it."""
        self.started = time.monotonic()
        if self.former is None:
            self._send_task()
            return
        self.state = State.SETTLING
        self.worker.unframer.limit = SHORT
        if self.setup is not None:
            self.unsent.append((self.setup, []))
            self.send()

    def _send_task(self) -> None:
        self.state = State.UNDER_WAY
        self.worker.unframer.limit = self.limit
        self.worker.drop_output()
        frame, descriptors = self.task
        self.unsent.append((frame, descriptors))
        self.send()

    def send(self) -> None:
        """Send what the socket takes without waiting."""
        try:
            while self.unsent:
                view, descriptors = self.unsent[0]
                sent = self.worker.send(view, descriptors)
                if not sent:
                    return
                if sent == len(view):
                    self.unsent.popleft()
                else:
                    self.unsent[0] = view[sent:], []
        except ConnectionError:
            self._end(State.NOT_BEGUN)
        except OSError as error:  # descriptors or memory lack
            self.problem = f"its task cannot be sent: {error.strerror}"
            self._end(State.MISLED)

    def take(self) -> None:
        """Read what the worker has sent, without waiting."""
        try:
            if self.most_descriptors:
                data, came = self._receive_with_descriptors()
                self.descriptors += came
                if self.lacks_descriptors:
                    self._mislead("the daemon has no descriptors for it")
                    return
                if len(self.descriptors) > self.most_descriptors:
                    self._mislead("more descriptors than documents")
                    return
            else:
                data = self.worker.receive()
            if data is None:
                return
            if not data:
                self._end(State.NOT_BEGUN if self.state is State.SETTLING else State.ENDED)
                return
            for frame in self.worker.unframer.feed(data):
                self._take(frame)
                if not self.open:  # the unframer keeps what is said after the answer
                    return
        except ConnectionError:
            self._end(State.NOT_BEGUN)
        except frames.FrameError as error:
            self._mislead(str(error))

    def _receive_with_descriptors(self) -> tuple[Optional[bytes], list[int]]:
        try:
            data, came, flags, _ = socket.recv_fds(
                self.worker.channel, _CHUNK, frames.MOST_DESCRIPTORS
            )
        except BlockingIOError:
            return None, []
        self.lacks_descriptors = bool(flags & socket.MSG_CTRUNC)
        return data, came

    def _take(self, frame: frames.Frame) -> None:
        if self.state is State.SETTLING:
            if frame.kind == frames.READY and frame.nonce == self.former:
                self._send_task()
            else:
                self.differs = reason(frame, self.former)
                self._end(State.NOT_BEGUN)
        elif frame.kind not in _OF_AN_ANSWER or frame.nonce != self.nonce or self._knows(frame):
            self._mislead("it answered out of turn")
        elif frame.kind == frames.DIFFERS:
            self.differs = reason(frame, self.nonce)
        elif frame.kind != frames.ANSWER:
            self.last_output[frame.kind] = frame.payload
        else:
            self.answer = frame.payload
            self.worker.unframer.limit = SHORT
            for kind, payload in self.last_output.items():
                (self.stdout if kind == frames.STDOUT else self.stderr).feed(payload)
            self._end(State.ANSWERED)

    def _knows(self, frame: frames.Frame) -> bool:
        """Whether such a frame came before; without end, they would keep this thread busy."""
        return frame.kind in self.last_output or (
            frame.kind == frames.DIFFERS and bool(self.differs)
        )

    def _mislead(self, problem: str) -> None:
        self.problem = f"its answer cannot be read: {problem}"
        self._end(State.MISLED)

    def _end(self, state: State) -> None:
        self.state = state
        self.ended = time.monotonic()

    def look_at_time(self, now: float) -> None:
        """End the exchange where its time, or the patience with its worker, is over."""
        if now >= self.deadline:
            self._end(State.TIMED_OUT)
        elif self.state is State.SETTLING and now >= self.patience:
            self._end(State.NOT_READY)

    @property
    def due(self) -> float:
        """When to look at the time again."""
        return min(self.deadline, self.patience if self.state is State.SETTLING else self.deadline)

    def how_it_ended(self, status: Optional[int], limits: Limits) -> tuple[Outcome, str]:
        """Why a call has no answer, in a sentence for an administrator.

        Args:
            status: of its worker, as waitpid(2) gives it; None: it is not known.
        """
        if self.state is State.MISLED:
            return Outcome.BAD_ANSWER, self.problem
        if self.state is State.TIMED_OUT:
            message = f"was killed after {self.seconds:.1f} s; its timeout is {limits.timeout:g} s"
            if self.seconds < limits.timeout:
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
            return "ended" if self.worker.zygote.alive else "ended with the zygote"
        if code < 0:
            return f"died by {frames.signal_name(-code)}"
        if code == frames.OUT_OF_MEMORY:
            return "ran out of memory"
        return f"ended {which}without an answer (exit status {code})"


def never_started(status: int) -> ExecutorUnavailable:
    """The error for a process that could not be forked."""
    return ExecutorUnavailable(f"no process can be started: {os.strerror(-status)}")


def reason(frame: frames.Frame, nonce: Optional[int]) -> str:
    """The reason that a worker gives for its end: one of ``ENDS``, with details after a colon."""
    if frame.kind == frames.DIFFERS and frame.nonce == nonce:
        text = one_line(frame.payload.decode("utf-8", "replace"), _REASON)
        if text.partition(":")[0] in ENDS:
            return text
    return OUT_OF_TURN


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
            exchanges[0].worker.zygote.prove()  # it may never have forked the worker
        now = time.monotonic()
        for exchange in exchanges:
            if exchange.open:
                exchange.look_at_time(now)


def _watched(
    exchange: Exchange, poller: select.poll
) -> dict[int, tuple[Exchange, Optional[Capture]]]:
    """Each descriptor of an exchange, with what is captured there; nothing is of its socket."""
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
    return select.POLLIN | (select.POLLOUT if exchange.unsent else 0)
