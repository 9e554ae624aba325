"""A made engine on the loopback: hosts, VMs and clusters as documents, over HTTP.

As a real one, it gives tags, affinity labels and statistics as links, unless a query says
``follow``, and of what is only referred to the id alone. Any password is good. It changes nothing
but the host of a VM that is to migrate. What it does not know is a fault that says so.
"""

from __future__ import annotations

import copy
import fnmatch
import json
import re
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import (
    Callable,
    Collection,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
)
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree.ElementTree import Element, ParseError, SubElement, fromstring, tostring
from xml.sax.saxutils import escape

from ovirt_scheduler.model.plugins import EngineAccess
from ovirt_scheduler.workbench.snapshot import Snapshot

API = "/ovirt-engine/api"

_TOKEN = "a-token"  # noqa: S105  that opens nothing
_LOGIN, _LOGOUT = "/ovirt-engine/sso/oauth/token", "/ovirt-engine/services/sso-logout"
_MIGRATE = re.compile(rf"{API}/vms/([^/]+)/migrate")
_LONGEST_BODY = 1 << 20  # bytes of a request

# What the engine gives as links, by its element.
_PARTS = (
    "tags", "statistics",
    "affinity_labels", "affinity_groups", "disk_attachments", "nics", "numa_nodes",
)  # fmt: skip
_TAKEN = _PARTS[:2]  # with each host and VM of a snapshot; a host without tags may have no element
_REFERENCES = ("cluster", "host")
# Parameters of the SDK's lists that make no difference here.
_IGNORED = frozenset({"all_content", "case_sensitive", "current", "filter"})

_TERM = re.compile(r"\s*([\w.]+)\s*(!?=)\s*\"?([^\"]*?)\"?\s*")
_OR, _AND = re.compile(r"\s+or\s+", re.IGNORECASE), re.compile(r"\s+and\s+", re.IGNORECASE)


class Unknown(Exception):
    """A request that the made engine has no answer to; its text is for the plugin's author."""

    status = HTTPStatus.NOT_IMPLEMENTED


class Absent(Unknown):
    """It names a host or VM that is not there."""

    status = HTTPStatus.NOT_FOUND


class _Place(NamedTuple):
    """What a path names: a collection, or one entity of it."""

    name: str  # the collection's element
    found: List[Element]
    parts: Sequence[str] = ()  # what each entity has a collection of
    one: bool = False


class MadeEngine:
    """The server, in a thread of its own; ``hold`` says what it has.

    Attributes:
        migrations: what it was asked to migrate: VM and host by name; no host: the engine's choice.
        unknown: the requests that it had no answer to, and why.
    """

    def __init__(self) -> None:
        self.migrations: List[Tuple[str, Optional[str]]] = []
        self.unknown: List[str] = []
        self._held: Mapping[str, List[Element]] = {}
        self._parts: Dict[str, List[str]] = {}  # that are known of each collection
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.engine = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def access(self) -> EngineAccess:
        """What ``engine_connection`` is made with, to reach it."""
        return EngineAccess(f"http://127.0.0.1:{self._server.server_port}{API}", None, _TOKEN)

    def hold(
        self, hosts: Iterable[Element], vms: Iterable[Element], clusters: Iterable[Element] = ()
    ) -> None:
        """From now on it has these, and the clusters, tags and labels that stand in them.

        Args:
            hosts, vms, clusters: elements of version 4, with all that may be followed in them.
        """
        held = {"hosts": [*hosts], "vms": [*vms]}
        inside = [each for of in held.values() for each in of]
        references = (found for each in inside for found in each.findall("cluster"))
        known: Dict[str, Element] = {}
        for cluster in (*references, *clusters):  # the one of more words counts
            if len(cluster) >= len(known.get(cluster.get("id", ""), ())):
                known[cluster.get("id", "")] = cluster
        self._parts = {name: _known_parts(each, _TAKEN) for name, each in held.items()}
        self._parts["clusters"] = _known_parts(known.values(), ())
        self._held = {
            **held,
            "clusters": [*known.values()],
            "tags": _named(inside, "tags/tag"),
            "affinity_labels": [
                _with_members(label, held)
                for label in _named(inside, "affinity_labels/affinity_label")
            ],
        }

    def hold_snapshot(self, snapshot: Snapshot) -> None:
        """From now on it has the cluster of a snapshot."""
        hosts, vms = (fromstring(snapshot.document(name).data) for name in ("hosts", "vms"))  # noqa: S314  read before
        about = next((each for each in hosts.iter("cluster")), Element("cluster", {"id": ""}))
        cluster = Element("cluster", {"id": about.get("id", "")})
        SubElement(cluster, "name").text = snapshot.cluster
        self.hold(hosts, vms, [cluster])

    def close(self) -> None:
        """End the server and its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def get(self, target: str) -> str:
        """The document at a path below the API, with a query, such as ``/hosts?follow=tags``.

        Raises:
            Unknown: it has none.
        """
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        search, most = query.pop("search", ""), query.pop("max", "")
        follow = [name for name in query.pop("follow", "").split(",") if name]
        left = [name for name in query if name not in _IGNORED]
        if left:
            raise Unknown(f"knows search, follow and max, and not {', '.join(left)}")
        path = parts.path.strip("/")
        if not path:
            return "<api><product_info><name>made engine</name></product_info></api>"
        place = self._at(path)
        stray = [each for each in follow if each not in (*place.parts, *_REFERENCES)]
        if stray:
            there = ", ".join((*place.parts, *_REFERENCES))
            raise Unknown(f"cannot follow {', '.join(stray)} there; it follows {there}")
        if place.one:
            return _text(self._shown(place.found[0], path, place.parts, follow))
        fit = [each for each in place.found if self._fits(each, search)]
        shown = (
            _text(self._shown(each, f"{path}/{each.get('id')}", place.parts, follow))
            for each in fit[: int(most) if most.isdigit() else None]
        )
        return f"<{place.name}>{''.join(shown)}</{place.name}>"

    def entity(self, collection: str, element: Element, follow: Collection[str] = ()) -> str:
        """The document of one of the ``hosts`` or ``vms``, whether it has it or not."""
        path = f"{collection}/{element.get('id')}"
        return _text(self._shown(element, path, self._parts.get(collection, ()), follow))

    def migrate(self, vm_id: str, body: bytes) -> str:
        """Have a VM on another host, as the action of that name asks; it is there at once.

        Raises:
            Unknown: there is no such VM or host, or the body is no action.
        """
        (vm,) = self._at(f"vms/{vm_id}").found
        try:
            wanted = fromstring(body or b"<action/>").find("host")  # noqa: S314  of a plugin's SDK
        except ParseError as error:
            raise Unknown(f"cannot read the action migrate of vms/{vm_id}: {error}") from None
        done = "<action><status>complete</status></action>"
        if wanted is None:
            self.migrations.append((_name(vm), None))
            return done
        named = {*filter(None, (wanted.get("id"), wanted.findtext("name")))}
        fit = (each for each in self._held["hosts"] if named & {each.get("id"), _name(each)})
        host = next(fit, None)
        if host is None:
            raise Unknown(f"has no host {', '.join(named)} to migrate {_name(vm)} to")
        self.migrations.append((_name(vm), _name(host)))
        moved = copy.copy(vm)
        for former in moved.findall("host"):
            moved.remove(former)
        SubElement(moved, "host", {"id": host.get("id", "")})
        self._held["vms"][self._held["vms"].index(vm)] = moved
        return done

    def _at(self, path: str) -> _Place:
        """What a path names.

        Raises:
            Unknown: nothing.
        """
        first, *rest = path.split("/")
        by_path = {_in_path(name): name for name in self._held}
        if first not in by_path:
            raise Unknown(f"has {', '.join(by_path)}, and no {path}")
        name = by_path[first]
        place = _Place(name, self._held[name], self._parts.get(name, ()))
        for word in rest:
            if not place.one:
                found = [each for each in place.found if each.get("id") == word]
                if not found:
                    raise Absent(f"has nothing at {path}")
                place = place._replace(found=found, one=True)
                continue
            parts = {_in_path(each): Element(each) for each in place.parts}
            inside = (each for each in place.found[0] if each.tag in _PARTS or len(each))
            parts.update({_in_path(each.tag): each for each in inside})
            if word not in parts:
                raise Unknown(f"has no {path}; there it has {', '.join(parts) or 'nothing'}")
            place = _Place(parts[word].tag, [*parts[word]])
        return place

    def _shown(
        self, element: Element, path: str, parts: Collection[str], follow: Collection[str]
    ) -> Element:
        """An entity as a query gives it: its parts as links, but for those to be followed."""
        inside = {name: Element(name) for name in parts}
        inside.update({child.tag: child for child in element if child.tag in _PARTS})
        links = {_in_path(name) for name in inside}
        shown = Element(element.tag, {**element.attrib, "href": f"{API}/{path}"})
        shown.text = element.text
        for child in element:
            if child.tag in _REFERENCES and child.get("id"):
                shown.append(self._reference(child, follow))
            elif child.tag not in inside and child.get("rel") not in links:
                shown.append(child)
        for name, part in inside.items():
            if name in follow:
                shown.append(part)
            else:
                link = {"rel": _in_path(name), "href": f"{API}/{path}/{_in_path(name)}"}
                SubElement(shown, "link", link)
        return shown

    def _reference(self, child: Element, follow: Collection[str]) -> Element:
        path = f"{child.tag}s/{child.get('id')}"
        if child.tag in follow:
            return self._shown(self._at(path).found[0], path, (), ())
        return Element(child.tag, {"id": child.get("id", ""), "href": f"{API}/{path}"})

    def _fits(self, element: Element, search: str) -> bool:
        """Whether an entity is what a search such as ``host=lynx and status=up`` looks for."""
        return not search or any(
            all(self._is(element, term) for term in _AND.split(part)) for part in _OR.split(search)
        )

    def _is(self, element: Element, term: str) -> bool:
        parsed = _TERM.fullmatch(term)
        values = self._values(element)
        if parsed is None or parsed[1] not in values:
            there = ", ".join(values)
            raise Unknown(f"cannot search for {term!r}; it takes NAME=VALUE of {there}")
        key, sign, pattern = parsed.groups()
        found = (each.lower() for each in values[key])
        return any(fnmatch.fnmatchcase(each, pattern.lower()) for each in found) == (sign == "=")

    def _values(self, element: Element) -> Dict[str, List[str]]:
        """What a search may name."""
        values = {"name": [_name(element)], "id": [element.get("id", "")]}
        values["status"] = [each.text or "" for each in element.findall("status")]
        values["cluster"] = self._names_of(element, "cluster")
        values["tag"] = [_name(tag) for tag in element.findall("tags/tag")]
        if element.tag == "vm":
            values["host"] = self._names_of(element, "host")
        return values

    def _names_of(self, element: Element, what: str) -> List[str]:
        found = element.find(what)
        if found is None:
            return []
        return [_name(each) for each in self._held[f"{what}s"] if each.get("id") == found.get("id")]


def _text(element: Element) -> str:
    return tostring(element, encoding="unicode")


def _in_path(name: str) -> str:
    """How the engine writes a collection in a path: ``affinitylabels``."""
    return name.replace("_", "")


def _name(element: Element) -> str:
    return element.findtext("name") or element.get("id") or ""


def _named(entities: Iterable[Element], path: str) -> List[Element]:
    """Of what stands in entities, each once, by its id."""
    found = (each for entity in entities for each in entity.findall(path))
    return [*{each.get("id", ""): each for each in found}.values()]


def _known_parts(entities: Collection[Element], always: Sequence[str]) -> List[str]:
    """Those that may be asked for; one that no entity has was never asked of the engine."""
    there = {child.tag for each in entities for child in each}
    return [each for each in _PARTS if each in there or each in always or not entities]


def _with_members(label: Element, held: Mapping[str, Iterable[Element]]) -> Element:
    """An affinity label, with the hosts and VMs that have it."""
    whole = copy.copy(label)
    for name, entities in held.items():
        members = SubElement(whole, name)
        for each in entities:
            if any(
                found.get("id") == label.get("id")
                for found in each.findall("affinity_labels/affinity_label")
            ):
                path = f"{API}/{name}/{each.get('id')}"
                SubElement(members, each.tag, {"id": each.get("id", ""), "href": path})
    return whole


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    engine: MadeEngine


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves in one piece
    server: _Server

    def do_GET(self) -> None:
        self._answer(lambda: self.server.engine.get(self.path[len(API) :]))

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(min(length, _LONGEST_BODY))
        self.close_connection = length > _LONGEST_BODY
        action = _MIGRATE.fullmatch(self.path)
        if self.path == _LOGIN:
            self._send(200, json.dumps({"access_token": _TOKEN}), "application/json")
        elif self.path == _LOGOUT:
            self._send(200, "{}", "application/json")
        elif action:
            self._answer(lambda: self.server.engine.migrate(action[1], body))
        else:
            self._answer(_changes_nothing)

    def do_PUT(self) -> None:
        self.close_connection = True  # its body is not read
        self._answer(_changes_nothing)

    def do_DELETE(self) -> None:
        self.do_PUT()

    def log_message(self, *_: object) -> None:
        """Say nothing: the output is the command's or the test's."""

    def _answer(self, ask: Callable[[], str]) -> None:
        try:
            self._send(200, ask())
        except Unknown as unknown:
            text = f"the made engine {unknown} ({self.command} {unquote(self.path):.300})"
            self.server.engine.unknown.append(text)
            self._send(unknown.status, f"<fault><reason>{escape(text)}</reason></fault>")

    def _send(self, status: int, text: str, kind: str = "application/xml") -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _changes_nothing() -> NoReturn:
    raise Unknown("changes nothing, but for vms/ID/migrate")
