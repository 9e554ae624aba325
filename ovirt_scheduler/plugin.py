"""What a plugin may import from here."""

from __future__ import annotations

from typing import Optional

from ovirt_scheduler.model import EngineAccess

_access: Optional[EngineAccess] = None


def provide(access: Optional[EngineAccess]) -> None:
    """For the process of a call: what ``engine_connection`` is made with."""
    global _access
    _access = access
