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
        In UTF-8: what stands before the first element, each element, and what stands behind the
        last. White space and comments between elements are left out.

    Raises:
        UnreadableDocument, expat.ExpatError: it is no document that was read before.
    """
    data = utf8(document, HOSTS)
    parser = expat.ParserCreate("utf-8")
    elements: list[bytes] = []
    depth, level = 0, 1  # of the element around; of those that are pieces
    begun = ended = first = 0  # places
    kept: list[bytes] = []  # of the element, as far as it was read
    hidden = 0  # the depth of an element that is left out, where expat is in one
    is_open = False  # nothing came since the latest start tag

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
            kept.append(data[begun:place])
            hidden = depth

    def end(_: str) -> None:
        nonlocal depth, begun, ended, hidden, is_open
        place = parser.CurrentByteIndex
        # Of <a/> that is behind it, of <a></a> before its end tag.
        is_empty = is_open and data[place - 2 : place] == b"/>"
        after = place if is_empty else data.index(b">", place) + 1
        is_open = False
        if depth == hidden:
            begun, hidden = after, 0
        elif depth == level:
            elements.append(b"".join([*kept, data[begun:after]]))
            kept.clear()
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
