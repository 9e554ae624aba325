"""The scenarios: what is called, of whom, and beside which bare limit."""

from __future__ import annotations

import contextlib
import ssl
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Iterator, Mapping, Optional, Sequence

from bench import client, documents, limits, plugins, servers, usage
from bench.limits import Limits
from bench.measurement import Contender, Figures, Row, contest, crowd

_FACTOR = 2


@dataclass(frozen=True)
class Effort:
    """How much is measured, and for how long."""

    bound: float  # seconds after which no further scenario begins
    seconds: float  # for one scenario of the daemon
    least: int  # calls of it, but for the slowest
    turns: int  # in which the contenders alternate
    ids: Mapping[int, Sequence[int]]  # numbers of filters: numbers of ids
    documents: Mapping[tuple[str, int], Sequence[int]]  # kind and number of units: hosts
    fresh_ids: Mapping[int, Sequence[int]]  # where a process for each call is measured as well
    fresh_hosts: Sequence[int]  # the same, with documents
    clients: Sequence[int]
    fresh_clients: Sequence[int]
    starts: int
    idle: int  # connections
    rounds: int  # of each bare limit
    stages: int  # calls in which stages are told apart

    @property
    def hosts(self) -> list[int]:
        """Every number of hosts in documents."""
        return sorted({count for counts in self.documents.values() for count in counts})


_KINDS = [(kind, units) for kind in ("filter", "cost function") for units in (1, 5)]
_IDS = (10, 100, 1000, 10000)

FULL = Effort(
    bound=500.0, seconds=2.4, least=30, turns=3,
    ids=dict.fromkeys((1, 5, 20), _IDS),
    documents=dict.fromkeys(_KINDS, (10, 100, 1000, 5000)),
    fresh_ids=dict.fromkeys((1, 5, 20), _IDS), fresh_hosts=(10, 100, 1000, 5000),
    clients=(1, 8, 32, 128), fresh_clients=(1, 8, 32, 128), starts=7,
    idle=400, rounds=9, stages=200,
)  # fmt: skip
QUICK = Effort(
    bound=50.0, seconds=0.3, least=5, turns=1,
    ids={1: (10, 1000, 10000), 5: (10, 1000), 20: (10,)},
    documents={("filter", 1): (10, 1000), ("filter", 5): (10, 1000, 5000),
               ("cost function", 5): (10, 1000)},
    fresh_ids={1: (10,), 5: (10,)}, fresh_hosts=(),
    clients=(1, 8, 32, 128), fresh_clients=(8,), starts=1, idle=100, rounds=1, stages=20,
)  # fmt: skip
SMALLEST = replace(
    QUICK,
    seconds=0.1,
    ids={1: (10,)},
    documents={("filter", 1): (10,)},
    rounds=1,
    stages=10,
)


@dataclass(frozen=True)
class Scenario:
    name: str
    measure: Callable[[], Row]


class Benchmark:
    """The servers that the scenarios use, and the scenarios.

    Args:
        folder: for the plugins, the states of the daemons and their logs.
    """

    def __init__(self, effort: Effort, bare: Limits, folder: Path) -> None:
        self._effort = effort
        self._bare = bare
        self._folder = folder
        self._plugins = folder / "plugins"
        self._open = contextlib.ExitStack()
        plugins.write(self._plugins)

    def __enter__(self) -> Benchmark:
        self._tls: Optional[servers.Server] = None
        try:
            plain = self._folder / "plain"
            self.daemon = self._start(servers.daemon(plain, self._plugins, tls=False))
            self._fresh = self._start(servers.fresh(self._plugins))
            self._noop = self._start(servers.noop())
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self._open.close()

    def _start(self, server: servers.Server) -> servers.Server:
        return self._open.enter_context(server)

    def scenarios(self) -> Iterator[Scenario]:
        """In the order in which they are to be run: what rests first."""
        effort = self._effort
        yield self._memory("at rest, just started", self._at_rest)
        for units, counts in effort.ids.items():
            for count in counts:
                yield self._by_ids(f"{_count(units, 'filter')}, {count:,} ids", units, count)
        yield self._by_ids("1 filter that prints its answer, 10 ids", 0, 10, plugins.PRINTS)
        yield self._by_ids("1 function filter, 10 ids", 0, 10, plugins.FUNCTION)
        yield self._by_ids("1 filter that imports asyncio and cryptography", 0, 10, plugins.HEAVY)
        for (kind, units), counts in effort.documents.items():
            for count in counts:
                yield self._by_documents(kind, units, count)
        for clients in effort.clients:
            yield self._at_once(clients)
        for resumed in (None, False, True):
            yield self._over_tls(resumed)
        yield self._memory("each idle TLS connection", self._idle)
        yield self._memory("at rest, after all of this", self._at_rest)
        samples = servers.PROJECT / "plugins"
        yield self._to_ready("first start, the certificate is made", 1, samples)
        yield self._to_ready("start, sample plugins", effort.starts, samples)
        yield self._to_ready(
            f"start, {len(list(self._plugins.iterdir()))} plugins", effort.starts, self._plugins
        )

    def _by_ids(self, name: str, units: int, count: int, only: str = "") -> Scenario:
        effort = self._effort
        names = [only] if only else plugins.BY_IDS[:units]

        def measure() -> Row:
            ids = documents.host_ids(count)
            wanted = client.request(documents.call("runFilters", names, ids, documents.VM_ID, {}))
            contenders = [
                Contender(self.daemon, wanted, ids, effort.seconds, effort.least),
                Contender(self._noop, wanted, ids, effort.seconds / 3, effort.least),
            ]
            # The process for each call runs units of the released proxy's kind.
            if count in effort.fresh_ids.get(len(names), ()) and only in ("", plugins.PRINTS):
                contenders.append(Contender(self._fresh, wanted, ids, effort.seconds, 3))
            return Row("ids", name, *contest(contenders, effort.turns), units=units, hosts=count)

        return Scenario(name, measure)

    def _by_documents(self, kind: str, units: int, count: int) -> Scenario:
        effort = self._effort
        name = f"{_count(units, kind)}, {count:,} hosts as XML"

        def measure() -> Row:
            hosts, ids = documents.hosts(count), documents.host_ids(count)
            names = plugins.BY_ENTITIES[:units]
            method, asked, expected = "runFilters", list(names), ids
            if kind == "cost function":
                costs = {host: _FACTOR * units * (number % 20) for number, host in enumerate(ids)}
                method, asked, expected = "runCostFunctions", [[n, _FACTOR] for n in names], costs
            call, data = documents.call(method, asked, hosts, documents.VM, {}), hosts.encode()
            wanted = client.request(call)
            contenders = [
                Contender(self.daemon, wanted, expected, effort.seconds, 5),
                Contender(
                    self._noop, b"", None, effort.seconds / 2, 1,
                    lambda _: limits.decode_and_read(call, data),
                ),
            ]  # fmt: skip
            if count in effort.fresh_hosts:
                contenders.append(Contender(self._fresh, wanted, expected, effort.seconds / 2, 3))
            daemon, floor, *fresh = contest(contenders, effort.turns)
            floor = Figures(calls=floor.calls, median=floor.median)  # no server took part
            return Row(
                kind, name, daemon, floor, *fresh,
                units=units, hosts=count, document=len(hosts),
            )  # fmt: skip

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
            fresh = None
            if clients in effort.fresh_clients:
                fresh, _ = crowd(self._fresh, wanted, ids, clients, 2 * seconds, memory=False)
            return Row(
                "clients", name, daemon, floor, fresh,
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
            asks = _tls_calls(server.address, trust, wanted, resumed=resumed)
            noop = _tls_calls(self._noop.address, None, wanted, resumed=resumed)
            daemon, floor = contest(
                [
                    Contender(server, wanted, ids, effort.seconds, effort.least, asks),
                    Contender(self._noop, wanted, ids, effort.seconds / 3, effort.least, noop),
                ],
                effort.turns,
            )
            if resumed is not None:
                bare = limits.handshakes(certificate, effort.least)[resumed]
                floor = Figures(calls=floor.calls, median=(floor.median or 0.0) + bare)
            return Row("tls", name, daemon, floor, units=1, hosts=10)

        return Scenario(name, measure)

    def _tls_daemon(self) -> tuple[servers.Server, Path]:
        state = self._folder / "tls"
        if self._tls is None:
            self._tls = self._start(servers.daemon(state, self._plugins, tls=True))
        return self._tls, servers.certificate(state)

    def _to_ready(self, name: str, starts: int, folder: Path) -> Scenario:
        def measure() -> Row:
            state = self._folder / f"starts with {folder.name}"
            times = []
            for _ in range(starts):
                with servers.daemon(state, folder, tls=True) as server:
                    times.append(server.seconds)
            return Row("start", name, Figures.of(times), Figures(median=self._bare.start))

        return Scenario(name, measure)

    @staticmethod
    def _memory(name: str, measure: Callable[[str], Row]) -> Scenario:
        return Scenario(name, lambda: measure(name))

    def _at_rest(self, name: str) -> Row:
        """Of the daemon that is called without TLS; processor time is that of an idle second."""
        time.sleep(0.5)  # what was under way ends
        used = usage.processor_seconds(self.daemon.pid)
        time.sleep(1.0)
        used = usage.processor_seconds(self.daemon.pid) - used
        figures = Figures(memory=usage.memory(self.daemon.pid), processor=used)
        return Row("memory", name, figures, Figures(memory=self._bare.memory))

    def _idle(self, name: str) -> Row:
        """What one more connection takes that has made its call and waits for the next."""
        server, certificate = self._tls_daemon()
        trust = ssl.create_default_context(cafile=str(certificate))
        wanted = client.request(documents.call("system.listMethods"))
        before = usage.memory(server.pid)
        connections = []
        for _ in range(self._effort.idle):
            connections.append(client.Connection(server.address, trust))
            connections[-1].ask(wanted)
        more = usage.memory(server.pid) - before
        for connection in connections:
            connection.close()
        return Row("memory", name, Figures(memory=max(0, more) // len(connections)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _tls_calls(
    address: client.Address,
    trust: Optional[ssl.SSLContext],
    wanted: bytes,
    *,
    resumed: Optional[bool],
) -> Callable[[bytes], bytes]:
    """What makes one call: on a kept connection, or on one of its own."""
    first = client.Connection(address, trust)
    first.ask(wanted)
    if resumed is None:
        return first.ask
    session = first.session if resumed and trust is not None else None

    def call(data: bytes) -> bytes:
        connection = client.Connection(address, trust, session)
        try:
            answer = connection.ask(data)
            if connection.resumed != (session is not None):
                raise ConnectionError("the session was not resumed")
            return answer
        finally:
            connection.close()

    return call
