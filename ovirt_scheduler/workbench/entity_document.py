"""The element of a host or VM, some values of which change.

It is written once, with a mark at each value that may change. To write it anew is then to join
pieces.
"""

from __future__ import annotations

import contextlib
import math
import re
from typing import Optional
from xml.etree.ElementTree import Element, fromstring, tostring
from xml.sax.saxutils import escape, quoteattr

from ovirt_scheduler.errors import BadInput
from ovirt_scheduler.workbench.fake_cluster import API

STATISTICS = "statistics/"
CPU = f"{STATISTICS}cpu.current."
MEMORY = f"{STATISTICS}memory."

# Where each value stands in an element, by its path.
_PLACES = {
    path: re.sub("statistics/(.+)", r"statistics/statistic[name='\1']/values/value/datum", path)
    for path in (
        "name", "status", "status/state", "memory", "max_scheduling_memory",
        "summary/active", "summary/total",
        "cpu/topology/sockets", "cpu/topology/cores", "cpu/topology/threads",
        "high_availability/enabled", "placement_policy/affinity", "origin",
        f"{MEMORY}used", f"{MEMORY}free",
        f"{CPU}total", f"{CPU}idle", f"{CPU}user", f"{CPU}system",
    )
}  # fmt: skip
HOST = "host"  # of a VM: the element is changed, and not what is in it
_MOST = 2**62  # of a number
_MARK = "\0"  # before and after a path; XML has no such character


class EntityDocument:
    """The element of a host or a VM.

    Args:
        data: well-formed, in UTF-8.

    Attributes:
        id: of the host or VM.
        values: the texts in it by their path, such as ``summary/active``. The path of a statistic
            is ``statistics/`` and its name. ``host`` is the id of a VM's host, or empty.
        memory: bytes; 0: not known.
        processors: 0: not known.
        pinned_to: ids of the only hosts that a VM may run on; empty: any.

    Raises:
        BadInput: a value is no number that has to be one.
    """

    def __init__(self, data: bytes) -> None:
        element = fromstring(data)  # noqa: S314  read before, without entities
        self.id = element.get("id", "")
        self.values: dict[str, str] = {}
        self._kind = element.tag
        self._written: Optional[bytes] = data
        self._element: Optional[Element] = None  # the same, if it was asked for
        for path, place in _PLACES.items():
            part = element.find(place)
            if part is not None and part.text and not len(part):
                self.values[path] = part.text.strip()
                part.text = f"{_MARK}{path}{_MARK}"
        pins = element.iterfind("placement_policy/hosts/host")
        self.pinned_to = frozenset(host.get("id", "") for host in pins)
        for host in element.findall(HOST):
            self.values[HOST] = host.get("id", "")
            element.remove(host)
        element.text = f"{_MARK}{HOST}{_MARK}{element.text or ''}"
        self._pieces = tostring(element, "unicode").split(_MARK)  # each second one is a path
        self.name = self.values.get("name", self.id)
        self.memory = self.number("memory") or 0.0
        parts = [self.number(f"cpu/topology/{each}") for each in ("sockets", "cores", "threads")]
        self.processors = math.prod(int(part or 1) for part in parts) if any(parts) else 0

    def number(self, path: str) -> Optional[float]:
        """A value as a number; None where it is not there.

        Raises:
            BadInput: it is no number, or out of range. Such a statistic counts as missing.
        """
        text = self.values.get(path, "")
        with contextlib.suppress(ValueError):
            number = float(text)
            if 0 <= number <= _MOST:
                return number
        if not text or path.startswith(STATISTICS):
            return None
        raise BadInput(
            f"{self._kind} {self.id}: {path} is {text!r:.40}; write a number from 0 to {_MOST}"
        )

    def statistics(self) -> dict[str, float]:
        """Each of its statistics that is an amount, by name."""
        paths = [path for path in self.values if path.startswith(STATISTICS)]
        numbers = {path[len(STATISTICS) :]: self.number(path) for path in paths}
        return {name: number for name, number in numbers.items() if number is not None}

    def set(self, path: str, value: object) -> None:
        """Change a value; the element says so if it has a place for it."""
        self.values[path] = str(value)
        self._written = self._element = None

    def written(self) -> bytes:
        """The element with all changes, as the same object until the next one."""
        if self._written is None:
            pieces = self._pieces.copy()
            pieces[1::2] = map(self._piece, pieces[1::2])
            self._written = "".join(pieces).encode()
        return self._written

    def _piece(self, path: str) -> str:
        value = self.values.get(path, "")
        if path != HOST:
            return escape(value)
        return f"<host href={quoteattr(f'{API}/hosts/{value}')} id={quoteattr(value)}/>" * bool(
            value
        )

    def element(self) -> Element:
        """The same, as it can be searched."""
        written = self.written()
        if self._element is None:
            self._element = fromstring(written)  # noqa: S314
        return self._element
