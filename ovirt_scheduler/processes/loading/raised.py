"""Tells what a plugin raised, and on which of its own lines.

Its class, its texts and its code are the plugin's too: each function may raise whatever they do.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Collection
from typing import Optional


def told(error: BaseException) -> str:
    """What was raised: ``ValueError: its text``, or ``called sys.exit(1)``."""
    if isinstance(error, SystemExit):
        return f"called sys.exit({error.code!r:.80})"
    text = ""
    with contextlib.suppress(BaseException):  # without it there is still the class
        text = str(error)
    return type(error).__name__ + (f": {text}" if text else "")


def own_line(error: BaseException, paths: Collection[str]) -> Optional[tuple[str, int]]:
    """The innermost line of these files that it came from; None where it came from none."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename in paths:
            found = frame.f_code.co_filename, line
    return found
