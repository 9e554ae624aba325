"""Standard output and error of a plugin's process: what is printed may be the answer."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

KEPT = 1 << 20  # bytes of each stream that may be a class unit's answer (contract 5.4)
_MOST_HELD = 1 << 16  # bytes of each stream that go with the answer


class Output(io.FileIO):
    """Standard output or error that keeps what Python writes to it: it may be the answer.

    Attributes:
        holds: whether to hold back what is written, to be sent with the answer: each write to the
            pipe would wake the daemon once more.
        unsent: the output that is held back; it is written if it becomes too much.
    """

    __slots__ = ("holds", "unsent", "written")  # so that ``vars`` has what a plugin added

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.written = bytearray()
        self.holds = False
        self.unsent = bytearray()

    def begin(self) -> None:
        """Forget what was kept: another call follows."""
        self.written.clear()
        self.holds = False
        self.unsent.clear()

    def write(self, data: ReadableBuffer) -> int:
        """Write, and keep what is written."""
        count = memoryview(data).nbytes
        if self.holds and len(self.unsent) + count <= _MOST_HELD:
            self.unsent += data
        else:
            self.release()
            count = super().write(data)
        self.written += memoryview(data)[: min(count, KEPT - len(self.written))]
        return count

    def release(self) -> None:
        """Write the output that is held back, and hold back no more."""
        self.holds = False
        if self.unsent:
            super().write(self.unsent)
            self.unsent.clear()


class Stream(io.TextIOWrapper):
    """``sys.stdout`` or ``sys.stderr`` of a plugin."""

    def __init__(self, output: Output) -> None:
        super().__init__(io.BufferedWriter(output), "utf-8", errors="backslashreplace")

    def reconfigure(self, **settings: Any) -> None:
        """Change settings, and remember that."""
        self._reconfigured = True
        super().reconfigure(**settings)

    @property
    def changed(self) -> bool:
        """Whether it has other settings or attributes now, or is closed or detached."""
        try:
            if self.closed:
                return True
            buffer: Any = self.buffer
            attributes = {**vars(self), **vars(buffer), **vars(buffer.raw)}
            return attributes.keys() != {"name"}  # which FileIO itself sets
        except ValueError:  # detached
            return True
