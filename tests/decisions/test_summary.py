"""What the log's line on a request says of its hosts."""

from __future__ import annotations

import pytest

from ovirt_scheduler.decisions import summary
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.model.jobs import Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities, RequestedUnit
from ovirt_scheduler.model.units import Kind
from tests.support.place import Place

FILTER = "def do_filter(hosts, vm, properties):\n    {}\n"
CALLER = Caller("0" * 16, AnswerForm.DESIGN, "127.0.0.1:50000")


@pytest.mark.parametrize(
    ("names", "remaining", "removals"),
    [
        ("First", "3 hosts: 2 left, 1 removed by First", "1 host removed by First"),
        (
            "First Fails First2",
            "3 hosts: 1 left, 1 removed by First, 1 by First2",
            "1 host removed by First, 1 by First2",
        ),
        (
            "First Guard",
            "3 hosts: 0 left, 1 removed by First, 2 by Guard",
            "1 host removed by First, 2 by Guard",
        ),
        ("Fails", "3 hosts: 3 left", ""),
        ("Guard", "3 hosts: 0 left, 3 removed by Guard", "3 hosts removed by Guard"),
    ],
)
def test_hosts_are_removed_by_filters_that_answer_and_by_those_that_reject(
    place: Place, names: str, remaining: str, removals: str
) -> None:
    for name in ("First", "First2"):
        place.write(name, FILTER.format("return hosts[1:]"))
    for name in ("Fails", "Guard"):
        place.write(name, FILTER.format("raise OSError"))
    (place.confs / "Guard.conf").write_text("on_failure = reject\n")
    place.registry.refresh()
    wanted = tuple(map(RequestedUnit, names.split()))
    request = Request(CALLER, Entities(("a", "b", "c")), {}, {Kind.FILTER: wanted})
    service = DecisionService(place.registry, place.executor, 60.0)
    decision = service.decide(request)
    assert summary.text(decision) == remaining
    assert summary.why_not(decision) == removals
