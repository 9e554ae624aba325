"""Recorded decisions, made again: as they were, and with another policy."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

import pytest

from ovirt_scheduler.command import cli
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.reader import Reader
from tests.support.daemon import Daemon, StartDaemon
from tests.support.paths import PROJECT
from tests.support.waiting import wait_until

GIB = 1 << 30
ID = "00000000-0000-4000-8000-{:012}"
RULE = re.compile(r"^```python\n# Reserve\.py\n(.*?)^```$", re.MULTILINE | re.DOTALL)

FREE = """
def do_score(hosts, vm, properties):
    return {host.id: -host.max_scheduling_memory // 2**30 for host in hosts}
"""
LARGE = """
def do_score(hosts, vm, properties):
    return {host.id: host.memory // 2**30 for host in hosts}
"""
CHANCE = """
import random

def do_filter(hosts, vm, properties):
    return [host for host in hosts if random.random() < 0.5]
"""


class Asked(NamedTuple):
    """A decision of the recording, as the test knows it."""

    memory: int  # GiB, of the VM
    is_available: bool
    hosts: Dict[str, Sequence[int]]  # memory and free memory, in GiB

    def left(self, percent: int) -> List[str]:
        """The hosts that the rule of the cookbook leaves, worked out here."""
        return [
            host
            for host, (memory, free) in self.hosts.items()
            if self.is_available or 100 * (free - self.memory) >= percent * memory
        ]


def ask(daemon: Daemon, count: int, chance: random.Random) -> Dict[str, Asked]:
    """So many calls of the rule on some of ten hosts, by the names of their VMs."""
    asked: Dict[str, Asked] = {}
    with daemon.proxy() as proxy:
        for number in range(count):
            hosts = {}
            for host in chance.sample(range(10), 4):
                memory = 32 * (1 + host % 3)
                hosts[ID.format(host)] = memory, chance.randrange(memory)
            one = Asked(chance.choice([1, 4, 16]), chance.random() < 0.1, hosts)
            elements = "".join(
                f'<host id="{host}"><name>h{host[-1]}</name><memory>{memory * GIB}</memory>'
                f"<max_scheduling_memory>{free * GIB}</max_scheduling_memory></host>"
                for host, (memory, free) in hosts.items()
            )
            vm = (
                f'<vm id="{ID.format(1000 + number)}"><name>vm{number}</name>'
                f"<memory>{one.memory * GIB}</memory><high_availability><enabled>"
                f"{str(one.is_available).lower()}</enabled></high_availability></vm>"
            )
            left = proxy.runFilters(["Reserve"], f"<hosts>{elements}</hosts>", vm, {})
            assert left == one.left(25)
            asked[f"vm{number}"] = one
    reader = Reader(daemon.state / "history.sqlite")
    wait_until(lambda: len(reader.recorded(Query())), suits=lambda found: found == count)
    return asked


class Recording(NamedTuple):
    """A daemon's recording, and folders with policies."""

    state: Path
    today: Path
    other: Path  # the rule keeps 40 percent, and not 25
    asked: Dict[str, Asked]


def recorded(start: StartDaemon, folder: Path, count: int) -> Recording:
    today, other = folder / "today", folder / "other"
    found = RULE.search((PROJECT / "docs" / "cookbook.md").read_text("utf-8"))
    assert found
    for each, rule in (
        (today, found[1]),
        (other, found[1].replace('"reserve", 25', '"reserve", 40')),
    ):
        each.mkdir()
        (each / "Reserve.py").write_text(rule, "utf-8")
        (each / "Free.py").write_text(FREE, "utf-8")
        (each / "Large.py").write_text(LARGE, "utf-8")
        (each / "Chance.py").write_text(CHANCE, "utf-8")
    daemon = start(today, "ssl = false\nrecord = true", folder=folder)
    asked = ask(daemon, count, random.Random(count))
    daemon.process.terminate()
    daemon.process.wait()
    return Recording(daemon.state, today, other, asked)


@pytest.fixture(scope="module")
def recording(start_daemon: StartDaemon, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recorded(start_daemon, tmp_path_factory.mktemp("recording"), 30)


@pytest.fixture
def replay(recording: Recording, monkeypatch, capsys):
    """Runs the command on the recording; gives what it shows."""

    def run(*options: str, of: Recording = recording) -> Any:
        monkeypatch.setenv("STATE_DIRECTORY", str(of.state))
        config = of.today.parent / "scheduler.conf"
        config.write_text(f"plugins_path = {of.today}\n", "utf-8")
        assert cli.main(["replay", "--config", str(config), *options]) == 0
        shown = capsys.readouterr().out
        return json.loads(shown) if "json" in options else shown

    return run


def named(told: Any, of: Recording) -> Dict[str, Any]:
    """The decisions that a report names, by VM."""
    return {each["vm"]: each for each in told["differ"]}


def expected(of: Recording) -> Dict[str, Any]:
    """Those that the changed rule decides otherwise, and how."""
    both = {vm: (each.left(25), each.left(40)) for vm, each in of.asked.items()}
    return {vm: answers for vm, answers in both.items() if answers[0] != answers[1]}


def check_report(replay: Any, of: Recording) -> None:
    told = replay("--plugins", str(of.other), "-o", "json", of=of)
    wanted = expected(of)
    assert told["decisions"] == len(of.asked)
    assert (told["same"], told["unsteady"], told["uncertain"]) == (1.0, {}, [])
    differ = named(told, of)
    assert {vm: (each["old"], each["new"]) for vm, each in differ.items()} == wanted
    assert wanted
    for vm, (old, new) in wanted.items():
        names = [f"h{host[-1]}" for host in of.asked[vm].hosts if host in old and host not in new]
        assert differ[vm]["refused"] == names
        assert differ[vm]["no_host"] is not bool(new)
        assert differ[vm]["units"] == ["Reserve"]


def test_a_changed_rule_is_told_by_exactly_the_decisions_that_it_changes(replay, recording):
    """A rule of the cookbook, on a recording that a daemon made; worked out by hand besides."""
    check_report(replay, recording)


@pytest.mark.long
def test_a_changed_rule_on_a_thousand_decisions(
    replay, start_daemon: StartDaemon, tmp_path_factory: pytest.TempPathFactory
):
    """The same, on as many as a day may have."""
    of = recorded(start_daemon, tmp_path_factory.mktemp("thousand"), 1000)
    check_report(replay, of)


def test_what_is_replayed_unchanged_comes_out_the_same(replay, recording):
    """And it is said so; nothing differs."""
    shown = replay()
    assert "unchanged: 30 of 30 decisions come out the same (100.0 %)\n" in shown
    assert "today: 0 decisions differ" in shown
