"""The methods of the XML-RPC interface: their type, and the way from a call's body to its answer.

A body is decoded, its method run, and the result or a fault encoded. Everything that goes wrong is
a fault in the answer (contract 1.5); nothing is raised.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Callable, NamedTuple, Optional
from xmlrpc.server import SimpleXMLRPCDispatcher

from ovirt_scheduler.decisions import summary
from ovirt_scheduler.errors import (
    BadParameters,
    ExecutorUnavailable,
    InternalError,
    RequestError,
    UnknownMethod,
)
from ovirt_scheduler.log.fields import Name
from ovirt_scheduler.model.jobs import Decision, RefusedCall, Reported
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.model.values.text import count_of
from ovirt_scheduler.server import parameter_values
from ovirt_scheduler.server.codec import decode_call, encode_answer, encode_fault

logger = logging.getLogger(__name__)

_ENVELOPE = "\nThe answer is a struct: result_code, result, plugin_errors, errors."

Parameters = tuple[object, ...]
Run = Callable[[Caller, Parameters], object]
Fault = tuple[int, str]


class Parameter(NamedTuple):
    """A parameter, as the daemon describes it to callers."""

    help: str
    types: tuple[str, ...] = ("string",)  # that it may have, in XML-RPC's words


_PARAMETERS = {  # by name: the same in every method
    "arguments": Parameter("by the names in the signature that getTopics tells", ("struct",)),
    "balance": Parameter("its name"),
    "cost_functions": Parameter("[name, factor] of each; or factors by name", ("array", "struct")),
    "filters": Parameter("their names; they run in this order", ("array",)),
    "host": Parameter("the id of one of the hosts, or an XML document"),
    "hosts": Parameter("an XML document, or ids", ("string", "array")),
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
    "vms": Parameter("an XML document of <vms>, or ids", ("string", "array")),
}


class Reply(NamedTuple):
    """What a method has, if it is more than an answer.

    Attributes:
        make_answer: returns what XML-RPC can carry, or raises what is a fault in the answer.
        decision: what was decided for it.
        document: the answer, where it is encoded already.
        fault: that the answer stands for, where the design form has a fault.
    """

    make_answer: Callable[[], object] = lambda: None
    decision: Optional[Decision] = None
    document: bytes = b""
    fault: Optional[Fault] = None


def in_form(
    caller: Caller,
    result: object,
    unit_errors: Mapping[str, Sequence[str]] = MappingProxyType({}),
    errors: Sequence[str] = (),
) -> object:
    """A result as the caller's form has it: bare, or in an envelope with errors (contract 3.2)."""
    if caller.form is AnswerForm.DESIGN:
        return result
    # The engine reads the errors only where the code is not 0.
    envelope: dict[str, object] = {
        "result_code": int(bool(unit_errors or errors)),
        "result": result,
    }
    if unit_errors:
        envelope["plugin_errors"] = {name: list(messages) for name, messages in unit_errors.items()}
    if errors:
        envelope["errors"] = list(errors)
    return envelope


class Method(NamedTuple):
    """A method that the server offers.

    Attributes:
        parameters: their names.
        results: the types that the answer may have, in XML-RPC's words.
        text: what it does.
        run: returns the answer, or a ``Reply``.
        forms: the answer forms that have it like this.
        decides: whether each call is reported, also one that is refused (contract 8.1).
    """

    name: str
    parameters: tuple[str, ...]
    results: Sequence[str]
    text: str
    run: Run
    forms: Sequence[AnswerForm] = tuple(AnswerForm)
    decides: bool = False

    def help(self) -> str:
        """What ``system.methodHelp`` answers: how it is called, and what it does."""
        described = [(each, _PARAMETERS[each]) for each in self.parameters]
        lines = [f"\n{name} ({' or '.join(of.types)}): {of.help}" for name, of in described]
        return f"{self.name}({', '.join(self.parameters)})\n\n{self.text}{''.join(lines)}"

    def signatures(self) -> list[tuple[str, ...]]:
        """What ``system.methodSignature`` answers: types of a result and of each parameter."""
        types = [_PARAMETERS[each].types for each in self.parameters]
        return list(itertools.product(self.results, *types))

    def __call__(self, caller: Caller, parameters: Parameters) -> object:
        """Run it.

        Returns:
            The answer, or a ``Reply``.

        Raises:
            BadParameters: there are more or fewer parameters than it takes.
        """
        count = len(self.parameters)
        if len(parameters) != count:
            expected = f"{count_of(count, 'parameter')} ({', '.join(self.parameters)})"
            takes = f"{self.name} takes {expected if count else 'no parameters'}"
            raise BadParameters(f"{takes}, not {len(parameters)}")
        return self.run(caller, parameters)


def in_both_forms(of_design: Method) -> Iterator[Method]:
    """A method as each answer form offers it: in the engine form the answer is an envelope.

    Args:
        of_design: as the design form has it; it answers in the form that the caller uses.
    """
    yield of_design._replace(forms=(AnswerForm.DESIGN,))
    text = of_design.text + _ENVELOPE
    yield of_design._replace(results=("struct",), text=text, forms=(AnswerForm.ENGINE,))


class FormDispatcher(SimpleXMLRPCDispatcher):
    """The methods of one answer form: what ``register_function`` put into ``funcs``, and no more.

    Only this registry is the standard library's. Its marshalling refuses what Apache's client
    sends, its faults tell the types and texts of exceptions, its introspection knows no types, and
    attributes of a registered instance can be called by their names.
    """

    funcs: dict[str, Method]  # type: ignore[assignment]


class Dispatcher:
    """Answers calls of the methods, and of the three ``system.`` methods that list them.

    Args:
        methods: each with a name of its own in each of its answer forms.

    Attributes:
        forms: what each answer form offers.
    """

    def __init__(self, methods: Sequence[Method]):
        self.forms = {form: FormDispatcher() for form in AnswerForm}
        for method in (*methods, *self._introspection()):
            self.register_function(method)

    def register_function(self, method: Method) -> None:
        """Offer a method in the answer forms that it has."""
        for form in method.forms:
            self.forms[form].register_function(method, method.name)  # type: ignore[arg-type]

    def answer(self, caller: Caller, body: bytes) -> tuple[bytes, Optional[Reported]]:
        """Run one call, and log it in one line.

        Args:
            caller: goes to the method.
            body: a ``methodCall`` document.

        Returns:
            A ``methodResponse`` document, with the method's result or a fault; and what is to be
            reported when the answer is out: what was decided, if anything was, also before a fault;
            or that the call was refused.
        """
        started = time.monotonic()
        name, request = "-", {"request": caller.request_id}
        fields: dict[str, object] = {"outcome": "ok"}
        method: Optional[Method] = None
        parameters: Parameters = ()
        decision: Optional[Decision] = None
        fault = refusal = None
        document = b""
        try:
            name, parameters = decode_call(body)
            method = self._method(caller, name)
            answer = method(caller, parameters)
            if isinstance(answer, Reply):
                _, decision, document, refusal = answer
                answer = answer.make_answer()
            document = document or encode_answer(answer)
            if decision is not None:
                fields.update(summary.fields(decision))
        except RequestError as error:
            fault = error.fault_code, str(error)
        except MemoryError:
            fault = _not_served(caller, "the daemon has no memory for it now")
        except ExecutorUnavailable as error:
            fault = _not_served(caller, f"no process for plugin calls: {error}")
        except Exception:
            logger.exception("request %(request)s failed, this is a bug", request)
            fault = _failed(caller, "internal error; the daemon's log has more")
        seconds = time.monotonic() - started
        if fault is not None:
            document, fields = encode_fault(*fault), {"outcome": f"fault {fault[0]}"}
        _log_request(
            {
                **request,
                "method": Name(name),
                "form": caller.form.value,
                "peer": caller.peer,
                **fields,
                "milliseconds": round(seconds * 1000, 1),
            }
        )
        refusal = fault or refusal
        if decision is not None or refusal is None or method is None or not method.decides:
            return document, decision
        arguments = dict(zip(method.parameters, parameters))
        return document, RefusedCall(caller, name, arguments, *refusal, seconds)

    def _method(self, caller: Caller, name: str) -> Method:
        methods = self.forms[caller.form].funcs
        method = methods.get(name)
        if method is None:
            offered = ", ".join(sorted(methods))
            raise UnknownMethod(f"there is no method {name!r:.60}; there are {offered}")
        return method

    def _introspection(self) -> tuple[Method, ...]:
        return (
            Method("system.listMethods", (), ("array",), "The names of all methods, sorted.",
                   lambda caller, _: sorted(self.forms[caller.form].funcs)),
            Method("system.methodHelp", ("name",), ("string",),
                   "What the method of that name does, in words.",
                   lambda caller, parameters: self._named(caller, parameters).help()),
            Method("system.methodSignature", ("name",), ("array",),
                   "Arrays of types, one for each way to call the method of that name: the "
                   "result's type first, then each parameter's.",
                   lambda caller, parameters: self._named(caller, parameters).signatures()),
        )  # fmt: skip

    def _named(self, caller: Caller, parameters: Parameters) -> Method:
        return self._method(caller, parameter_values.string("name", parameters[0]))


def _failed(caller: Caller, reason: str) -> Fault:
    """The fault of an error of the daemon."""
    return InternalError.fault_code, f"{reason} (request {caller.request_id})"


def _not_served(caller: Caller, lacking: str) -> Fault:
    """The fault of a request for which the daemon lacks memory or a process; logs which."""
    logger.error(
        "request %(request)s cannot be served: %(reason)s",
        {"request": caller.request_id, "reason": lacking},
    )
    return _failed(caller, lacking)


def _log_request(fields: Mapping[str, object]) -> None:
    """Log a request in one line."""
    if "units" in fields:
        logger.info(
            "request %(request)s %(method)s, %(form)s form, %(peer)s: %(outcome)s; "
            "units %(units)s; %(decided)s; %(milliseconds).1f ms",
            fields,
        )
    else:
        logger.info(
            "request %(request)s %(method)s, %(form)s form, %(peer)s: %(outcome)s; "
            "%(milliseconds).1f ms",
            fields,
        )
