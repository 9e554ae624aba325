"""The events that others write into a fake engine, by the rules of the engine's own source."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from tests.support.elements import Element, id_of
from tests.support.rest_cluster import Event
from tests.support.rest_reply import Reply, fault

if TYPE_CHECKING:
    from tests.support.rest_server import RestServer

_FLOOD_SECONDS = 30.0


class WrittenEvent(NamedTuple):
    origin: str
    severity: str
    description: str
    about: dict[str, str]  # vm, host and cluster, with their ids


class WrittenEvents:
    """Those that it took, in their order.

    Attributes:
        refused: how many it did not take.
        is_denied: whether the user may write none.
        taken_ids: of custom ids that somebody has used already, how many come next.
    """

    def __init__(self) -> None:
        self.events: list[WrittenEvent] = []
        self.refused = 0
        self.is_denied = False
        self.taken_ids = 0
        self._custom_ids: set[tuple[str, str]] = set()
        self._latest: dict[tuple[str, ...], float] = {}

    def write(self, document: str, there: Collection[str]) -> Reply:
        """Take an event, or refuse it.

        Args:
            there: the ids of all things that an event may be about.
        """
        event = ElementTree.fromstring(document)
        about = {child.tag: child.attrib["id"] for child in event if "id" in child.attrib}
        texts = {child.tag: child.text or "" for child in event}
        written = WrittenEvent(texts["origin"], texts["severity"], texts["description"], about)
        number = int(texts["custom_id"])
        key = written.origin, str(number)
        flood = written.severity, *sorted(about.values())
        rate = int(texts.get("flood_rate", 0))
        now = time.monotonic()
        refusal = ""
        if self.is_denied:
            return fault(403, "User is not authorized to perform this action.")
        if written.origin.lower() == "ovirt" or not -(2**31) <= number < 2**31:
            refusal = "The event is illegal."
        elif written.severity not in ("normal", "warning", "error", "alert"):
            refusal = "The severity is illegal."
        elif not set(about.values()) <= set(there):
            refusal = "An entity of the event does not exist."
        elif self.taken_ids or key in self._custom_ids:
            self.taken_ids = max(0, self.taken_ids - 1)
            refusal = "The custom event id is taken."
        elif not rate and now - self._latest.get(flood, float("-inf")) < _FLOOD_SECONDS:
            refusal = "The event was not added."
        if refusal:
            self.refused += 1
            return fault(409, refusal)
        self._custom_ids.add(key)
        self._latest[flood] = now
        self.events.append(written)
        done = Element("event", [Element("origin", written.origin)], {"id": "1"})
        return Reply(201, "application/xml", str(done))


def answer(engine: RestServer, authorization: str, document: str) -> Reply:
    """Take somebody's event, which is then among those that are read."""
    if authorization.rpartition(" ")[2] not in engine.tokens:
        return Reply(401, "text/html", "<html/>")
    entities = (*engine.hosts, *engine.vms)
    clusters = {id_of(f"cluster {host.cluster}") for host in engine.hosts}
    reply = engine.written.write(document, {each.id for each in entities} | clusters)
    if reply.status == 201:
        about = engine.written.events[-1].about.values()
        named = [each for each in entities if each.id in about]
        engine.events[max(engine.events) + 7] = Event(9022, named, origin="ovirt-scheduler")
    return reply
