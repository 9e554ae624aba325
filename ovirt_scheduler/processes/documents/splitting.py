"""Cuts a document into the elements of its hosts or VMs, for the history (contract 10.1).

The pieces together are the document, without elements that may hold passwords.
"""

from __future__ import annotations

from xml.parsers import expat

from ovirt_scheduler.model.requests import NEVER_KEPT, Document
from ovirt_scheduler.processes.documents.parser import HOSTS, VMS, utf8

_COLLECTIONS = (HOSTS.many, VMS.many)


def split(document: Document) -> list[bytes]:
    """Cut a document that the parser has let through.

    Returns:
        In UTF-8: the text before the first element, each element, and the text behind the last
        one. White space and comments between elements are left out.

    Raises:
        UnreadableDocument, expat.ExpatError: it is no document that was read before.
    """
    data = utf8(document, HOSTS)
    parser = expat.ParserCreate("utf-8")
    elements: list[bytes] = []
    depth, level = 0, 1  # of the current element; of the elements that become pieces
    begun = ended = first = 0  # offsets in the data
    parts: list[bytes] = []  # of the current piece, without what is left out of it
    hidden = 0  # the depth of the element that is being left out; 0: none is
    is_open = False  # whether nothing came since the latest start tag

    def start(name: str, _: dict[str, str]) -> None:
        nonlocal depth, level, begun, first, hidden, is_open
        depth += 1
        is_open = True
        place = parser.CurrentByteIndex
        if depth == 1 and name in _COLLECTIONS:
            level = 2
        elif depth == level:
            begun = place
            first = first if elements else place
        elif not hidden and depth > level and name.rpartition(":")[2] in NEVER_KEPT:
            parts.append(data[begun:place])
            hidden = depth

    def end(_: str) -> None:
        nonlocal depth, begun, ended, hidden, is_open
        place = parser.CurrentByteIndex
        # expat is behind <a/>, and before the end tag of <a></a>.
        is_empty = is_open and data[place - 2 : place] == b"/>"
        after = place if is_empty else data.index(b">", place) + 1
        is_open = False
        if depth == hidden:
            begun, hidden = after, 0
        elif depth == level:
            elements.append(b"".join([*parts, data[begun:after]]))
            parts.clear()
            ended = after
        depth -= 1

    def text(_: str) -> None:
        nonlocal is_open
        is_open = False

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = text
    parser.Parse(data, True)
    if not elements:
        return [data, b""]
    return [data[:first], *elements, data[ended:]]
