"""A made engine on the loopback: hosts, VMs and clusters as documents, over HTTP.

As a real one, it gives tags, affinity labels and statistics as links, unless a query says
``follow``, and of what is only referred to the id alone. It knows no password and changes nothing.
What it does not know is answered with a fault that says so.
"""

from __future__ import annotations

import copy
import fnmatch
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Collection, Dict, List, Mapping, Sequence, Tuple
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from ovirtsdk4 import types
from ovirtsdk4.writer import Writer

from ovirt_scheduler.model.plugins import EngineAccess
from ovirt_scheduler.model.requests import Document

API = "/ovirt-engine/api"

# By the name of the attribute that the engine has a collection for: how its path ends.
_PARTS = {"tags": "tags", "affinity_labels": "affinitylabels", "statistics": "statistics"}

Entities = Sequence[Any]  # hosts, VMs or clusters


class Unknown(Exception):
    """A query that the made engine has no answer to; its text is for the plugin's author."""


class MadeEngine:
    """The server, in a thread of its own; ``hold`` says what it has."""

    def __init__(self) -> None:
        self._held: Mapping[str, Entities] = {}
        made = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                try:
                    self._answer(200, made.answer(self.path))
                except Unknown as unknown:
                    text = f"the made engine of tests {unknown}"
                    self._answer(501, f"<fault><reason>{escape(text)}</reason></fault>")

            def do_POST(self) -> None:
                text = "the made engine of tests changes nothing"
                self.close_connection = True  # its body was not read
                self._answer(501, f"<fault><reason>{text}</reason></fault>")

            def do_PUT(self) -> None:
                self.do_POST()

            def do_DELETE(self) -> None:
                self.do_POST()

            def log_message(self, *_: object) -> None:
                """Say nothing: the output is the test's."""

            def _answer(self, status: int, text: str) -> None:
                body = text.encode("utf-8")
                self.send_response(status)
                self.send_header("Content-Type", "application/xml")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def access(self) -> EngineAccess:
        """What ``engine_connection`` is made with, to reach it."""
        return EngineAccess(f"http://127.0.0.1:{self._server.server_port}{API}", None, "a token")

    def hold(self, hosts: Entities, vms: Entities) -> None:
        """From now on it has these, and the clusters that they name."""
        named = {each.cluster.id: each.cluster for each in (*hosts, *vms) if each.cluster}
        self._held = {"hosts": hosts, "vms": vms, "clusters": tuple(named.values())}

    def close(self) -> None:
        """End the server and its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, target: str) -> str:
        """The document at a path with a query.

        Raises:
            Unknown: it has none.
        """
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        search, follow = query.pop("search", ""), query.pop("follow", "")
        if query:
            raise Unknown(f"knows search and follow, and not {', '.join(query)}")
        within = parts.path[len(API) :].strip("/")
        if not within:
            return "<api/>"
        collection, *rest = within.split("/")
        if collection not in self._held:
            raise Unknown(f"has {', '.join(self._held)}, and no {within}")
        if not rest:
            found = [each for each in self._held[collection] if self._fits(each, search)]
            return document(collection, found, follow.split(",")).data.decode()
        entity = next((each for each in self._held[collection] if each.id == rest[0]), None)
        if entity is None:
            raise Unknown(f"has nothing at {within}; give it to the call, in hosts or vms")
        if not rest[1:]:
            return _written(collection, entity, follow.split(","))
        for attribute, name in _PARTS.items():
            if rest[1:] == [name] and hasattr(entity, attribute):
                root = "affinity_labels" if attribute == "affinity_labels" else name
                text: str = Writer.write(list(getattr(entity, attribute) or ()), root=root)
                return text
        raise Unknown(f"has no {within}; it has {', '.join(_PARTS.values())}")

    def _fits(self, entity: Any, search: str) -> bool:
        """Whether an entity is what a search such as ``host=lynx and status=up`` looks for."""
        for term in filter(None, search.split(" and ")):
            key, equals, wanted = (each.strip() for each in term.partition("="))
            found = self._values(entity).get(key)
            if not equals or found is None:
                there = ", ".join(self._values(entity))
                raise Unknown(f"cannot search for {term!r}; it takes NAME=VALUE of {there}")
            pattern = wanted.strip('"').lower()
            if not any(fnmatch.fnmatchcase(each.lower(), pattern) for each in found):
                return False
        return True

    def _values(self, entity: Any) -> Dict[str, List[str]]:
        """What a search may name."""
        cluster, host = getattr(entity, "cluster", None), getattr(entity, "host", None)
        named = [each.name for each in self._held["hosts"] if host and each.id == host.id]
        status = getattr(entity, "status", None)
        found = {
            "name": [entity.name],
            "id": [entity.id],
            "status": [status.value] if status else [],
            "cluster": [cluster.name] if cluster and cluster.name else [],
            "tag": [tag.name for tag in getattr(entity, "tags", None) or ()],
        }
        return {**found, "host": named} if isinstance(entity, types.Vm) else found


def document(collection: str, entities: Entities, follow: Collection[str] = ()) -> Document:
    """Hosts or VMs in one document, as an engine writes it.

    Args:
        collection: the name of its element, such as ``hosts``.
        follow: attributes that are to stand in it, and not as links.
    """
    inner = "".join(_written(collection, each, follow) for each in entities)
    return Document(f"<{collection}>{inner}</{collection}>".encode(), "utf-8")


def one(collection: str, entity: Any, follow: Collection[str] = ()) -> Document:
    """The document of one host or VM."""
    return Document(_written(collection, entity, follow).encode(), "utf-8")


def _written(collection: str, entity: Any, follow: Collection[str]) -> str:
    bare = copy.copy(entity)
    bare.href = f"{API}/{collection}/{entity.id}"
    for attribute in ("cluster", "host"):
        referred = getattr(entity, attribute, None)
        if referred is not None:
            reference = type(referred)(id=referred.id)
            reference.href = f"{API}/{attribute}s/{referred.id}"
            setattr(bare, attribute, reference)
    links: List[Tuple[str, str]] = []
    for attribute, name in _PARTS.items():
        if attribute not in follow and hasattr(entity, attribute):
            setattr(bare, attribute, None)
            links.append((name, f"{bare.href}/{name}"))
    text: str = Writer.write(bare)
    opening, slash, name = text.rpartition("</")
    added = "".join(f'<link rel="{rel}" href="{href}"/>' for rel, href in links)
    return f"{opening}{added}{slash}{name}"
