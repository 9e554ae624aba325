"""An engine's REST API for tests: real HTTP or HTTPS, version 4 XML, a fake cluster behind it.

::

    with RestServer(folder, [Host("lynx")], [Vm("web", host="lynx")]) as engine:
        Inventory(engine.settings()).look_up(...)
        assert engine.logins == 1

A migration that is asked for waits for ``finish_migrations``, or is done at once where
``instant_migrations`` is set; ``happened`` makes an event. ``acting`` cleared is an engine that
takes a migration and does not answer; ``broken_action`` is what it answers instead, once.

``refusing`` says why it would not migrate a VM to a host, as the filters of its policy do: it says
so beforehand, too (``hosts?migration_target_of=``). ``surprising`` is what it says only to the
migration itself. ``denying`` are the paths that its user has no right to. What it refuses, and what
fails, is an event. Affinity ``groups`` refuse, too (``rest_affinity``).

Collections come in pages (``search=... page 2`` and ``max``).

The cluster may be changed while it runs, and so may the way in which it answers: ``answering``
cleared is an engine that is silent, ``broken`` is what it says instead of a document, and
``expire_tokens`` makes it forget all logins.
"""

from __future__ import annotations

import re
import ssl
import threading
import time
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, TypeVar

from ovirt_scheduler.security import certificates
from ovirt_scheduler.settings.table import EngineSettings
from tests.support import rest_affinity, rest_cluster, rest_http
from tests.support.elements import API, Element, at, collection, id_of
from tests.support.rest_affinity import Group, Label
from tests.support.rest_cluster import GIB, Event, Host, Named, Vm
from tests.support.rest_events import WrittenEvents
from tests.support.rest_reply import DECLARATION, Reply
from tests.support.rest_reply import fault as _fault
from tests.support.rest_reply import json_reply as _json

__all__ = ["GIB", "Host", "Named", "Query", "Reply", "RestServer", "Vm", "id_of"]

Self = TypeVar("Self", bound="RestServer")

USER = "scheduler@internal"
PASSWORD = "correct+horse & batterie"  # has to be escaped in a form


class Query(NamedTuple):
    """What was asked of the API, with a token that was good."""

    path: str  # below the API's, such as hosts/ID
    search: str = ""
    most: Optional[int] = None  # the parameter max
    follow: str = ""
    after: Optional[int] = None  # the parameter from, of events
    target_of: str = ""  # the id of a VM: which hosts could take it?


class RestServer:
    """Serves from ``with`` until its end; everything it counts is there to be looked at.

    Args:
        folder: gets a password file, and the certificate.
        hosts, vms: the cluster.
        tls: else it speaks plain HTTP.
    """

    def __init__(
        self, folder: Path, hosts: list[Host] = (), vms: list[Vm] = (), tls: bool = True
    ) -> None:
        self.hosts, self.vms = list(hosts), list(vms)
        self.queries: list[Query] = []
        self.written = WrittenEvents()
        self.events: dict[int, Event] = {1000: Event(30, ())}
        self.migration_codes = 62, 63  # of the events when one is started and done
        self.migration_seconds = 0.0  # by which migrations take longer in their events
        self.bytes_sent = 0  # of documents
        self.migrations: list[tuple[str, str]] = []  # names of VM and host, as asked for
        self.migrating: dict[str, str] = {}
        self.instant_migrations = False
        self.policy, self.upgrading, self.reserves = "none", False, False  # of its clusters
        self.version = 4, 7  # of its clusters
        self.groups: list[Group] = []  # of any cluster
        self.labels: list[Label] = []
        self.has_affinity_filters = True
        self.logins = self.logouts = self.refused = 0  # refused: logins
        self.tokens: list[str] = []  # those that are good
        self.answering = threading.Event()
        self.answering.set()
        self.arrived = threading.Semaphore(0)  # released by each request of the API
        self.broken: Optional[Reply] = None
        self.broken_login: Optional[Reply] = None
        self.acting = threading.Event()
        self.acting.set()
        self.broken_action: Optional[Reply] = None
        self.actions = 0  # that it was asked for
        self.hangs_up = False  # an action is answered by the end of the connection
        self.refusing: Callable[[Vm, Host], str] = lambda _vm, _host: ""
        self.surprising: Callable[[Vm, Host], str] = lambda _vm, _host: ""
        self.denying: set[str] = set()  # migrate, migration_target_of, affinitygroups
        self.requested: list[tuple[str, str]] = []  # migrations, the refused ones too
        self.filtering: Callable[[], None] = lambda: None  # runs before it says which hosts could
        self._marks: dict[str, str] = {}  # of migrations under way, by the VM's name
        self.password_file = folder / "password"
        self.password_file.touch()
        self.password_file.chmod(0o600)  # else the daemon refuses it
        self.password_file.write_text(f"{PASSWORD}\n", "utf-8")
        self._lock = threading.Lock()
        self._server = rest_http.Server(("127.0.0.1", 0), rest_http.Handler)
        self._server.engine = self
        self.ca_file: Optional[Path] = None
        if tls:
            files = certificates.ensure(folder / "engine-certificate")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(files.certificate, files.key)
            # The handshake is the handler's thread's: accepting waits for nobody.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self.ca_file = files.certificate
        self.port = self._server.server_address[1]
        self.url = f"http{'s' if tls else ''}://localhost:{self.port}{API}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self: Self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self.answering.set()
        self.acting.set()
        self._thread.join()
        self._server.server_close()

    def settings(self, **changes: Any) -> EngineSettings:
        """What scheduler.conf says of this engine."""
        values = {
            "url": self.url, "username": USER, "password_file": self.password_file,
            "ca_file": self.ca_file, "cache_seconds": 60.0, "look_distance": 0.0,
        }  # fmt: skip
        return EngineSettings(**{**values, **changes})

    def conf(self, **changes: Any) -> str:
        """The section of scheduler.conf."""
        settings = vars(self.settings(**changes)).items()
        lines = [
            f"{key} = {getattr(value, 'value', value)}"
            for key, value in settings
            if value is not None
        ]
        return "\n".join(["[engine]", *lines])

    def asked(self, path: str) -> list[Query]:
        """The queries of that path or below it, in their order."""
        return [query for query in self.queries if f"{query.path}/".startswith(f"{path}/")]

    def happened(self, *named: Named) -> None:
        """There is an event for each of these, or one that names nothing."""
        with self._lock:
            for each in named or (None,):
                self._add_event(30, *([] if each is None else [each]))

    def _add_event(
        self, code: int, *named: Named, later: float = 0.0, mark: str = "", words: str = ""
    ) -> None:
        self.events[max(self.events) + 7] = Event(code, named, time.time() + later, mark, words)

    def finish_migrations(self, well: bool = True) -> None:
        """All that are under way end, on the target or where they began."""
        with self._lock:
            for vm in self.vms:
                if vm.name in self.migrating:
                    target = self.migrating.pop(vm.name)
                    vm.host = target if well else vm.host
                    if well:
                        self._add_event(self.migration_codes[1], vm, later=self.migration_seconds)
                    else:
                        words = f"Migration failed  (VM: {vm.name}, Destination: {target})."
                        self._add_event(120, vm, mark=self._marks[vm.name], words=words)
                    vm.status = "up"

    def migrate(self, vm_id: str, body: str, correlation_id: str = "") -> Reply:
        """The action migrate of a VM; its event has the correlation id."""
        found = re.search(r"<host [^>]*\bid=['\"]([^'\"]+)", body)
        vm = next((vm for vm in self.vms if vm.id == vm_id), None)
        fit = [
            host
            for host in self.hosts
            if (host.id == found[1] if found else vm is not None and host.name != vm.host)
        ]
        if "migrate" in self.denying:
            return _fault(403, "User is not authorized to perform this action.")
        unit = [] if vm is None else [vm]
        if vm is not None and "<migrate_vms_in_affinity_closure>true<" in body:
            unit = rest_affinity.closure(self, vm)
        names = [each.name for each in unit]
        fit = [host for host in fit if found or (vm and not self.refusal(vm, host, names))]
        host = fit[0] if fit else None
        if vm is not None:
            self.requested.append((vm.name, host.name if host else ""))
        refusal = "Cannot migrate VM."
        if host is not None and vm is not None and vm.status == "up":
            refusal = self.refusal(vm, host, names) or self.surprising(vm, host)
        if host is None or vm is None or refusal:
            with self._lock:
                self._add_event(65, *unit[:1], mark=correlation_id, words=refusal)
            return _fault(409, refusal)
        for each in unit:
            if each is vm or not (self.refusal(each, host, names) or self.surprising(each, host)):
                self.begin_migration(each, host, correlation_id)
        self.acting.wait()
        broken, self.broken_action = self.broken_action, None
        if broken is not None:
            return broken
        done = Element("action", [Element("status", "complete")])
        return Reply(200, "application/xml", f"{DECLARATION}{done}")

    def begin_migration(self, vm: Vm, host: Host, correlation_id: str) -> None:
        """Have a VM on its way, or there."""
        with self._lock:
            self.migrations.append((vm.name, host.name))
            self._add_event(self.migration_codes[0], vm, mark=correlation_id)
            self._marks[vm.name] = correlation_id
            if self.instant_migrations:
                vm.host = host.name
                self._add_event(self.migration_codes[1], vm, later=self.migration_seconds)
            else:
                vm.status = "migrating"
                self.migrating[vm.name] = host.name

    def refusal(self, vm: Vm, host: Host, moving: Collection[str] = ()) -> str:
        """Why the filters of its policy do not let a VM go to a host, with others."""
        if host.status != "up":
            return "Cannot migrate VM."
        by_rules = self.has_affinity_filters and rest_affinity.refusal(self, vm, host, moving)
        return by_rules or self.refusing(vm, host)

    def _targets(self, vm_id: str) -> str:
        """The hosts that could take a VM, as far as it knows."""
        self.filtering()
        vm = next((vm for vm in self.vms if vm.id == vm_id), None)
        if vm is None:
            raise LookupError(vm_id)
        fit = [host for host in self.hosts if not self.refusal(vm, host)]
        return collection("hosts", [self._host(host) for host in fit])

    def expire_tokens(self) -> None:
        self.tokens.clear()

    def hosts_document(self, names: Optional[list[str]] = None, follow: bool = False) -> str:
        """All hosts, or those of these names, as an engine would send them along.

        Args:
            follow: with their statistics.
        """
        return collection("hosts", [self._host(host, follow) for host in self._named(names)])

    def vm_document(self, name: str) -> str:
        return next(str(self._vm(vm)) for vm in self.vms if vm.name == name)

    def ids(self, names: Optional[list[str]] = None) -> list[str]:
        return [host.id for host in self._named(names)]

    def _named(self, names: Optional[list[str]]) -> list[Host]:
        return [host for host in self.hosts if names is None or host.name in names]

    # What its handler (``rest_http``) asks.

    def login(self, form: Mapping[str, str]) -> Reply:
        wanted = {"grant_type": "password", "scope": "ovirt-app-api", "username": USER,
                  "password": PASSWORD}  # fmt: skip
        if self.broken_login is not None:
            return self.broken_login
        with self._lock:
            if form != wanted:
                self.refused += 1
                said = f"Cannot authenticate user '{form.get('username')}': wrong password."
                return _json(400, {"error_code": "access_denied", "error": said})
            self.logins += 1
            token = f"token-{self.logins}-{uuid.uuid4()}"
            self.tokens.append(token)
        return _json(200, {"access_token": token, "scope": "ovirt-app-api", "token_type": "bearer"})

    def logout(self, form: Mapping[str, str]) -> Reply:
        with self._lock:
            self.logouts += 1
            if form.get("token") in self.tokens:
                self.tokens.remove(form["token"])
        return _json(200, {})

    def get(self, path: str, parameters: Mapping[str, str]) -> Reply:
        most = int(parameters["max"]) if "max" in parameters else None
        after = int(parameters["from"]) if "from" in parameters else None
        query = Query(
            path, parameters.get("search", ""), most, parameters.get("follow", ""), after,
            parameters.get("migration_target_of", ""),
        )  # fmt: skip
        with self._lock:
            self.queries.append(query)
        self.arrived.release()
        self.answering.wait()
        if self.broken is not None:
            return self.broken
        denied = "migration_target_of" if query.target_of else path.rpartition("/")[2]
        if denied in self.denying:
            return _fault(403, "User is not authorized to perform this action.")
        try:
            document = self._document(query)
        except LookupError as error:
            return _fault(404, str(error))
        except ValueError as error:
            return _fault(400, str(error))
        self.bytes_sent += len(document)
        return Reply(200, "application/xml;charset=UTF-8", f"{DECLARATION}{document}")

    def _document(self, query: Query) -> str:
        kind, _, rest = query.path.partition("/")
        entity_id, _, below = rest.partition("/")
        others = {
            "": self._api, "events": self._events, "clusters": self._clusters,
            "schedulingpolicies": self._policies,
            "affinitylabels": lambda _: rest_affinity.labels_document(self),
        }  # fmt: skip
        if kind in others:
            return others[kind](query)
        entities, render = {"hosts": (self.hosts, self._host), "vms": (self.vms, self._vm)}[kind]
        if query.target_of:
            return self._targets(query.target_of)
        if not entity_id:
            search, _, page = query.search.replace('"', "").partition(" page ")
            terms, _, order = search.partition(" sortby ")
            if order not in ("", "name"):
                raise ValueError(f"invalid order {order} in the search")
            found = [entity for entity in entities if self._matches(entity, terms)]
            if order:
                found.sort(key=lambda entity: entity.name)
            first = (int(page or 1) - 1) * (query.most or 100)
            found = found[first : None if query.most is None else first + query.most]
            follow = "statistics" in query.follow.split(",")
            return collection(kind, [render(entity, follow) for entity in found])
        entity = {entity.id: entity for entity in entities}[entity_id.lower()]
        if not below:
            return str(render(entity, query.follow == "statistics"))
        if (kind, below) != ("hosts", "statistics"):
            raise LookupError(query.path)
        return collection("statistics", rest_cluster.statistics(entity, self._on(entity)))

    def _api(self, _: Query) -> str:
        return str(Element("api", [Element("product_info", [Element("name", "oVirt")])]))

    def _events(self, query: Query) -> str:
        events = tuple(self.events.items())  # other threads add some meanwhile
        newest = [event for event in reversed(events) if event[0] > (query.after or 0)]
        return collection(
            "events", [rest_cluster.of_event(*event) for event in newest[: query.most]]
        )

    def _clusters(self, query: Query) -> str:
        if query.path.endswith("/affinitygroups"):
            return rest_affinity.groups_document(self)
        name = query.search.partition("sortby ")[0].strip().removeprefix("name=").strip('"')
        names = dict.fromkeys(host.cluster for host in self.hosts if name in ("", host.cluster))
        return collection("clusters", [self._cluster(each, query.follow) for each in names])

    def _cluster(self, name: str, follow: str) -> Element:
        policy = Element("scheduling_policy", "", at("schedulingpolicies", id_of(self.policy)))
        content = [Element("name", name), policy]
        content.append(Element("ha_reservation", str(self.reserves).lower()))
        content += [Element("upgrade_in_progress", "true")] if self.upgrading else []
        parts = zip(("major", "minor"), self.version)
        content.append(Element("version", [Element(part, number) for part, number in parts]))
        if follow == "affinity_groups":
            content.append(rest_affinity.groups_element(self))
        return Element("cluster", content, {"id": id_of(f"cluster {name}")})

    def _policies(self, query: Query) -> str:
        """The policy of the clusters, or its balances: one made by somebody may have one."""
        if query.path.endswith("/balances"):
            none, other = "38440000-8cf0-14bd-c43e-10b96e4ef00a", id_of("balance")
            unit = {"id": other if self.policy.startswith("our balance") else none}
            balance = Element("balance", [Element("scheduling_policy_unit", "", unit)])
            return collection("balances", [balance])
        inside = [Element("name", self.policy), Element("properties", [Element("name", "x")])]
        return str(Element("scheduling_policy", inside, {"id": id_of(self.policy)}))

    def _matches(self, entity: Named, search: str) -> bool:
        """``id=1 or id=2``, ``host=lynx and status=up``: what is asked of it here, no more."""
        return not search or any(
            all(self._is(entity, term) for term in part.split(" and "))
            for part in search.split(" or ")
        )

    def _is(self, entity: Named, term: str) -> bool:
        name, value = re.split("!?=", term)
        fields = {"id", "name", "status", "cluster"} | (
            {"host"} if isinstance(entity, Vm) else set()
        )
        if name not in fields:
            raise ValueError(f"invalid field {name} in the search")
        found = getattr(entity, name)
        # The engine looks for names whatever their case.
        is_equal = found is not None and found.lower() == value.lower()
        return is_equal != ("!=" in term)

    def _host(self, host: Host, follow: bool = False) -> Element:
        return rest_cluster.of_host(host, self._on(host), follow)

    def _vm(self, vm: Vm, follow: bool = False) -> Element:
        return rest_cluster.of_vm(vm, follow)

    def _on(self, host: Host) -> list[Vm]:
        return [vm for vm in self.vms if vm.host == host.name]
