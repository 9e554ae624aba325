"""The manual's page for three in the morning: each fault is made, and its cause is looked up."""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import Callable, NamedTuple

import pytest

from tests.support.command import run
from tests.support.daemon import Daemon
from tests.support.driven import OFTEN
from tests.support.paths import PROJECT
from tests.support.rest_server import GIB, Host, Reply, RestServer, Vm
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

_ROOM = 8192  # bytes of a file: for the log, and not for the history
PLUGINS = {
    "Well": "def do_filter(hosts, vm, properties):\n    return hosts\n",
    "Night": "def do_filter(hosts, vm, properties):\n    raise RuntimeError('it is dark')\n",
    "Hangs": "import time\ndef do_filter(hosts, vm, properties):\n    time.sleep(600)\n",
    "Names": "def do_filter(hosts, vm, properties):\n    return [host.name for host in hosts]\n",
    "Strict": "def do_filter(hosts, vm, properties):\n    return []\n",
    "Scores": "def do_score(hosts, vm, properties):\n    return {'nobody': 1, hosts[0].id: 2}\n",
}
CLUSTER = f"""
[clusters]
[[Default]]
policy = evenly_distribute
properties = low_utilization=0
hold = 0
margin = 0
load_balance_interval = {OFTEN}
"""


class Night(NamedTuple):
    daemon: Daemon
    engine: RestServer

    def filter_by(self, name: str) -> None:
        self.daemon.engine.runFilters([name], self.engine.ids(), self.engine.vms[0].id, {})


class Fault(NamedTuple):
    """A fault that is made, and what the manual says of it.

    Attributes:
        words: in the first line of the status.
        drive: of the cluster; empty: none is looked after.
    """

    make: Callable[[Night], object]
    words: str
    drive: str = ""


def write(name: str, text: str) -> Callable[[Night], object]:
    return lambda night: (night.daemon.plugins / name).write_text(text)


def fail_to_reload(night: Night) -> None:
    night.daemon.state.with_name("scheduler.conf").write_text("log_levle = debug\n")
    night.daemon.process.send_signal(signal.SIGHUP)


def score(night: Night) -> None:
    ids = night.engine.ids()
    night.daemon.engine.runCostFunctions([("Scores", 1)], ids, night.engine.vms[0].id, {})


def refuse(night: Night) -> None:
    night.engine.surprising = lambda vm, _: f"{vm.name} is being backed up."


def fill_disk(night: Night) -> None:
    _, hard = resource.prlimit(night.daemon.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(night.daemon.pid, resource.RLIMIT_FSIZE, (_ROOM, hard))
    night.filter_by("Well")


FAULTS = {
    "a unit raises": Fault(lambda night: night.filter_by("Night"), "1 failing: Night"),
    "a unit hangs": Fault(lambda night: night.filter_by("Hangs"), "1 failing: Hangs"),
    "a filter answers with names": Fault(lambda night: night.filter_by("Names"), "1 failing: Names"),
    "a host is made up": Fault(score, "answers of 1 unit are put right: Scores"),
    "no host is left": Fault(
        lambda night: night.filter_by("Strict"), "no host was left for 1 VM: vm0"
    ),
    "a unit is gone": Fault(
        lambda night: night.filter_by("Gone"), "1 unit is named and not there: Gone (1 time)"
    ),
    "a new file is broken": Fault(
        write("Bad.py", "def do_filter(:\n"), "1 file does not load: Bad"
    ),
    "an edit is broken": Fault(
        write("Well.py", "def do_filter(:\n"), "1 of an older version: Well"
    ),
    "a setting is misspelt": Fault(fail_to_reload, "the last reload failed"),
    "the disk is full": Fault(fill_disk, "the history is not written"),
    "the engine is away": Fault(
        lambda night: setattr(night.engine, "broken", Reply(503, "text/html", "<html>")),
        "the engine cannot be asked", "dry-run",
    ),
    "the engine refuses a VM": Fault(
        refuse, "VMs cannot be migrated: vm0", "on"
    ),
    "the engine denies a right": Fault(
        lambda night: night.engine.denying.add("migrate"),
        "the user of [engine] may not migrate VMs of Default", "on",
    ),
    "a plan waits": Fault(
        lambda _: None, "1 plan waits for approval", "approve"
    ),
}  # fmt: skip


@pytest.fixture
def engine(tmp_path: Path):
    """lynx is above the high mark, so that a balancing moves VMs off it."""
    with RestServer(tmp_path, tls=False) as engine:
        engine.hosts = [Host(name, measured=True) for name in ("lynx", "puma", "lion")]
        engine.vms = [Vm(f"vm{number}", "lynx", memory=4 * GIB - number) for number in range(14)]
        yield engine


@pytest.mark.parametrize("name", FAULTS)
def test_the_first_line_of_the_status_names_the_cause(name, engine, start_daemon):
    """In words that the page explains."""
    fault = FAULTS[name]
    if name in ("the engine refuses a VM", "the engine denies a right"):
        fault.make(Night(None, engine))  # before a first look migrates all there is
    settings = f"ssl = false\nplugin_timeout = 1\n{engine.conf()}\n"
    if fault.drive:
        settings = f"drive = {fault.drive}\n{settings}{CLUSTER}"
    daemon = start_daemon(PLUGINS, settings)
    fault.make(Night(daemon, engine))

    def first_line() -> str:
        return str(run(daemon.state.parent, "status")[1].partition("\n")[0])

    wait_until(first_line, suits=lambda line: fault.words in line)
    ended, out, _ = run(daemon.state.parent, "status")
    assert ended == 1
    assert "all well" not in out


@pytest.mark.parametrize("name", FAULTS)
def test_the_page_explains_the_words_of_the_first_line(name):
    text = (PROJECT / "docs" / "operations.md").read_text("utf-8")
    page = text.partition("### At three in the morning\n")[2].partition("\n### ")[0]
    assert f"`{FAULTS[name].words}`" in page
