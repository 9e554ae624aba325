"""Places VMs that have to leave their hosts: by room, filters, cost functions and rules. Pure.

::

    VMs, the largest first ──► hosts that can take the next one, the best first ──► it goes there
              ▲                                        │ none
              └──────── the VM before it goes to another of its hosts ◄──┘

So the answer is what the policy would do, unless a VM would have no place by that. A search that
asks too often is given up: its answer is then the best placement that it came to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Callable, NamedTuple, Optional, Protocol

from ovirt_scheduler.model.affinity import AffinityRules, PlacedVms
from ovirt_scheduler.model.losses import Loss, UnplacedVm
from ovirt_scheduler.model.values.text import count_of

MOST_TRIES = 1000  # in which a VM is asked about again, after one had no place
_CROWDED = "wherever it could go, others would have no place"
_END = object()


class Choices(NamedTuple):
    """The hosts that can take a VM, the best first; and which could not, in words."""

    hosts: Sequence[str]
    why: str


class Places(Protocol):
    """Hosts that take VMs; all of them by their ids."""

    def choices(self, vm: str, allow: Callable[[Sequence[str]], Sequence[str]]) -> Choices:
        """The hosts that can take a VM now.

        Args:
            allow: returns those of some hosts that rules allow.
        """

    def move(self, vm: str, host: Optional[str]) -> None:
        """Have a VM run on a host, or on none."""

    def size(self, vm: str) -> float:
        """How much room a VM needs."""

    def leaving(self, host: str) -> Sequence[str]:
        """The VMs that leave a host when it is emptied."""


class LostVm(Protocol):
    """A VM, as a loss tells of it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def is_highly_available(self) -> bool:
        """Whether it is to have a place before others."""


class Placed(NamedTuple):
    """Where VMs are placed.

    Attributes:
        targets: host by VM; None: it has no place.
        whys: by VM, in words.
        breaking: the VMs that are where a hard rule of VMs does not allow them.
        is_best: whether no other placement has a place for more of them.
    """

    targets: Mapping[str, Optional[str]]
    whys: Mapping[str, str]
    breaking: frozenset[str]
    is_best: bool


class Order(NamedTuple):
    """Hosts in an order in which each can be emptied while the others run.

    Attributes:
        blocked: the hosts that could not be emptied after these: each with a VM that had no place,
            and why. Empty if the order has all hosts.
        is_best: whether no other order has all hosts.
        never: the hosts that were not tried, as they can be emptied in no order; each with why.
    """

    hosts: tuple[str, ...]
    blocked: Mapping[str, tuple[str, str]]
    is_best: bool
    never: Mapping[str, str] = MappingProxyType({})


class _PlacedVm(NamedTuple):
    """What a search has decided about a VM."""

    vm: str
    host: Optional[str]
    why: str
    breaks: bool = False


# A decision makes one choice after another; it takes back the one before, and when it is closed.
_Choosing = Generator[None, None, None]
_PlacementCost = tuple[
    int, int, int
]  # urgent VMs without a place, all of them, VMs that break rules
_FREE: _PlacementCost = (0, 0, 0)


@dataclass(eq=False)
class Placing:
    """Places VMs.

    Attributes:
        placed_vms: the VMs that run, under their rules; kept up to date.
        may_break: whether a VM may go where a hard rule of VMs does not allow it, if it can go
            nowhere else: an engine that empties a host does not ask these rules.
        tries: how often VMs may be asked about again in one search.
    """

    places: Places
    placed_vms: PlacedVms
    may_break: bool = False
    tries: int = MOST_TRIES
    _tries_left: int = 0
    _is_first_try: bool = True
    _steps: list[_PlacedVm] = field(default_factory=list)
    _queue: Sequence[str] = ()  # the VMs to place
    _begun: int = 0  # how many steps there were before the queue's
    _source: Optional[str] = None  # the host that they leave; None: they run nowhere
    _breadth: Optional[int] = None  # how many hosts are tried for a VM; None: all
    _urgent: Collection[str] = ()
    _limit: Optional[_PlacementCost] = None  # a placement that costs as much is of no use
    _order: list[str] = field(default_factory=list)
    _longest: Order = field(default_factory=lambda: Order((), {}, is_best=True))

    def __post_init__(self) -> None:
        groups = (group._replace(vm_rule=None) for group in self.placed_vms.rules.groups)
        self._host_rules = PlacedVms(AffinityRules(groups), {})

    def place(
        self, vms: Collection[str], urgent: Collection[str] = (), source: Optional[str] = None
    ) -> Placed:
        """Place as many VMs as possible, the urgent ones first, and leave them there.

        Args:
            source: the host that they leave; None: they run nowhere.
        """
        self._source, self._urgent, self._breadth, self._limit = source, urgent, None, None
        self._is_first_try, self._tries_left = True, self.tries
        for vm in vms:
            self.placed_vms.move(vm, None)
        best, is_best = self._best_steps(self._in_order(vms))
        if any(step.host is None or step.breaks for step in best):
            hopeless = [
                _PlacedVm(step.vm, None, choices.why)
                for step in best
                if step.host is None and not (choices := self._choices(step.vm)[0]).hosts
            ]
            lost = {step.vm for step in hopeless}
            others = [step for step in best if step.vm not in lost]
            self._limit = self._cost(others)
            if self._limit != _FREE:
                self._is_first_try = False
                better, is_best = self._best_steps([step.vm for step in others])
                others = better or others
            best = [*others, *hopeless]
        for step in best:
            self._move(step.vm, step.host)
        return Placed(
            {step.vm: step.host for step in best},
            {step.vm: step.why for step in best},
            frozenset(step.vm for step in best if step.breaks),
            is_best,
        )

    @contextlib.contextmanager
    def lost(self, host: str, name: str, vms: Mapping[str, LostVm]) -> Iterator[Loss]:
        """Place the VMs of a host that fails, as ``place`` does it; then they run there again.

        Args:
            host: its id; the places refuse it meanwhile.
            name: the host's.
            vms: its VMs, by their ids.
        """
        for vm in vms:
            self.places.move(vm, None)
        try:
            placed = self.place(vms, [vm for vm in vms if vms[vm].is_highly_available])
            homeless = [
                UnplacedVm(vms[vm].name, vms[vm].is_highly_available, placed.whys[vm])
                for vm, target in placed.targets.items()
                if target is None
            ]
            homeless.sort(key=lambda vm: (not vm.highly_available, vm.vm))
            yield Loss(name, tuple(homeless), is_best=placed.is_best)
        finally:
            for vm in vms:
                self.placed_vms.move(vm, host)
                self.places.move(vm, host)

    def empty_in_turn(self, hosts: Collection[str]) -> Order:
        """Find an order in which hosts can be emptied, one after another; each is used afterwards.

        All VMs are where they were before.

        Args:
            hosts: those that are up.
        """

        visited = set[object]()  # hosts that were emptied, and where VMs were then

        def following() -> Optional[_Choosing]:
            if len(self._steps) - self._begun < len(self._queue):
                return self._place_next(may_stay=False)
            arrangement = frozenset({step.vm: step.host for step in self._steps}.items())
            if (state := (frozenset(self._order), arrangement)) in visited:
                return _dead_end()  # what follows was tried, after the hosts in another order
            visited.add(state)
            if len(self._order) > len(self._longest.hosts):
                self._longest = Order(tuple(self._order), {}, is_best=True)
            return self._empty_next(hosts) if len(self._order) < len(hosts) else None

        # Most often the policy's own choices do; all others are tried only if they do not.
        for self._breadth in (1, None):
            self._is_first_try, self._tries_left = True, self.tries
            visited.clear()
            is_best = self._search(following, lambda: True)
            if len(self._longest.hosts) == len(hosts):
                return self._longest
        return self._longest._replace(is_best=is_best)

    def _best_steps(self, queue: Sequence[str]) -> tuple[list[_PlacedVm], bool]:
        """The best placement of VMs that costs less than the limit, and whether none is better.

        The first try ends with the first placement.
        """
        self._queue, self._steps, self._begun = queue, [], 0
        best: list[_PlacedVm] = []

        def following() -> Optional[_Choosing]:
            return self._place_next(may_stay=True) if len(self._steps) < len(queue) else None

        def is_enough() -> bool:
            best[:], self._limit = self._steps, self._cost(self._steps)
            return self._is_first_try or self._limit == _FREE

        return best, self._search(following, is_enough)

    def _search(
        self, following: Callable[[], Optional[_Choosing]], is_enough: Callable[[], bool]
    ) -> bool:
        """Decide one thing after another; where one cannot be, decide the one before otherwise.

        At the end all decisions are taken back.

        Args:
            following: the next decision; None: all is decided.
            is_enough: whether the search ends with what is decided then.

        Returns:
            Whether nothing is left to be tried.
        """
        decisions: list[_Choosing] = []
        try:
            while self._is_first_try or self._tries_left > 0:
                decision = following()
                if decision is not None:
                    decisions.append(decision)
                elif is_enough():
                    return True
                while decisions and next(decisions[-1], _END) is _END:
                    decisions.pop()
                    self._is_first_try = False
                if not decisions:
                    return True
            return False
        finally:
            for decision in reversed(decisions):
                decision.close()

    def _place_next(self, may_stay: bool) -> _Choosing:
        """Have the queue's next VM go to one host after another, and at last to none.

        Args:
            may_stay: whether it may have no place.
        """
        vm = self._queue[len(self._steps) - self._begun]
        choices, allowed = self._choices(vm)
        steps = [_PlacedVm(vm, host, choices.why, host not in allowed) for host in choices.hosts]
        if may_stay:
            steps.append(_PlacedVm(vm, None, _CROWDED if choices.hosts else choices.why))
        elif not steps and tuple(self._order[:-1]) == self._longest.hosts:
            blocked = {self._order[-1]: (vm, choices.why), **self._longest.blocked}
            self._longest = self._longest._replace(blocked=blocked)
        for step in steps[: self._breadth]:
            self._steps.append(step)
            self._move(vm, step.host)
            try:
                if self._limit is None or self._cost(self._steps) < self._limit:
                    yield
            finally:
                self._move(vm, None)
                self._steps.pop()

    def _empty_next(self, hosts: Collection[str]) -> _Choosing:
        """Empty one more host after another; the one with the least on it is the first."""

        def load(host: str) -> float:
            return sum(map(self.places.size, self.places.leaving(host)))

        former = self._queue, self._begun, self._source
        for host in sorted({*hosts}.difference(self._order), key=lambda host: (load(host), host)):
            self._queue = self._in_order(self.places.leaving(host))
            self._begun, self._source = len(self._steps), host
            for vm in self._queue:
                self.placed_vms.move(vm, None)
            queue = self._queue
            self._order.append(host)
            try:
                yield
            finally:
                self._order.pop()
                for vm in queue:
                    self.placed_vms.move(vm, host)
                self._queue, self._begun, self._source = former

    def _in_order(self, vms: Collection[str]) -> list[str]:
        """The urgent ones first, then the largest."""
        return sorted(vms, key=lambda vm: (vm not in self._urgent, -self.places.size(vm), vm))

    def _cost(self, steps: Iterable[_PlacedVm]) -> _PlacementCost:
        homeless = [step.vm for step in steps if step.host is None]
        urgent = sum(vm in self._urgent for vm in homeless)
        return urgent, len(homeless), sum(step.breaks for step in steps)

    def _move(self, vm: str, host: Optional[str]) -> None:
        """Have a VM run on a host; None: where it was before it was placed."""
        self.placed_vms.move(vm, host)
        self.places.move(vm, host or self._source)

    def _choices(self, vm: str) -> tuple[Choices, frozenset[str]]:
        """The hosts that can take a VM, and those of them that no rule of VMs refuses."""
        self._tries_left -= not self._is_first_try
        refused = 0

        def allow(hosts: Sequence[str]) -> Sequence[str]:
            nonlocal refused
            allowed = self._host_rules.acceptable((vm,), hosts)
            if not self.may_break:
                allowed = self.placed_vms.acceptable((vm,), allowed)
            refused = len(hosts) - len(allowed)
            return [host for host in allowed if host != self._source]

        hosts, why = self.places.choices(vm, allow)
        if refused:
            hosts_refused = f"{count_of(refused, 'host')} not allowed by {self.hard_rules(vm)}"
            why = f"{why}; {hosts_refused}" if why else hosts_refused
        allowed = frozenset(self.placed_vms.acceptable((vm,), hosts))

        def rank(host: str) -> tuple[object, ...]:
            return host not in allowed, self.placed_vms.penalty((vm,), host)

        return Choices(sorted(hosts, key=rank), why), allowed

    def hard_rules(self, vm: str) -> str:
        """The names of the hard rules that a VM is under."""
        rules = self.placed_vms.rules
        groups = (rules.groups[number] for number in rules.numbers_of(vm))
        return ", ".join(
            group.name
            for group in groups
            if any(rule and rule.enforcing for rule in (group.vm_rule, group.host_rule))
        )


def _dead_end() -> _Choosing:
    """A decision that has no choice."""
    yield from ()
