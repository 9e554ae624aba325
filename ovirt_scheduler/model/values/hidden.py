"""The daemon's secrets, and texts without them.

An engine may repeat in a fault what it was sent. So whatever it says, and whatever a plugin that
asked it says, is searched for each password and token that this process has used.
"""

from __future__ import annotations

import html
import json
import threading
from typing import Any
from urllib.parse import quote, quote_plus

from ovirt_scheduler.model.values.text import each_text

HIDDEN = "\u2026"  # instead of a secret

_MOST = 64  # secrets that are remembered; a token that is forgotten was logged out hours ago
_SHORTEST = 4  # characters; less is a part of any text, such as of an id
_SHORTEST_CUT = 199  # characters of a text that may have been cut off, if no HIDDEN says so

_lock = threading.Lock()
_secrets: dict[str, frozenset[str]] = {}  # with the ways in which each is written; the oldest first
_written: tuple[str, ...] = ()  # all of these ways; the longest first, as one may contain another


def remember(secret: str) -> None:
    """Hide a password or token from now on, also as URLs, XML and JSON write it."""
    global _written  # noqa: PLW0603  read without the lock
    if len(secret) < _SHORTEST:
        return
    ways = (
        secret, quote(secret), quote(secret, ""), quote_plus(secret), html.escape(secret),
        html.escape(secret, quote=False), json.dumps(secret)[1:-1],
    )  # fmt: skip
    with _lock:
        _secrets.pop(secret, None)
        _secrets[secret] = frozenset(ways)
        while len(_secrets) > _MOST:
            del _secrets[next(iter(_secrets))]
        _written = tuple(sorted(frozenset().union(*_secrets.values()), key=len, reverse=True))


def without_secrets(value: Any) -> Any:
    """A text, or texts in dicts, lists and tuples, with ``HIDDEN`` instead of each secret."""
    return each_text(value, _hide) if value and _written else value


def _hide(text: str) -> str:
    for secret in _written:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    *cut, last = text.split(HIDDEN)
    cut = [*map(_without_beginning, cut)]
    return HIDDEN.join([*cut, _without_beginning(last) if len(text) >= _SHORTEST_CUT else last])


def _without_beginning(text: str) -> str:
    """A text that may have been cut off within a secret, without the part of it that is there."""
    for secret in _written:
        at = text.rfind(secret[:_SHORTEST], -len(secret))
        if at >= 0 and secret.startswith(text[at:]):
            return text[:at]
    return text
