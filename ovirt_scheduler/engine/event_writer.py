"""Writes what the engine's administrators should know into the engine's events.

::

    a marked line of the log ──► the queue ──► a thread ──► POST /events

Nothing waits for the engine. An event that cannot be written is in the log alone, and one line of
the log says why it is not in the engine.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Optional
from urllib.parse import urlencode
from xml.sax.saxutils import escape, quoteattr

from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import EngineDenial, EngineRefusal, EngineUnavailable
from ovirt_scheduler.log.marked_for_engine import MARK, EngineEvent
from ovirt_scheduler.log.trouble import Trouble
from ovirt_scheduler.model.requests import UUID
from ovirt_scheduler.model.values.hidden import without_secrets
from ovirt_scheduler.model.values.text import writable
from ovirt_scheduler.settings.value_types import EngineEvents

_log = logging.getLogger(__name__)

ORIGIN = "ovirt-scheduler"  # what the engine calls the writer of these events

_MOST_WAITING = 100  # events; of more the oldest are dropped
_LONGEST = 1000  # characters of a description
_SECONDS = 20.0  # for an answer of the engine
_STOP_SECONDS = 2.0
_CLUSTER = re.compile(
    rb"""<cluster\b[^<>]{0,400}?\bid=["'](%s)["']""" % UUID.pattern.encode().replace(b"(", b"(?:")
)


class _Waiting(NamedTuple):
    """An event that is to be written."""

    severity: str
    description: str
    about: EngineEvent
    cluster: str  # its name; empty if it is about none


class EventWriter(logging.Handler):
    """Has the marked lines of the log written into the events of an engine.

    Args:
        events: which of them.

    Attributes:
        trouble: of the thread that writes.
    """

    def __init__(self, inventory: Inventory, events: EngineEvents) -> None:
        super().__init__(logging.INFO)
        self.inventory = inventory
        self._writes_migrations = events is EngineEvents.ALL
        self._waiting: deque[_Waiting] = deque(maxlen=_MOST_WAITING)
        self._news, self._stopping = threading.Event(), threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._cluster_ids: dict[str, str] = {}  # by name
        self._is_failing = False
        self.trouble = Trouble("writing events into the engine")

    def emit(self, record: logging.LogRecord) -> None:
        """Have a line written, if it is marked; returns at once."""
        about = getattr(record, MARK, None)
        if not isinstance(about, EngineEvent) or self._stopping.is_set():
            return
        if not (about.is_failure or self._writes_migrations):
            return
        text = writable(" ".join(without_secrets(record.getMessage()).split()))
        fields = record.args if isinstance(record.args, Mapping) else {}
        self._waiting.append(
            _Waiting(_severity(record), text[:_LONGEST], about, str(fields.get("cluster", "")))
        )
        self._news.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="events", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the next line tries again
                self._thread = None

    def close(self) -> None:
        """Write what waits, if the engine takes it within two seconds, and no more."""
        self._stopping.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        super().close()

    def _write_all(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            while self._waiting:
                try:
                    self._write(self._waiting.popleft())
                    self.trouble.clear()
                except Exception as error:  # noqa: BLE001  the next event is written nevertheless
                    self._stopping.wait(self.trouble.note(error))
            if self._stopping.is_set():
                return

    def _write(self, event: _Waiting) -> None:
        try:
            cluster = self._cluster_id(event.cluster)
            try:
                self.inventory.write_event(_document(event, cluster))
            except EngineDenial:
                raise
            except EngineRefusal:  # another event may have the same number
                self.inventory.write_event(_document(event, cluster))
        except EngineUnavailable as error:
            self._log_failure(error)
        else:
            self._is_failing = False

    def _cluster_id(self, name: str) -> str:
        if name and name not in self._cluster_ids:
            path = f"/clusters?{urlencode({'search': f'name={name}', 'max': 1})}"
            answer = self.inventory.bytes_at(path, time.monotonic() + _SECONDS, 1 << 20)
            match = _CLUSTER.search(answer)
            if match is None:
                return ""
            self._cluster_ids[name] = match[1].decode()
        return self._cluster_ids.get(name, "")

    def _log_failure(self, error: EngineUnavailable) -> None:
        if self._is_failing:
            return
        self._is_failing = True
        reason = str(error)
        if isinstance(error, EngineDenial):
            reason += "; the user of [engine] needs the role ExternalEventsCreator"
        _log.warning("no events can be written into the engine: %(reason)s", {"reason": reason})


def _severity(record: logging.LogRecord) -> str:
    if record.levelno >= logging.ERROR:
        return "error"
    return "warning" if record.levelno >= logging.WARNING else "normal"


def _document(event: _Waiting, cluster: str) -> str:
    """The event as the engine takes it.

    Without ``flood_rate`` the engine refuses a second event about the same things within 30 s.
    """
    ids = {"vm": event.about.vm, "host": event.about.host, "cluster": cluster}
    links = "".join(f"<{name} id={quoteattr(key)}/>" for name, key in ids.items() if key)
    document = (
        f"<event><origin>{ORIGIN}</origin><severity>{event.severity}</severity>"
        f"<custom_id>{secrets.randbits(31)}</custom_id><flood_rate>1</flood_rate>"
        f"<description>{escape(event.description)}</description>{links}</event>"
    )
    return document.encode("ascii", "xmlcharrefreplace").decode()  # libcurl takes no other text
