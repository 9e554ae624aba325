"""The bounded table of connections: which are idle, which are busy, which is closed for a new one.

::

    add ──► FRESH ──► GREETED ──► HEAD ──► BODY ──► BUSY ──► IDLE ──► HEAD …
            silent    TLS         a request arrives    answered

If the table is full, the connection that is idle for longest makes room. If none is idle, it is one
that has not sent the whole head of a request, the oldest first; then the slowest of those whose
body arrives. So nobody keeps others out with half a request. A busy connection never makes room.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import socket
import threading
import time
import weakref
from collections.abc import Collection, Iterator
from functools import partial
from typing import NamedTuple, Optional, Protocol


class _Phase(enum.Enum):
    FRESH = "fresh"  # nothing has come yet
    GREETED = "greeted"  # a handshake has begun, and no request has come yet
    IDLE = "idle"
    HEAD = "head"  # the head of a request arrives
    BODY = "body"  # its body arrives
    BUSY = "busy"  # the request is there, and its answer is not out
    ABORTED = "aborted"  # its thread has yet to notice


_WAITING = (_Phase.FRESH, _Phase.GREETED, _Phase.IDLE)  # for a request
_HEADLESS = (_Phase.FRESH, _Phase.GREETED, _Phase.HEAD)
_ANSWERED = (_Phase.HEAD, _Phase.BODY, _Phase.BUSY)  # until an answer is out


_FEW = 8  # times as many bodies arrive as there are connections without a head


class RequestArrival(Protocol):
    """How a request arrives, as its connection's thread reads it; asked by other threads."""

    @property
    def waits(self) -> bool:
        """Whether the thread waits for bytes, and is not at work on those that came."""

    @property
    def speed(self) -> float:
        """Bytes a second since the request began."""


class _Connection(NamedTuple):
    state: _Phase
    arrival: Optional[RequestArrival] = None  # None: its thread has yet to begin


class Connections:
    """The table; every method may be called from any thread.

    Attributes:
        cut_requests: connections that were closed for others before their request was there.

    Args:
        limit: connections at most, 1 at least.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._changed = threading.Condition()
        self._entries: dict[socket.socket, _Connection] = {}  # the longest in its state comes first
        self._ending_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._draining = self._closed = False
        self.cut_requests = 0

    def set_limit(self, limit: int) -> None:
        """Change the limit; what is open already stays open."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def add(self, connection: socket.socket) -> bool:
        """Take a fresh connection in, and wait for room for it.

        Returns:
            False if the table was closed meanwhile.
        """
        with self._changed:
            while len(self._entries) >= self._limit and not self._closed:
                self.make_room()
                self._changed.wait()
            if not self._closed:
                self._entries[connection] = _Connection(_Phase.FRESH)
            return not self._closed

    def remove(self, connection: socket.socket) -> None:
        """Close the connection and let it go; the last thing that its thread does."""
        with self._changed:
            self._entries.pop(connection, None)
            connection.close()  # under the lock: nobody aborts a descriptor used anew
            self._ending_threads.add(threading.current_thread())
            self._changed.notify_all()

    def set_greeted(self, connection: socket.socket, arrival: RequestArrival) -> bool:
        """Note that a handshake begins; False: too late, the connection is aborted."""
        return self._change(connection, (_Phase.FRESH,), _Connection(_Phase.GREETED, arrival))

    def begin_request(self, connection: socket.socket, arrival: RequestArrival) -> bool:
        """Note the first byte of a request; False: too late, the connection is aborted."""
        return self._change(connection, _WAITING, _Connection(_Phase.HEAD, arrival))

    def begin_body(self, connection: socket.socket, arrival: RequestArrival) -> None:
        """Note that the head of a request is there."""
        self._change(connection, (_Phase.HEAD,), _Connection(_Phase.BODY, arrival))

    def set_busy(self, connection: socket.socket) -> bool:
        """Note that an answer is due now; False: too late, the connection is aborted."""
        return self._change(connection, _ANSWERED, _Connection(_Phase.BUSY))

    def set_idle(self, connection: socket.socket) -> bool:
        """Note that the answer is written; False: the connection is to end, or aborted."""
        return self._change(connection, _ANSWERED, _Connection(_Phase.IDLE)) and not self._draining

    def make_room(self) -> None:
        """Break a connection for another one; none if a broken one is yet to leave."""
        with self._changed:
            if not self._has_none((_Phase.ABORTED,)):
                return
            idle = self._longest_idle()
            connection = idle or self._half_request()
            if connection is not None:
                self.cut_requests += idle is None
                self._abort(connection)

    def drain(self, silent: float, greeted: float) -> None:
        """Break the connections that wait for a request, until all that are left are busy.

        Clients whose connection had a request before will open another. The other connections get
        some time for their first request, because their clients would not try again.

        Args:
            silent, greeted: until when connections without any byte yet, and the others, have
                time, on the monotonic clock.
        """
        with self._changed:
            self._draining = True
            for state, deadline in (
                (_Phase.IDLE, 0.0), (_Phase.FRESH, silent), (_Phase.GREETED, greeted)
            ):  # fmt: skip
                self._changed.wait_for(partial(self._has_none, (state,)), _seconds_until(deadline))
                for connection, entry in self._entries.items():
                    if entry.state is state:
                        self._abort(connection)

    def wait_until_idle(self, deadline: float) -> bool:
        """Wait until no request is under way, or the monotonic clock reads ``deadline``.

        Returns:
            Whether none is.
        """
        with self._changed:
            is_idle = partial(self._has_none, _ANSWERED)
            return self._changed.wait_for(is_idle, _seconds_until(deadline))

    def close(self, deadline: float) -> bool:
        """Break every connection, take no other, and wait for their threads to end.

        Returns:
            False if a thread is still running at ``deadline`` on the monotonic clock.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for connection in self._entries:
                self._abort(connection)
            self._changed.wait_for(lambda: not self._entries, _seconds_until(deadline))
            threads, is_empty = [*self._ending_threads], not self._entries
        for thread in threads:
            thread.join(_seconds_until(deadline))
        return is_empty and not any(thread.is_alive() for thread in threads)

    def _change(
        self, connection: socket.socket, before: Collection[_Phase], entry: _Connection
    ) -> bool:
        with self._changed:
            if self._entries[connection].state not in before:
                return False
            del self._entries[connection]
            self._entries[connection] = entry
            self._changed.notify_all()
            return True

    def _has_none(self, states: Collection[_Phase]) -> bool:
        return not any(entry.state in states for entry in self._entries.values())

    def _longest_idle(self) -> Optional[socket.socket]:
        idle = self._in_states((_Phase.IDLE,))
        return next((connection for connection in idle if not _has_bytes(connection)), None)

    def _half_request(self) -> Optional[socket.socket]:
        """The connection to close of those whose request still arrives; None: there are none.

        If all that has come is read, and more is waited for, it is rather the client that is slow
        than this process. A few that have no head yet beside many bodies are rather new callers
        than those who fill the table.
        """
        headless = [*self._in_states(_HEADLESS)]
        slowest = sorted(self._in_states((_Phase.BODY,)), key=self._speed)
        are_few = len(headless) * _FEW <= len(slowest)
        candidates = [*slowest, *headless] if are_few else [*headless, *slowest]
        return next(itertools.chain(filter(self._waits, candidates), candidates), None)

    def _in_states(self, states: Collection[_Phase]) -> Iterator[socket.socket]:
        """The connections, the longest in its state first."""
        return (connection for connection, entry in self._entries.items() if entry.state in states)

    def _speed(self, connection: socket.socket) -> float:
        arrival = self._entries[connection].arrival
        return 0.0 if arrival is None else arrival.speed

    def _waits(self, connection: socket.socket) -> bool:
        arrival = self._entries[connection].arrival
        return (arrival is None or arrival.waits) and not _has_bytes(connection)

    def _abort(self, connection: socket.socket) -> None:
        self._entries[connection] = _Connection(_Phase.ABORTED)
        with contextlib.suppress(OSError):  # the peer may have left already
            connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it


def _has_bytes(connection: socket.socket) -> bool:
    """Whether a request has come that the connection's thread has yet to notice."""
    with contextlib.suppress(OSError):
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return False


def _seconds_until(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
