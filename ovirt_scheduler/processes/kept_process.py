"""A process of a plugin that is kept between calls: its key, and what it was told last."""

from __future__ import annotations

import contextlib
import math
import os
import time
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from ovirt_scheduler.model.plugins import Limits, PluginCode
from ovirt_scheduler.processes import exchange
from ovirt_scheduler.processes.handles import Worker
from ovirt_scheduler.processes.protocol import frames

_PATIENCE = 0.005  # seconds for a process to settle, before another is used


class Key(NamedTuple):
    """A version of a plugin, and its limits: a process serves calls of one key only."""

    version: str
    memory: int
    cpu: int
    open_files: int
    calls_per_process: int

    @property
    def serves_one_call(self) -> bool:
        """Whether each call gets a process of its own."""
        return self.calls_per_process == 1


def key_of(plugin: PluginCode, limits: Limits) -> Key:
    """The key of a plugin's processes."""
    return Key(
        plugin.version, limits.memory, limits.cpu, limits.open_files, limits.calls_per_process
    )


def new_nonce() -> int:
    """A number of 64 bits that nobody can guess."""
    return int.from_bytes(os.urandom(8), "big")


@dataclass(eq=False)
class Kept:
    """A process of a plugin that is kept between calls.

    Attributes:
        nonce: of its last task, or of its setup. It says READY with that nonce when it can take
            the next call.
        ready: it has said so.
        grown: it has said that it takes more memory than a new one would.
        ready_by: when it has to be ready, on the monotonic clock.
        loading: its last task was the setup: nobody has called it yet.
        patient: a call waits for it until ``ready_by``, and uses no other process instead.
        setup: the rest of the setup's frame that is still to be sent; None: all of it was.
    """

    worker: Worker
    key: Key
    nonce: int = 0
    ready: bool = False
    grown: bool = False
    ready_by: float = 0.0
    loading: bool = False
    patient: bool = False
    setup: Optional[memoryview] = None
    born: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)

    def send_setup(self) -> None:
        """Send as much of the setup as goes without waiting; ``setup`` is what is left of it."""
        with contextlib.suppress(ConnectionError):  # it has ended, as ``hear`` will find
            while self.setup:
                sent = self.worker.send(self.setup, [])
                if not sent:
                    return
                self.setup = self.setup[sent:] or None

    def hear(self) -> str:
        """Read what the process has said since its last answer, without waiting.

        Returns:
            Why it ends; empty where it does not.
        """
        try:
            data = self.worker.receive()
            for frame in self.worker.unframer.feed(data or b""):
                mine = frame.kind == frames.READY and frame.nonce == self.nonce
                if self.ready or not mine:
                    return exchange.reason(frame, self.nonce)
                self.ready, self.grown = True, frame.payload == frames.GROWN
        except (OSError, frames.FrameError):
            return "ended"
        return "ended" if data == b"" else ""

    def patience(self) -> float:
        """Until when a call waits for it to be ready, on the monotonic clock."""
        if self.loading:
            return math.inf
        return self.ready_by if self.patient else time.monotonic() + _PATIENCE
