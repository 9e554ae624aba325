"""How long a plugin's process is kept, and what becomes of what its calls print."""

from __future__ import annotations

import contextlib
import resource
import select
from dataclasses import replace

import pytest

from ovirt_scheduler.errors import RefusedProperty
from ovirt_scheduler.model.plugins import EngineAccess
from ovirt_scheduler.model.results import CallOutcome
from ovirt_scheduler.model.values import properties
from ovirt_scheduler.processes import pool
from tests.support.jobs import HOSTS, job_of, only
from tests.support.processes import processes_with
from tests.support.settled_calls import ordinary, seen
from tests.support.waiting import LONG


def test_what_is_printed_after_the_answer_is_not_in_the_next_one(calls_of):
    """By objects that are freed when a call is forgotten: it is its own, or nobody's."""
    calls = calls_of(
        "import gc, os\n"
        "class Loud:\n"
        "    def __del__(self):\n"
        "        print(self.number)\n"
        "        os.write(1, self.number.encode())\n"
        "def do_filter(hosts, vm, properties):\n"
        "    global KEPT\n"
        "    gc.collect()\n"
        "    KEPT = Loud()\n"
        "    KEPT.number, KEPT.itself = properties['number'], KEPT\n"
        "    print('in time')\n"
        "    return hosts\n"
    )
    for number in "123":
        printed = calls.call(number=number).stdout
        assert "in time\n" in printed
        assert {*printed} <= {*"in time\n", number}
    assert calls.replaced == {}


def test_nor_is_it_where_a_call_follows_before_anybody_has_looked(own, unit_of):
    """The process is ready, and its pipes hold what nobody has read."""
    unit = unit_of(
        "import os, time\n"
        "class Loud:\n"
        "    def __del__(self):\n"
        "        time.sleep(0.05)  # so the answer is read by then\n"
        "        os.write(1, b'late')\n"
        "        os.write(2, b'late')\n"
        "def do_filter(hosts, vm, properties):\n"
        "    global KEPT\n"
        "    KEPT = Loud()\n"
        "    print(os.getpid())\n"
        "    return hosts\n"
    )
    own._pool.maintenance.stop()
    results = []
    for _ in range(3):
        results.append(only(own.run(job_of([unit]))))
        (worker,) = (idle[0] for key, idle in own._pool._idle.items() if key != pool.READERS)
        assert select.select([worker.channel], [], [], LONG)[0]  # it says that it is ready
    assert {result.outcome for result in results} == {CallOutcome.OK}
    (printed,) = {result.stdout for result in results}  # in one process
    assert printed.strip().isdecimal()
    assert {result.stderr for result in results} == {""}


def test_class_units_that_print_find_a_stdout_of_their_own(calls_of):
    """Each answer is read from what that call printed, by itself or by a program."""
    calls = calls_of(
        "import subprocess, sys\n"
        "class Changes:\n"
        "    def do_filter(self, hosts_ids, vm_id, args_map):\n"
        "        kept = hosts_ids[int(args_map['first']):]\n"
        "        if args_map['how'] == 'program':\n"
        "            subprocess.run(['echo', str(kept)], check=True)\n"
        "        else:\n"
        "            sys.stdout.write(str(kept))\n"
    )
    for first in range(3):
        for how in ("print", "program"):
            assert calls.call(first=str(first), how=how).value == HOSTS[first:]
    assert {*calls.replaced} <= {"surplus"}  # where one that settles was not waited for


def test_a_library_may_keep_the_stdout_that_it_found_when_it_was_imported(
    calls_of, tmp_path_factory
):
    """What it prints belongs to the call, and is the answer of a class unit."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "says.py").write_text("import sys\nOUT = sys.stdout\n")
    calls = calls_of(
        "import sys\n"
        f"sys.path.append({str(folder)!r})\n"
        "import says\n"
        "class Changes:\n"
        "    def do_filter(self, hosts_ids, vm_id, args_map):\n"
        "        says.OUT.write(str(hosts_ids[int(args_map['first']):]))\n"
    )
    for first in range(3):
        result = calls.call(first=str(first))
        assert (result.value, result.stdout) == (HOSTS[first:], str([*HOSTS[first:]]))
    assert calls.replaced == {}


def test_what_c_code_prints_belongs_to_its_call(calls_of):
    """The C library holds it back by itself."""
    calls = calls_of(
        "import ctypes\n"
        "class Changes:\n"
        "    def do_filter(self, hosts_ids, vm_id, args_map):\n"
        "        if args_map['prints']:\n"
        "            ctypes.CDLL(None).printf(str(hosts_ids[1:]).encode())\n"
    )
    assert calls.call(prints="1").value == HOSTS[1:]
    silent = calls.call(prints="")
    assert (silent.outcome, silent.stdout) == (CallOutcome.BAD_ANSWER, "")


def test_a_class_unit_may_print_by_a_program_and_leave_its_process_different(calls_of):
    """Its output is read in another process then, and it is called once."""
    calls = calls_of(
        "import os, subprocess\n"
        "class Changes:\n"
        "    def do_filter(self, hosts_ids, vm_id, args_map):\n"
        "        os.open('/', os.O_RDONLY)\n"
        "        with open(args_map['trace'], 'a') as trace:\n"
        "            trace.write('x')\n"
        "        subprocess.run(['echo', str(hosts_ids[:2])], check=True)\n"
    )
    trace = calls.folder / "trace"
    for number in range(1, 4):
        result = calls.call(trace=str(trace))
        assert (result.outcome, result.value) == (CallOutcome.OK, HOSTS[:2]), result
        assert trace.read_text() == "x" * number
    assert calls.replaced["leftovers"] == 3


def test_children_of_a_class_unit_are_ended_before_its_answer_is_read(calls_of, marker):
    """They hold its stdout open, and could still write there."""
    calls = calls_of(
        "import subprocess\n"
        "class Changes:\n"
        "    def do_filter(self, hosts_ids, vm_id, args_map):\n"
        "        subprocess.Popen(['sleep', args_map['marker']])\n"
        "        print(hosts_ids)\n"
    )
    for _ in range(2):
        assert calls.call(marker=marker).value == HOSTS
        assert processes_with(marker) == []


def test_a_child_that_comes_back_from_the_plugins_code_answers_nothing(calls_of):
    """It is ended, with a word on stderr; the answer is the parent's, and the next call's too."""
    calls = calls_of(
        "import os\n"
        "def do_filter(hosts, vm, properties):\n"
        "    child = os.fork()\n"
        "    if not child and properties['how'] == 'raises':\n"
        "        raise ValueError\n"
        "    if child:\n"
        "        os.waitpid(child, 0)\n"
        "    print(os.getpid() == os.getsid(0))\n"
        "    return hosts if child else []\n"
    )
    for how in ("returns", "raises"):
        result = calls.call(how=how)
        assert (result.value, result.stdout) == (HOSTS, "True\n")
        assert result.stderr.startswith("a child that the plugin forked came back")
    assert calls.replaced == {}


@pytest.mark.parametrize(
    ("change", "ends", "message"),
    [
        ("kept = b'x' * (1 << 40)", "limit", "MemoryError: the call reached its memory_limit"),
        ("raise SystemExit(3)", "exit", "called sys.exit(3)"),
        ("time.sleep(60)", "failed", "was killed after"),
        ("os.kill(os.getpid(), 9)", "failed", "died by SIGKILL"),
        ("os._exit(0)", "failed", "ended its process without an answer"),
    ],
)  # fmt: skip
def test_after_such_a_failure_the_process_ends(calls_of, change, ends, message):
    """The caller is told of the failure; the next call has a new process."""
    calls = calls_of(
        "import os, time\n"
        "def do_filter(hosts, vm, properties):\n"
        f"    if properties.get('now'): {change}\n"
        "    print(os.getpid())\n"
        "    return hosts\n",
        timeout=2.0,
    )
    pid = calls.call().stdout
    failed = calls.call(now="1")
    assert failed.outcome is not CallOutcome.OK
    assert failed.message.startswith(message)
    assert calls.replaced == {ends: 1}
    assert calls.call().stdout != pid


def test_an_exception_of_the_plugin_costs_no_process(calls_of):
    """Nor does ``sys.exit(0)``, which counts as returning nothing."""
    calls = calls_of(
        "def do_filter(hosts, vm, properties):\n"
        "    {'raise': int, 'exit': __import__('sys').exit}[properties['how']](\n"
        "        'x' if properties['how'] == 'raise' else 0)\n"
    )
    for how, outcome in (("raise", CallOutcome.RAISED), ("exit", CallOutcome.BAD_ANSWER)):
        assert calls.call(how=how).outcome is outcome
    assert calls.replaced == {}


def test_a_class_may_print_its_answer_and_exit_while_it_is_made(calls_of):
    """As in the old proxy, where it was a program of its own."""
    calls = calls_of(
        "import sys\n"
        "class Changes:\n"
        "    def __init__(self):\n"
        "        print(['host-2'])\n"
        "        sys.exit(0)\n"
        "    def do_filter(self, hosts_ids, vm_id, args_map):\n"
        "        raise AssertionError\n"
    )
    assert calls.call().outcome is CallOutcome.OK
    assert calls.replaced == {}


@pytest.mark.parametrize(
    "ours", ["errors.RefusedProperty", "errors.SlowProperty", "processes.worker.answers.BadAnswer"]
)
def test_an_exception_of_ours_is_the_plugins_where_the_plugin_raises_it(calls_of, ours):
    """It says nothing of the values of properties, nor of what was returned."""
    module, _, name = ours.rpartition(".")
    calls = calls_of(
        f"from ovirt_scheduler.{module} import {name}\n"
        "def do_filter(hosts, vm, properties):\n"
        f"    raise {name}('mine')\n"
    )
    failed = calls.call()
    assert (failed.outcome, failed.message) == (CallOutcome.RAISED, f"{name}: mine (Changes.py:3)")


@pytest.mark.parametrize(
    "raised", ["Meta('E', (Exception,), {})()", "SystemExit(Loud())", "Odd()"], ids="CEA"
)
def test_an_exception_that_cannot_be_shown_is_a_failure_all_the_same(calls_of, raised):
    """Its class, its ``repr`` and its attributes are the plugin's, and may raise in turn."""
    calls = calls_of(
        "class Meta(type):\n"
        "    __name__ = property(lambda found: 1 / 0)\n"
        "class Loud:\n"
        "    def __repr__(self): raise ValueError\n"
        "class Odd(Exception):\n"
        "    def __getattribute__(self, name): raise KeyError(name)\n"
        "def do_filter(hosts, vm, properties):\n"
        f"    raise {raised}\n"
    )
    result = calls.call()
    assert result.outcome is CallOutcome.RAISED
    assert result.message == "an exception that cannot be shown"
    assert {*calls.replaced} <= {"exit"}


@pytest.mark.long
def test_a_process_that_has_used_up_its_processor_time_is_replaced(calls_of):
    """``cpu_limit`` holds for a call; a process that had so much in all ends after its answer."""
    calls = calls_of(
        "import os, time\n"
        "def do_filter(hosts, vm, properties):\n"
        "    end = time.process_time() + 0.4\n"
        "    while time.process_time() < end: pass\n"
        "    print(os.getpid())\n"
        "    return hosts\n",
        cpu=1,
    )
    found = [seen(calls.call()) for _ in range(4)]
    assert len({pid for (pid,) in found}) > 1
    assert {*calls.replaced} == {"limit"}


@pytest.mark.long
def test_checks_of_values_take_no_processor_time_of_a_call(calls_of, executor):
    """After each, a call may have all of ``cpu_limit``; after so much in all, the process ends."""
    calls = calls_of(ordinary(""), cpu=2)
    unit = replace(calls.unit, properties=properties.parse("Changes", "a=(x|x)+", ""))
    pid, softs = int(calls.call().stdout), set()
    while not calls.replaced:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            softs.add(resource.prlimit(pid, resource.RLIMIT_CPU)[0])
        with pytest.raises(RefusedProperty):
            executor.run(job_of([unit], properties={"a": "x" * 21 + "y"}))
        calls.settle()
    assert softs == {3, 4}  # two seconds after the first second, and after the second one
    assert calls.replaced == {"limit": 1}


def test_memory_that_calls_leave_in_use_is_bounded(calls_of):
    """A cache inside a library may grow by some megabytes, and no further."""
    calls = calls_of(
        ordinary("json._trace.append(b'x' * (3 << 20))",
                 "import json\njson._trace = vars(json).get('_trace', [])")
    )  # fmt: skip
    found = [calls.call().stdout for _ in range(6)]
    assert found[0] == found[1]
    assert len({*found}) > 1
    assert {*calls.replaced} == {"limit"}


def test_a_process_that_has_grown_is_replaced_when_it_is_idle(calls_of, executor, monkeypatch):
    """One that has not grown stays: its next caller finds it ready."""
    monkeypatch.setattr(executor._pool, "times", executor._pool.times._replace(grown=0.0))
    calls = calls_of(
        ordinary("json._trace.append(b'x' * int(properties['size']))",
                 "import json\njson._trace = vars(json).get('_trace', [])")
    )  # fmt: skip
    pids = [calls.call(size=str(size)).stdout for size in (1, 1, 3 << 20, 1, 1)]
    assert pids[0] == pids[1] == pids[2] != pids[3] == pids[4]
    assert calls.replaced == {"surplus": 1}


def test_processes_are_replaced_after_so_many_calls(calls_of):
    """``calls_per_process``, less up to a tenth: not all at once."""
    calls = calls_of(ordinary(""), calls_per_process=10)
    found = [calls.call().stdout for _ in range(30)]
    assert all(9 <= found.count(pid) <= 10 for pid in {*found[:27]})
    assert calls.replaced["served"] >= 2


def test_a_process_for_one_call_is_ended_at_once(calls_of):
    """Nobody is handed one that has had its call."""
    calls = calls_of(ordinary(""), calls_per_process=1)
    for _ in range(4):
        calls.call(settles=False)
    assert calls.replaced == {"served": 4}


def test_calls_per_process_is_set_for_all_plugins_and_for_one(start_daemon):
    """With 1, each call has a process of its own; what a plugin's own conf file says counts."""
    body = "return {host: os.getpid() for host in hosts}"
    text = f"import os\ndef do_score(hosts, vm, properties):\n    {body}\n"
    settings, confs = "ssl = false\ncalls_per_process = 1", {"Kept": "calls_per_process = 1000\n"}
    with start_daemon({"Fresh": text, "Kept": text}, settings, confs=confs).proxy() as proxy:

        def pids(name):
            calls = [proxy.runCostFunctions([[name, 1]], ["host"], "vm", {}) for _ in range(5)]
            return {call["host"] for call in calls}

        assert len(pids("Fresh")) == 5
        assert len(pids("Kept")) < 5


def test_the_login_goes_with_its_call_and_an_open_connection_costs_no_process(
    own, unit_of, tmp_path
):
    """What runs later, such as a finalizer, has none; and each call has one again."""
    late = tmp_path / "late"
    unit = unit_of(
        "import os\n"
        "from ovirt_scheduler.plugin import EngineUnavailable, engine_connection\n"
        "class Late:\n"
        "    def __del__(self):\n"
        "        try:\n"
        "            engine_connection()\n"
        "            told = 'a login'\n"
        "        except EngineUnavailable:\n"
        "            told = 'none'\n"
        f"        print(told, file=open({str(late)!r}, 'a'))\n"
        "def do_filter(hosts, vm, properties):\n"
        "    global KEPT\n"
        "    KEPT = Late()\n"
        "    engine_connection()\n"
        "    print(os.getpid())\n"
        "    return hosts\n"
    )
    engine = EngineAccess("http://127.0.0.1:9/api", None, "token")
    pids = set()
    for _ in range(3):
        pids.add(only(own.run(job_of([unit], engine=engine))).stdout)
        own.wait_until_idle(LONG)
    assert len(pids) == 1
    assert late.read_text().splitlines() == ["none"] * 3
    assert own.state().replaced == {}
