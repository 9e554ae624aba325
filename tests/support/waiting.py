"""Waiting for what other threads and processes do."""

from __future__ import annotations

import threading
import time
from typing import Callable, TypeVar

Found = TypeVar("Found")

_LONG = 60.0  # seconds, which nothing takes that happens at all


def wait_until(look: Callable[[], Found], told: Callable[[], str] = str) -> Found:
    """What ``look`` gives as soon as it gives something; fails where it never does.

    Args:
        told: what there is to say of it then, such as a log.
    """
    give_up = time.monotonic() + _LONG
    pause = threading.Event()
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < give_up, f"it did not happen in time\n{told()}"
        pause.wait(0.01)
