"""The type of a method of the XML-RPC interface, and of its reply."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Callable, FrozenSet, Iterator, Mapping, Optional, Sequence, Tuple

from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.model.results import CallResult

_ENVELOPE = "\nThe answer is a struct: result_code, result, plugin_errors, errors."

Parameters = Tuple[object, ...]

_MANY = ("string", "array")  # a document, or ids
_TYPES = {  # of parameters, in XML-RPC's words; others are strings
    "names": ("array",),
    "functions": ("array", "struct"),
    "hosts": _MANY,
    "vms": _MANY,
    "properties": ("struct",),
}


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
    run: Callable[[Caller, Parameters], object]
    forms: FrozenSet[AnswerForm] = frozenset(AnswerForm)  # in which it is offered like this


def in_both_forms(
    name: str,
    text: str,
    ways: Sequence[Tuple[str, ...]],
    run: Callable[[Caller, Parameters], object],
) -> Iterator[Method]:
    """A method as each answer form offers it: in the engine form the answer is an envelope.

    Args:
        text, ways: help and signatures in the design form.
        run: answers in the form that the caller uses.
    """
    yield Method(name, text, tuple(ways), run, frozenset((AnswerForm.DESIGN,)))
    enveloped = tuple(dict.fromkeys(("struct", *way[1:]) for way in ways))
    yield Method(name, text + _ENVELOPE, enveloped, run, frozenset((AnswerForm.ENGINE,)))


def signatures(result: str, parameters: Sequence[str]) -> Tuple[Tuple[str, ...], ...]:
    """The ways to call a method: the result, and each of the types that a parameter may have."""
    ways = itertools.product(*(_TYPES.get(each, ("string",)) for each in parameters))
    return tuple((result, *way) for way in ways)
