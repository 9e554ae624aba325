"""A made engine on the loopback, whose REST API has a made cluster.

It is real HTTP, for clients with its token, and has documents by path and query, as in version 4.
Like a real engine it gives tags, affinity labels and statistics as links, unless a query says
``follow``, and only the id of an entity that is referred to. A VM may migrate; nothing else
changes. Any other request is answered with a fault that says so.
"""

from __future__ import annotations

import contextlib
import copy
import fnmatch
import functools
import re
import secrets
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable, NamedTuple, NoReturn, Optional
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree.ElementTree import Element, ParseError, SubElement, fromstring, tostring
from xml.sax.saxutils import escape

from ovirt_scheduler.model.plugins import EngineAccess
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import EngineReplies, EngineReply, Sought

API = "/ovirt-engine/api"
_MIGRATE = re.compile(rf"{API}/vms/([^/]+)/migrate(?:\?.*)?")
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

_PAGE = 100  # entities, unless a query says how many
_KEYS = ("name", "id", "status", "cluster", "tag", "host")  # of a search; VMs have a host
# Of a search with single blanks alone.
_TERM = re.compile(r'([\w.]+) ?(!?=) ?"?([^"]*?)"? ?')
_ORDER = re.compile(
    "(.*?) ?(?:\\bsortby (\\w+)(?: (asc|desc))?)? ?(?:\\bpage ([0-9]{1,9}))?", re.IGNORECASE
)
_OR, _AND = re.compile(" or ", re.IGNORECASE), re.compile(" and ", re.IGNORECASE)


class Unknown(Exception):
    """A request that the made engine has no answer to; its text is for the plugin's author."""

    status = HTTPStatus.NOT_IMPLEMENTED


class Absent(Unknown):
    """The request names a host or VM that does not exist."""

    status = HTTPStatus.NOT_FOUND


class _Place(NamedTuple):
    """What a path names: a collection, or one entity of it."""

    name: str  # the collection's element
    found: list[Element]
    parts: Sequence[str] = ()  # what each entity has a collection of
    one: bool = False


class MadeCluster:
    """A cluster, with all data of its hosts and VMs.

    Args:
        hosts, vms, clusters: elements of version 4, with all that may be followed in them.
            Clusters, tags and labels that stand in hosts and VMs need not be given.
        name: of the hosts' cluster, if the hosts have only its id.

    Attributes:
        migrations: the requested ones: VM and host by name; no host: the engine's choice.
        unknown: the requests without an answer, and why.
    """

    def __init__(
        self,
        hosts: Iterable[Element],
        vms: Iterable[Element],
        clusters: Iterable[Element] = (),
        name: str = "",
    ) -> None:
        self._entities = {"hosts": [*hosts], "vms": [*vms]}
        self._clusters = [*clusters]
        self.migrations: list[tuple[str, Optional[str]]] = []
        self.unknown: list[str] = []
        referred = (each.find("cluster") for each in self._entities["hosts"])
        cluster = next((each for each in referred if each is not None), None)
        if cluster is not None and name:
            named = Element("cluster", {"id": cluster.get("id", "")})
            SubElement(named, "name").text = name
            self._clusters.insert(0, named)

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
        shown = (
            _text(self._shown(each, f"{path}/{each.get('id')}", place.parts, follow))
            for each in self._searched(place.found, search, most)
        )
        return f"<{place.name}>{''.join(shown)}</{place.name}>"

    def migrate(self, vm_id: str, action: bytes) -> str:
        """Move a VM to another host at once; if the choice is left to the engine, it stays.

        Args:
            action: the document that asks for it.

        Returns:
            The document of the answer.

        Raises:
            Unknown: there is no such VM or host, or the body is no action.
        """
        (vm,) = self._at(f"vms/{vm_id}").found
        try:
            wanted = fromstring(action or b"<action/>").find("host")  # noqa: S314  of a plugin's SDK
        except ParseError as error:
            raise Unknown(f"cannot read the action migrate of vms/{vm_id}: {error}") from None
        target = None if wanted is None else self._moved(vm, wanted)
        self.migrations.append((_name(vm), target))
        return "<action><status>complete</status></action>"

    def _moved(self, vm: Element, wanted: Element) -> str:
        """Move a VM to a host that is meant by its id or name; return its name."""
        named = {*filter(None, (wanted.get("id"), wanted.findtext("name")))}
        fit = (each for each in self._entities["hosts"] if named & {each.get("id"), _name(each)})
        host = next(fit, None)
        if host is None:
            raise Unknown(f"has no host {', '.join(named)} to migrate {_name(vm)} to")
        moved = copy.copy(vm)
        for former in moved.findall("host"):
            moved.remove(former)
        SubElement(moved, "host", {"id": host.get("id", "")})
        self._entities["vms"][self._entities["vms"].index(vm)] = moved
        return _name(host)

    @functools.cached_property
    def _collections(self) -> Mapping[str, list[Element]]:
        """All its entities, by the names of their elements."""
        inside = [each for entities in self._entities.values() for each in entities]
        references = (found for each in inside for found in each.findall("cluster"))
        tags = (found for each in inside for found in each.findall("tags/tag"))
        clusters: dict[str, Element] = {}
        for cluster in (*references, *self._clusters):  # the one of more words counts
            if len(cluster) >= len(clusters.get(cluster.get("id", ""), ())):
                clusters[cluster.get("id", "")] = cluster
        return {
            **self._entities,
            "clusters": [*clusters.values()],
            "tags": [*{tag.get("id", ""): tag for tag in tags}.values()],
            "affinity_labels": self._labels(),
        }

    def _labels(self) -> list[Element]:
        """The affinity labels that hosts and VMs name, each with all that have it."""
        labels: dict[str, Element] = {}
        members: dict[tuple[str, str], Element] = {}
        for name, entities in self._entities.items():
            for each in entities:
                link = {"id": each.get("id", ""), "href": f"{API}/{name}/{each.get('id')}"}
                for label in each.iterfind("affinity_labels/affinity_label"):
                    key = label.get("id", "")
                    if key not in labels:
                        labels[key] = whole = copy.copy(label)
                        members.update({(key, of): SubElement(whole, of) for of in self._entities})
                    SubElement(members[key, name], each.tag, link)
        return [*labels.values()]

    @functools.cached_property
    def _parts(self) -> Mapping[str, Sequence[str]]:
        """The parts that may be asked for, of an entity of each collection."""
        known = {name: _known_parts(each, _TAKEN) for name, each in self._entities.items()}
        return {**known, "clusters": _known_parts(self._collections["clusters"], ())}

    @functools.cached_property
    def _names(self) -> Mapping[str, Mapping[str, str]]:
        """Of hosts and clusters, by their ids."""
        return {
            what: {each.get("id", ""): _name(each) for each in self._collections[f"{what}s"]}
            for what in _REFERENCES
        }

    def _at(self, path: str) -> _Place:
        """What a path names.

        Raises:
            Unknown: nothing.
        """
        first, *rest = path.split("/")
        by_path = {_in_path(name): name for name in self._collections}
        if first not in by_path:
            raise Unknown(f"has {', '.join(by_path)}, and no {path}")
        name = by_path[first]
        place = _Place(name, self._collections[name], self._parts.get(name, ()))
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
        """An entity as a query gives it: its parts as links, except those to be followed."""
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

    def _searched(self, found: list[Element], search: str, most: str) -> list[Element]:
        """Those that a search such as ``host=lynx and status=up sortby name page 2`` looks for."""
        parts = _ORDER.fullmatch(" ".join(search.split())).groups("")  # type: ignore[union-attr]  # it takes anything
        terms, key, direction, page = parts
        if terms:
            either = [[*map(_term, _AND.split(part))] for part in _OR.split(terms)]
            found = [
                each
                for each in found
                if any(all(self._fits(each, *term) for term in every) for every in either)
            ]
        if key:
            _term(f"{key}=")
            descending = direction.lower() == "desc"
            found = sorted(found, key=lambda each: self._values(each, key), reverse=descending)
        size = int(most) if most.isdecimal() else (_PAGE if page else len(found))
        begin = size * (int(page or 1) - 1)
        return found[begin : begin + size]

    def _fits(self, element: Element, key: str, pattern: re.Pattern[str], equal: bool) -> bool:
        return any(map(pattern.fullmatch, self._values(element, key))) == equal

    def _values(self, element: Element, key: str) -> list[str]:
        """The values of an entity that a search by a key compares."""
        if key == "name":
            return [_name(element)]
        if key == "id":
            return [element.get("id", "")]
        if key == "tag":
            return [_name(tag) for tag in element.iterfind("tags/tag")]
        found = element.findall(key)[:1]
        if key == "status":
            return [status.text or "" for status in found]
        return [self._names[key].get(each.get("id", ""), "") for each in found]


def _term(text: str) -> tuple[str, re.Pattern[str], bool]:
    """A condition such as ``status=up``: key, pattern of the value, and whether it has to fit.

    Raises:
        Unknown: it is no condition.
    """
    parsed = _TERM.fullmatch(text)
    if parsed is None or parsed[1] not in _KEYS:
        raise Unknown(f"cannot search for {text!r}; it takes NAME=VALUE of {', '.join(_KEYS)}")
    key, sign, wanted = parsed.groups()
    alike = fnmatch.translate(re.sub(r"([?\[])", r"[\1]", wanted))  # * alone is special
    return key, re.compile(alike, re.IGNORECASE), sign == "="


def _text(element: Element) -> str:
    return tostring(element, encoding="unicode")


def _in_path(name: str) -> str:
    """How the engine writes a collection in a path: ``affinitylabels``."""
    return name.replace("_", "")


def _name(element: Element) -> str:
    return element.findtext("name") or element.get("id") or ""


def _known_parts(entities: Collection[Element], always: Sequence[str]) -> list[str]:
    """The parts that may be asked for; a part that no entity has was never saved."""
    there = {child.tag for each in entities for child in each}
    return [each for each in _PARTS if each in there or each in always or not entities]


class MadeEngine(ThreadingHTTPServer):
    """The server, in a thread of its own.

    Attributes:
        cluster: the one that it serves from now on.
        token: of a login; nobody else on the machine knows it.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster = MadeCluster((), ())
        self.token = secrets.token_urlsafe()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        """Of its API."""
        return f"http://127.0.0.1:{self.server_port}{API}"

    def access(self, deadline: float = 0.0) -> EngineAccess:  # noqa: ARG002
        """The values for ``engine_connection`` to reach it (``decisions.service``)."""
        return EngineAccess(self.url, None, self.token, made=True)

    def look_up(self, sought: Sought, deadline: float) -> EngineReplies:  # noqa: ARG002
        """The documents of its hosts and VMs."""
        hosts, vm, vms, statistics = sought
        query = "?follow=statistics" if statistics else ""

        def reply(path: str, ids: Sequence[str]) -> EngineReply:
            document = Document(self.cluster.get(f"{path}{query}").encode(), "utf-8")
            return EngineReply(document, tuple(ids))

        machine = None
        if vm is not None:
            with contextlib.suppress(Absent):
                machine = reply(f"/vms/{vm}", (vm,))
        return EngineReplies(
            (reply("/hosts", hosts),) if hosts else (),
            machine,
            (reply("/vms", vms),) if vms else (),
        )

    def close(self) -> None:
        """End the server and its thread."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, *_: object) -> None:
        """Ignore a client that went away: a plugin that was killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves in one piece
    server: MadeEngine

    def do_GET(self) -> None:
        path = self.path.removeprefix(API)
        self._answer(lambda: self.server.cluster.get(path))

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(min(length, _LONGEST_BODY))
        self.close_connection = length > _LONGEST_BODY
        action = _MIGRATE.fullmatch(self.path)
        migrate = self.server.cluster.migrate
        self._answer(lambda: migrate(action[1], body) if action else _changes_nothing())

    def do_PUT(self) -> None:
        self.close_connection = True  # its body is not read
        self._answer(_changes_nothing)

    do_DELETE = do_PUT  # noqa: N815  by this name http.server finds it

    def log_message(self, *_: object) -> None:
        """Log nothing: the output is the command's or the test's."""

    def _answer(self, ask: Callable[[], str]) -> None:
        wanted = f"Bearer {self.server.token}"
        authorization = self.headers.get("Authorization", "")
        if not secrets.compare_digest(authorization.encode(), wanted.encode()):
            self._send(HTTPStatus.UNAUTHORIZED, "<fault><reason>log in first</reason></fault>")
            return
        try:
            self._send(200, ask())
        except Unknown as unknown:
            text = f"the made engine {unknown} ({self.command} {unquote(self.path):.300})"
            self.server.cluster.unknown.append(text)
            self._send(unknown.status, f"<fault><reason>{escape(text)}</reason></fault>")

    def _send(self, status: int, text: str) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _changes_nothing() -> NoReturn:
    raise Unknown("changes nothing, except by vms/ID/migrate")
