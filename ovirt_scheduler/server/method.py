"""The type of a method of the XML-RPC interface, and of its reply."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Callable, NamedTuple, Optional

from ovirt_scheduler.decisions import log
from ovirt_scheduler.errors import BadParameters
from ovirt_scheduler.history import record
from ovirt_scheduler.model.decisions import Decision
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.model.results import CallResult

_ENVELOPE = "\nThe answer is a struct: result_code, result, plugin_errors, errors."

Parameters = tuple[object, ...]
Run = Callable[[Caller, Parameters], object]


class Parameter(NamedTuple):
    """A parameter, as the daemon describes it to callers."""

    help: str
    types: tuple[str, ...] = ("string",)  # that it may have, in XML-RPC's words


_DOCUMENT_OR_IDS = ("string", "array")
_PARAMETERS = {  # by name: the same in every method
    "arguments": Parameter("by the names in the signature that getTopics tells", ("struct",)),
    "balance": Parameter("its name"),
    "cost_functions": Parameter("[name, factor] of each; or factors by name", ("array", "struct")),
    "filters": Parameter("their names; they run in this order", ("array",)),
    "host": Parameter("the id of one of the hosts, or an XML document"),
    "hosts": Parameter("an XML document, or ids", _DOCUMENT_OR_IDS),
    "id": Parameter("16 hexadecimal digits, as in the header X-Request-Id of an answer"),
    "method": Parameter("its name"),
    "name": Parameter("of a method"),
    "new_status": Parameter("in the engine's words, such as maintenance"),
    "old_status": Parameter("in the engine's words, such as up"),
    "properties": Parameter("texts by name, for all that is called", ("struct",)),
    "query": Parameter("what has to fit, all of it optional", ("struct",)),
    "scheduler": Parameter("its name"),
    "topic": Parameter("its name"),
    "vm": Parameter("an XML document, or an id"),
    "vms": Parameter("an XML document of <vms>, or ids", _DOCUMENT_OR_IDS),
}


class Reply(NamedTuple):
    """A method's answer, and how each plugin call of it ended.

    ``log_fields`` are added to the log's line on the request. ``record`` makes the record of what
    was decided (contract 8.1), or None if there is none.
    """

    answer: Any  # what XML-RPC can carry
    log_fields: Mapping[str, object] = MappingProxyType({})
    results: tuple[CallResult, ...] = ()
    record: Callable[[], Optional[Mapping[str, Any]]] = lambda: None


def answered(
    caller: Caller,
    result: object,
    unit_errors: Mapping[str, Sequence[str]] = MappingProxyType({}),
    errors: Sequence[str] = (),
) -> object:
    """A result as the caller's form has it: bare, or in an envelope with errors (contract 3.2)."""
    if caller.form is AnswerForm.DESIGN:
        return result
    made: dict[str, object] = {"result_code": 0, "result": result}
    if unit_errors:
        made["plugin_errors"] = {name: list(messages) for name, messages in unit_errors.items()}
    if errors:
        made["errors"] = list(errors)
    # The engine reads the errors only where the code is not 0.
    made["result_code"] = int(len(made) > 2)
    return made


def decided(result: object, decision: Decision, with_reasons: bool = False) -> Reply:
    """The reply with what was decided.

    Args:
        with_reasons: the engine form says which filters removed the hosts, if none is left
            (contract 8.5).
    """
    caller, execution = decision.request.caller, decision.execution
    none_left = with_reasons and execution.hosts and not decision.answer
    reasons = (log.summary(decision),) if none_left else ()
    answer = answered(caller, result, decision.unit_errors, (*decision.errors, *reasons))
    return Reply(answer, log.fields(decision), execution.results, partial(record.of, decision))


class Method(NamedTuple):
    """A method that the server offers.

    Attributes:
        parameters: their names.
        results: the types that the answer may have, in XML-RPC's words.
        text: what it does.
        run: returns the answer, or a ``Reply``.
        optional: how many of the last parameters may be missing.
        forms: the answer forms that have it like this.
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
        told = [(each, _PARAMETERS[each]) for each in self.parameters]
        lines = [f"\n{name} ({' or '.join(of.types)}): {of.help}" for name, of in told]
        return f"{self.name}({', '.join(self.parameters)})\n\n{self.text}{''.join(lines)}"

    @property
    def signatures(self) -> list[tuple[str, ...]]:
        """What ``system.methodSignature`` answers: types of a result and of each parameter."""
        types = [_PARAMETERS[each].types for each in self.parameters]
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
