"""The type of a method of the XML-RPC interface, and of its reply."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from ovirt_scheduler.errors import BadParameters
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.model.results import CallResult

_ENVELOPE = "\nThe answer is a struct: result_code, result, plugin_errors, errors."

Parameters = tuple[object, ...]

_MANY = ("string", "array")  # a document, or ids
_TYPES = {  # of parameters, in XML-RPC's words; others are strings
    "arguments": ("struct",),
    "cost_functions": ("array", "struct"),
    "filters": ("array",),
    "hosts": _MANY,
    "properties": ("struct",),
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


@dataclass(frozen=True)
class Method:
    """A method that the server offers.

    ``signatures`` is what ``system.methodSignature`` answers: for each signature the type of the
    result, then of each parameter, in XML-RPC's words. ``run`` returns the answer, or a ``Reply``.
    """

    name: str
    help: str
    signatures: tuple[tuple[str, ...], ...]
    run: Callable[[Caller, Parameters], object]
    forms: frozenset[AnswerForm] = frozenset(AnswerForm)  # in which it is offered like this
    parameters: Optional[tuple[str, ...]] = None  # names; None: ``run`` counts them itself

    def count(self, parameters: Parameters) -> None:
        """Hold a call to the number of parameters.

        Raises:
            BadParameters: there are more or fewer than the method takes.
        """
        names = self.parameters
        if names is not None and len(parameters) != len(names):
            wanted = f"{len(names)} parameter{'s' * (len(names) > 1)} ({', '.join(names)})"
            message = f"{self.name} takes {wanted if names else 'no parameters'}"
            raise BadParameters(f"{message}, not {len(parameters)}")


def in_form(
    form: AnswerForm,
    name: str,
    parameters: tuple[str, ...],
    results: Sequence[str],
    text: str,
    run: Callable[[Caller, Parameters], object],
) -> Method:
    """A method as one answer form offers it.

    Args:
        parameters: their names.
        results: the types that the answer may have in that form.
        text: the help, without the line that shows the parameters.
    """
    types = itertools.product(results, *(_TYPES.get(each, ("string",)) for each in parameters))
    shown = f"{name}({', '.join(parameters)})\n\n{text}"
    return Method(name, shown, tuple(types), run, frozenset((form,)), parameters)


def in_both_forms(
    name: str,
    parameters: tuple[str, ...],
    results: Sequence[str],
    text: str,
    run: Callable[[Caller, Parameters], object],
) -> Iterator[Method]:
    """A method as each answer form offers it: in the engine form the answer is an envelope.

    Args:
        results, text: in the design form.
        run: answers in the form that the caller uses.
    """
    yield in_form(AnswerForm.DESIGN, name, parameters, results, text, run)
    yield in_form(AnswerForm.ENGINE, name, parameters, ("struct",), text + _ENVELOPE, run)
