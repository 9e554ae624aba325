"""What a plugin gains that writes to the daemon's socket itself: an answer of its own, or a failure."""

from __future__ import annotations

import json

import pytest

from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.results import CallOutcome, CallResult
from ovirt_scheduler.model.units import PolicyUnit
from ovirt_scheduler.processes.executor import Executor
from tests.support.jobs import HOSTS, job_of, only, running
from tests.support.processes import processes_with
from tests.support.waiting import wait_until


def answer(outcome: str = "ok", value: object = None, message: str = "") -> str:
    return json.dumps([outcome, value, message, "", None])


def forged(executor: Executor, unit: PolicyUnit, text: str, **how: str) -> CallResult:
    return only(executor.run(job_of([unit], properties={"answer": text, **how})))


def still_works(executor, unit_named) -> bool:
    return only(executor.run(job_of([unit_named("keeps_all")]))).value == HOSTS


def test_a_forged_answer_is_an_answer_of_its_own_unit_and_no_more(executor, unit_named):
    """Its name and its output are not the plugin's to say, and its message is a line."""
    unit = unit_named("forges_an_answer")
    lines = "no\n2026-01-01 00:00:00 ERROR all is lost\0" + "x" * 10_000
    result = forged(executor, unit, answer("raised", message=lines))
    assert (result.unit, result.outcome) == ("forges_an_answer", CallOutcome.RAISED)
    assert result.message.startswith("no 2026-01-01 00:00:00 ERROR all is lost\ufffdxxx")
    assert len(result.message) == 500
    assert (result.notes, result.stdout) == ((), "")


@pytest.mark.parametrize(
    "text",
    [
        "cos\nsystem\n(S'true'\ntR.",  # a pickle
        "[" * 100_000,
        '["ok", [[10], 0, []], "", "", null]',  # a host that was not given
    ],
)
def test_an_answer_that_is_none_is_a_failure_of_its_unit(executor, unit_named, text):
    """It is read as JSON of one shape, and never as anything else."""
    result = forged(executor, unit_named("forges_an_answer"), text)
    assert result.outcome is CallOutcome.BAD_ANSWER
    assert result.message.startswith("its answer cannot be read: ")
    assert still_works(executor, unit_named)


@pytest.mark.parametrize(
    "how",
    [
        {"off": "1"},  # the answer to another call
        {"kind": "r"},  # READY before the answer
        {"kind": "t"},  # a task, in the wrong direction
        {"kind": "x"},
        {"kind": "1", "times": "2"},  # output twice
        {"kind": "d", "times": "2"},  # why it ends twice
    ],
)
def test_what_comes_out_of_turn_is_a_failure_of_its_unit(executor, unit_named, how):
    """A frame of another kind, or for another call, is believed in nothing."""
    good = answer(value=[[0], 0, []])
    result = forged(executor, unit_named("forges_an_answer"), good, **how)
    assert result.message == "its answer cannot be read: it answered out of turn"
    assert still_works(executor, unit_named)


def test_who_answers_twice_is_not_called_again(executor, unit_named):
    """The first answer counts; the process that gave two of them is ended."""
    unit = unit_named("forges_an_answer")
    good = answer(value=[[0], 0, []])
    how = {"goes on": "yes"}
    for _ in range(3):
        assert forged(executor, unit, good, **how).value == HOSTS[:1]
    wait_until(lambda: executor.state().replaced.get("misled", 0), suits=lambda n: n >= 2)
    assert still_works(executor, unit_named)


FORGES_BOTH = """
import os, struct, subprocess, sys, time

def forge(kind, payload=b""):
    frame = sys._getframe()
    while "nonce" not in frame.f_locals:
        frame = frame.f_back
    os.write(3, struct.pack("!cQQ", kind, frame.f_locals["nonce"], len(payload)) + payload)

def do_filter(hosts, vm, properties):
    if "marker" in properties:
        subprocess.Popen(["sleep", properties["marker"]])
        forge(b"a", properties["answer"].encode())
        forge(b"r")
        time.sleep(3600)
    return hosts
"""


def test_who_forges_an_answer_and_that_it_is_ready_is_ended_without_another_call(
    own, unit_of, marker
):
    """With all that the call left: who said READY is asked once more."""
    unit = unit_of(FORGES_BOTH)
    good = answer(value=[[0], 0, []])
    assert forged(own, unit, good, marker=marker).value == HOSTS[:1]
    wait_until(lambda: not processes_with(marker))
    wait_until(lambda: own.state().replaced == {"not ready": 1})
    assert only(own.run(job_of([unit]))).value == HOSTS


def test_who_forges_that_it_has_loaded_is_not_called(own_with, unit_of, tmp_path):
    """A file that hangs only in the process of its calls, where it says READY in its stead."""
    own = own_with(load=1.0)
    loaded = tmp_path / "loaded"
    unit = unit_of(
        "import os, struct, sys, time\n"
        f"if os.path.exists({str(loaded)!r}):\n"
        "    frame = sys._getframe()\n"
        "    while 'nonce' not in frame.f_locals:\n"
        "        frame = frame.f_back\n"
        "    os.write(3, struct.pack('!cQQ', b'r', frame.f_locals['nonce'], 0))\n"
        f"    os.remove({str(loaded)!r})\n"
        "    time.sleep(3600)\n"
        "def do_filter(hosts, vm, properties):\n    return hosts\n"
    )
    loaded.touch()
    own.prewarm([(unit.plugin, unit.limits)])
    wait_until(lambda: own.state().replaced == {"not ready": 1})
    assert only(own.run(job_of([unit]))).value == HOSTS


def test_a_frame_without_end_is_a_failure_before_it_fills_memory(executor, unit_named):
    """Its length is looked at first: an answer on three hosts has no 4 EiB."""
    result = only(executor.run(job_of([unit_named("floods_its_answer")])))
    assert result.outcome is CallOutcome.BAD_ANSWER
    assert "a frame of 4611686018427387904 bytes; at most " in result.message


@pytest.mark.parametrize("length", [0, 100_000])
def test_a_frame_of_its_own_between_answers_ends_its_process(unit_of, length):
    """READY for another call, or what is as long as an answer may be: neither is awaited there."""
    unit = unit_of(
        "import os, struct\n"
        "class Last:\n"
        "    def __del__(self):\n"
        f"        os.write(3, struct.pack('!cQQ', b'r', 0, {length}))\n"
        "def do_filter(hosts, vm, properties):\n"
        "    global KEPT\n"
        "    KEPT = Last()\n"
        "    KEPT.itself = KEPT\n"
        "    return hosts\n"
    )
    with running(parallel=4, max_waiting=64) as own:
        assert only(own.run(job_of([unit]))).value == HOSTS
        wait_until(lambda: own.state().replaced)
        assert {*own.state().replaced} == {"misled"}


def test_rubbish_on_every_descriptor_is_a_failure_of_that_call_alone(executor, unit_named):
    """A plugin that finds the daemon's socket can spoil only its own answer."""
    bad, good = executor.run(
        job_of([unit_named("writes_to_descriptors"), unit_named("keeps_all")])
    ).results
    assert bad.outcome is CallOutcome.BAD_ANSWER
    assert bad.message.startswith("its answer cannot be read")
    assert good.value == HOSTS


@pytest.mark.parametrize(
    ("hosts", "packs"), [(HOSTS, []), (Document(b"<hosts><host id='a'/></hosts>"), ["/memfd"])]
)
def test_what_a_plugins_process_has_open(executor, unit_named, hosts, packs):
    """Its output, the daemon's socket, its own status, timers and limits, the packs of its entities."""
    result = only(executor.run(job_of([unit_named("tells_its_descriptors")], hosts=hosts)))
    targets = [line.split()[1] for line in result.stdout.splitlines()]
    assert targets == ["/dev/null", "pipe", "pipe", "socket", *["/proc"] * 3, *packs]
