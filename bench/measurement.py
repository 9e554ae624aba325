"""Figures: how they are taken, and what is kept of them."""

from __future__ import annotations

import math
import statistics
import time
import xmlrpc.client
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Callable, Optional, final

from bench import client, usage
from bench.servers import Server

_IMPATIENCE = 5  # times the seconds asked for, in which the least number of calls is tried


@final
@dataclass(frozen=True)
class Figures:
    """What calls of one kind took; times in seconds, memory in bytes, of the whole process tree."""

    calls: int = 0
    failed: int = 0
    median: Optional[float] = None
    p99: Optional[float] = None
    throughput: Optional[float] = None  # calls a second
    processor: Optional[float] = None  # for each call
    memory: Optional[int] = None  # the most at any time
    problem: str = ""  # why there are none

    @classmethod
    def of(cls, times: Sequence[float], **others: Any) -> Figures:
        """Of single calls one after another; ``others`` replaces or adds fields."""
        found = {
            "calls": len(times),
            "median": statistics.median(times),
            "p99": percentile(times, 99),
            "throughput": len(times) / sum(times),
        }
        return cls(**{**found, **others})


@final
@dataclass(frozen=True)
class Row:
    """One scenario, measured.

    Attributes:
        noop: ``system.listMethods`` of the same daemon.
        floor: the bare limit, measured in the same run.
        fresh: the same work by a process for each call.
        before: the same call of the version before.
        light: a call of the same daemon whose plugin imports the SDK alone.
        client_share: of one processor, used by the calling side.
    """

    group: str
    name: str
    daemon: Figures
    noop: Optional[Figures] = None
    floor: Optional[Figures] = None
    fresh: Optional[Figures] = None
    before: Optional[Figures] = None
    light: Optional[Figures] = None
    units: int = 0
    hosts: int = 0
    clients: int = 1
    client_share: Optional[float] = None

    @classmethod
    def of(cls, group: str, name: str, figures: Mapping[str, Figures], **others: Any) -> Row:
        """Of figures by the names of their fields, as ``contest`` gives them."""
        fields: dict[str, Any] = {**figures, **others}
        return cls(group, name, **fields)

    @property
    def ratio(self) -> Optional[float]:
        """How many times the bare limit it takes."""
        if self.group == "memory":
            return quotient(self.daemon.memory, self.floor and self.floor.memory)
        if self.clients > 1:
            return quotient(self.floor and self.floor.throughput, self.daemon.throughput)
        return quotient(self.daemon.median, self.floor and self.floor.median)

    @property
    def gain(self) -> Optional[float]:
        """How many times faster than a process for each call."""
        return self._faster_than(self.fresh)

    @property
    def gain_over_before(self) -> Optional[float]:
        """How many times faster than the version before."""
        return self._faster_than(self.before)

    @property
    def above_noop(self) -> Optional[float]:
        """Seconds of the median that a call which does nothing does not take."""
        if self.daemon.median is None or self.noop is None or self.noop.median is None:
            return None
        return self.daemon.median - self.noop.median

    def _faster_than(self, other: Optional[Figures]) -> Optional[float]:
        if self.clients > 1:
            return quotient(self.daemon.throughput, other and other.throughput)
        return quotient(other and other.median, self.daemon.median)

    def as_json(self) -> dict[str, Any]:
        compared = ("ratio", "gain", "gain_over_before", "above_noop")
        return {**asdict(self), **{name: getattr(self, name) for name in compared}}


def quotient(above: Optional[float], below: Optional[float]) -> Optional[float]:
    return above / below if above is not None and below else None


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that so many percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


class WrongAnswer(Exception):
    """The first call did not answer what it should: measuring it would mean nothing."""


def check(address: client.Address, wanted: bytes, expected: object) -> client.Check:
    """Call once, decode and check the answer; give what knows further ones by their bytes.

    Args:
        expected: None: any answer.

    Raises:
        WrongAnswer: another one, or a fault.
    """
    connection = client.Connection(address)
    try:
        first = connection.ask(wanted)
        ((answer,), _) = xmlrpc.client.loads(first)
    except (OSError, ValueError, xmlrpc.client.Fault) as error:
        raise WrongAnswer(str(getattr(error, "faultString", error))) from None
    finally:
        connection.close()
    if expected is not None and answer != expected:
        raise WrongAnswer(f"{answer!r:.200}")
    return lambda body: body == first


@dataclass
class Contender:
    """A server, and what is asked of it, one call after another on a kept connection.

    Attributes:
        expected: the answer; None: whatever comes first.
        least: calls, but for the slowest.
        ask: instead of the kept connection.
        every: seconds from the begin of one call to that of the next; 0: at once.
        looked_at: its memory is, in further calls.
    """

    server: Server
    wanted: bytes
    expected: object
    seconds: float
    least: int
    ask: Optional[Callable[[bytes], bytes]] = None
    every: float = 0.0
    looked_at: bool = False

    def __post_init__(self) -> None:
        self.times: list[float] = []
        self.failed = 0
        self._processor = 0.0
        self._connection: Optional[client.Connection] = None
        self.problem = ""

    def prepare(self) -> None:
        """Check the answer, and warm up."""
        started = time.perf_counter()
        try:
            if self.ask is None:
                self._good = check(self.server.address, self.wanted, self.expected)
                self._connection = client.Connection(self.server.address)
                self.ask = self._connection.ask
            else:
                first = self.ask(self.wanted)
                self._good = lambda body: body == first
            if time.perf_counter() - started < self.seconds:  # else that was enough
                self._call_for(self.seconds / 10, 0)
        except WrongAnswer as error:
            self.problem = str(error)

    def take_turn(self, share: float) -> None:
        """Call for this share of the time."""
        if self.problem:
            return
        before = usage.processor_seconds(self.server.pid)
        self.times += self._call_for(self.seconds * share, math.ceil(self.least * share))
        self._processor += usage.processor_seconds(self.server.pid) - before

    def figures(self) -> Figures:
        """What it took; the calls whose memory is looked at come after those that are timed."""
        if self.problem or not self.times:
            return Figures(problem=self.problem, failed=self.failed)
        memory = None
        if self.looked_at:
            with usage.Peak(self.server.pid) as peak:
                self._call_for(self.seconds / 4, 1)
            memory = peak.memory
        if self._connection is not None:
            self._connection.close()
        return Figures.of(
            self.times,
            failed=self.failed,
            processor=self._processor / len(self.times),
            memory=memory,
        )

    def _call_for(self, seconds: float, least: int) -> list[float]:
        assert self.ask is not None
        times: list[float] = []
        started = now = before = time.perf_counter()
        while now < started + seconds or (
            len(times) < least and now < started + _IMPATIENCE * seconds
        ):
            if self.every and times:
                time.sleep(max(0.0, before + self.every - now))
                now = time.perf_counter()
            before = now
            answer = self.ask(self.wanted)
            now = time.perf_counter()
            if self._good(answer):
                times.append(now - before)
            else:
                self.failed += 1
            now = time.perf_counter()
        return times


def contest(contenders: Mapping[str, Contender], turns: int) -> dict[str, Figures]:
    """Measure them in turns, so that what else the machine does meets each of them."""
    for contender in contenders.values():
        contender.prepare()
    for _ in range(turns):
        for contender in contenders.values():
            contender.take_turn(1 / turns)
    return {name: contender.figures() for name, contender in contenders.items()}


def crowd(
    server: Server, wanted: bytes, expected: object, clients: int, seconds: float, *, memory: bool
) -> tuple[Figures, float]:
    """Many clients at once.

    Returns:
        The figures, and the share of one processor that the calling side used.
    """
    try:
        good = check(server.address, wanted, expected)
    except WrongAnswer as error:
        return Figures(problem=str(error)), 0.0
    before, own = usage.processor_seconds(server.pid), time.process_time()
    load = client.many(server.address, wanted, good, clients, seconds)
    share = (time.process_time() - own) / load.seconds
    used = usage.processor_seconds(server.pid) - before
    if not load.times:
        return Figures(failed=load.failed, problem="no call was answered"), share
    peak = None
    if memory:
        with usage.Peak(server.pid) as looked:
            client.many(server.address, wanted, good, clients, seconds / 4)
        peak = looked.memory
    return (
        Figures.of(
            load.times,
            failed=load.failed,
            throughput=len(load.times) / load.seconds,
            processor=used / len(load.times),
            memory=peak,
        ),
        share,
    )
