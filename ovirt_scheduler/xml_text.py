"""What XML 1.0 can write: the characters of its section 2.2."""

from __future__ import annotations

import re

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def writable(text: str) -> str:
    """The text, with U+FFFD for each character that XML has no way to write."""
    return NOT_IN_XML.sub("\ufffd", text)
