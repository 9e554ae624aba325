"""The mark of a line of the log that the engine's administrators should see, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MARK = "engine_event"  # the attribute of a line's record


class EngineEvent(NamedTuple):
    """What an event of the engine is about, besides the cluster that the line names.

    Attributes:
        is_failure: whether somebody may have to do something; else it is a migration.
        vm, host: their ids, if it is about them.
    """

    is_failure: bool = True
    vm: str = ""
    host: str = ""


def for_engine(is_failure: bool = True, vm: str = "", host: str = "") -> Mapping[str, EngineEvent]:
    """The ``extra`` of such a line; the arguments are those of ``EngineEvent``."""
    return {MARK: EngineEvent(is_failure, vm, host)}
