"""What was decided is reported when the answer is out, whatever becomes of the answer."""

from __future__ import annotations

import queue
import xmlrpc.client
from dataclasses import replace
from typing import Callable

import pytest

from ovirt_scheduler.errors import DriverFailed
from ovirt_scheduler.model.jobs import Decision, Execution, Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities, RequestedUnit
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.server.dispatch import Method, Reply
from tests.support.served import CALL, SETTINGS, Running, ask, post
from tests.support.served import Reply as Answer
from tests.support.waiting import LONG

Start = Callable[..., Running]
_LARGE = "x" * (32 << 20)  # more than the sockets between the two take


def decision_of(caller: Caller) -> Decision:
    request = Request(caller, Entities(("h",)), {}, {Kind.FILTER: (RequestedUnit("u"),)})
    return Decision(request, Execution(("h",)), ("h",))


def deciding(
    start: Start, make_answer: Callable[[], object]
) -> tuple[Running, queue.Queue[Decision]]:
    """A server whose method ``decide`` decides and answers this; and what it reports."""
    reported: queue.Queue[Decision] = queue.Queue()
    running = start(replace(SETTINGS, answer_timeout=2, decided=reported.put))

    def run(caller: Caller, _parameters: tuple[object, ...]) -> Reply:
        return Reply(make_answer, decision_of(caller))

    running.server.register_function(Method("decide", (), ("string",), "", run))
    return running, reported


DECIDE = post(xmlrpc.client.dumps((), "decide").encode())


def test_a_decision_is_reported_behind_its_answer_and_nothing_else_is(start: Start) -> None:
    """The caller has the answer while the one who listens still stands."""
    running, reported = deciding(start, lambda: "chosen")
    seen: list[Decision] = []

    def wait(decision: Decision) -> None:
        running.gate.go_on.wait(LONG)
        seen.append(decision)
        reported.put(decision)

    running.server.settings = replace(running.server.settings, decided=wait)
    answer = ask(running, DECIDE)
    assert answer.value == "chosen"
    assert seen == []
    running.gate.go_on.set()
    caller = reported.get(timeout=LONG).request.caller
    assert caller.request_id == answer.headers["x-request-id"]
    assert ask(running, post(CALL)).value == AnswerForm.DESIGN.value
    assert reported.empty()


def test_a_decision_whose_answer_nobody_takes_is_reported(start: Start) -> None:
    running, reported = deciding(start, lambda: _LARGE)
    connection = running.sent(DECIDE)
    assert reported.get(timeout=LONG).answer == ("h",)
    connection.close()


def test_a_decision_before_a_fault_is_reported(start: Start) -> None:
    def fail() -> object:
        raise DriverFailed("it has no answer")

    running, reported = deciding(start, fail)
    with pytest.raises(xmlrpc.client.Fault, match="it has no answer"):
        Answer(running.sent(DECIDE)).value  # noqa: B018
    assert reported.get(timeout=LONG).answer == ("h",)
