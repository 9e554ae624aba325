"""A cluster in one file, as the engine had it at one moment.

::

    <cluster_snapshot version="1" cluster="Default" taken="2026-01-31T08:00:00Z">
    <clusters>…</clusters>  may be missing: the cluster itself, with its affinity groups
    <hosts>…</hosts>        the engine's own elements, version 4,
    <vms>…</vms>            with their statistics, tags and labels
    </cluster_snapshot>

It is plain text, or compressed with gzip if its name ends in ``.gz``. A VM's ``initialization``
and ``payloads``, which may hold passwords, are left out when it is taken.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Callable, NoReturn, Optional
from xml.etree.ElementTree import Element, fromstring, tostring
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import (
    BadInput,
    BadUsage,
    EngineUnavailable,
    NotOverwritten,
    NotRecorded,
    SchedulerError,
)
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.model.requests import NEVER_KEPT, Document
from ovirt_scheduler.model.tasks import Role
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.security.atomic_file import read_whole, write_over
from ovirt_scheduler.settings.scheduler_conf import CLUSTER_NAME
from ovirt_scheduler.settings.table import EngineSettings

_VERSION = "1"
_MOST_BYTES = 512 << 20  # of a file, unpacked
_MOST_LEVELS = 100
_MEMBERS = {"clusters": "cluster", "hosts": "host", "vms": "vm"}
_NEEDED = ("hosts", "vms")
_AROUND = "cluster_snapshot"
_INVALID_TOKEN = expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN]
_NO_NAME = "is not the name of a cluster: at most 40 letters, digits, - _ and ."
_END_TAG = re.compile(rb"</(?:cluster|host|vm)\s*>")

_ENTITIES = "cluster", "statistics,tags,affinity_labels"
# By what the cluster's name is searched for, and what is followed.
_QUERIES = {"clusters": ("name", "affinity_groups"), "hosts": _ENTITIES, "vms": _ENTITIES}

Elements = Mapping[str, bytes]  # in UTF-8, by the id of the host or VM


@dataclass(frozen=True)
class Snapshot:
    """A cluster's hosts and VMs.

    Attributes:
        time: of the cluster, in UTC (RFC 3339).
        clusters: the cluster itself, with its affinity groups, if it was asked for.
    """

    cluster: str
    time: str
    hosts: Elements
    vms: Elements
    clusters: Elements = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Snapshot:
        """Read a file; mistakes are reported with their lines.

        Raises:
            BadInput: it cannot be read, is too large, or is no snapshot.
        """

        cut = _cut(path, in_snapshot=True)
        about, members, name = cut.about, cut.members, cut.about.get("cluster", "")
        if about.get("version") != _VERSION:
            version = about.get("version")
            raise BadInput(f"{path}:1: version {version} of <{_AROUND}>; this reads {_VERSION}")
        for collection in _NEEDED:
            if collection not in members:
                raise BadInput(f"{path}: has no <{collection}>")
        if not CLUSTER_NAME.fullmatch(name):
            raise BadInput(f"{path}:1: {name!r:.60} {_NO_NAME}")
        return cls(name, about.get("taken", ""), **members)

    @classmethod
    def of_documents(cls, hosts: Path, vms: Optional[Path]) -> Snapshot:
        """Read documents as a caller sends them: of hosts, and of the VMs that run on them.

        Raises:
            BadInput: as for ``read``.
        """
        members: dict[str, Elements] = {"hosts": {}, "vms": {}}
        for collection, path in (("hosts", hosts), ("vms", vms)):
            if path is not None:
                cut = _cut(path).members
                if collection not in cut:
                    raise BadInput(f"{path}:1: has no <{collection}>")
                members.update(cut)
        return cls("Default", "", **members)

    def write(self, path: Path) -> None:
        """Write it to a file, or over one.

        Raises:
            NotOverwritten: it cannot be written.
        """
        about = f"version={quoteattr(_VERSION)} cluster={quoteattr(self.cluster)}"
        begin = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<{_AROUND} {about} taken={quoteattr(self.time)}>"
        )
        inside = (self.document(each).data for each in _MEMBERS)
        data = b"\n".join((begin.encode(), *inside, f"</{_AROUND}>\n".encode()))
        try:
            write_over(path, gzip.compress(data) if path.suffix == ".gz" else data, 0o600)
        except OSError as error:
            raise NotOverwritten(f"{path}: cannot be written: {error.strerror}") from None

    def document(self, collection: str) -> Document:
        """All ``hosts``, or all ``vms``, as a caller would send them; or the ``clusters``."""
        elements: Elements = getattr(self, collection)
        tag = collection.encode()
        inside = b"\n".join(elements.values())
        return Document(b"<%s>\n%s\n</%s>" % (tag, inside, tag), "utf-8")

    def elements(self, collection: str) -> list[Element]:
        """The same, each as an element of its own."""
        members: Elements = getattr(self, collection)
        return [fromstring(each) for each in members.values()]  # noqa: S314  it has no entities


def _cut(path: Path, in_snapshot: bool = False) -> _Cutter:
    """Read a file, packed or not.

    Raises:
        BadInput: it cannot be read, is too large, or is malformed.
    """
    try:
        data = read_whole(path, _MOST_BYTES)
        if data.startswith(b"\x1f\x8b"):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(_MOST_BYTES + 1)
    except OSError as error:  # a file that is no gzip is one, too
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be unpacked: {error}") from None
    if len(data) > _MOST_BYTES:
        raise BadInput(f"{path}: is longer than {_MOST_BYTES >> 20} MiB")
    return _Cutter(data, str(path), BadInput, in_snapshot)


def cluster_of(inventory: Inventory, host: str, tell: Callable[[str], None]) -> str:
    """The name of the cluster that a host of the engine is in.

    Args:
        tell: called with the progress, again and again.

    Raises:
        EngineUnavailable: it gives no answer, or none that can be used.
        BadUsage: there is no such host.
    """
    hosts, clusters = (
        [fromstring(element) for element in _pages(inventory, kind, tell=tell).values()]  # noqa: S314
        for kind in ("hosts", "clusters")
    )
    names = {cluster.get("id"): cluster.findtext("name") or "" for cluster in clusters}
    by_name = {element.findtext("name") or "": element.find("cluster") for element in hosts}
    cluster = by_name.get(host)
    if cluster is None:
        raise BadUsage(f"the engine knows no host {host}{spelling.hint(host, by_name)}")
    return names.get(cluster.get("id"), "")


def take(
    settings: EngineSettings, cluster: str, tell: Callable[[str], None] = lambda _: None
) -> Snapshot:
    """Ask the engine for a cluster.

    Args:
        cluster: its name.
        tell: called with the progress, again and again.

    Raises:
        EngineUnavailable: it gives no answer, or none that can be used.
        BadUsage: the name is no name of a cluster.
        SchedulerError: there is no host in the cluster.
    """
    if not CLUSTER_NAME.fullmatch(cluster):  # the engine would take * for anything
        raise BadUsage(f"{cluster!r:.60} {_NO_NAME}")
    time = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    inventory = Inventory(settings)
    try:
        members = {
            kind: _pages(inventory, kind, f'{key}="{cluster}"', follow, tell)
            for kind, (key, follow) in _QUERIES.items()
        }
    finally:
        inventory.close()
    if not members["hosts"]:
        raise SchedulerError(
            f"the engine knows no host in the cluster {cluster}; is there one of that name, and "
            f"may {settings.username} see it?"
        )
    return Snapshot(cluster, time, **members)


def _pages(
    inventory: Inventory,
    kind: str,
    search: str = "",
    follow: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> Elements:
    """The elements of hosts, VMs or clusters that a search of the engine finds, by id."""
    number = 0
    tell(f"asking {inventory.settings.url} for {kind}")

    def cut(page: Document) -> Elements:
        nonlocal number
        where = f"the answer of {inventory.settings.url}/{kind}"
        elements = _Cutter(page.data, where, EngineUnavailable).members.get(kind, {})
        number += len(elements)
        tell(f"{number} {kind}")
        return elements

    return inventory.read_pages(kind, search, cut, follow)


def recorded(reader: RecordReader) -> Snapshot:
    """The cluster of the newest recorded load balancing, which has all VMs.

    Raises:
        NotRecorded: there is none.
        HistoryUnreadable: the history cannot be read.
    """
    members: dict[str, dict[str, bytes]] = {"hosts": {}, "vms": {}}
    numbers = reader.recorded(Query(method="loadBalance"), 1)
    decision = reader.recording(numbers[0]) if numbers else None
    for role, _, number in decision.documents if decision else ():
        if role in (Role.HOSTS, Role.VMS):
            pieces = _Cutter(reader.document(number), "a recorded document", NotRecorded).members
            members[role.value].update(pieces.get(role.value, {}))
    if decision is None or not members["hosts"]:
        raise NotRecorded(
            "no call of loadBalance is recorded with its documents: set record = true in "
            "scheduler.conf, reload the daemon, and wait for the next"
        )
    record = decision.record
    return Snapshot(record.get("cluster") or "Default", record["time"], **members)


class _Cutter:
    """Cuts a document into its hosts and VMs; expat calls ``_start`` and ``_end``.

    Args:
        where: the document is from, for messages.
        error: raised for mistakes.
        in_snapshot: whether ``<cluster_snapshot>`` is around the collections.

    Attributes:
        about: the attributes of the element around.
        members: those of each collection, by id.
    """

    def __init__(
        self, data: bytes, where: str, error: type[SchedulerError], in_snapshot: bool = False
    ) -> None:
        self.about: Mapping[str, str] = {}
        self.members: dict[str, dict[str, bytes]] = {}
        self._data = data
        self._where = where
        self._error = error
        self._level = -2 if in_snapshot else -1  # of the element around; a collection has 0
        self._collection = ""
        self._id = ""
        self._begun = 0  # where the latest member began
        self._parser = parser = expat.ParserCreate("utf-8", namespace_separator=":")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = lambda *_: self._refuse("a document type is not allowed")
        # What declares it may stand around a member, which is to be read alone.
        parser.StartNamespaceDeclHandler = lambda *_: self._refuse("a namespace is not allowed")
        if b"\0" in data:  # as UTF-16 has, in which places would be others
            raise error(f"{where}:1: is not UTF-8")
        try:
            parser.Parse(data, True)
        except expat.ExpatError as fault:
            more = ", or not UTF-8" if fault.code == _INVALID_TOKEN else ""
            problem = expat.ErrorString(fault.code) + more
            raise error(f"{where}:{fault.lineno}: {problem}") from None
        finally:  # else parser and handlers keep each other alive
            parser.StartElementHandler = parser.EndElementHandler = None
            parser.StartDoctypeDeclHandler = parser.StartNamespaceDeclHandler = None

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._level += 1
        if self._level == 1:
            self._begin_member(name, attributes.get("id", ""))
        elif self._level == 0:
            if name not in _MEMBERS or name in self.members:
                self._refuse(f"<{name:.40}> where one <hosts> and one <vms> are expected")
            self._collection = name
            self.members[name] = {}
        elif self._level < 0:
            if name != _AROUND:
                self._refuse(f"<{name:.40}> where <{_AROUND}> is expected")
            self.about = attributes
        elif self._level > _MOST_LEVELS:
            self._refuse(f"more than {_MOST_LEVELS} levels of elements")

    def _begin_member(self, name: str, identity: str) -> None:
        expected = _MEMBERS[self._collection]
        if name != expected or not identity:
            self._refuse(f"<{name:.40}> where a <{expected}> with an id is expected")
        if identity in self.members[self._collection]:
            self._refuse(f"a second {expected} with the id {identity:.80}")
        self._id = identity
        self._begun = self._parser.CurrentByteIndex

    def _end(self, _: str) -> None:
        if self._level == 1:
            # Of <host/> expat is behind it, of <host></host> before its end tag.
            end = self._parser.CurrentByteIndex
            tag = _END_TAG.match(self._data, end)
            end = tag.end() if tag else end
            member = _without_secrets(self._data[self._begun : end])
            self.members[self._collection][self._id] = member
        self._level -= 1

    def _refuse(self, problem: str) -> NoReturn:
        raise self._error(f"{self._where}:{self._parser.CurrentLineNumber}: {problem}")


def _without_secrets(member: bytes) -> bytes:
    """A host or VM without elements that may hold passwords."""
    if not any(b"<" + name.encode() in member for name in NEVER_KEPT):
        return member
    element = fromstring(member)  # noqa: S314  it has no entities
    for around in [*element.iter()]:
        for name in NEVER_KEPT:
            for secret in around.findall(name):
                around.remove(secret)
    return tostring(element, "unicode").encode()
