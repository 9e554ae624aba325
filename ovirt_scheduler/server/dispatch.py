"""Answers the body of a call: decodes it, runs its method, and encodes the result or a fault.

Everything that goes wrong is a fault in the answer (contract 1.5); nothing is raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from ovirt_scheduler.errors import (
    ExecutorUnavailable,
    InternalError,
    RequestError,
    UnknownMethod,
)
from ovirt_scheduler.log.fields import Name
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.server import values
from ovirt_scheduler.server.codec import decode_call, encode_answer, encode_fault
from ovirt_scheduler.server.method import Method, Parameters, Reply

logger = logging.getLogger(__name__)


class Dispatcher:
    """Answers calls of the methods, and of the three ``system.`` methods that list them.

    Args:
        methods: each with a name of its own in each of its answer forms.
    """

    def __init__(self, methods: Sequence[Method]):
        offered = (*methods, *self._introspection())
        self._methods: dict[AnswerForm, dict[str, Method]] = {
            form: {method.name: method for method in offered if form in method.forms}
            for form in AnswerForm
        }

    def answer(self, caller: Caller, body: bytes) -> bytes:
        """Run one call, and log it in one line.

        Args:
            caller: goes to the method.
            body: a ``methodCall`` document.

        Returns:
            A ``methodResponse`` document, with the method's result or a fault.
        """
        started = time.monotonic()
        name, request = "-", {"request": caller.request_id}
        fields: dict[str, object] = {"outcome": "ok"}
        try:
            name, parameters = decode_call(body)
            method = self._method(caller, name)
            method.check_count(parameters)
            answer = method.run(caller, parameters)
            reply = answer if isinstance(answer, Reply) else Reply(answer)
            document = encode_answer(reply.answer)
            fields.update(reply.log_fields)
        except RequestError as error:
            document, fields = _refused(error)
        except MemoryError:
            logger.error(  # noqa: TRY400  no line of ours is wrong
                "request %(request)s cannot be served: the daemon has no memory for it now", request
            )
            document, fields = _failed(caller, "the daemon has no memory for it now")
        except ExecutorUnavailable as error:
            logger.error(  # noqa: TRY400  the reason is known, and no line of ours is wrong
                "request %(request)s: no process for plugin calls: %(reason)s",
                {**request, "reason": str(error)},
            )
            document, fields = _failed(caller, str(error))
        except Exception:
            logger.exception("request %(request)s failed, this is a bug", request)
            document, fields = _failed(caller, "internal error; the daemon's log has more")
        _log_request(
            {
                **request,
                "method": Name(name),
                "form": caller.form.value,
                "peer": caller.peer,
                **fields,
                "milliseconds": round((time.monotonic() - started) * 1000, 1),
            }
        )
        return document

    def _method(self, caller: Caller, name: str) -> Method:
        methods = self._methods[caller.form]
        method = methods.get(name)
        if method is None:
            offered = ", ".join(sorted(methods))
            raise UnknownMethod(f"there is no method {name!r:.60}; there are {offered}")
        return method

    def _introspection(self) -> tuple[Method, ...]:
        return (
            Method("system.listMethods", (), ("array",), "The names of all methods, sorted.",
                   lambda caller, _: sorted(self._methods[caller.form])),
            Method("system.methodHelp", ("name",), ("string",),
                   "What the method of that name does, in words.",
                   lambda caller, parameters: self._named(caller, parameters).help),
            Method("system.methodSignature", ("name",), ("array",),
                   "Arrays of types, one for each way to call the method of that name: the "
                   "result's type first, then each parameter's.",
                   lambda caller, parameters: self._named(caller, parameters).signatures),
        )  # fmt: skip

    def _named(self, caller: Caller, parameters: Parameters) -> Method:
        return self._method(caller, values.string("name", parameters[0]))


def _refused(refusal: RequestError) -> tuple[bytes, dict[str, object]]:
    """The document of the fault, and the log's fields on it."""
    document = encode_fault(refusal.fault_code, str(refusal))
    return document, {"outcome": f"fault {refusal.fault_code}"}


def _failed(caller: Caller, reason: str) -> tuple[bytes, dict[str, object]]:
    """The same for an error of the daemon."""
    return _refused(InternalError(f"{reason} (request {caller.request_id})"))


def _log_request(fields: Mapping[str, object]) -> None:
    """Log a request in one line."""
    if fields.get("problems"):
        logger.info(
            "request %(request)s %(method)s, %(form)s form, %(peer)s: %(outcome)s; "
            "units %(units)s; %(decided)s; problems with %(problems)s; %(milliseconds).1f ms",
            fields,
        )
    elif "units" in fields:
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
