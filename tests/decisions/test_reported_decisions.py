"""What those who listen learn of a decision, and when."""

from __future__ import annotations

from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.model.jobs import Decision, Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities, RequestedUnit
from ovirt_scheduler.model.units import Kind
from tests.support.place import Place

MOVES = """
def do_balance(hosts, properties):
    return {vm!r}, hosts
"""
UUID = "0f7a9c6e-3b0d-4f6a-9a3e-5f0d6c1b2a79"
LOOKS = "def do_filter(hosts, vm, properties):\n    return hosts\n"
SERVED = Caller("0" * 16, AnswerForm.ENGINE, "127.0.0.1:50000")


def request(kind: Kind, name: str, caller: Caller = SERVED) -> Request:
    return Request(caller, Entities(("a", "b")), {}, {kind: (RequestedUnit(name),)})


def test_a_listener_that_fails_stops_neither_the_others_nor_the_caller(place: Place, caplog):
    """The log has it."""
    place.write("Looks", LOOKS)
    (place.confs / "Looks.conf").write_text("shadow = true\n")
    place.registry.refresh()
    reported: list[Decision] = []

    def fails(_decision: Decision) -> None:
        raise ZeroDivisionError

    service = DecisionService(
        place.registry, place.executor, 60.0, decided=(fails, reported.append)
    )
    decision = service.decide(request(Kind.FILTER, "Looks"))
    assert decision.answer == ("a", "b")
    assert reported == [decision]
    assert [(call.unit.name, call.unit.shadow) for call in decision.shadows] == [("Looks", True)]
    assert "is not kept whole, this is a bug" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_whoever_answers_a_caller_reports_when_the_answer_is_out(place: Place):
    place.registry.refresh()
    reported: list[Decision] = []
    service = DecisionService(place.registry, place.executor, 60.0, decided=(reported.append,))
    decision = service.decide_unreported(request(Kind.FILTER, "Gone"))
    assert reported == []
    service.report(decision)
    assert reported == [decision]


def test_a_migration_that_no_engine_could_read_is_decided_to_be_none(place: Place):
    """All who listen learn of what the engine gets, and why; a cluster's own thread is no engine."""
    place.write("Names", MOVES.format(vm="vm-7"))
    place.write("Moves", MOVES.format(vm=UUID))
    place.registry.refresh()
    reported: list[Decision] = []
    service = DecisionService(place.registry, place.executor, 60.0, decided=(reported.append,))
    decision = service.decide(request(Kind.BALANCE, "Names"))
    assert decision.answer is None
    assert decision.unit_errors == {"Names": ("answered with 'vm-7', which is not the id of a VM",)}
    assert reported == [decision]
    assert service.decide(request(Kind.BALANCE, "Moves")).answer.vm == UUID
    cluster = Caller.of_cluster("Default")
    assert service.decide(request(Kind.BALANCE, "Names", cluster)).answer.vm == "vm-7"
