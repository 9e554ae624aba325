"""The last selection of each scheduler."""

from __future__ import annotations

from pathlib import Path

from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.model.decisions import DriverCall, Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Subjects
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.settings import config

SCHEDULER = """
from ovirt_scheduler.plugin import Scheduler

class Last(Scheduler):
    name = topic = "{0}"

    def candidates(self, hosts, vm, properties):
        return hosts

    def get_selected_hosts(self):
        return self.selected
"""


def test_the_last_selection_counts(executor: Executor, tmp_path: Path):
    """The best thousand hosts of it; one of no host counts, too."""
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text(SCHEDULER.format(name))
    conf = tmp_path / "scheduler.conf"
    conf.write_text(f"plugins_path = {tmp_path}\n")
    registry = Registry(Loader(config.load(conf, {}), executor.analyse), LastGood(None))
    registry.refresh()
    service = DecisionService(registry, executor, 60.0)

    def ask(scheduler: str, method: str, hosts: tuple[str, ...] = ()) -> tuple[str, ...]:
        caller = Caller("0" * 16, AnswerForm.DESIGN, "a test")
        last = DriverCall(service.scheduler(scheduler, method), method)
        decision = service.decide(Request(caller, Subjects(hosts, vm="vm-1"), last=last))
        assert decision.failure is None
        return decision.answer

    many = tuple(map(str, range(1500)))
    for scheduler in ("one", "other"):
        assert ask(scheduler, "get_selected_hosts") == ()
        assert ask(scheduler, "candidates", many) == many
        assert ask(scheduler, "get_selected_hosts") == many[:1000]
    assert ask("one", "candidates") == ask("one", "get_selected_hosts") == ()
    assert ask("other", "get_selected_hosts") == many[:1000]
