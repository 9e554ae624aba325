"""A fake cluster, with the documents that an engine has of it by path and query, as in version 4.

Like a real engine it gives tags, affinity labels and statistics as links, unless a query says
``follow``, and only the id of an entity that is referred to. A VM may migrate; nothing else
changes. What a host could not run is refused as an engine does it: in words, and in an event.
"""

from __future__ import annotations

import copy
import fnmatch
import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from http import HTTPStatus
from typing import NamedTuple, Optional
from urllib.parse import parse_qs, urlsplit
from xml.etree.ElementTree import Element, ParseError, SubElement, fromstring, tostring

from ovirt_scheduler.model.cluster_state import status_words

API = "/ovirt-engine/api"

# What the engine gives as links, by its element.
_PARTS = (
    "tags", "statistics",
    "affinity_labels", "affinity_groups", "disk_attachments", "nics", "numa_nodes",
)  # fmt: skip
_TAKEN = _PARTS[:2]  # with each host and VM of a snapshot; a host without tags may have no element
_REFERENCES = ("cluster", "host")
# Parameters of the SDK's lists that make no difference here.
_IGNORED = frozenset({"all_content", "case_sensitive", "current", "filter"})

_STARTED, _DONE, _FAILED = 62, 63, 65  # codes of events about a migration

_PAGE = 100  # entities, unless a query says how many
_KEYS = ("name", "id", "status", "cluster", "tag", "host")  # of a search; VMs have a host
# Of a search with single blanks alone.
_TERM = re.compile(r'([\w.]+) ?(!?=) ?"?([^"]*?)"? ?')
_ORDER = re.compile(
    "(.*?) ?(?:\\bsortby (\\w+)(?: (asc|desc))?)? ?(?:\\bpage ([0-9]{1,9}))?", re.IGNORECASE
)
_OR, _AND = re.compile(" or ", re.IGNORECASE), re.compile(" and ", re.IGNORECASE)


class Unknown(Exception):
    """A request that the fake engine has no answer to; its text is for the plugin's author."""

    status = HTTPStatus.NOT_IMPLEMENTED


class Absent(Unknown):
    """The request names a host or VM that does not exist."""

    status = HTTPStatus.NOT_FOUND


class Refused(Unknown):
    """The engine does not do it, as another would not; its text is the engine's."""

    status = HTTPStatus.CONFLICT


class _Event(NamedTuple):
    """One of the engine's events, about a VM."""

    number: int
    code: int
    vm: str
    correlation_id: str
    description: str
    time: str

    @property
    def document(self) -> str:
        event = Element("event", {"href": f"{API}/events/{self.number}", "id": str(self.number)})
        for name in ("code", "correlation_id", "description", "time"):
            value = str(getattr(self, name))
            if value:
                SubElement(event, name).text = value
        SubElement(event, "vm", {"href": f"{API}/vms/{self.vm}", "id": self.vm})
        return _text(event)


class _Place(NamedTuple):
    """What a path names: a collection, or one entity of it."""

    name: str  # the collection's element
    elements: list[Element]
    parts: Sequence[str] = ()  # what each entity has a collection of
    one: bool = False


class FakeCluster:
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
        self._events: list[_Event] = []
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
        path = parts.path.strip("/")
        if path == "events":
            return self._events_after(query)
        search, most = query.pop("search", ""), query.pop("max", "")
        mover = query.pop("migration_target_of", "") if path == "hosts" else ""
        follow = [name for name in query.pop("follow", "").split(",") if name]
        unknown = [name for name in query if name not in _IGNORED]
        if unknown:
            raise Unknown(f"knows search, follow and max, and not {', '.join(unknown)}")
        if not path:
            return "<api><product_info><name>fake engine</name></product_info></api>"
        place = self._at(path)
        stray = [each for each in follow if each not in (*place.parts, *_REFERENCES)]
        if stray:
            there = ", ".join((*place.parts, *_REFERENCES))
            raise Unknown(f"cannot follow {', '.join(stray)} there; it follows {there}")
        if place.one:
            return _text(self._shown(place.elements[0], path, place.parts, follow))
        if mover:
            (vm,) = self._at(f"vms/{mover}").elements
            fit = [host for host in place.elements if not self._refusal(vm, host)]
            place = place._replace(elements=fit)
        shown = (
            _text(self._shown(entity, f"{path}/{entity.get('id')}", place.parts, follow))
            for entity in self._searched(place.elements, search, most)
        )
        return f"<{place.name}>{''.join(shown)}</{place.name}>"

    def _events_after(self, query: Mapping[str, str]) -> str:
        """The events with a number above ``from``, the newest first, ``max`` at most."""
        after, most = (query.get(name, "") for name in ("from", "max"))
        number = int(after) if after.isdecimal() else 0
        events = [event for event in reversed(self._events) if event.number > number]
        shown = events[: int(most)] if most.isdecimal() else events
        return f"<events>{''.join(event.document for event in shown)}</events>"

    def migrate(self, vm_id: str, action: bytes, correlation_id: str = "") -> str:
        """Move a VM to another host at once; if the choice is left to the engine, it stays.

        Args:
            action: the document that asks for it.
            correlation_id: that the events of it are to have.

        Returns:
            The document of the answer.

        Raises:
            Refused: the VM may not be migrated, or the host cannot run it.
            Unknown: there is no such VM or host, or the body is no action.
        """
        (vm,) = self._at(f"vms/{vm_id}").elements
        try:
            target_host = fromstring(action or b"<action/>").find("host")  # noqa: S314  of a plugin's SDK
        except ParseError as error:
            raise Unknown(f"cannot read the action migrate of vms/{vm_id}: {error}") from None
        target = None
        if target_host is not None:
            host = self._meant(vm, target_host)
            refusal = self._why_stays(vm) or self._refusal(vm, host)
            if refusal:
                self._happen(vm, correlation_id, {_FAILED: refusal})
                raise Refused(f"Cannot migrate VM. {refusal}")
            target = _name(host)
            self._move(vm, host)
            words = {_STARTED: "Migration started", _DONE: "Migration completed"}
            self._happen(vm, correlation_id, words)
        self.migrations.append((_name(vm), target))
        return "<action><status>complete</status></action>"

    def _happen(self, vm: Element, correlation_id: str, texts: Mapping[int, str]) -> None:
        """Add events about a VM: their codes, and what they say."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        for code, text in texts.items():
            words = f"{text} (VM: {_name(vm)})."
            number = len(self._events) + 1
            self._events.append(_Event(number, code, vm.get("id", ""), correlation_id, words, now))

    @staticmethod
    def _why_stays(vm: Element) -> str:
        """Why a VM may not be migrated; empty if it may."""
        status = vm.findtext("status") or "up"
        affinity = vm.findtext("placement_policy/affinity") or "migratable"
        if status != "up":
            return f"VM {status_words(status)}."
        return "VM is non migratable." if affinity == "pinned" else ""

    @staticmethod
    def _refusal(vm: Element, host: Element) -> str:
        """Why a host cannot run a VM; empty if it can."""
        status, memory = host.findtext("status") or "up", vm.findtext("memory") or "0"
        room = host.findtext("max_scheduling_memory") or ""
        name, clusters = _name(host), {_of(vm, "cluster"), _of(host, "cluster"), ""}
        allowed = [each.get("id") for each in vm.findall("placement_policy/hosts/host")]
        if status != "up":
            return f"Host {name} {status_words(status)}."
        if len(clusters) > 2 or (allowed and host.get("id") not in allowed):
            return f"The host {name} did not satisfy internal filter PinToHost."
        is_full = room.isdecimal() and memory.isdecimal() and int(memory) > int(room)
        if is_full and _of(vm, "host") != host.get("id"):
            return f"The host {name} did not satisfy internal filter Memory."
        return ""

    def _meant(self, vm: Element, target_host: Element) -> Element:
        """The host that is meant by its id or name."""
        named = {*filter(None, (target_host.get("id"), target_host.findtext("name")))}
        fit = (each for each in self._entities["hosts"] if named & {each.get("id"), _name(each)})
        host = next(fit, None)
        if host is None:
            raise Unknown(f"has no host {', '.join(named)} to migrate {_name(vm)} to")
        return host

    def _move(self, vm: Element, host: Element) -> None:
        moved = copy.copy(vm)
        for former in moved.findall("host"):
            moved.remove(former)
        SubElement(moved, "host", {"id": host.get("id", "")})
        self._entities["vms"][self._entities["vms"].index(vm)] = moved

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
            for entity in entities:
                link = {"id": entity.get("id", ""), "href": f"{API}/{name}/{entity.get('id')}"}
                for label in entity.iterfind("affinity_labels/affinity_label"):
                    key = label.get("id", "")
                    if key not in labels:
                        labels[key] = whole = copy.copy(label)
                        members.update({(key, of): SubElement(whole, of) for of in self._entities})
                    SubElement(members[key, name], entity.tag, link)
        return [*labels.values()]

    @functools.cached_property
    def _parts(self) -> Mapping[str, Sequence[str]]:
        """The parts that may be asked for, of an entity of each collection."""
        parts = {name: _known_parts(each, _TAKEN) for name, each in self._entities.items()}
        return {**parts, "clusters": _known_parts(self._collections["clusters"], ())}

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
                matching = [each for each in place.elements if each.get("id") == word]
                if not matching:
                    raise Absent(f"has nothing at {path}")
                place = place._replace(elements=matching, one=True)
                continue
            parts = {_in_path(each): Element(each) for each in place.parts}
            inside = (each for each in place.elements[0] if each.tag in _PARTS or len(each))
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
            return self._shown(self._at(path).elements[0], path, (), ())
        return Element(child.tag, {"id": child.get("id", ""), "href": f"{API}/{path}"})

    def _searched(self, entities: list[Element], search: str, most: str) -> list[Element]:
        """Those that a search such as ``host=lynx and status=up sortby name page 2`` looks for."""
        parts = _ORDER.fullmatch(" ".join(search.split())).groups("")  # type: ignore[union-attr]  # it takes anything
        terms, key, direction, page = parts
        if terms:
            either = [[*map(_term, _AND.split(part))] for part in _OR.split(terms)]
            entities = [
                entity
                for entity in entities
                if any(all(self._fits(entity, *term) for term in every) for every in either)
            ]
        if key:
            _term(f"{key}=")
            falls = direction.lower() == "desc"
            entities = sorted(entities, key=lambda entity: self._values(entity, key), reverse=falls)
        size = int(most) if most.isdecimal() else (_PAGE if page else len(entities))
        begin = size * (int(page or 1) - 1)
        return entities[begin : begin + size]

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
        values = element.findall(key)[:1]
        if key == "status":
            return [status.text or "" for status in values]
        return [self._names[key].get(each.get("id", ""), "") for each in values]


def _term(text: str) -> tuple[str, re.Pattern[str], bool]:
    """A condition such as ``status=up``: key, pattern of the value, and whether it has to fit.

    Raises:
        Unknown: it is no condition.
    """
    parsed = _TERM.fullmatch(text)
    if parsed is None or parsed[1] not in _KEYS:
        raise Unknown(f"cannot search for {text!r}; it takes NAME=VALUE of {', '.join(_KEYS)}")
    key, sign, pattern = parsed.groups()
    alike = fnmatch.translate(re.sub(r"([?\[])", r"[\1]", pattern))  # * alone is special
    return key, re.compile(alike, re.IGNORECASE), sign == "="


def _text(element: Element) -> str:
    return tostring(element, encoding="unicode")


def _in_path(name: str) -> str:
    """How the engine writes a collection in a path: ``affinitylabels``."""
    return name.replace("_", "")


def _of(element: Element, what: str) -> str:
    """The id of its cluster, or of the host that it runs on; empty if it has none."""
    part = element.find(what)
    return "" if part is None else part.get("id", "")


def _name(element: Element) -> str:
    return element.findtext("name") or element.get("id") or ""


def _known_parts(entities: Collection[Element], always: Sequence[str]) -> list[str]:
    """The parts that may be asked for; a part that no entity has was never saved."""
    there = {child.tag for each in entities for child in each}
    return [each for each in _PARTS if each in there or each in always or not entities]
