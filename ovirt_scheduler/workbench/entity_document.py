"""A host or a VM as the engine writes it, in which a simulation changes a few values.

Where these stand is found once. Writing the element anew is then no more than joining its pieces.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr, unescape

from ovirt_scheduler.workbench.snapshot import TAG

# What is looked for; of a statistic the datum, by the statistic's name.
_STATISTIC: Mapping[str, Any] = {"name": {}, "values": {"value": {"datum": {}}}}
_WANTED: Mapping[str, Any] = {
    "name": {},
    "status": {"state": {}},
    "memory": {},
    "max_scheduling_memory": {},
    "summary": {"active": {}, "total": {}},
    "cpu": {"topology": {"sockets": {}, "cores": {}, "threads": {}}},
    "high_availability": {"enabled": {}},
    "placement_policy": {"affinity": {}},
    "host": {},
    "statistics": {"statistic": _STATISTIC},
}
_HOST = "host"  # of a VM: the element is changed, and not what is in it
_DATUM = "statistics/statistic/values/value/datum"

Place = Tuple[int, int]


class EntityDocument:
    """The element of a host or a VM.

    Args:
        data: well-formed, in UTF-8.

    Attributes:
        values: the texts in it by their path, such as ``summary/active``; that of a statistic is
            ``statistics/`` and its name, that of a VM's host its id.
    """

    def __init__(self, data: bytes) -> None:
        opening = TAG.match(data)
        if opening and opening[0].endswith(b"/>"):
            data = data[: opening.end() - 2] + b"></" + data[1:].split()[0] + b">"
            opening = TAG.match(data)
        inside = opening.end() if opening else 0
        found = _Finder(data)
        self.values: Dict[str, str] = found.values
        found.places.setdefault(_HOST, (inside, inside))  # of a VM that does not run
        self._pieces: List[bytes] = []
        self._at: Dict[str, int] = {}  # the piece that a value is
        end = 0
        for path, place in sorted(found.places.items(), key=lambda item: item[1]):
            self._at[path] = len(self._pieces) + 1
            self._pieces += [data[end : place[0]], data[place[0] : place[1]]]
            end = place[1]
        self._pieces.append(data[end:])

    def number(self, path: str) -> Optional[float]:
        """A value as a number; None where it is not there, or is none."""
        try:
            return float(self.values[path])
        except (KeyError, ValueError):
            return None

    def set(self, path: str, value: object) -> None:
        """Change a value, where the element has it."""
        if path in self.values:
            self.values[path] = str(value)
            self._pieces[self._at[path]] = escape(str(value)).encode()

    def run_on(self, host: Optional[str]) -> None:
        """Change the host that a VM runs on; None: it does not run."""
        piece = ""
        self.values.pop(_HOST, None)
        if host is not None:
            self.values[_HOST] = host
            href = quoteattr(f"/ovirt-engine/api/hosts/{host}")
            piece = f"<host href={href} id={quoteattr(host)}/>"
        self._pieces[self._at[_HOST]] = piece.encode()

    def written(self) -> bytes:
        """The element with all changes."""
        return b"".join(self._pieces)


class _Finder:
    """Finds the values of an element; expat calls ``_start`` and ``_end``."""

    def __init__(self, data: bytes) -> None:
        self.values: Dict[str, str] = {}
        self.places: Dict[str, Place] = {}
        self._data = data
        self._wanted: Optional[Mapping[str, Any]] = {"": _WANTED}
        self._path = ""
        # Of each element around: what is wanted in it, its path, and where it and its text begin.
        self._around: List[Tuple[Optional[Mapping[str, Any]], str, int, int]] = []
        self._begun = self._text = 0
        self._host = ""
        self._statistic: Dict[str, Place] = {}
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.Parse(data, True)
        parser.StartElementHandler = parser.EndElementHandler = None  # else they keep each other

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        wanted = self._wanted
        self._around.append((wanted, self._path, self._begun, self._text))
        if not wanted:
            self._wanted = None
            return
        if len(self._around) == 1:
            self._wanted = _WANTED
            return
        self._wanted = wanted.get(name)
        if self._wanted is not None:
            self._path = f"{self._path}/{name}".lstrip("/")
            self._begun = self._parser.CurrentByteIndex
            opening = TAG.match(self._data, self._begun)
            self._text = opening.end() if opening else 0
            if self._path == _HOST:
                self._host = attributes.get("id", "")

    def _end(self, _: str) -> None:
        if self._wanted is not None and len(self._around) > 1:
            self._take(self._path, self._parser.CurrentByteIndex)
        self._wanted, self._path, self._begun, self._text = self._around.pop()

    def _take(self, path: str, end: int) -> None:
        """Keep what was read of an element that is wanted."""
        empty = end == self._text and self._data[end - 2 : end] == b"/>"
        if path == _HOST:
            whole = end if empty else self._data.index(b">", end) + 1
            self.places[path], self.values[path] = (self._begun, whole), self._host
        elif path == "statistics/statistic":
            if len(self._statistic) == 2:
                name = self._written(self._statistic["name"])
                self._keep(f"statistics/{name}", self._statistic["datum"])
            self._statistic = {}
        elif empty or (self._wanted and b"<" in self._data[self._text : end]):
            return
        elif path.startswith("statistics/"):
            self._statistic[re.sub(".*/", "", path)] = (self._text, end)
        else:
            self._keep(path, (self._text, end))

    def _keep(self, path: str, place: Place) -> None:
        if path not in self.places:
            self.places[path], self.values[path] = place, self._written(place)

    def _written(self, place: Place) -> str:
        return unescape(self._data[place[0] : place[1]].decode()).strip()
