"""The type of a method of the XML-RPC interface, and of its reply."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, FrozenSet, Mapping, Optional, Tuple

from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.model.results import CallResult


@dataclass(frozen=True)
class Reply:
    """A method's answer, and how each plugin call of it ended.

    ``log_fields`` are added to the log's line on the request. ``record`` makes the record of what
    was decided (contract 8.1), or None where there is none.
    """

    answer: Any  # what XML-RPC can carry
    log_fields: Mapping[str, object] = field(default_factory=dict)
    results: Tuple[CallResult, ...] = ()
    record: Callable[[], Optional[Mapping[str, Any]]] = lambda: None


@dataclass(frozen=True)
class Method:
    """A method that the server offers.

    ``signatures`` is what ``system.methodSignature`` answers: for each signature the type of the
    result, then of each parameter, in XML-RPC's words. ``run`` returns the answer, or a ``Reply``.
    """

    name: str
    help: str
    signatures: Tuple[Tuple[str, ...], ...]
    run: Callable[[Caller, Tuple[object, ...]], object]
    forms: FrozenSet[AnswerForm] = frozenset(AnswerForm)  # in which it is offered like this
