"""The frames between the daemon, the zygote and the processes below it.

::

    daemon  -- FORK: serial + 3 descriptors, KILL: serial -->  zygote    SOCK_SEQPACKET
    daemon  -- ASK: whether it lives ----------------------->  zygote
    daemon  -- SWEEP: it may have other children ----------->  zygote
    daemon  -- TRACE: serial, to print where it is --------->  zygote
    daemon  <-- ALIVE, ENDED: serial, status, left ----------  zygote

    daemon  -- TASK + descriptors -------------------------->  process   SOCK_STREAM
    daemon  <-- STDOUT, STDERR: the end of its output -------  process
    daemon  <-- ANSWER (+ descriptors) ----------------------  process
    daemon  <-- READY, or DIFFERS: why, and it ends ---------  process

DIFFERS may come before the answer: something of the call still runs, so the answer has to wait
until the process has ended, with all that it started.

A frame is its kind, the nonce of the task that it belongs to, a length and as many bytes.
Downwards these are pickled tasks, which only the daemon can write. Upwards they are JSON
(``messages``), which the daemon checks: nothing that a plugin could have written is unpickled.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn, Union

from ovirt_scheduler.model.plugins import Engine, NoEngine
from ovirt_scheduler.model.tasks import CallTask, Function, Returns, Task

ORDER = struct.Struct("!cI")  # FORK, KILL, ASK, SWEEP or TRACE, serial of the process
FORK, KILL, ASK, SWEEP, TRACE = b"f", b"k", b"a", b"s", b"t"
# A process prints then on descriptor 2 where it is; one that no library is known to use.
TRACE_SIGNAL = signal.SIGRTMAX - 3
ALIVE = b"alive"
# Serial of the process, its wait status; whether something of it could not be ended.
ENDED = struct.Struct("!Ii?")

HEADER = struct.Struct("!cQQ")  # kind, nonce, length
TASK, ANSWER, READY, DIFFERS = b"t", b"a", b"r", b"d"
GROWN = b"grown"  # said with READY: the process takes more memory than a new one would
STDOUT, STDERR = b"1", b"2"  # text that was in Python's streams at the end of the call
MOST_DESCRIPTORS = 200  # with one frame; the kernel takes 253

# Exit statuses of processes below the zygote, of sysexits.h.
OUT_OF_MEMORY = os.EX_OSERR
DISCONNECTED = os.EX_PROTOCOL  # its descriptor of the daemon's socket leads to another file now

_FIRST = 1 << 14  # bytes: most tasks come in one piece
_RETURNS = {each.value: each for each in Returns}  # the class takes ten times as long


class FrameError(Exception):
    """Bytes that are no frame, or a frame whose content has not the expected shape."""


Frame = tuple[bytes, int, bytes]  # of one message: its kind, its nonce and its payload


def new_nonce() -> int:
    """A number of 64 bits that nobody can guess."""
    return int.from_bytes(os.urandom(8), "big")


def signal_name(number: int) -> str:
    """SIGSEGV, or the number of a real-time signal, which has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def pack(kind: bytes, nonce: int, payload: bytes = b"") -> bytes:
    """The bytes of a frame."""
    return HEADER.pack(kind, nonce, len(payload)) + payload


def pack_task(task: object, nonce: int) -> memoryview:
    """The frame of a task; documents are copied into it once."""
    frame = bytearray(HEADER.size)  # Python 3.13 reports a BytesIO that ends before its view
    file: Any = SimpleNamespace(write=frame.extend)
    pickle.dump(task, file, pickle.HIGHEST_PROTOCOL)
    HEADER.pack_into(frame, 0, TASK, nonce, len(frame) - HEADER.size)
    return memoryview(frame)


def pack_call(nonce: int, function: Function, engine: Engine, *others: object) -> memoryview:
    """The frame of a ``CallTask``, of its fields.

    They go as plain values, which are pickled and read in a third of the time of our types.
    """
    names = (*function[:3], function.returns.value, *function[4:])
    plain = engine.reason if isinstance(engine, NoEngine) else engine
    return pack_task((names, plain, *others), nonce)


def _task_of(content: Any) -> Task:
    if type(content) is not tuple:
        task: Task = content
        return task
    (unit, kind, name, returns, *rest), engine, *others = content
    function = Function(unit, kind, name, _RETURNS[returns], *rest)
    engine = NoEngine(engine) if isinstance(engine, str) else engine
    return CallTask._make((function, engine, *others))


class Unframer:
    """Cuts a stream of bytes, fed as it comes, into its frames.

    Attributes:
        limit: bytes that the payload of a frame may have.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now.

        Raises:
            FrameError: a frame is longer than the limit.
        """
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER.size:
            kind, nonce, length = HEADER.unpack_from(buffer)
            if length > self.limit:
                raise FrameError(f"a frame of {length} bytes; at most {self.limit}")
            end = HEADER.size + length
            if len(buffer) < end:
                return
            with memoryview(buffer) as whole:
                payload = bytes(whole[HEADER.size : end])
            del buffer[:end]
            yield kind, nonce, payload


def receive_task(channel: socket.socket) -> tuple[Task, int, list[int]]:
    """Wait for a task: for a process below the zygote.

    Returns:
        The task, its nonce, and the descriptors that came with it.

    Raises:
        EOFError: the daemon has closed its end.
    """
    data, descriptors, _, _ = socket.recv_fds(channel, _FIRST, MOST_DESCRIPTORS)
    while len(data) < HEADER.size:
        data += channel.recv(HEADER.size - len(data)) or _ended()
    _, nonce, length = HEADER.unpack_from(data)
    frame: Union[bytes, bytearray] = data
    place, end = len(data), HEADER.size + length  # the daemon sends the next one when this is done
    if place < end:
        frame = bytearray(end)
        frame[:place] = data
        while place < end:
            place += channel.recv_into(memoryview(frame)[place:]) or _ended()
    content = pickle.loads(memoryview(frame)[HEADER.size :])  # noqa: S301  the daemon's
    return _task_of(content), nonce, descriptors


def _ended() -> NoReturn:
    raise EOFError


def send(channel: socket.socket, frame: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a frame to the daemon, from a process below the zygote.

    Raises:
        OSError: the daemon has closed its end.
    """
    view = memoryview(frame)
    if descriptors:
        view = view[socket.send_fds(channel, [view], list(descriptors)) :]
    descriptor = channel.fileno()
    while view:
        view = view[os.write(descriptor, view) :]
