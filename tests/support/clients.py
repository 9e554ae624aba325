"""Clients that call without a pause, each in a thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Callable, TypeVar

from tests.support.waiting import LONG

Own = TypeVar("Own", bound="Clients")


class Clients:
    """Begin with a ``with``, and are told to stop at its end.

    Args:
        calling: what each of them does until ``stopped`` is set.
    """

    def __init__(self, calling: Sequence[Callable[[], None]]) -> None:
        self.stopped = threading.Event()
        self._threads = [threading.Thread(target=each) for each in calling]

    def __enter__(self: Own) -> Own:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join(LONG)
