"""The bounded table of connections: which are idle, which are busy, which is closed for a new one.

A connection is *busy* from the first byte of a request until its answer is written, and
*idle* otherwise. Only an idle one is closed to make room for another.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from functools import partial


class _State(enum.Enum):
    FRESH = "fresh"  # nothing has come yet
    GREETED = "greeted"  # a handshake has begun, and no request has come yet
    IDLE = "idle"
    BUSY = "busy"
    ABORTED = "aborted"  # its thread has yet to notice


_WAITING = (_State.FRESH, _State.GREETED, _State.IDLE)  # for a request


class Connections:
    """The table; every method may be called from any thread.

    Args:
        limit: connections at most, 1 at least.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._changed = threading.Condition()
        self._states: dict[socket.socket, _State] = {}  # the longest in its state comes first
        self._ending_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._draining = self._closed = False

    def set_limit(self, limit: int) -> None:
        """Change the limit; what is open already stays open."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def add(self, connection: socket.socket) -> bool:
        """Take an idle connection in, and wait for room for it.

        Returns:
            False if the table was closed meanwhile.
        """
        with self._changed:
            while len(self._states) >= self._limit and not self._closed:
                self.abort_longest_idle()
                self._changed.wait()
            if not self._closed:
                self._states[connection] = _State.FRESH
            return not self._closed

    def remove(self, connection: socket.socket) -> None:
        """Close the connection and let it go; the last thing that its thread does."""
        with self._changed:
            self._states.pop(connection, None)
            connection.close()  # under the lock: nobody aborts a descriptor used anew
            self._ending_threads.add(threading.current_thread())
            self._changed.notify_all()

    def set_greeted(self, connection: socket.socket) -> bool:
        """Note that a handshake begins; False: too late, the connection is aborted."""
        return self._change(connection, (_State.FRESH,), _State.GREETED)

    def set_busy(self, connection: socket.socket) -> bool:
        """Note the first byte of a request; False: too late, the connection is aborted."""
        return self._change(connection, _WAITING, _State.BUSY)

    def set_idle(self, connection: socket.socket) -> bool:
        """Note that the answer is written; False: the connection is to end, or aborted."""
        return self._change(connection, (_State.BUSY,), _State.IDLE) and not self._draining

    def abort_longest_idle(self) -> None:
        """Break the connection that is idle for longest; none if a broken one is yet to leave."""
        with self._changed:
            if _State.ABORTED in self._states.values():
                return
            for connection, state in self._states.items():
                if state in _WAITING:
                    self._abort(connection)
                    return

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
                (_State.IDLE, 0.0), (_State.FRESH, silent), (_State.GREETED, greeted)
            ):  # fmt: skip
                self._changed.wait_for(partial(self._has_none, state), _seconds_until(deadline))
                for connection, its_own in self._states.items():
                    if its_own is state:
                        self._abort(connection)

    def wait_until_idle(self, deadline: float) -> bool:
        """Wait until none is busy, or the monotonic clock reads ``deadline``; True: none is."""
        with self._changed:
            is_none_busy = partial(self._has_none, _State.BUSY)
            return self._changed.wait_for(is_none_busy, _seconds_until(deadline))

    def close(self, deadline: float) -> bool:
        """Break every connection, take no other, and wait for their threads to end.

        Returns:
            False if a thread is still running at ``deadline`` on the monotonic clock.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for connection in self._states:
                self._abort(connection)
            self._changed.wait_for(lambda: not self._states, _seconds_until(deadline))
            threads, left = [*self._ending_threads], bool(self._states)
        for thread in threads:
            thread.join(_seconds_until(deadline))
        return not left and not any(thread.is_alive() for thread in threads)

    def _change(self, connection: socket.socket, before: Sequence[_State], after: _State) -> bool:
        with self._changed:
            if self._states.get(connection) not in before:
                return False
            del self._states[connection]
            self._states[connection] = after
            self._changed.notify_all()
            return True

    def _has_none(self, state: _State) -> bool:
        return state not in self._states.values()

    def _abort(self, connection: socket.socket) -> None:
        self._states[connection] = _State.ABORTED
        with contextlib.suppress(OSError):  # the peer may have left already
            connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it


def _seconds_until(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
