"""Times as the pages, ``status`` and its JSON write them."""

from __future__ import annotations

import time
from typing import Optional

from ovirt_scheduler.history import query


def moment(seconds: Optional[float]) -> Optional[str]:
    """A time as RFC 3339, in UTC, to the second; None if there is none."""
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def clock(seconds: float, to_the_second: bool = False) -> str:
    """A time for people, of this machine's time zone: ``02:14``, or with its day if not today's."""
    local = time.localtime(seconds)
    day = "" if local[:3] == time.localtime()[:3] else "%Y-%m-%d "
    return time.strftime(f"{day}%H:%M{':%S' if to_the_second else ''}", local)


def milliseconds(number: Optional[float]) -> str:
    """A time for people: ``0.8 ms``, ``12 ms``, ``1.5 s``; a dash for None."""
    if number is None:
        return "-"
    if number >= 1000:
        return f"{number / 1000:.1f} s"
    return f"{number:.1f} ms" if number < 10 else f"{number:.0f} ms"


def shown(text: str) -> str:
    """What ``moment`` wrote, for people; see ``clock``."""
    return clock(query.moment(text))


def shown_to_the_second(text: str) -> str:
    """The same with seconds, for what happens several times a minute."""
    return clock(query.moment(text), to_the_second=True)
