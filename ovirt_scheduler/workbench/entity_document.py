"""A host or a VM as the engine writes it, in which a simulation changes a few values.

The element is written once, with a mark at each value. To write it anew is then to join pieces.
"""

from __future__ import annotations

import contextlib
import math
from typing import Optional
from xml.etree.ElementTree import Element, fromstring, tostring
from xml.sax.saxutils import escape, quoteattr

from ovirt_scheduler.errors import BadInput

_STATISTICS = (
    "memory.used", "memory.free",
    "cpu.current.total", "cpu.current.idle", "cpu.current.user", "cpu.current.system",
)  # fmt: skip
# Where each value stands, by its path.
_PLACES: dict[str, str] = {
    **{path: path for path in (
        "name", "status", "status/state", "memory", "max_scheduling_memory",
        "summary/active", "summary/total",
        "cpu/topology/sockets", "cpu/topology/cores", "cpu/topology/threads",
        "high_availability/enabled", "placement_policy/affinity",
    )},
    **{
        f"statistics/{name}": f"statistics/statistic[name='{name}']/values/value/datum"
        for name in _STATISTICS
    },
}  # fmt: skip
_HOST = "host"  # of a VM: the element is changed, and not what is in it
_MOST = 2**62  # of a number
_MARK = "\0"  # before and after a path; XML has no such character


class EntityDocument:
    """The element of a host or a VM.

    Args:
        data: well-formed, in UTF-8.

    Attributes:
        id: of the host or VM.
        values: the texts in it by their path, such as ``summary/active``; that of a statistic is
            ``statistics/`` and its name, that of a VM's host its id.
        memory: bytes; 0: not known.
        processors: 0: not known.
        changes: how many there were.

    Raises:
        BadInput: a value is no number that has to be one.
    """

    def __init__(self, data: bytes) -> None:
        element = fromstring(data)  # noqa: S314  read before, without entities
        self.id = element.get("id", "")
        self._kind = element.tag
        self._element: Optional[Element] = None  # with all changes, where it was asked for
        self.changes = 0
        self.values: dict[str, str] = {}
        for path, place in _PLACES.items():
            found = element.find(place)
            if found is not None and found.text and not len(found):
                self.values[path] = found.text.strip()
                found.text = f"{_MARK}{path}{_MARK}"
        for host in element.findall(_HOST):
            self.values[_HOST] = host.get("id", "")
            element.remove(host)
        element.text = f"{_MARK}{_HOST}{_MARK}{element.text or ''}"
        self._pieces = tostring(element, "unicode").split(_MARK)
        self._at = {path: place for place, path in enumerate(self._pieces) if place % 2}
        self.run_on(self.values.get(_HOST))
        for path in self.values.keys() - {_HOST}:
            self.set(path, self.values[path])
        self.name = self.values.get("name", self.id)
        self.memory = self.number("memory") or 0.0
        parts = [self.number(f"cpu/topology/{each}") for each in ("sockets", "cores", "threads")]
        self.processors = math.prod(int(part or 1) for part in parts) if any(parts) else 0

    def number(self, path: str) -> Optional[float]:
        """A value as a number; None where it is not there.

        Raises:
            BadInput: it is no number, or one that cannot be. Such a statistic counts as not there.
        """
        text = self.values.get(path, "")
        with contextlib.suppress(ValueError):
            number = float(text)
            if 0 <= number <= _MOST:
                return number
        if not text or path.startswith("statistics/"):
            return None
        raise BadInput(
            f"{self._kind} {self.id}: {path} is {text!r:.40}; write a number from 0 to {_MOST}"
        )

    def set(self, path: str, value: object) -> None:
        """Change a value; the element says it where it did before."""
        self.values[path] = str(value)
        if path in self._at:
            self._change(path, escape(str(value)))

    def run_on(self, host: Optional[str]) -> None:
        """Change the host that a VM runs on; None: it does not run."""
        piece = ""
        self.values.pop(_HOST, None)
        if host is not None:
            self.values[_HOST] = host
            href = quoteattr(f"/ovirt-engine/api/hosts/{host}")
            piece = f"<host href={href} id={quoteattr(host)}/>"
        self._change(_HOST, piece)

    def written(self) -> bytes:
        """The element with all changes."""
        return "".join(self._pieces).encode()

    def element(self) -> Element:
        """The same, as it can be searched."""
        if self._element is None:
            self._element = fromstring(self.written())  # noqa: S314
        return self._element

    def _change(self, path: str, piece: str) -> None:
        self._pieces[self._at[path]] = piece
        self._element = None
        self.changes += 1
