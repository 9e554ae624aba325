"""One call from body to body: results, faults, what the log says."""

from __future__ import annotations

import gc
import logging
import weakref
import xmlrpc.client
from typing import Any

import pytest

from ovirt_scheduler import errors
from ovirt_scheduler.model.jobs import Decision, Execution, Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities, RequestedUnit
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.server.dispatch import Dispatcher, Method, Reply

CALLER = Caller("0a1b2c3d", AnswerForm.ENGINE, "127.0.0.1:50000")
HOSTS = ("host-1", "host-2")
DECISION = Decision(
    Request(CALLER, Entities(HOSTS), {}, {Kind.FILTER: (RequestedUnit("Quiet"),)}),
    Execution(HOSTS, remaining=HOSTS),
    HOSTS,
)


def method(name: str, run: Any, *parameters: str) -> Method:
    return Method(name, parameters, ("array",), f"What {name} does.", run)


def raising(error: BaseException) -> Dispatcher:
    def run(_caller: Caller, _parameters: tuple[object, ...]) -> object:
        raise error

    return Dispatcher([method("fails", run)])


def call(dispatcher: Dispatcher, name: str, *parameters: Any) -> Any:
    body = xmlrpc.client.dumps(parameters, name, allow_none=True).encode()
    document, _ = dispatcher.answer(CALLER, body)
    ((answer,), _) = xmlrpc.client.loads(document)
    return answer


def fault(dispatcher: Dispatcher, name: str, *parameters: Any) -> tuple[int, str]:
    with pytest.raises(xmlrpc.client.Fault) as caught:
        call(dispatcher, name, *parameters)
    return caught.value.faultCode, caught.value.faultString


@pytest.fixture
def echo() -> Dispatcher:
    def run(caller: Caller, parameters: tuple[object, ...]) -> object:
        return [caller.request_id, caller.form.value, list(parameters)]

    return Dispatcher([method("echo", run, "name", "topic")])


def test_a_method_gets_the_caller_and_the_parameters(echo: Dispatcher) -> None:
    """The parameters come as a tuple."""
    assert call(echo, "echo", 1, "b") == ["0a1b2c3d", "engine", [1, "b"]]


@pytest.mark.parametrize(
    "kind",
    [
        errors.NotXmlRpc, errors.UnknownMethod, errors.BadParameters, errors.InternalError,
        errors.UnknownUnit, errors.UnreadableDocument, errors.RefusedProperty, errors.Overloaded,
    ],
)  # fmt: skip
def test_a_request_error_is_a_fault(kind: type[errors.RequestError]) -> None:
    """Its code and its text are the fault's."""
    assert fault(raising(kind("what to do")), "fails") == (kind.fault_code, "what to do")


@pytest.mark.parametrize(
    "error", [ValueError("inside"), RecursionError(), errors.ConfigError("inside"), OSError()]
)
def test_any_other_exception_is_hidden(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The fault has the request's id, the log the traceback; nothing of the inside gets out."""
    code, text = fault(raising(error), "fails")
    assert code == -32603
    assert "0a1b2c3d" in text
    assert "inside" not in text
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "0a1b2c3d" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_a_lack_of_memory_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    """It is no mistake of ours that somebody would have to look for: no traceback, and once."""
    code, text = fault(raising(MemoryError()), "fails")
    assert (code, text) == (-32603, "the daemon has no memory for it now (request 0a1b2c3d)")
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "the daemon has no memory for it now" in record.getMessage()
    assert record.exc_info is None


@pytest.mark.parametrize("value", [None, 2**31, [{1: 2}]])
def test_an_answer_without_a_form_is_an_internal_error(value: object) -> None:
    """What cannot be encoded is our own mistake."""
    code, text = fault(Dispatcher([method("odd", lambda *_: value)]), "odd")
    assert code == -32603
    assert "0a1b2c3d" in text


def test_a_fault_leaves_nothing_for_the_collector() -> None:
    """What the error's traceback passed through is let go with the answer, sockets among it."""
    passed: list[weakref.ref[BaseException]] = []

    def run(_caller: Caller, _parameters: tuple[object, ...]) -> object:
        error = type("Refusal", (errors.BadParameters,), {})("no")
        passed.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    gc.disable()
    try:
        assert fault(Dispatcher([method("fails", run)]), "fails")[0] == -32602
        assert passed[0]() is None
    finally:
        gc.enable()


def test_an_unknown_method_is_a_fault(echo: Dispatcher) -> None:
    """The text lists the methods there are."""
    code, text = fault(echo, "run" * 100)
    assert code == -32601
    assert "echo, system.listMethods" in text
    assert len(text) < 300


def test_multicall_is_off(echo: Dispatcher) -> None:
    """system.multicall is a method like any other that does not exist."""
    assert fault(echo, "system.multicall", [])[0] == -32601


def test_a_body_that_is_no_call_is_a_fault(echo: Dispatcher) -> None:
    """The place of the mistake is in the text."""
    document, reported = echo.answer(CALLER, b"hello")
    assert reported is None
    with pytest.raises(xmlrpc.client.Fault, match="line 1, column 1"):
        xmlrpc.client.loads(document)


def test_the_methods_are_listed(echo: Dispatcher) -> None:
    """All of them, the ones that tell about methods too."""
    listed = ["echo", "system.listMethods", "system.methodHelp", "system.methodSignature"]
    assert call(echo, "system.listMethods") == listed


def test_every_method_has_help_and_signatures(echo: Dispatcher) -> None:
    """Both are of what the method was given with, and true of the three themselves."""
    told = (
        "echo(name, topic)\n\nWhat echo does.\nname (string): of a method\ntopic (string): its name"
    )
    assert call(echo, "system.methodHelp", "echo") == told
    assert call(echo, "system.methodSignature", "echo") == [["array", "string", "string"]]
    python_types = {"array": list, "string": str}
    for name in call(echo, "system.listMethods")[1:]:
        assert call(echo, "system.methodHelp", name)
        ((result, *parameters),) = call(echo, "system.methodSignature", name)
        answer = call(echo, name, *["echo" for _ in parameters])
        assert isinstance(answer, python_types[result])


@pytest.mark.parametrize("asked", ["system.methodHelp", "system.methodSignature"])
def test_telling_about_methods_takes_one_name(echo: Dispatcher, asked: str) -> None:
    """Other parameters are a fault, as is a name that no method bears."""
    for parameters in ((), (1,), ("echo", "echo")):
        assert fault(echo, asked, *parameters)[0] == -32602
    assert fault(echo, asked, "nothing")[0] == -32601
    assert fault(echo, "system.listMethods", "x")[0] == -32602


def test_each_call_is_logged_in_one_line(
    echo: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    """Id, method, form, peer, outcome and time are told; the parameters are not."""
    caplog.set_level(logging.INFO)
    call(echo, "echo", "secret", "secret")
    fault(echo, "two\nlines", "secret")
    ok, failed = (record.getMessage() for record in caplog.records)
    assert ok.startswith("request 0a1b2c3d echo, engine form, 127.0.0.1:50000: ok; ")
    assert ok.endswith(" ms")
    assert "fault -32601" in failed
    assert "\n" not in failed
    assert "secret" not in caplog.text


def test_a_reply_is_answered_and_its_fields_logged(caplog: pytest.LogCaptureFixture) -> None:
    """In the one line that the request has anyway."""
    caplog.set_level(logging.INFO)
    reply = Reply(lambda: ["host-1"], DECISION)
    assert call(Dispatcher([method("run", lambda *_: reply)]), "run") == ["host-1"]
    (record,) = caplog.records
    assert ": ok; units Quiet; 2 hosts: 2 left; " in record.getMessage()


@pytest.mark.parametrize("error", [errors.DriverFailed("no"), ZeroDivisionError(), MemoryError()])
def test_what_was_decided_before_a_fault_is_known(error: Exception) -> None:
    """It is as true as an answer would be, and is recorded like that."""

    def raise_it() -> object:
        raise error

    dispatcher = Dispatcher([method("run", lambda *_: Reply(raise_it, DECISION))])
    body = xmlrpc.client.dumps((), "run").encode()
    document, reported = dispatcher.answer(CALLER, body)
    assert reported is DECISION
    with pytest.raises(xmlrpc.client.Fault):
        xmlrpc.client.loads(document)


def test_what_is_registered_with_a_form_is_served_there_and_nowhere_else() -> None:
    """The registry is the standard library's; what it has not is not served."""
    dispatcher = Dispatcher([])
    added = method("added", lambda *_: ["here"])
    dispatcher.forms[AnswerForm.ENGINE].register_function(added, "added")
    assert call(dispatcher, "added") == ["here"]
    assert "added" in call(dispatcher, "system.listMethods")
    del dispatcher.forms[AnswerForm.ENGINE].funcs["added"]
    assert fault(dispatcher, "added")[0] == -32601
    dispatcher.forms[AnswerForm.DESIGN].register_function(added, "added")
    assert fault(dispatcher, "added")[0] == -32601


def test_attributes_of_an_instance_cannot_be_called() -> None:
    """Neither by name nor by dotted names."""
    dispatcher = Dispatcher([])
    dispatcher.forms[AnswerForm.ENGINE].register_instance(logging, allow_dotted_names=True)
    for name in ("getLogger", "root.setLevel"):
        assert fault(dispatcher, name, 1)[0] == -32601
