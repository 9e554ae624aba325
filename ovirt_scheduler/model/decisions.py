"""The execution of a request, and the decision that is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from ovirt_scheduler.model.requests import Request
from ovirt_scheduler.model.results import Answer, CallResult
from ovirt_scheduler.model.tasks import Pack, Role
from ovirt_scheduler.model.units import UnitCall


class ShadowCall(NamedTuple):
    """A call of a unit in shadow, after the answer (contract 10.4)."""

    call: UnitCall
    result: Optional[CallResult] = None  # None: it was not called
    problem: str = ""  # why it was not


class Execution(NamedTuple):
    """What the executor returns for one request."""

    hosts: tuple[str, ...] = ()  # ids in the order given
    filters: tuple[CallResult, ...] = ()  # of those that ran, in the order asked for
    cost_functions: tuple[CallResult, ...] = ()
    result: Optional[CallResult] = None  # of a balance or a driver's method; None: not called
    errors: tuple[str, ...] = ()  # that belong to no plugin
    vm: Optional[str] = None  # its id
    names: Mapping[str, str] = {}  # by id, as far as they are known
    packs: Mapping[Role, Pack] = {}  # of hosts and VM, where they came

    @property
    def results(self) -> tuple[CallResult, ...]:
        """Of all calls, in the order of their beginning."""
        last = () if self.result is None else (self.result,)
        return (*self.filters, *self.cost_functions, *last)


class Decision(NamedTuple):
    """The whole record of one answered request; the server picks from it what a form shows."""

    request: Request
    execution: Execution  # with costs as the functions told them
    results: tuple[CallResult, ...]  # of the execution, with costs as they count for the answer
    answer: Answer
    errors: tuple[str, ...] = ()
    unit_errors: Mapping[str, tuple[str, ...]] = {}
    calls: tuple[UnitCall, ...] = ()
    time: float = 0.0  # when it was asked for, in seconds since 1970
    seconds: float = 0.0  # that it took
    secret: str = ""  # the token for the engine that plugins were given
    shadows: tuple[ShadowCall, ...] = ()
