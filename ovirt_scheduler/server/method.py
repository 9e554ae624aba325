"""The type of a method of the XML-RPC interface, and of its reply."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Optional

from ovirt_scheduler.decisions import log
from ovirt_scheduler.errors import BadParameters
from ovirt_scheduler.history import record
from ovirt_scheduler.history.record import AnyDecision
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.model.results import CallResult

_ENVELOPE = "\nThe answer is a struct: result_code, result, plugin_errors, errors."

Parameters = tuple[object, ...]
Run = Callable[[Caller, Parameters], object]

_MANY = ("string", "array")  # a document, or ids
_TYPES = {  # of parameters, in XML-RPC's words; others are strings
    "arguments": ("struct",),
    "cost_functions": ("array", "struct"),
    "filters": ("array",),
    "hosts": _MANY,
    "properties": ("struct",),
    "query": ("struct",),
    "vms": _MANY,
}


@dataclass(frozen=True)
class Reply:
    """A method's answer, and how each plugin call of it ended.

    ``log_fields`` are added to the log's line on the request. ``record`` makes the record of what
    was decided (contract 8.1), or None where there is none.
    """

    answer: Any  # what XML-RPC can carry
    log_fields: Mapping[str, object] = field(default_factory=dict)
    results: tuple[CallResult, ...] = ()
    record: Callable[[], Optional[Mapping[str, Any]]] = lambda: None


def decided(answer: object, decision: AnyDecision) -> Reply:
    """The reply that a decision is answered with."""
    made = partial(record.of, decision)
    return Reply(answer, log.fields(decision), decision.execution.results, made)


@dataclass(frozen=True)
class Method:
    """A method that the server offers.

    Attributes:
        parameters: their names.
        results: the types that the answer may have, in XML-RPC's words.
        text: what it does, and what its parameters are.
        run: gives the answer, or a ``Reply``.
        optional: how many of the last parameters may be missing.
        forms: in which it is offered like this.
    """

    name: str
    parameters: tuple[str, ...]
    results: Sequence[str]
    text: str
    run: Run
    optional: int = 0
    forms: Sequence[AnswerForm] = tuple(AnswerForm)

    @property
    def help(self) -> str:
        """What ``system.methodHelp`` answers: how it is called, and what it does."""
        return f"{self.name}({', '.join(self.parameters)})\n\n{self.text}"

    @property
    def signatures(self) -> list[tuple[str, ...]]:
        """What ``system.methodSignature`` answers: types of a result and of each parameter."""
        types = [_TYPES.get(each, ("string",)) for each in self.parameters]
        return [
            signature
            for count in range(len(types) - self.optional, len(types) + 1)
            for signature in itertools.product(self.results, *types[:count])
        ]

    def check_count(self, parameters: Parameters) -> None:
        """Refuse a call with another number of parameters.

        Raises:
            BadParameters: there are more or fewer than the method takes.
        """
        most = len(self.parameters)
        if not most - self.optional <= len(parameters) <= most:
            wanted = f"{most} parameter{'s' * (most > 1)} ({', '.join(self.parameters)})"
            at_most = "at most " * bool(self.optional)
            message = f"{self.name} takes {at_most + wanted if most else 'no parameters'}"
            raise BadParameters(f"{message}, not {len(parameters)}")


def in_both_forms(
    name: str, parameters: tuple[str, ...], results: Sequence[str], text: str, run: Run
) -> Iterator[Method]:
    """A method as each answer form offers it: in the engine form the answer is an envelope.

    Args:
        results, text: in the design form.
        run: answers in the form that the caller uses.
    """
    yield Method(name, parameters, results, text, run, forms=(AnswerForm.DESIGN,))
    yield Method(name, parameters, ("struct",), text + _ENVELOPE, run, forms=(AnswerForm.ENGINE,))
