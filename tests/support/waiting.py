"""Waiting for what other threads and processes do."""

from __future__ import annotations

import os
import threading
import time
from typing import Callable, TypeVar

Found = TypeVar("Found")

# Seconds, which nothing takes that happens at all, however busy the machine is.
LONG = float(os.environ.get("TEST_PATIENCE", "120"))


def wait_until(
    look: Callable[[], Found],
    told: Callable[[], str] = str,
    suits: Callable[[Found], object] = bool,
) -> Found:
    """What ``look`` gives as soon as it suits; fails where it never does, and shows the last of it.

    Args:
        told: what else there is to say of it then, such as a log.
    """
    give_up = time.monotonic() + LONG
    pause = threading.Event()
    while True:
        found = look()
        if suits(found):
            return found
        if time.monotonic() > give_up:
            raise AssertionError(f"it did not happen in {LONG:g} s; at last: {found!r}\n{told()}")
        pause.wait(0.01)


def soon(seconds: float = 20.0) -> float:
    """A deadline on the monotonic clock."""
    return time.monotonic() + seconds
