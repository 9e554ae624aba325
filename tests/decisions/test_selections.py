"""The last selection of each scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.model.jobs import DriverCall, Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities, RequestedUnit
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings import scheduler_conf

SCHEDULER = """
from ovirt_scheduler.plugin import Scheduler

class Last(Scheduler):
    name = topic = "{0}"

    def candidates(self, hosts, vm, properties):
        return hosts

    def get_selected_hosts(self):
        return self.selected
"""

BY_COST = """
from ovirt_scheduler.plugin import HostSelector

class ByCost(HostSelector):
    def candidates(self, hosts, vm, properties):
        return sorted(hosts, key=lambda host: self.costs[host.id])
"""
SOME = "def do_score(hosts, vm, properties):\n    return [(hosts[0], 1), (hosts[1], -1)]\n"
NONE = "def do_score(hosts, vm, properties):\n    return []\n"


@pytest.fixture
def service(executor: Executor, tmp_path: Path) -> DecisionService:
    """With the plugins of this module."""
    texts = {"ByCost": BY_COST, "Some": SOME, "None_": NONE}
    texts.update((name, SCHEDULER.format(name)) for name in ("one", "other"))
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    conf = tmp_path / "scheduler.conf"
    conf.write_text(f"plugins_path = {tmp_path}\n")
    registry = Registry(Loader(scheduler_conf.load(conf, {}), executor.analyse), LastGood(None))
    registry.refresh()
    return DecisionService(registry, executor, 60.0)


@pytest.mark.parametrize(("function", "order"), [("Some", "bca"), ("None_", "abc")])
def test_a_scheduler_is_told_that_hosts_without_a_cost_cost_nothing(
    service: DecisionService, function: str, order: str
):
    """Whether a function leaves out some hosts or all."""
    last = DriverCall(service.scheduler("ByCost", "candidates"), "candidates")
    wanted = {Kind.COST_FUNCTION: (RequestedUnit(function),)}
    caller = Caller("0" * 16, AnswerForm.DESIGN, "a test")
    decision = service.decide(Request(caller, Entities(("a", "b", "c"), vm="v"), {}, wanted, last))
    assert decision.answer == tuple(order)


def test_the_last_selection_counts(service: DecisionService):
    """The best thousand hosts of it; one of no host counts, too."""

    def ask(scheduler: str, method: str, hosts: tuple[str, ...] = ()) -> tuple[str, ...]:
        caller = Caller("0" * 16, AnswerForm.DESIGN, "a test")
        last = DriverCall(service.scheduler(scheduler, method), method)
        decision = service.decide(Request(caller, Entities(hosts, vm="vm-1"), driver_call=last))
        assert decision.failure is None
        return decision.answer

    many = tuple(map(str, range(1500)))
    for scheduler in ("one", "other"):
        assert ask(scheduler, "get_selected_hosts") == ()
        assert ask(scheduler, "candidates", many) == many
        assert ask(scheduler, "get_selected_hosts") == many[:1000]
    assert ask("one", "candidates") == ask("one", "get_selected_hosts") == ()
    assert ask("other", "get_selected_hosts") == many[:1000]
