"""What a method of the XML-RPC interface is, and what one answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, FrozenSet, Mapping, Tuple

from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.model.results import CallResult


@dataclass(frozen=True)
class Reply:
    """A method's answer, with the fields that the log's line on the request has besides.

    ``results`` tell how each plugin call ended.
    """

    answer: Any  # what XML-RPC can carry
    told: Mapping[str, object] = field(default_factory=dict)
    results: Tuple[CallResult, ...] = ()


@dataclass(frozen=True)
class Method:
    """A method that the server offers.

    ``signatures`` is what ``system.methodSignature`` tells: per signature the type of the
    result, then of each parameter, in XML-RPC's words. ``run`` gives the answer, or a ``Reply``.
    """

    name: str
    help: str
    signatures: Tuple[Tuple[str, ...], ...]
    run: Callable[[Caller, Tuple[object, ...]], object]
    forms: FrozenSet[AnswerForm] = frozenset(AnswerForm)  # in which it is offered like this
