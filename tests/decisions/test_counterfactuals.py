"""What a selection would be without a unit: as records say it, and as real calls come to it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.history import conversion, explanation, ranking
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.model.jobs import Decision, DriverCall, Request, ShadowCall
from ovirt_scheduler.model.requests import AnswerForm, Caller, Document, Entities, RequestedUnit
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings import scheduler_conf

FILTER = """
import json

def do_filter(hosts, vm, properties):
    return [host for host in hosts if host.name in json.loads(properties["{0}"])]
"""
FUNCTION = """
import json

def do_score(hosts, vm, properties):
    costs = json.loads(properties["{0}"])
    return {{host.id: costs[host.name] for host in hosts if host.name in costs}}
"""
# Of equal hosts the first; the last one given is too good for any VM.
SCHEDULERS = """
from ovirt_scheduler.plugin import HostSelector


class Steady(HostSelector):
    topic = None

    def candidates(self, hosts, vm, properties):
        fit = [host for host in hosts if host.name != "h5"]
        return sorted(fit, key=lambda host: self.costs.get(host.id, 0))


class ByName(HostSelector):
    topic = None

    def candidates(self, hosts, vm, properties):
        return sorted(hosts, key=lambda host: host.name)
"""
NAMES = [f"h{number}" for number in range(6)]
FUNCTIONS = ("A", "B", "C")
ROUNDS = 100  # of each test
GIB = 2**30


class Case(NamedTuple):
    """A call, as it is asked for."""

    scheduler: str
    hosts: str
    properties: dict[str, str]
    factors: dict[str, int]
    policy: str


@pytest.fixture(scope="module")
def service(tmp_path_factory: Any) -> Iterator[DecisionService]:
    """With the plugins of this module, and the scheduler of the package."""
    folder: Path = tmp_path_factory.mktemp("counterfactuals")
    (folder / "Only.py").write_text(FILTER.format("Only"))
    (folder / "Chooses.py").write_text(SCHEDULERS)
    for name in FUNCTIONS:
        (folder / f"{name}.py").write_text(FUNCTION.format(name))
    conf = folder / "scheduler.conf"
    conf.write_text(f"plugins_path = {folder}\n")
    with runtime.started(scheduler_conf.load(conf, {})) as running:
        running.registry.refresh()
        yield DecisionService(running.registry, running.executor, 60.0)


def case(seed: int, scheduler: str) -> Case:
    """Some hosts are removed by the filter, some too small, some left out by a function."""
    chance = random.Random(seed)
    wide = chance.choice([2, 2, 50])  # with few costs there are ties
    hosts = "".join(
        f"<host id='{name}'><name>{name}</name><status>up</status><memory>{memory * GIB}</memory>"
        f"<max_scheduling_memory>{memory * GIB // 2}</max_scheduling_memory></host>"
        for name in chance.sample(NAMES, len(NAMES))
        for memory in [chance.choice([2, 8, 16, 32])]
    )
    costs = {
        function: {name: chance.randint(-wide, wide) for name in NAMES if chance.random() < 0.8}
        for function in FUNCTIONS
    }
    properties = {name: json.dumps(of_hosts) for name, of_hosts in costs.items()}
    properties["Only"] = json.dumps([name for name in NAMES if chance.random() < 0.8])
    functions = FUNCTIONS[: chance.randint(1, 3)]
    factors = {name: chance.choice([-1, 0, 1, 1, 2, 10**9]) for name in functions}
    policy = chance.choice(["none", "evenly_distribute", "power_saving"])
    return Case(scheduler, f"<hosts>{hosts}</hosts>", properties, factors, policy)


def asked(service: DecisionService, of: Case, functions: Any) -> Decision:
    """A real call of a scheduler with these cost functions."""
    wanted = tuple(RequestedUnit(name, of.factors[name]) for name in functions)
    units = {Kind.FILTER: (RequestedUnit("Only"),), Kind.COST_FUNCTION: wanted}
    vm = Document(f"<vm id='v'><memory>{2 * GIB}</memory></vm>".encode())
    properties = dict(of.properties)
    if of.scheduler == "default":
        properties["policy"] = of.policy
    driver = service.scheduler(of.scheduler, "select_host")
    caller = Caller("0" * 16, AnswerForm.DESIGN, "a test")
    entities = Entities(Document(of.hosts.encode()), vm=vm)
    last = DriverCall(driver, "select_host")
    return service.decide(Request(caller, entities, properties, units, last))


def recorded(decision: Decision, shadows: Sequence[ShadowCall] = ()) -> Record:
    return conversion.make_record(conversion.without_documents(decision), shadows)


def expect_ranks_of_the_answer(record: Record) -> None:
    ranks = {host["id"]: host["rank"] for host in record["hosts"] if "rank" in host}
    assert ranks == {host: place for place, host in enumerate(record["answer"], 1)}


def expect_true(record: Record, totals: Any, real: Any) -> None:
    """Check what is said of totals against the answer of a real call."""
    for host, place in ranking.places_by(record, totals).items():
        assert real[place - 1] == host
    host, is_another = ranking.winner(record, totals)
    if host is None:
        assert not is_another or real[0] != record["answer"][0]
    else:
        assert (real[0], real[0] != record["answer"][0]) == (host, is_another)


def play(service: DecisionService, seed: int, scheduler: str) -> int:
    """Check one case; the number of units of which it is known what is without them."""
    of = case(seed, scheduler)
    record = recorded(asked(service, of, of.factors))
    expect_ranks_of_the_answer(record)
    known = 0
    for name, totals in ranking.without_each(record).items():
        real = asked(service, of, [each for each in of.factors if each != name]).answer
        assert set(real) == set(record["answer"])
        expect_true(record, totals, real)
        if ranking.winner(record, totals).is_another:
            assert name in record["decisive"]
        known += ranking.winner(record, totals).host is not None
    for line in explanation.lines(record):
        for name in re.findall(r"without \w+ (\w+) would be best", line.text):
            assert name in record["answer"]
    return known


def play_shadow(service: DecisionService, seed: int, scheduler: str) -> int:
    """Check what is said of a function in shadow against a call in which it counts."""
    of = case(seed, scheduler)
    *live, last = of.factors
    alone = asked(service, of, [last])
    (call,) = (each for each in alone.calls if each.unit.kind is Kind.COST_FUNCTION)
    shadow = call._replace(unit=replace(call.unit, shadow=True), functions=len(of.factors))
    decision = asked(service, of, live)
    shadows = [ShadowCall(shadow, result) for result in alone.execution.cost_functions]
    record = recorded(decision, shadows)
    expect_ranks_of_the_answer(record)
    real = asked(service, of, of.factors).answer
    for totals in ranking.with_shadows(record).values():
        expect_true(record, totals, real)
    return len(ranking.with_shadows(record))


@pytest.mark.parametrize("scheduler", ["default", "Steady"])
def test_what_is_said_of_a_selection_is_what_real_calls_come_to(service, scheduler):
    """Without each cost function, by an own order of equal hosts and by one that is given."""
    assert sum(play(service, seed, scheduler) for seed in range(ROUNDS)) > ROUNDS / 2


@pytest.mark.long
@pytest.mark.parametrize("scheduler", ["default", "Steady"])
def test_what_is_said_of_many_selections_is_what_real_calls_come_to(service, scheduler):
    seeds = range(1000, 2000)
    assert sum(play(service, seed, scheduler) for seed in seeds) > len(seeds) / 2
    assert sum(play_shadow(service, seed, scheduler) for seed in seeds) > len(seeds) / 2


@pytest.mark.parametrize("scheduler", ["default", "Steady"])
def test_what_is_said_of_a_shadow_is_what_a_call_with_it_comes_to(service, scheduler):
    assert sum(play_shadow(service, seed, scheduler) for seed in range(ROUNDS)) > ROUNDS / 2


def test_of_a_scheduler_that_does_not_go_by_cost_nothing_is_said(service):
    """What it would choose without a unit follows from no record."""
    hosts = "".join(f"<host id='{name}'><name>{name}</name></host>" for name in NAMES)
    properties = {"A": '{"h0": 3, "h1": 2}', "B": '{"h0": 1, "h1": 0}', "Only": '["h0", "h1"]'}
    of = Case("ByName", f"<hosts>{hosts}</hosts>", properties, {"A": 2, "B": 1}, "")
    record = recorded(asked(service, of, of.factors))
    assert record["answer"] == ["h0", "h1"]
    assert record["decisive"] == []
    told = " ".join(line.text for line in explanation.lines(record))
    assert "h0: 1st of 2, cost 7 = A 2 × 3 + B 1 × 1" in told
    assert "would be" not in told
