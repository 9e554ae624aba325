"""Calls of plugins: what each of them may do to others, and how each ends."""

from __future__ import annotations

import ast
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ovirt_scheduler.clusters.reader_reports import HOSTS as HOSTS_REPORT
from ovirt_scheduler.clusters.reader_reports import VMS as VMS_REPORT
from ovirt_scheduler.errors import Overloaded, RefusedProperty, UnreadableDocument
from ovirt_scheduler.model.jobs import Job
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.results import CallOutcome, Migration
from ovirt_scheduler.model.tasks import EngineReplies, EngineReply, Role
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values import properties
from ovirt_scheduler.processes.exchange import Exchange, ExchangeState
from ovirt_scheduler.processes.plugin_calls import how_it_ended
from tests.support.fuzzing import peak_of
from tests.support.jobs import HOSTS, LIMITS, job_of, only, running
from tests.support.processes import processes_with
from tests.support.waiting import LONG, wait_until


def test_a_filter_gives_the_ids_of_the_entities_that_it_returned(executor, unit_named):
    """Entities go in, their ids come back."""
    result = only(executor.run(job_of([unit_named("keeps_all")])))
    assert (result.outcome, result.value) == (CallOutcome.OK, HOSTS)


@pytest.mark.parametrize(("replies", "files"), [(1, 16), (2, 16), (12, 16), (150, 256), (450, 256)])
def test_however_many_replies_of_the_engine_there_are_all_come_to_the_plugin(
    executor, unit_of, replies, files
):
    """Each is a file in memory of its own; a plugin's process may have few open, and gets fewer."""
    unit = unit_of(
        "def do_filter(hosts, vm, properties):\n"
        "    return [host for host in hosts if host.name == 'n' + host.id]\n",
        open_files=files,
    )
    ids = tuple(f"h{number}" for number in range(replies))
    told = tuple(
        EngineReply(
            Document(f"<hosts><host id='{each}'><name>n{each}</name></host></hosts>".encode()),
            (each,),
        )
        for each in ids
    )
    for _ in range(2):  # once they are read, they are not read again
        execution = executor.run(job_of([unit], hosts=ids, replies=EngineReplies(hosts=told)))
        assert only(execution).value == ids


@pytest.mark.parametrize(
    ("asked", "replied", "found"),
    [
        (("h1", "H1"), ("h1", "H1"), {"h1": "n-h1", "H1": "n-H1"}),  # as a recording has them
        (("ab", "AB"), ("ab",), {"ab": "n-ab", "AB": "n-ab"}),
        (("aB", "AB"), ("ab", "AB"), {"aB": "n-ab", "AB": "n-AB"}),
        (("AB",), ("ab", "cd"), {"AB": "n-ab"}),
    ],
)
def test_ids_that_differ_in_capitals_are_two_hosts_unless_the_engine_tells_of_one(
    executor, unit_of, asked, replied, found
):
    """The engine writes its ids in small letters, whatever it was asked for."""
    unit = unit_of("def do_filter(hosts, vm, properties): print([(h.id, h.name) for h in hosts])\n")
    members = "".join(f"<host id='{each}'><name>n-{each}</name></host>" for each in replied)
    reply = EngineReply(Document(f"<hosts>{members}</hosts>".encode()), asked)
    execution = executor.run(job_of([unit], hosts=asked, replies=EngineReplies(hosts=(reply,))))
    assert dict(ast.literal_eval(only(execution).stdout)) == found


def test_a_plugin_may_import_from_a_folder_of_its_own_choice(executor, unit_named, tmp_path):
    """From libraries that lie elsewhere, in calls that were forked ahead and in others."""
    folder, library = tmp_path / "plugins", tmp_path / "library"
    folder.mkdir()
    library.mkdir()
    (library / "chosen.py").write_text("kept = 1\n")
    (folder / "chooses.py").write_text(
        "import sys\n"
        "def do_filter(hosts, vm, properties):\n"
        f"    sys.path.append({str(library)!r})\n"
        "    import chosen\n"
        "    return hosts[:chosen.kept]\n"
    )
    unit = unit_named("chooses", folder=folder)
    for _ in range(5):
        result = only(executor.run(job_of([unit])))
        assert result.value == HOSTS[:1], result


def test_each_filter_sees_what_the_one_before_it_left(executor, unit_named):
    """Filters narrow one after another (contract 4.1)."""
    units = [unit_named("keeps_first"), unit_named("keeps_first"), unit_named("keeps_all")]
    values = [result.value for result in executor.run(job_of(units)).results]
    assert values == [HOSTS[:2], HOSTS[:1], HOSTS[:1]]


def test_when_no_host_is_left_the_other_filters_do_not_run(executor, unit_named):
    """An empty list ends the chain (contract 4.1)."""
    execution = executor.run(job_of([unit_named("keeps_none"), unit_named("keeps_all")]))
    assert [result.unit for result in execution.results] == ["keeps_none"]


def test_cost_functions_run_side_by_side_and_answer_in_order(executor, unit_named):
    """Results stand in the order asked for, whoever is first (contract 4.4)."""
    units = [unit_named("keeps_all", Kind.COST_FUNCTION), unit_named("raises", Kind.COST_FUNCTION)]
    good, bad = executor.run(job_of(units)).results
    assert good.value == {"host-1": 0, "host-2": 1, "host-3": 2}
    assert (bad.outcome, bad.unit) == (CallOutcome.RAISED, "raises")


def test_a_balance_gives_a_migration(executor, unit_named):
    """The VM and the hosts it may go to (contract 2.4)."""
    unit = unit_named("keeps_all", Kind.BALANCE)
    result = only(executor.run(job_of([unit], vm=None, properties={"vm": "vm-7"})))
    assert result.value == Migration("vm-7", HOSTS)


@pytest.mark.parametrize(
    ("name", "outcome", "message"),
    [
        ("raises", CallOutcome.RAISED, "ValueError: no such <hosts> (raises.py:6)"),
        ("exits_zero", CallOutcome.BAD_ANSWER, "do_filter returned nothing; expected the hosts to keep"),
        ("exits_at_once", CallOutcome.KILLED, "ended its process without an answer (exit status 0)"),
        ("returns_nothing", CallOutcome.BAD_ANSWER, "do_filter returned nothing; expected the hosts to keep"),
        ("returns_a_number", CallOutcome.BAD_ANSWER, "do_filter returned 7; expected the hosts to keep"),
        ("dies_by_signal", CallOutcome.KILLED, "died by SIGSEGV"),
        ("dies_by_a_real_time_signal", CallOutcome.KILLED, "died by signal 40"),
        ("opens_files", CallOutcome.RAISED, "OSError: [Errno 24] Too many open files: '/dev/null' (opens_files.py:4)"),
        ("eats_memory", CallOutcome.RAISED, "MemoryError: the call reached its memory_limit (eats_memory.py:2)"),
    ],
)  # fmt: skip
def test_a_failing_plugin_is_a_result_that_says_what_happened(
    executor, unit_named, name, outcome, message
):
    """Each way to fail has its outcome and one line for the administrator."""
    result = only(executor.run(job_of([unit_named(name)])))
    assert (result.outcome, result.message) == (outcome, message)


@pytest.fixture
def loads(unit_named, tmp_path):
    """Makes a filter with a property, and only then has its file do something when it is loaded."""

    def make(code, **limits):
        flag = tmp_path / "now"
        (tmp_path / "loads.py").write_text(
            f"import os, time\nif os.path.exists({str(flag)!r}): {code}\n"
            "def do_filter(hosts, vm, properties): ...\n"
        )
        unit = unit_named("loads", folder=tmp_path, limits=replace(LIMITS, **limits))
        flag.touch()
        return replace(unit, properties=properties.parse("loads", "most=[0-9]+", ""))

    return make


def test_a_process_that_dies_while_values_are_checked_refuses_none(executor, loads):
    """A plugin's failure is no fault (contract 1.5): it is the call that fails."""
    unit = loads("os.kill(os.getpid(), 9)")
    result = only(executor.run(job_of([unit], properties={"most": "5"})))
    assert (result.outcome, result.message) == (CallOutcome.KILLED, "died by SIGKILL")


def test_a_plugin_that_hangs_while_it_is_loaded_refuses_no_value(executor, loads, unit_named):
    """Its call has failed with that, and the plugins behind it have time left."""
    units = [loads("time.sleep(1000)", timeout=1.5), unit_named("keeps_all")]
    job = job_of(units, LONG, properties={"most": "5"})
    hung, kept = executor.run(job).results
    assert (hung.outcome, kept.outcome) == (CallOutcome.TIMED_OUT, CallOutcome.OK)
    assert hung.message.endswith("its timeout is 1.5 s")


def test_values_are_checked_when_their_unit_is_called(executor, unit_of, unit_named):
    """In the same visit to its process: of a unit that is not called nothing is checked."""
    text = "def do_filter(hosts, vm, properties): return hosts"
    picky = replace(unit_of(text), properties=properties.parse("p", "most=[0-9]+", ""))
    with pytest.raises(RefusedProperty, match="property most: 'x'"):
        executor.run(job_of([unit_named("keeps_all"), picky], properties={"most": "x"}))
    job = job_of([unit_named("keeps_none"), picky], properties={"most": "x"})
    assert only(executor.run(job)).value == ()


def test_a_traceback_shows_the_plugins_own_lines_and_nothing_of_ours(executor, unit_named):
    """The frames of the daemon's own modules are left out, the source lines are there."""
    trace = only(executor.run(job_of([unit_named("raises")]))).traceback
    assert 'raise ValueError("no\\nsuch <hosts>")' in trace
    assert "plugin_process.py" not in trace


@pytest.mark.parametrize("name", ["sleeps_forever", "stops_itself"])
def test_a_call_over_its_time_is_killed_and_told(executor, unit_named, name):
    """Asleep or stopped, it ends with its timeout."""
    unit = unit_named(name, limits=replace(LIMITS, timeout=0.3))
    result = only(executor.run(job_of([unit])))
    assert result.outcome is CallOutcome.TIMED_OUT
    assert result.message.endswith("its timeout is 0.3 s")
    # The clock is read for the deadline, and again when the task is sent.
    assert 0.25 <= result.seconds < LIMITS.timeout


def test_a_call_that_hangs_says_where(executor, unit_of):
    """The innermost place in the plugin's own file; the traceback leads there."""
    text = (
        "import time\ndef wait():\n    time.sleep(3600)\n"
        "def do_filter(hosts, vm, properties):\n    print('waits')\n    wait()\n"
    )
    unit = unit_of(text, timeout=2.0, timeout_key=" (plugin_timeout)")
    result = only(executor.run(job_of([unit])))
    assert result.outcome is CallOutcome.TIMED_OUT
    assert " s, in wait (plugin.py:3); its timeout is 2 s (plugin_timeout)" in result.message
    assert result.traceback.index("line 6 in do_filter") < result.traceback.index("line 3 in wait")
    assert "ovirt_scheduler/processes" not in result.traceback
    assert "most recent" not in result.stderr


@pytest.mark.parametrize(
    ("seconds", "more"), [(9.998, ""), (9.0, ", the request's time was over before")]
)
def test_a_timeout_that_is_shown_as_over_was_the_calls_own(seconds, more):
    """However many milliseconds its process took to be there."""
    late = Exchange(None, math.inf, 0)
    late.state, late.seconds = ExchangeState.TIMED_OUT, seconds
    _, message = how_it_ended(late, LIMITS)
    assert message == f"was killed after {seconds:.1f} s; its timeout is 10 s{more}"


def test_the_requests_deadline_counts_for_all_its_calls(executor, unit_named):
    """A second filter does not start when the first has used up the request's time."""
    units = [unit_named("sleeps_forever"), unit_named("keeps_all")]
    first, second = executor.run(job_of(units, seconds=1.0)).results
    assert "the request's time was over before" in first.message
    assert second.message == "did not start: the request's time was over"
    assert {first.outcome, second.outcome} == {CallOutcome.TIMED_OUT}


def test_processor_time_is_limited(executor, unit_named):
    """A busy loop ends by SIGXCPU, and the message names the limit."""
    unit = unit_named("eats_processor", limits=replace(LIMITS, cpu=1, timeout=LONG))
    result = only(executor.run(job_of([unit], LONG)))
    assert result.message == "used up its cpu_limit of 1 s of processor time"


@pytest.mark.parametrize(
    "printing",
    [
        "print(hosts_ids[:2])",
        "os.write(1, str(hosts_ids[:2]).encode())",
        "print('first'); sys.stdout.flush(); os.write(1, str(hosts_ids[:2]).encode())",
        "os.write(2, b'no answer'); print(hosts_ids[:2])",
        "subprocess.run(['echo', str(hosts_ids[:2])], check=True)",
    ],
)
def test_a_class_units_answer_is_read_however_it_was_printed(executor, unit_of, printing):
    """By Python, past it, and by another program (contract 5.3), with the reasons and notes on
    them.
    """
    unit = unit_of(
        "import os, subprocess, sys\n"
        "from ovirt_scheduler.plugin import reason\n"
        "class Prints:\n"
        "    def do_filter(self, hosts_ids, vm_id, args_map):\n"
        "        reason(hosts_ids[-1], 'is the last')\n"
        "        reason('stranger', 'why')\n"
        f"        {printing}\n"
    )
    unit = replace(unit, class_name="Prints")
    result = only(executor.run(job_of([unit])))
    assert (result.outcome, result.value) == (CallOutcome.OK, HOSTS[:2])
    assert result.reasons == {HOSTS[-1]: "is the last"}
    assert [remark.partition(" (")[0] for remark in result.remarks] == [
        "gave reasons for hosts that it was not given"
    ]


def test_output_is_captured_apart_from_the_answer(executor, unit_named):
    """print, write(2) and a program's output arrive, and the answer is whole."""
    result = only(executor.run(job_of([unit_named("prints")])))
    assert result.value == HOSTS
    assert set(result.stdout.splitlines()) == {"by print", "by write", "by a program"}
    assert result.stderr == "by stderr\n"


@pytest.mark.parametrize("length", [1, 1 << 15, 1 << 18])
def test_output_that_python_still_holds_at_the_end_comes_last(executor, unit_of, length):
    """It goes with the answer where it is short, and through the pipe where it is not."""
    unit = unit_of(
        "import io, os, sys\n"
        "def do_filter(hosts, vm, properties):\n"
        "    print('first', flush=True)\n"
        "    os.write(1, b'second\\n')\n"
        "    own = io.BufferedWriter(sys.stdout.buffer.raw, 1 << 20)\n"
        "    sys.stdout = io.TextIOWrapper(own, write_through=True)\n"
        f"    print('x' * {length})\n"
        "    sys.__stdout__.write('last')\n"
        "    return hosts\n"
    )
    result = only(executor.run(job_of([unit])))
    assert result.stdout == f"first\nsecond\n{'x' * length}\nlast"
    assert result.value == HOSTS


@pytest.mark.parametrize(
    ("name", "stream"), [("floods_stdout", "stdout"), ("floods_stderr", "stderr")]
)
def test_output_beyond_a_mebibyte_is_cut_and_that_is_said(executor, unit_named, name, stream):
    """10 MB of output neither block the plugin nor fill the daemon (contract 5.4)."""
    job, results = job_of([unit_named(name)]), []
    assert peak_of(lambda: results.append(only(executor.run(job)))) < 8 << 20
    (result,) = results
    assert result.value == HOSTS
    assert len(getattr(result, stream)) == 1 << 20
    assert result.remarks == ("printed more than 1 MiB; the rest was cut",)


@pytest.mark.parametrize("kind", [Kind.FILTER, Kind.COST_FUNCTION])
def test_nothing_that_a_call_started_is_left_after_its_answer(executor, unit_named, marker, kind):
    """Children, and grandchildren in sessions of their own with stdout open, are gone."""
    units = [unit_named("leaves_a_child", kind)] * 2
    results = executor.run(job_of(units, properties={"marker": marker})).results
    assert [result.outcome for result in results] == [CallOutcome.OK, CallOutcome.OK]
    assert processes_with(marker) == []


def test_a_thread_is_not_left_running_after_the_answer(executor, unit_named, unit_of, tmp_path):
    """What it would still do, it does not: nobody's answer waits for it, nor goes before its end."""
    trace = tmp_path / "trace"
    unit = unit_of(
        "import subprocess, threading, time\n"
        "def do_filter(hosts, vm, properties):\n"
        "    threading.Thread(target=later).start()\n"
        "    return hosts\n"
        "def later():\n"
        "    for _ in range(10**9):\n"
        f"        open({str(trace)!r}, 'a').close()\n"
    )
    assert only(executor.run(job_of([unit]))).value == HOSTS
    trace.unlink(missing_ok=True)
    assert only(executor.run(job_of([unit_named("keeps_all")]))).value == HOSTS
    assert not trace.exists()


def test_a_call_that_is_killed_leaves_nothing_either(executor, unit_of, marker):
    """What a call started before it was over its time ends with it."""
    unit = unit_of(
        "import subprocess, time\n"
        "def do_filter(hosts, vm, properties):\n"
        "    subprocess.Popen(['sleep', properties['marker']], start_new_session=True)\n"
        "    print('started', flush=True)\n"
        "    time.sleep(3600)\n",
        timeout=2.0,
    )
    result = only(executor.run(job_of([unit], properties={"marker": marker})))
    assert (result.outcome, result.stdout) == (CallOutcome.TIMED_OUT, "started\n")
    assert processes_with(marker) == []


def test_a_call_sees_nothing_of_the_one_before_it(executor, unit_named):
    """Globals, modules, environment, folder, signals, threads, entities: all fresh (5.4)."""
    unit = unit_named("leaves_traces")
    first, second = executor.run(job_of([unit, unit])).results
    assert first.value == second.value == HOSTS


def test_a_strangers_id_forges_no_line_of_the_log(executor, unit_named):
    """The note on it is one line, whatever the id holds."""
    unit = unit_named("returns_a_forged_line")
    (note,) = only(executor.run(job_of([unit]))).notes
    assert note == "answered with hosts that it was not given (1 dropped: h WARNING all is lost)"


def test_a_status_that_the_sdk_does_not_know_is_none(executor):
    """An engine that is newer than the SDK has words that it lacks: its page is read for all that."""
    member = "<{0} id='a'><status>brand_new</status><memory>1</memory></{0}>"
    deadline = time.monotonic() + 20
    hosts = Document(f"<hosts>{member.format('host')}</hosts>".encode())
    _, of_hosts = executor.read_page(Role.HOSTS, hosts, HOSTS_REPORT.function, deadline)
    assert of_hosts["a"][1] == ""
    vms = Document(f"<vms>{member.format('vm')}</vms>".encode())
    _, of_vms = executor.read_page(Role.VMS, vms, VMS_REPORT.function, deadline)
    assert of_vms["a"][1] == ""


def test_an_error_that_is_kept_keeps_no_descriptor(executor, unit_named):
    """A traceback holds what it passed through; the process's socket is closed nevertheless."""
    job = job_of([unit_named("keeps_all")], hosts=Document(b"<hosts><host>", "utf-8"))
    folder = Path("/proc/self/fd")
    before = len(list(folder.iterdir()))
    kept = []
    for _ in range(20):  # spare processes come and go, a few of them
        with pytest.raises(UnreadableDocument, match="line 1") as caught:
            executor.run(job)
        kept.append(caught.value)
    assert len(list(folder.iterdir())) < before + len(kept)


@pytest.fixture
def held(unit_of, tmp_path) -> Iterator[tuple[Job, Path]]:
    """A job whose call answers as soon as a file is there; it is at the end, at last."""
    end = tmp_path / "end"
    unit = unit_of(
        "import pathlib, time\n"
        "def do_filter(hosts, vm, properties):\n"
        f"    pathlib.Path({str(end.with_name('begun'))!r}).touch()\n"
        f"    while not pathlib.Path({str(end)!r}).exists(): time.sleep(0.01)\n"
        "    return hosts\n",
        timeout=LONG,
    )
    yield job_of([unit], LONG), end
    end.touch()


def test_a_plugin_that_waits_delays_no_other_request(executor, unit_named, held):
    """Requests share nothing but the zygote."""
    waiting, end = held
    good = unit_named("keeps_all")
    thread = threading.Thread(target=executor.run, args=(waiting,))
    thread.start()
    wait_until(end.with_name("begun").exists)
    results = [only(executor.run(job_of([good]))) for _ in range(5)]
    assert thread.is_alive()
    assert [result.value for result in results] == [HOSTS] * 5
    end.touch()
    thread.join()


def test_a_request_waits_for_a_place_and_no_longer_than_its_time(unit_named, held):
    """With one place taken, another request is refused when its time is over (104)."""
    with running(parallel=1, max_waiting=1) as small:
        waiting, end = held
        thread = threading.Thread(target=small.run, args=(waiting,))
        thread.start()
        wait_until(end.with_name("begun").exists)
        assert small._pool.of_plugins == 1  # as kept_processes counts them: busy ones, too
        with pytest.raises(Overloaded, match="no plugin process became free"):
            small.run(job_of([unit_named("keeps_all")], seconds=0.2))
        end.touch()
        assert only(small.run(job_of([unit_named("keeps_all")]))).value == HOSTS
        thread.join()
