"""How much is measured: all of it, enough for a look, or next to nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


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
    rest: float  # seconds without a new or an ended process, until a daemon is at rest
    rounds: int  # of each bare limit
    stages: int  # calls in which stages are told apart

    @property
    def hosts(self) -> list[int]:
        """Every number of hosts in documents."""
        return sorted({count for counts in self.documents.values() for count in counts})


_KINDS = (("filter", 1), ("filter", 5), ("cost function", 5))
_IDS = (10, 100, 1000, 10000)

FULL = Effort(
    bound=530.0, seconds=2.4, least=30, turns=3,
    ids=dict.fromkeys((1, 5, 20), _IDS),
    documents=dict.fromkeys(_KINDS, (10, 100, 1000, 5000)),
    fresh_ids=dict.fromkeys((1, 5, 20), (10, 1000)), fresh_hosts=(10, 100),
    clients=(1, 8, 32, 128), fresh_clients=(8, 32, 128), starts=7,
    idle=400, rest=11.0, rounds=7, stages=200,
)  # fmt: skip
QUICK = Effort(
    bound=50.0, seconds=0.3, least=5, turns=1,
    ids={1: (10, 1000, 10000), 5: (10, 1000), 20: (10,)},
    documents={("filter", 1): (10, 1000), ("filter", 5): (10, 1000, 5000),
               ("cost function", 5): (10, 1000)},
    fresh_ids={1: (10,), 5: (10,)}, fresh_hosts=(),
    clients=(1, 8, 32, 128), fresh_clients=(8,), starts=1, idle=100, rest=1.0, rounds=1, stages=20,
)  # fmt: skip
SMALLEST = replace(
    QUICK,
    seconds=0.1,
    ids={1: (10,)},
    documents={("filter", 1): (10,)},
    rest=0.3,
    rounds=1,
    stages=10,
)
