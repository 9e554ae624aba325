"""What a step of an installation finds, and what a step is.

A step is looked at when those before it are done. What it finds is one line for the
administrator and, where there is something to do, the function that does it: so a dry run calls
none of these, and a second run finds none.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Protocol


def nothing() -> None:
    pass


class Finding(NamedTuple):
    """What a step found.

    ``words`` say what is to be done ("make the folder ..."), or why nothing is. ``note`` writes
    into the record what ``act`` is about to do. The record is saved in between, so that what was
    begun can be undone whenever it breaks off.
    """

    words: str
    act: Optional[Callable[[], None]] = None
    left: bool = False  # whether the administrator has to do it
    removes: str = ""  # what is gone when it is done: the machine's name of a file or folder
    note: Callable[[], None] = nothing


class Step(Protocol):
    """One thing that is so when the machine is set up."""

    def install(self) -> Finding: ...

    def remove(self) -> Finding: ...
