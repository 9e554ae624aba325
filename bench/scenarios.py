"""The scenarios: what is called, of whom, and beside which bare limit."""

from __future__ import annotations

import contextlib
import shutil
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

from bench import client, documents, fake_engine, limits, plugins, servers, usage
from bench.effort import Effort
from bench.limits import Limits
from bench.measurement import Contender, Figures, Row, contest, crowd
from tests.support.rest_server import PASSWORD

HEAVY = "1 filter that imports asyncio and cryptography, 10 ids"
TOLD = "1 function filter, 100 ids that the engine told of"
SINGLE = "1 filter, 10 ids, calls_per_process = 1, calls 10 ms apart"
PUBLISHED = "1 published filter that logs in, 50 hosts, an engine of 5 ms"
OF_FEW = "the same as a function"
SAMPLES_START, MANY_START = "start, sample plugins", f"start, {plugins.NUMBER} plugins"
AFTER_ALL = "at rest, sample plugins, after all of this"
EACH_PLUGIN, EACH_PLUGIN_AFTER = "each further plugin", "each further plugin, after all of this"
LARGEST_PLUGIN = "the largest process of a plugin that had documents, after all of this"

_FACTOR = 2
_TITLES = [f"ovirt-scheduler: plugin {name}" for name in plugins.BY_ENTITIES]
_APART = 0.010  # seconds from the begin of one call to that of the next
_NOOP = client.request(documents.call("system.listMethods"))
_LOOK = client.request(documents.call("discover"))  # looks at the plugins' folder anew


@dataclass(frozen=True)
class Scenario:
    name: str
    measure: Callable[[], Row]


class Benchmark:
    """The servers that the scenarios use, and the scenarios.

    ::

        the daemon:    samples ─ 28 plugins more, all scenarios ─ samples
        beside it:               fresh, a server that does nothing, the version before, ...

    Args:
        folder: for the plugins, the states of the daemons and their logs.
        before: a checkout of the version before.
    """

    def __init__(
        self, effort: Effort, bare: Limits, folder: Path, before: Optional[Path] = None
    ) -> None:
        self._effort = effort
        self._bare = bare
        self._folder = folder
        self._checkout = before
        self._samples = folder / "samples"  # the daemon's own folder
        self._plugins = folder / "plugins"  # that of everything beside it
        self._one = folder / "one plugin"
        self._open = contextlib.ExitStack()
        self._beside = contextlib.ExitStack()
        self._rested: dict[str, int] = {}  # bytes
        shutil.copytree(servers.PROJECT / "plugins", self._samples)
        plugins.write(self._plugins)
        plugins.write(self._one, plugins.BY_IDS[:1])

    def __enter__(self) -> Benchmark:
        self._tls: Optional[servers.Server] = None
        self.daemon = self._open.enter_context(
            servers.daemon(self._folder / "plain", self._samples)
        )
        return self

    def __exit__(self, *_exception: object) -> None:
        self._beside.close()
        self._open.close()

    def _start(self, server: servers.Server) -> servers.Server:
        return self._beside.enter_context(server)

    def _start_those_beside(self) -> None:
        """After the first look at the daemon's memory: what they share with it is not shared."""
        self._fresh = self._start(servers.fresh(self._plugins))
        self._noop = self._start(servers.noop())
        self._before = None
        if self._checkout is not None:
            state = self._folder / "before"
            self._before = self._start(
                servers.daemon(state, self._plugins, checkout=self._checkout)
            )

    def scenarios(self) -> Iterator[Scenario]:
        """In the order in which they are to be run; what has to happen between them happens here,
        whichever of them are run.
        """
        yield self._memory("at rest, sample plugins, just started", self._at_rest)
        added = plugins.write(self._samples)
        self._look()
        yield self._memory(f"at rest, {len(added)} plugins more", self._at_rest)
        yield self._memory(EACH_PLUGIN, self._each_plugin)
        self._start_those_beside()
        yield from self._calls()
        self._beside.close()
        yield self._memory(f"at rest, {len(added)} plugins more, after all of this", self._at_rest)
        yield self._memory(LARGEST_PLUGIN, self._largest_plugin)
        for file in added:
            file.unlink()
        self._look()
        yield self._memory(AFTER_ALL, self._at_rest)
        yield self._memory(EACH_PLUGIN_AFTER, self._each_plugin)
        samples = servers.PROJECT / "plugins"
        yield self._to_ready("first start, the certificate is made", 1, samples)
        yield self._to_ready(SAMPLES_START, self._effort.starts, samples)
        yield self._to_ready(MANY_START, self._effort.starts, self._plugins)

    def _calls(self) -> Iterator[Scenario]:
        effort = self._effort
        for units, counts in effort.ids.items():
            for count in counts:
                yield self._by_ids(f"{_count(units, 'filter')}, {count:,} ids", units, count)
        yield self._by_ids("1 filter that prints its answer, 10 ids", 0, 10, plugins.PRINTS)
        yield self._by_ids("1 function filter, 10 ids", 0, 10, plugins.FUNCTION)
        yield self._by_ids(HEAVY, 0, 10, plugins.HEAVY)
        yield self._told(TOLD)
        yield self._one_call_for_each_process(SINGLE)
        yield self._published(PUBLISHED, plugins.PUBLISHED)
        yield self._published(OF_FEW, plugins.OF_FEW)
        for (kind, units), counts in effort.documents.items():
            for count in counts:
                yield self._by_documents(kind, units, count)
        for clients in effort.clients:
            yield self._at_once(clients)
        for resumed in (None, False, True):
            yield self._over_tls(resumed)
        yield self._memory("each idle TLS connection", self._idle)

    def _look(self) -> None:
        """Have the daemon see what its folder holds now, and what it holds no more, and rest.

        An edit counts when it has stood for half a second.
        """
        connection = client.Connection(self.daemon.address)
        for _ in range(3):
            connection.ask(_LOOK)
            time.sleep(0.4)
        connection.close()
        usage.wait_for_rest(self.daemon.pid, self._effort.rest)

    def _by_ids(self, name: str, units: int, count: int, only: str = "") -> Scenario:
        effort = self._effort
        names = [only] if only else plugins.BY_IDS[:units]

        def measure() -> Row:
            ids = documents.host_ids(count)
            wanted = client.request(documents.call("runFilters", names, ids, documents.VM_ID, {}))
            contenders = {
                **self._with_noop(self.daemon, wanted, ids),
                "floor": Contender(self._noop, wanted, ids, effort.seconds / 3, effort.least),
            }
            # The process for each call runs units of the released proxy's kind.
            if count in effort.fresh_ids.get(len(names), ()) and only in ("", plugins.PRINTS):
                contenders["fresh"] = Contender(self._fresh, wanted, ids, effort.seconds, 3)
            if self._before is not None:
                contenders["before"] = Contender(self._before, wanted, ids, effort.seconds, 10)
            if only == plugins.HEAVY:
                light = documents.call("runFilters", [plugins.FUNCTION], ids, documents.VM_ID, {})
                contenders["light"] = Contender(
                    self.daemon, client.request(light), ids, effort.seconds, effort.least
                )
            return Row.of("ids", name, contest(contenders, effort.turns), units=units, hosts=count)

        return Scenario(name, measure)

    def _with_noop(
        self, server: servers.Server, wanted: bytes, expected: object, every: float = 0.0
    ) -> dict[str, Contender]:
        """A call of a daemon, and one of the same daemon that does nothing."""
        seconds, least = self._effort.seconds, self._effort.least
        return {
            "daemon": Contender(
                server, wanted, expected, seconds, least, every=every, looked_at=True
            ),
            "noop": Contender(server, _NOOP, None, seconds / 3, least, every=every),
        }

    def _told(self, name: str) -> Scenario:
        """The engine told of hosts and VM before, so that its answers are in the inventory."""

        def measure() -> Row:
            folder = self._folder / "engine"
            code = folder / "plugins"
            folder.mkdir()
            plugins.write(code, plugins.BY_ENTITIES[:1])
            with contextlib.ExitStack() as opened:
                engine = opened.enter_context(fake_engine.made(folder, 100))
                settings = engine.conf(cache_seconds=3600)
                server = opened.enter_context(servers.daemon(folder / "state", code, more=settings))
                ids, vm = engine.ids(), engine.vms[0].id
                call = documents.call("runFilters", plugins.BY_ENTITIES[:1], ids, vm, {})
                contenders = self._with_noop(server, client.request(call), ids)
                return Row.of("told", name, contest(contenders, self._effort.turns), hosts=100)

        return Scenario(name, measure)

    def _published(self, name: str, unit: str) -> Scenario:
        """A published filter as it stands, and its rule as a function; beside the old way."""

        def measure() -> Row:
            folder, seconds = self._folder / unit, self._effort.seconds
            folder.mkdir()
            with contextlib.ExitStack() as opened:
                engine = opened.enter_context(fake_engine.SlowEngine(folder, 50))
                known = engine.settings()
                plugins.write_published(
                    folder / "plugins", url=known.url, username=known.username,
                    password=PASSWORD, ca_file=str(known.ca_file),
                )  # fmt: skip
                server, fresh = (
                    opened.enter_context(each)
                    for each in (
                        servers.daemon(
                            folder / "state", folder / "plugins", more=engine.conf(cache_seconds=5)
                        ),
                        servers.fresh(folder / "plugins"),
                    )
                )
                ids, vm = engine.ids(), engine.vms[0].id
                call, by_old_way = (
                    client.request(documents.call("runFilters", [each], ids, vm, {}))
                    for each in (unit, plugins.PUBLISHED)
                )
                contenders = {
                    **self._with_noop(server, call, ids),
                    "fresh": Contender(fresh, by_old_way, ids, seconds, 3),
                }
                return Row.of("published", name, contest(contenders, self._effort.turns), hosts=50)

        return Scenario(name, measure)

    def _one_call_for_each_process(self, name: str) -> Scenario:
        def measure() -> Row:
            ids = documents.host_ids(10)
            call = documents.call("runFilters", plugins.BY_IDS[:1], ids, documents.VM_ID, {})
            single = servers.daemon(
                self._folder / "single", self._one, more="calls_per_process = 1"
            )
            with single as server:
                contenders = self._with_noop(server, client.request(call), ids, _APART)
                return Row.of("single", name, contest(contenders, self._effort.turns), hosts=10)

        return Scenario(name, measure)

    def _by_documents(self, kind: str, units: int, count: int) -> Scenario:
        effort = self._effort
        name = f"{_count(units, kind)}, {count:,} hosts as XML"

        def measure() -> Row:
            hosts, ids = documents.hosts(count), documents.host_ids(count)
            names = plugins.BY_ENTITIES[:units]
            expected: object = ids
            if kind == "cost function":
                expected = {host: _FACTOR * units * (at % 20) for at, host in enumerate(ids)}
                asked = [[unit, _FACTOR] for unit in names]
                call = documents.call("runCostFunctions", asked, hosts, documents.VM, {})
            else:
                call = documents.call("runFilters", names, hosts, documents.VM, {})
            data = hosts.encode()
            wanted = client.request(call)
            contenders = {
                "daemon": Contender(
                    self.daemon, wanted, expected, effort.seconds, 5, looked_at=True
                ),
                "floor": Contender(
                    self._noop, b"", None, effort.seconds / 2, 3,
                    lambda _: limits.decode_and_read(call, data),
                ),
            }  # fmt: skip
            if count in effort.fresh_hosts:
                contenders["fresh"] = Contender(
                    self._fresh, wanted, expected, effort.seconds / 2, 3
                )
            if self._before is not None:
                contenders["before"] = Contender(self._before, wanted, expected, effort.seconds, 5)
            figures = contest(contenders, effort.turns)
            floor = figures["floor"]
            figures["floor"] = Figures(calls=floor.calls, median=floor.median)  # no server had part
            return Row.of(kind, name, figures, units=units, hosts=count)

        return Scenario(name, measure)

    def _at_once(self, clients: int) -> Scenario:
        effort = self._effort
        name = f"{_count(clients, 'client')} at once, 1 filter, 10 ids"

        def measure() -> Row:
            ids = documents.host_ids(10)
            call = documents.call("runFilters", plugins.BY_IDS[:1], ids, documents.VM_ID, {})
            wanted = client.request(call)
            seconds = 1.5 * effort.seconds
            daemon, share = crowd(self.daemon, wanted, ids, clients, seconds, memory=True)
            floor, _ = crowd(self._noop, wanted, ids, clients, seconds / 2, memory=False)
            fresh = before = None
            if clients in effort.fresh_clients:
                fresh, _ = crowd(self._fresh, wanted, ids, clients, 2 * seconds, memory=False)
            if self._before is not None:
                before, _ = crowd(self._before, wanted, ids, clients, seconds, memory=False)
            return Row(
                "clients", name, daemon, floor=floor, fresh=fresh, before=before,
                units=1, hosts=10, clients=clients, client_share=share,
            )  # fmt: skip

        return Scenario(name, measure)

    def _over_tls(self, resumed: Optional[bool]) -> Scenario:
        """None: one kept connection; else one for each call."""
        effort = self._effort
        name = (
            "TLS, "
            + {
                None: "kept connection",
                False: "a full handshake for each call",
                True: "a resumed session for each call",
            }[resumed]
            + ", 1 filter, 10 ids"
        )

        def measure() -> Row:
            ids = documents.host_ids(10)
            server, certificate = self._tls_daemon()
            trust = ssl.create_default_context(cafile=str(certificate))
            call = documents.call("runFilters", plugins.BY_IDS[:1], ids, documents.VM_ID, {})
            wanted = client.request(call)
            asks = client.call_maker(server.address, trust, wanted, resumed=resumed)
            noop = client.call_maker(self._noop.address, None, wanted, resumed=resumed)
            seconds, least = effort.seconds, effort.least
            figures = contest(
                {
                    "daemon": Contender(server, wanted, ids, seconds, least, asks, looked_at=True),
                    "floor": Contender(self._noop, wanted, ids, seconds / 3, least, noop),
                },
                effort.turns,
            )
            if resumed is not None:
                floor = figures["floor"]
                bare = limits.handshakes(certificate, least)[resumed]
                figures["floor"] = Figures(calls=floor.calls, median=(floor.median or 0.0) + bare)
            return Row.of("tls", name, figures, units=1, hosts=10)

        return Scenario(name, measure)

    def _tls_daemon(self) -> tuple[servers.Server, Path]:
        state = self._folder / "tls"
        if self._tls is None:
            self._tls = self._start(servers.daemon(state, self._one, tls=True))
        return self._tls, servers.certificate(state)

    def _to_ready(self, name: str, starts: int, folder: Path) -> Scenario:
        def measure() -> Row:
            state = self._folder / f"starts with {folder.name}"
            times = []
            for _ in range(starts):
                with servers.daemon(state, folder, tls=True) as server:
                    times.append(server.seconds)
            return Row("start", name, Figures.of(times), floor=Figures(median=self._bare.start))

        return Scenario(name, measure)

    @staticmethod
    def _memory(name: str, measure: Callable[[str], Row]) -> Scenario:
        return Scenario(name, lambda: measure(name))

    def _at_rest(self, name: str) -> Row:
        """Of the daemon that is called without TLS; processor time is that of an idle second."""
        usage.wait_for_rest(self.daemon.pid, self._effort.rest)
        used = usage.processor_seconds(self.daemon.pid)
        time.sleep(1.0)
        used = usage.processor_seconds(self.daemon.pid) - used
        self._rested[name] = usage.memory(self.daemon.pid)
        figures = Figures(memory=self._rested[name], processor=used)
        return Row("memory", name, figures, floor=Figures(memory=self._bare.memory))

    def _each_plugin(self, name: str) -> Row:
        """What the plugins beside the samples take: the last two looks, one with, one without."""
        looks = list(self._rested.values())[-2:]
        more = abs(looks[1] - looks[0]) // plugins.NUMBER if len(looks) == 2 else None
        return Row("memory", name, Figures(memory=more))

    def _largest_plugin(self, name: str) -> Row:
        return Row("memory", name, Figures(memory=usage.largest_titled(self.daemon.pid, _TITLES)))

    def _idle(self, name: str) -> Row:
        """What one more connection takes that has made its call and waits for the next."""
        server, certificate = self._tls_daemon()
        trust = ssl.create_default_context(cafile=str(certificate))
        before = usage.memory(server.pid)
        connections = []
        for _ in range(self._effort.idle):
            connections.append(client.Connection(server.address, trust))
            connections[-1].ask(_NOOP)
        more = usage.memory(server.pid) - before
        for connection in connections:
            connection.close()
        return Row("memory", name, Figures(memory=max(0, more) // len(connections)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
